// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops under which reports of the kernel test robot are known, written from
 * their description: creating and removing a file, looking a descriptor up
 * in a process of two threads, writing one byte, moving a page into a pipe.
 */
#include "kdelta.h"
#include <sys/uio.h>

enum { CALL };							/* phases */
enum { CREAT_UNLINK, LSEEK, LSEEK_THREADS, WRITE, VMSPLICE, VM_SPLICE };	/* flags */

static const struct kd_scenario scenarios[] = {
	{ "creat_unlink_tmpfs", "a file created on tmpfs, closed and removed", 0, CREAT_UNLINK, 64 },
	{ "lseek", "lseek() to where one is, in a process of one thread", 0, LSEEK, 256 },
	{ "lseek_threads", "lseek() to where one is, in a process of two threads", 0,
	  LSEEK_THREADS, 256 },
	{ "write_1_byte", "lseek() to the beginning and write() of one byte, cached, on tmpfs", 0,
	  WRITE, 256 },
	{ "vmsplice", "vmsplice() of a page into a pipe, and read() of it", 0, VMSPLICE, 64 },
	{ "vm_splice", "vmsplice() of a page into a pipe, splice() of it to /dev/null, write() and"
	  " vmsplice() of a page out of it", 0, VM_SPLICE, 62 },
};

static int file;
static int nowhere;
static int ends[2];
static char *page, *out;
static char path[80];

static noinline void creat_unlink(unsigned int calls)
{
	for (; calls; calls--) {
		int fd = creat(path, 0600);

		if (fd < 0 || close(fd) || unlink(path))
			kd_die("a file on tmpfs");
	}
}

static noinline void seek(unsigned int calls)
{
	for (; calls; calls--)
		if (lseek(file, 0, SEEK_CUR) < 0)
			kd_die("lseek");
}

static noinline void write_byte(unsigned int calls)
{
	for (; calls; calls--)
		if (lseek(file, 0, SEEK_SET) || write(file, "", 1) != 1)
			kd_die("write");
}

static noinline void splice_page(unsigned int calls)
{
	struct iovec vector = { page, KD_PAGE };

	for (; calls; calls--)
		if (vmsplice(ends[1], &vector, 1, 0) != (ssize_t)KD_PAGE ||
		    read(ends[0], out, KD_PAGE) != (ssize_t)KD_PAGE)
			kd_die("vmsplice");
}

/* In, on to nowhere, and out again into the same page. */
static noinline void splice_both_ways(unsigned int calls)
{
	struct iovec vector = { page, KD_PAGE };

	for (; calls; calls--) {
		kd_must(vmsplice(ends[1], &vector, 1, 0) == (ssize_t)KD_PAGE);
		kd_must(splice(ends[0], NULL, nowhere, NULL, KD_PAGE, SPLICE_F_MOVE) ==
			(ssize_t)KD_PAGE);
		kd_must(write(ends[1], out, KD_PAGE) == (ssize_t)KD_PAGE);
		kd_must(vmsplice(ends[0], &vector, 1, 0) == (ssize_t)KD_PAGE);
	}
}

static void set_up_splice(void)
{
	if (pipe2(ends, O_CLOEXEC))
		kd_die("pipe");
	page = kd_map(KD_PAGE, KD_RW, MAP_PRIVATE);
	out = kd_map(KD_PAGE, KD_RW, MAP_PRIVATE);
	kd_touch(page, 1, KD_PAGE);
	kd_touch(out, 1, KD_PAGE);
	nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (nowhere < 0)
		kd_skip("there is no /dev/null: %s", strerror(errno));
}

static void set_up_file(void)
{
	file = kd_memfd();
	if (write(file, "", 1) != 1)
		kd_die("write");
}

/* As a path from the root, the way that aim9 names its files. */
static void set_up_path(void)
{
	kd_enter_tmpfs();
	snprintf(path, sizeof(path), "%s/file", kd_folder);
}

static void set_up(const struct kd_scenario *s)
{
	if (s->flags == CREAT_UNLINK)
		set_up_path();
	else if (s->flags == VMSPLICE || s->flags == VM_SPLICE)
		set_up_splice();
	else
		set_up_file();
	if (s->flags == LSEEK_THREADS)
		kd_start_another();
}

int main(int argc, char **argv)
{
	static void (*const calls[])(unsigned int calls) = {
		[CREAT_UNLINK] = creat_unlink,	[LSEEK] = seek,	[LSEEK_THREADS] = seek,
		[WRITE] = write_byte,		[VMSPLICE] = splice_page,
		[VM_SPLICE] = splice_both_ways,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "loops", scenarios,
					       ARRAY_SIZE(scenarios));
	long threads = s->flags == LSEEK_THREADS ? 2 : 1;

	kd_phase(CALL, "call", "call", s->calls);
	set_up(s);
	kd_alone(4);
	kd_audit_task(KD_BEFORE, threads);
	while (kd_next())
		KD_WINDOW(CALL, calls[s->flags](s->calls));
	kd_audit_task(KD_AFTER, threads);
	return kd_finish();
}
