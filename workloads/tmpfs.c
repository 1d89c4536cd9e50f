// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What do read() and write() of a file in memory cost a call, with pages that
 * are there and with pages that are new, and what does it cost to drop them?
 */
#include "kdelta.h"
#include <sys/stat.h>

enum { WRITE, READ, TRUNCATE };				/* phases */
enum { NEW = 1, READS = 2, CUT = 4, HOLES = 8, THP = 16 };	/* scenario flags */

#define CALLS KD_PAGES(KD_BATCHES)	/* one a page */

/* `bytes` of the file are there, `calls` are made, over as much or as little as they cover. */
static const struct kd_scenario scenarios[] = {
	{ "write_new", "write() of 4 KiB a call to an empty file", KD_BATCHES, NEW, CALLS },
	{ "overwrite", "pwrite() of 64 bytes a call to pages that are there",
	  KD_BATCHES, 0, CALLS },
	{ "read", "pread() of 64 bytes a call from pages that are there",
	  KD_BATCHES, READS, CALLS },
	{ "read_hole", "pread() of 64 bytes a call from a hole", KD_BATCHES,
	  READS | HOLES, CALLS },
	{ "read_thp", "pread() of 64 KiB a call from huge pages", KD_MIB(4), READS | THP, 64 },
	{ "truncate", "ftruncate() to nothing of a file with pages", KD_BATCHES, CUT, CALLS },
};

static char buffer[16 * KD_PAGE];

static noinline void write_new(int fd, unsigned int calls)
{
	for (; calls; calls--)
		if (write(fd, buffer, KD_PAGE) != KD_PAGE)
			kd_die("write");
}

static noinline void overwrite(int fd, unsigned int calls)
{
	for (off_t at = 0; calls; calls--, at += KD_PAGE)
		if (pwrite(fd, buffer, 64, at) != 64)
			kd_die("pwrite");
}

static noinline void read_pages(int fd, unsigned int calls)
{
	for (off_t at = 0; calls; calls--, at += KD_PAGE)
		if (pread(fd, buffer, 64, at) != 64)
			kd_die("pread");
}

static noinline void read_large(int fd, unsigned int calls)
{
	for (off_t at = 0; calls; calls--, at += sizeof(buffer))
		if (pread(fd, buffer, sizeof(buffer), at) != sizeof(buffer))
			kd_die("pread");
}

static noinline void set_size(int fd, size_t bytes)
{
	if (ftruncate(fd, bytes))
		kd_die("ftruncate");
}

/* Its pages become huge, in a mapping that exists only here. */
static void make_huge(int fd, size_t bytes)
{
	char *start = kd_reserve(bytes, KD_HUGE);

	kd_map_at(start, bytes, KD_RW, MAP_SHARED, fd);
	kd_touch(start, KD_PAGES(bytes), KD_PAGE);
	if (madvise(start, bytes, MADV_COLLAPSE))
		kd_skip("the kernel makes no huge pages of tmpfs: %s", strerror(errno));
	if (munmap(start, bytes))
		kd_die("munmap");
}

/* The file as all windows but those of write_new find it. */
static void fill(const struct kd_scenario *s, int fd)
{
	set_size(fd, 0);
	if (lseek(fd, 0, SEEK_SET))
		kd_die("lseek");
	if (s->flags & HOLES)
		set_size(fd, s->bytes);
	else
		write_new(fd, KD_PAGES(s->bytes));
	if (s->flags & THP)
		make_huge(fd, s->bytes);
}

static long file_pages(int fd)
{
	struct stat file;

	if (fstat(fd, &file))
		kd_die("fstat");
	return file.st_blocks / (KD_PAGE / 512);
}

/*
 * Whoever asks a file for its times makes the kernel take a finer clock for the next change (since
 * Linux 6.13): let that change be here.  Until the next tick every change of any file is then
 * stamped with that finer time, by 21 instructions more: let the tick come, too.
 */
static void stamp(const struct kd_scenario *s, int fd)
{
	if (s->flags & NEW) {
		set_size(fd, 0);
		if (lseek(fd, 0, SEEK_SET))
			kd_die("lseek");
	} else if (pwrite(fd, buffer, s->flags & HOLES ? 0 : 64, 0) < 0) {
		kd_die("pwrite");
	}
	kd_sleep_us(20000);
}

/*
 * The pages of the file, seen through a mapping that exists only here, where no huge page can be
 * mapped as a whole.
 */
static void audit(enum kd_when when, const struct kd_scenario *s, int fd)
{
	long pages = s->flags & HOLES ? 0 : KD_PAGES(s->bytes), huge = s->flags & THP ? 2 : 0;
	char *start = kd_reserve(s->bytes + KD_HUGE, KD_HUGE) + KD_PAGE;
	const struct kd_want want[] = {
		{ "present_pages", pages ? pages : KD_FREE },
		{ "swapped_pages", 0 },
		{ "anon_pages", pages ? 0 : KD_FREE },
		{ "compound_heads", pages ? huge : KD_FREE },
		{ "compound_tails", huge ? pages - huge : pages ? 0 : KD_FREE },
		{ "shmem_pmd_kb", 0 },
		{ "vmas", 1 },
		{ "pswpout", 0 },
	};

	kd_map_at(start, s->bytes, PROT_READ, MAP_SHARED, fd);
	for (long page = 0; page < pages; page++)
		(void)*(volatile char *)(start + page * KD_PAGE);
	kd_state(when, "file_pages", file_pages(fd), pages);
	kd_audit_state(when, start, s->bytes, want, ARRAY_SIZE(want));
	if (munmap(start, s->bytes))
		kd_die("munmap");
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "tmpfs", scenarios,
					       ARRAY_SIZE(scenarios));
	long before = KD_FREE, after = KD_FREE;
	int fd = kd_memfd();

	if (fcntl(fd, F_SETFL, O_NOATIME))	/* the time of access changes with each tick */
		kd_die("fcntl(O_NOATIME)");
	kd_alone(4);
	if (s->flags & READS)
		kd_phase(READ, "read", "call", s->calls);
	else if (s->flags & CUT)
		kd_phase(TRUNCATE, "truncate", "page", s->calls);
	else
		kd_phase(WRITE, "write", "call", s->calls);
	fill(s, fd);
	audit(KD_BEFORE, s, fd);

	while (kd_next()) {
		if (!(s->flags & THP))
			fill(s, fd);
		if (s->flags & NEW)
			set_size(fd, 0);
		kd_all(&before, file_pages(fd));
		stamp(s, fd);
		if (s->flags & THP)
			KD_WINDOW(READ, read_large(fd, s->calls));
		else if (s->flags & READS)
			KD_WINDOW(READ, read_pages(fd, s->calls));
		else if (s->flags & CUT)
			KD_WINDOW(TRUNCATE, set_size(fd, 0));
		else if (s->flags & NEW)
			KD_WINDOW(WRITE, write_new(fd, s->calls));
		else
			KD_WINDOW(WRITE, overwrite(fd, s->calls));
		kd_all(&after, file_pages(fd));
	}

	kd_state(KD_DURING, "window_pages_before", before,
		 s->flags & (NEW | HOLES) ? 0 : KD_PAGES(s->bytes));
	kd_state(KD_DURING, "window_pages_after", after,
		 s->flags & (CUT | HOLES) ? 0 : KD_PAGES(s->bytes));
	if (!(s->flags & THP))
		fill(s, fd);
	audit(KD_AFTER, s, fd);
	return kd_finish();
}
