// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What do mlock() and munlock() pay per page, when the pages are resident and
 * when mlock() has to bring them?
 */
#include "kdelta.h"
#include <sys/syscall.h>

enum { LOCK, UNLOCK };					/* phases */
enum { THP = 1, EMPTY = 2 };				/* scenario flags */

/* 465 pages are whole batches of the LRU lists, of 15 and of 31 pages. */
static const struct kd_scenario scenarios[] = {
	{ "mlock", "resident private anonymous base pages", 465 * KD_PAGE, 0, 1 },
	{ "mlock_thp", "resident private anonymous huge pages", KD_MIB(16), THP, 1 },
	{ "mlock_empty", "private anonymous memory without pages: mlock() faults them in",
	  465 * KD_PAGE, EMPTY, 1 },
};

/* By number: the run-time library of sanitizers leaves mlock() without effect. */
static noinline void lock(char *start, size_t bytes)
{
	if (!syscall(SYS_mlock, start, bytes))
		return;
	if (errno == ENOMEM || errno == EPERM)
		kd_skip("RLIMIT_MEMLOCK is too small for %zu bytes", bytes);
	kd_die("mlock");
}

static noinline void unlock(char *start, size_t bytes)
{
	if (syscall(SYS_munlock, start, bytes))
		kd_die("munlock");
}

static long locked_kb(const char *start, size_t bytes)
{
	char *smaps = kd_read_file("/proc/self/smaps");
	long kb = kd_mappings(smaps, start, start + bytes, KD_SUM, "Locked:", NULL);

	free(smaps);
	return kb;
}

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start)
{
	bool thp = s->flags & THP;
	long pages = KD_PAGES(s->bytes), folios = thp ? s->bytes / KD_HUGE : 0;
	const struct kd_want want[] = {
		{ "present_pages", pages },
		{ "swapped_pages", 0 },
		{ "anon_pages", pages },
		{ "zero_pages", 0 },
		{ "mergeable_vmas", 0 },
		{ "thp_pages", thp ? pages : 0 },
		{ "compound_heads", folios },
		{ "compound_tails", folios ? pages - folios : 0 },
		{ "anon_huge_kb", thp ? s->bytes / 1024 : 0 },
		{ "kernel_page_kb", 4 },
		{ "vmas", 1 },
	};

	kd_state(when, "locked_kb", locked_kb(start, s->bytes), 0);
	kd_audit_state(when, start, s->bytes, want, ARRAY_SIZE(want));
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "lock", scenarios,
					       ARRAY_SIZE(scenarios));
	long locked = KD_FREE, left = KD_FREE;
	char *start;

	kd_alone(4);
	start = kd_map(s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	kd_phase(LOCK, "lock", "page", KD_PAGES(s->bytes));
	kd_phase(UNLOCK, "unlock", "page", KD_PAGES(s->bytes));
	if (s->flags & THP)
		kd_fault_thp(start, s->bytes);
	else
		kd_no_thp(start, s->bytes);
	kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
	audit(KD_BEFORE, s, start);

	while (kd_next()) {
		if (s->flags & EMPTY && madvise(start, s->bytes, MADV_DONTNEED))
			kd_die("madvise(MADV_DONTNEED)");
		KD_WINDOW(LOCK, lock(start, s->bytes));
		kd_all(&locked, locked_kb(start, s->bytes));
		KD_WINDOW(UNLOCK, unlock(start, s->bytes));
		kd_all(&left, locked_kb(start, s->bytes));
	}

	kd_state(KD_DURING, "window_kb_locked", locked, s->bytes / 1024);
	kd_state(KD_DURING, "window_kb_unlocked", left, 0);
	audit(KD_AFTER, s, start);
	return kd_finish();
}
