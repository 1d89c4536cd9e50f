// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What do tasks on several CPUs hand to each other when each does the same,
 * one after the other?  Loops of robots and suites at many tasks.
 */
#include "kdelta.h"

enum {							/* calls */
	PAGE_FAULT1, PAGE_FAULT3, MAP, LSEEK, LSEEK_OWN, PREAD, OPEN, OPEN_OWN, DUP, BRK,
};

enum { CALL = 255, PROCESSES = 1 << 8 };		/* scenario flags */

#define TWO	KD_TURNS(2)
#define MOST	8

static const struct kd_scenario scenarios[] = {
	{ "page_fault1", "threads map a page each, write to it and unmap it",
	  0, PAGE_FAULT1 | TWO, 1 },
	{ "page_fault1_4", "the same of four threads", 0, PAGE_FAULT1 | KD_TURNS(4), 1 },
	{ "page_fault1_processes", "the same of two processes",
	  0, PAGE_FAULT1 | PROCESSES | TWO, 1 },
	{ "page_fault3_processes", "processes map a page of one file shared, write to it and unmap it",
	  0, PAGE_FAULT3 | PROCESSES | TWO, 1 },
	{ "mmap1", "threads map and unmap a page, untouched", 0, MAP | TWO, 1 },
	{ "mmap1_processes", "the same of two processes", 0, MAP | PROCESSES | TWO, 1 },
	{ "lseek_one_file", "threads seek in one open file", 0, LSEEK | TWO, 1 },
	{ "lseek_own_files", "threads seek each in a file of its own", 0, LSEEK_OWN | TWO, 1 },
	{ "pread_processes", "processes read a byte of one file, each opened for itself",
	  0, PREAD | PROCESSES | TWO, 1 },
	{ "open_one_file", "processes open and close one file", 0, OPEN | PROCESSES | TWO, 1 },
	{ "open_own_files", "processes open and close each a file of its own in one folder",
	  0, OPEN_OWN | PROCESSES | TWO, 1 },
	{ "dup", "threads duplicate a descriptor and close it", 0, DUP | TWO, 1 },
	{ "brk1_processes", "processes grow their heap by a page and shrink it",
	  0, BRK | PROCESSES | TWO, 1 },
};

static int one_file;
static int files[MOST];
static char names[MOST][8];

static void write_and_unmap(int fd, int flags)
{
	char *page = mmap(NULL, KD_PAGE, KD_RW, flags, fd, 0);

	kd_must(page != MAP_FAILED);
	*(volatile char *)page = 1;
	kd_must(!munmap(page, KD_PAGE));
}

static void page_fault1(void)
{
	write_and_unmap(-1, MAP_PRIVATE | MAP_ANONYMOUS);
}

static void page_fault3(void)
{
	write_and_unmap(one_file, MAP_SHARED);
}

static void map(void)
{
	char *page = mmap(NULL, KD_PAGE, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	kd_must(page != MAP_FAILED);
	kd_must(!munmap(page, KD_PAGE));
}

static void seek(void)
{
	kd_must(!lseek(one_file, 0, SEEK_SET));
}

static void seek_own(void)
{
	kd_must(!lseek(files[kd_task], 0, SEEK_SET));
}

static void read_byte(void)
{
	char byte;

	kd_must(pread(files[kd_task], &byte, 1, 0) == 1);
}

static void open_and_close(const char *name)
{
	int fd = open(name, O_RDONLY);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void open_one(void)
{
	open_and_close(names[0]);
}

static void open_own(void)
{
	open_and_close(names[kd_task]);
}

static void duplicate(void)
{
	int fd = dup(one_file);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void grow_and_shrink(void)
{
	char *end = sbrk(KD_PAGE);

	kd_must(end != (void *)-1 && !brk(end));
}

static void set_up(const struct kd_scenario *s)
{
	kd_enter_tmpfs();
	for (unsigned int task = 0; task < kd_turns(); task++) {
		/* Of the same file, where each reads what the others do. */
		snprintf(names[task], sizeof(names[task]), "file%u",
			 (s->flags & CALL) == PREAD ? 0 : task);
		files[task] = open(names[task], O_RDWR | O_CREAT, 0600);
		kd_must(files[task] >= 0);
		kd_must(!ftruncate(files[task], KD_PAGE));
	}
	kd_must(pwrite(files[0], "x", 1, 0) == 1);
	one_file = files[0];
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[PAGE_FAULT1] = page_fault1, [PAGE_FAULT3] = page_fault3, [MAP] = map,
		[LSEEK] = seek, [LSEEK_OWN] = seek_own, [PREAD] = read_byte, [OPEN] = open_one,
		[OPEN_OWN] = open_own, [DUP] = duplicate, [BRK] = grow_and_shrink,
	};
	const struct kd_scenario *s;

	kd_fixed_layout(argv);
	s = kd_start(argc, argv, "turns", scenarios, ARRAY_SIZE(scenarios));
	set_up(s);
	return kd_loop_in_turns(once[s->flags & CALL], s->flags & PROCESSES);
}
