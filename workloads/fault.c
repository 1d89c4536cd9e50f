// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does the first access to a page cost, for each kind of memory that a
 * program commonly has: anonymous, huge, shared, of a file?
 */
#include "kdelta.h"

enum { FAULT };						/* phases */
enum {							/* scenario flags */
	READ = 1,		/* the access: reads */
	POPULATE = 2,		/* the access: MADV_POPULATE_WRITE */
	ZERO = 4,		/* before each window: the zero page is mapped */
	THP = 8,
	MTHP = 16,
	SHARED = 32,
	MEMFD = 64,		/* a file of tmpfs, in memory */
	FRESH = 128,		/* before each window: the file has no pages */
};

static const struct kd_scenario scenarios[] = {
	{ "anon", "first write to private anonymous base pages", KD_BATCHES, 0, 1 },
	{ "anon_read", "first read of private anonymous base pages: the zero page",
	  KD_BATCHES, READ, 1 },
	{ "anon_zero_cow", "first write where the zero page is mapped", KD_BATCHES, ZERO, 1 },
	{ "anon_populate", "MADV_POPULATE_WRITE of private anonymous base pages",
	  KD_BATCHES, POPULATE, 1 },
	{ "anon_64k", "first write to private anonymous memory in folios of 64 KiB",
	  30 * KD_64K, MTHP, 1 },
	{ "thp", "first write to private anonymous huge pages", KD_MIB(4), THP, 1 },
	{ "shmem", "first write to shared anonymous memory that has no pages yet",
	  KD_BATCHES, SHARED | FRESH, 1 },
	{ "shmem_map", "first write to shared anonymous memory that has its pages",
	  KD_BATCHES, SHARED, 1 },
	{ "file_read", "first read of a file's pages, mapped privately",
	  KD_MIB(4), MEMFD | READ, 1 },
	{ "file_write", "first write to a file's pages, mapped shared",
	  KD_MIB(4), MEMFD | SHARED, 1 },
	{ "file_cow", "first write to a file's pages, mapped privately: they are copied",
	  KD_BATCHES, MEMFD, 1 },
};

static noinline void look(const char *start, size_t n)
{
	const volatile char *page = start;

	for (; n; n--, page += KD_PAGE)
		(void)*page;
}

static noinline void populate(char *start, size_t bytes)
{
	if (madvise(start, bytes, MADV_POPULATE_WRITE))
		kd_die("madvise(MADV_POPULATE_WRITE)");
}

static void fault(const struct kd_scenario *s, char *start)
{
	if (s->flags & READ)
		look(start, KD_PAGES(s->bytes));
	else if (s->flags & POPULATE)
		populate(start, s->bytes);
	else
		kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
}

/* The memory as it is before the first access. */
static void empty(const struct kd_scenario *s, char *start)
{
	if (madvise(start, s->bytes, s->flags & FRESH ? MADV_REMOVE : MADV_DONTNEED))
		kd_die("madvise");
	if (s->flags & ZERO)
		look(start, KD_PAGES(s->bytes));
}

static void map_memfd(char *start, size_t bytes, int flags)
{
	char page[KD_PAGE];
	int fd = kd_memfd();

	memset(page, 1, sizeof(page));
	for (size_t i = 0; i < KD_PAGES(bytes); i++)
		if (write(fd, page, sizeof(page)) != sizeof(page))
			kd_die("write");
	kd_map_at(start, bytes, KD_RW, flags, fd);
	close(fd);
}

static char *map(const struct kd_scenario *s)
{
	int flags = s->flags & SHARED ? MAP_SHARED : MAP_PRIVATE;
	char *start;

	if (s->flags & MTHP)
		return kd_map_64k(s->bytes);
	start = kd_map(s->bytes, KD_RW, flags);
	if (s->flags & MEMFD)
		map_memfd(start, s->bytes, flags);
	if (s->flags & THP)
		kd_fault_thp(start, s->bytes);
	else
		kd_no_thp(start, s->bytes);
	return start;
}

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start)
{
	bool thp = s->flags & THP, mthp = s->flags & MTHP, memfd = s->flags & MEMFD;
	bool read = s->flags & READ, shared = s->flags & SHARED;
	long pages = KD_PAGES(s->bytes);
	const struct kd_want want[] = {
		{ "anon_pages", shared || read ? 0 : pages },
		{ "zero_pages", read && !memfd ? pages : 0 },
		{ "shmem_pmd_kb", 0 },
		{ "shared_vmas", shared },
	};

	kd_audit_anon(when, start, s->bytes, thp ? KD_HUGE : mthp ? KD_64K : KD_PAGE, want,
		      ARRAY_SIZE(want));
}

/* Faults that a window takes: fewer than pages where one fault maps several. */
static long expected(const struct kd_scenario *s)
{
	if (s->flags & THP)
		return s->bytes / KD_HUGE;
	if (s->flags & MTHP)
		return s->bytes / KD_64K;
	if (s->flags & MEMFD && (s->flags & (READ | SHARED)))
		return KD_FREE;
	return KD_PAGES(s->bytes);
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "fault", scenarios,
					       ARRAY_SIZE(scenarios));
	long faults = KD_FREE, left = KD_FREE, present = KD_FREE, before;
	char *start;

	kd_alone(4);
	start = map(s);

	kd_phase(FAULT, "fault", "page", KD_PAGES(s->bytes));
	empty(s, start);
	fault(s, start);
	audit(KD_BEFORE, s, start);

	while (kd_next()) {
		empty(s, start);
		kd_all(&left, kd_present(start, s->bytes));
		before = kd_minor_faults();
		KD_WINDOW(FAULT, fault(s, start));
		if (!kd_warming_up())
			kd_all(&faults, kd_minor_faults() - before);
		kd_all(&present, kd_present(start, s->bytes));
	}

	kd_state(KD_DURING, "window_present_before", left,
		 s->flags & ZERO ? (long)KD_PAGES(s->bytes) : 0);
	kd_state(KD_DURING, "window_present_after", present, KD_PAGES(s->bytes));
	kd_state(KD_DURING, "window_faults", faults, expected(s));
	audit(KD_AFTER, s, start);
	return kd_finish();
}
