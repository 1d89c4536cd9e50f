// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does madvise(MADV_PAGEOUT) pay per page of anonymous memory, what has become of the pages
 * then, and what does the next write to each of them pay?
 *
 * The name of the call promises that pages leave; whether they do depends on swap, and what one
 * of them is depends on huge pages.  So every window starts from memory that was faulted in anew,
 * and after every call the program looks where the pages are.
 */
#include "kdelta.h"

#include <sys/file.h>

#define KHUGEPAGED KD_THP "khugepaged/"

enum { ADVISE, TOUCH };						/* phases */
enum { DEFAULT, HUGE, SMALL, MODES = 3, REMAP = 4, ZRAM = 8, DISK = 16 };	/* scenario flags */

#define MAX_PAGES KD_PAGES(KD_MIB(16))

#define SCENARIOS(mib, suffix, where, swap)						\
	{ "pageout_anon_" #mib "m_default" suffix,					\
	  #mib " MiB, THP as the system has it, " where, KD_MIB(mib), DEFAULT | (swap), 1 }, \
	{ "pageout_anon_" #mib "m_hugepage" suffix,					\
	  #mib " MiB, MADV_HUGEPAGE, " where, KD_MIB(mib), HUGE | (swap), 1 },		\
	{ "pageout_anon_" #mib "m_hugepage_remapped" suffix,				\
	  #mib " MiB, MADV_HUGEPAGE, mapped anew for each window, " where,		\
	  KD_MIB(mib), HUGE | REMAP | (swap), 1 },					\
	{ "pageout_anon_" #mib "m_nohugepage" suffix,					\
	  #mib " MiB, MADV_NOHUGEPAGE, " where, KD_MIB(mib), SMALL | (swap), 1 }

static const struct kd_scenario scenarios[] = {
	SCENARIOS(16, "", "no swap", 0),
	SCENARIOS(4, "_zram", "swap on zram", ZRAM),
	SCENARIOS(4, "_disk", "swap on a disk", DISK),
};

/*
 * What a call found, and where the pages are between it and the next touch: the same in all
 * windows, or KD_MIXED.
 */
static struct seen {
	unsigned int windows;
	long faulted_huge_kb;
	long present;
	long swapped;
	long reclaimed;		/* swapped, and their memory is free again */
	long anon_huge_kb;
} seen;
static double reclaimed;	/* pages in all windows */

static noinline void advise(char *start, size_t bytes)
{
	if (madvise(start, bytes, MADV_PAGEOUT))
		kd_die("madvise(MADV_PAGEOUT)");
}

/* Whether and where huge pages may be is a property of the mapping. */
static void choose_pages(char *start, const struct kd_scenario *s)
{
	if ((s->flags & MODES) == SMALL)
		kd_no_thp(start, s->bytes);
	if ((s->flags & MODES) == HUGE && madvise(start, s->bytes, MADV_HUGEPAGE))
		kd_skip("madvise(MADV_HUGEPAGE): %s", strerror(errno));
}

/*
 * Drop what the last window left and fault all in again, so that every call finds the same memory.
 * MADV_DONTNEED may leave page tables in which no huge page fits any more; a new mapping has none.
 */
static void renew(char *start, const struct kd_scenario *s)
{
	if (s->flags & REMAP) {
		kd_map_at(start, s->bytes, KD_RW, MAP_PRIVATE, -1);
		choose_pages(start, s);
	} else {
		kd_drop(start, s->bytes);
	}
	if (kd_folio())
		kd_fault_folios(start, s->bytes);
	else
		kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
}

/* ------------------------------------------------------------ machine --- */

/* Swap is the machine's: it must have what the scenario asks for, and nothing besides. */
static void demand_swap(unsigned int flags, size_t bytes)
{
	char *swaps = kd_read_file("/proc/swaps"), *meminfo = kd_read_file("/proc/meminfo");
	char *first = swaps ? strchr(swaps, '\n') : NULL;
	bool any = first && first[1], one = any && strchr(first + 1, '\n') == strrchr(first, '\n');
	bool zram = any && !strncmp(first + 1, "/dev/zram", 9);

	if (!meminfo)
		kd_skip("/proc/meminfo cannot be read");
	if (any && !(flags & (ZRAM | DISK)))
		kd_skip("the scenario needs a machine without swap: swapoff -a");
	if (flags & ZRAM && !(one && zram))
		kd_skip("the scenario needs swap on one zram device and on nothing else");
	if (flags & DISK && !(one && !zram))
		kd_skip("the scenario needs swap on one disk or file and on nothing else");
	if (any && kd_keyed(meminfo, "SwapFree") < (long)(2 * bytes / 1024))
		kd_skip("the scenario needs %zu MiB of free swap", 2 * bytes >> 20);
	free(meminfo);
	free(swaps);
}

/*
 * Two kernel threads handle pages of their own choice meanwhile: khugepaged makes huge pages of
 * some that a call has split, and DAMON's statistics hold some for a moment, which are not split
 * then.  Only root can calm them; the facts of the windows say when they interfered.
 */
static struct knob {
	const char *path;
	const char *calm;
	char *found;		/* NULL: not changed */
} knobs[] = {
	{ KHUGEPAGED "scan_sleep_millisecs", "1000000000", NULL },
	{ "/sys/module/damon_stat/parameters/enabled", "N", NULL },
};

static void restore(void)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(knobs); i++)
		if (knobs[i].found)
			kd_write_file(knobs[i].path, knobs[i].found);
}

static void calm(void)
{
	int first = open(knobs[0].path, O_RDWR | O_CLOEXEC);

	if (first < 0 || flock(first, LOCK_EX | LOCK_NB))
		return;		/* none, or not ours */
	kd_at_end(restore);
	for (unsigned int i = 0; i < ARRAY_SIZE(knobs); i++) {
		if (access(knobs[i].path, W_OK))
			continue;
		knobs[i].found = kd_read_file(knobs[i].path);
		if (!kd_write_file(knobs[i].path, knobs[i].calm))
			kd_note("%s cannot be set: %s", knobs[i].path, strerror(errno));
	}
}

/* The first huge page of a program makes it known to khugepaged, and that may start a last pass. */
static void wait_for_khugepaged(void)
{
	long scans = kd_file_number(KHUGEPAGED "full_scans");

	for (unsigned int tries = 0; knobs[0].found && tries < 20; tries++) {
		kd_sleep_us(10000);
		if (kd_file_number(KHUGEPAGED "full_scans") != scans)
			return;
	}
}

/* What is on its way to the disk arrives, or two seconds pass. */
static void wait_for_writeback(void)
{
	for (unsigned int tries = 0; tries < 1000; tries++) {
		char *meminfo = kd_read_file("/proc/meminfo");
		long kb = kd_keyed(meminfo, "Writeback");

		free(meminfo);
		if (kb <= 0)
			return;
		kd_sleep_us(2000);
	}
}

/* ------------------------------------------------------------- looking --- */

/* The page frames of memory that is all present, ascending; false where they are not shown. */
static bool frames_of(const char *start, uint64_t *frames, size_t pages)
{
	if (!kd_read_words("/proc/self/pagemap", frames, pages, KD_PAGES((uintptr_t)start)))
		return false;
	for (size_t i = 0; i < pages; i++)
		frames[i] = frames[i] & KD_PM_PRESENT ? frames[i] & KD_PM_PFN : 0;
	qsort(frames, pages, sizeof(*frames), kd_compare);
	return frames[0];
}

static void merge(long *all, long value)
{
	*all = !seen.windows || *all == value ? value : KD_MIXED;
}

/*
 * See where the pages are that were in these frames before the call.  known: the frames are;
 * found: the state before the call.
 */
static void look(const char *start, size_t bytes, const uint64_t *frames, bool known,
		 const struct kd_audit *found)
{
	struct kd_audit now = kd_audit(start, bytes), then;
	long back = KD_UNKNOWN;

	memset(&then, 0xff, sizeof(then));
	if (known)
		kd_audit_frames(&then, frames, KD_PAGES(bytes));
	if (now.swapped != KD_UNKNOWN && then.kpf[KPF_SWAPCACHE] != KD_UNKNOWN)
		back = now.swapped - then.kpf[KPF_SWAPCACHE];
	merge(&seen.faulted_huge_kb, found->anon_huge_kb);
	merge(&seen.present, now.present);
	merge(&seen.swapped, now.swapped);
	merge(&seen.anon_huge_kb, now.anon_huge_kb);
	merge(&seen.reclaimed, back);
	reclaimed += back;
	seen.windows++;
}

/* --------------------------------------------------------------- audit --- */

static void audit(enum kd_when when, const struct kd_scenario *s, char *start)
{
	bool small = (s->flags & MODES) == SMALL, swap = s->flags & (ZRAM | DISK);
	long huge = small ? 0 : KD_SAME;	/* what THP gives is up to kernel and system */
	long pages = KD_PAGES(s->bytes);
	const struct kd_want want[] = {
		{ "writable_vmas", 1 },
		{ "shared_vmas", 0 },
		{ "thp_eligible", huge },
		{ "anon_huge_kb", huge },
		{ "thp_pages", huge },
		{ "compound_heads", huge },
		{ "compound_tails", huge },
		{ "mmu_page_kb", 4 },
		{ "swap_total_kb", swap ? KD_SAME : 0 },
	};

	if (when == KD_AFTER) {
		kd_state(KD_DURING, "faulted_anon_huge_kb", seen.faulted_huge_kb, huge);
		kd_state(KD_DURING, "advised_present_pages", seen.present, swap ? 0 : pages);
		kd_state(KD_DURING, "advised_swapped_pages", seen.swapped, swap ? pages : 0);
		kd_state(KD_DURING, "advised_anon_huge_kb", seen.anon_huge_kb,
			 small || swap ? 0 : KD_SAME);
		/* A page that is written later than the call looks stays in the swap cache. */
		kd_state(KD_DURING, "advised_reclaimed_pages", seen.reclaimed,
			 s->flags & DISK ? KD_SAME : s->flags & ZRAM ? pages : 0);
	}
	kd_audit_anon(when, start, s->bytes, KD_PAGE, want, ARRAY_SIZE(want));
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "madvise_pageout", scenarios,
					       ARRAY_SIZE(scenarios));
	char *start = kd_map(s->bytes, KD_RW, MAP_PRIVATE);
	static uint64_t frames[MAX_PAGES];
	size_t pages = KD_PAGES(s->bytes);
	struct kd_audit found;
	bool known;

	kd_phase(ADVISE, "advise", "page", pages);
	kd_phase(TOUCH, "touch", "page", pages);

	demand_swap(s->flags, s->bytes);
	calm();
	choose_pages(start, s);
	renew(start, s);
	wait_for_khugepaged();
	renew(start, s);
	audit(KD_BEFORE, s, start);

	while (kd_next()) {
		found = kd_audit(start, s->bytes);
		known = frames_of(start, frames, pages);
		KD_WINDOW(ADVISE, advise(start, s->bytes));
		wait_for_writeback();
		if (!kd_warming_up())
			look(start, s->bytes, frames, known, &found);
		KD_WINDOW(TOUCH, kd_touch(start, pages, KD_PAGE));
		renew(start, s);
	}

	audit(KD_AFTER, s, start);
	if (seen.reclaimed == KD_UNKNOWN)
		kd_metric_absent("reclaimed", "pages", "page frames are shown to root only");
	else
		kd_metric_value("reclaimed", "pages", reclaimed / seen.windows);
	return kd_finish();
}
