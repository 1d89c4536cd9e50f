// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does madvise() pay per resident page of private anonymous memory, for
 * each advice that changes what becomes of the page?
 */
#include "kdelta.h"

#ifndef MADV_COLD
#define MADV_COLD	20	/* Linux 5.4 */
#define MADV_PAGEOUT	21
#endif

enum { ADVISE };					/* phases */
enum {							/* scenario flags */
	THP = 1,
	LAZY = 2,		/* before each window: MADV_FREE */
	DONTNEED = 4, FREE = 8, COLD = 16, PAGEOUT = 32, COLLAPSE = 64,	/* the advice */
};

/* 465 pages are whole batches of the LRU lists, of 15 and of 31 pages. */
static const struct kd_scenario scenarios[] = {
	{ "dontneed", "MADV_DONTNEED of resident base pages", 465 * KD_PAGE, DONTNEED, 1 },
	{ "dontneed_thp", "MADV_DONTNEED of resident huge pages", KD_MIB(4), DONTNEED | THP, 1 },
	{ "free", "MADV_FREE of resident dirty base pages", 465 * KD_PAGE, FREE, 1 },
	{ "free_thp", "MADV_FREE of resident dirty huge pages", KD_MIB(4), FREE | THP, 1 },
	{ "cold", "MADV_COLD of resident base pages", 465 * KD_PAGE, COLD, 1 },
	{ "pageout_noswap", "MADV_PAGEOUT of dirty base pages without swap: all of them stay",
	  465 * KD_PAGE, PAGEOUT, 1 },
	{ "pageout_free", "MADV_PAGEOUT of base pages after MADV_FREE: all of them are reclaimed",
	  465 * KD_PAGE, PAGEOUT | LAZY, 1 },
	{ "collapse", "MADV_COLLAPSE of resident base pages into huge pages",
	  KD_MIB(2), COLLAPSE, 1 },
};

static int advice_of(const struct kd_scenario *s)
{
	return s->flags & DONTNEED ? MADV_DONTNEED : s->flags & FREE ? MADV_FREE :
	       s->flags & COLD ? MADV_COLD : s->flags & PAGEOUT ? MADV_PAGEOUT : MADV_COLLAPSE;
}

static noinline void advise(char *start, size_t bytes, int advice)
{
	if (madvise(start, bytes, advice))
		kd_die("madvise");
}

/* All pages resident and dirty, as new as their life allows. */
static void fill(const struct kd_scenario *s, char *start)
{
	if (s->flags & COLLAPSE) {
		/* Base pages again; only MADV_COLLAPSE, which is not told not to, makes a huge one. */
		advise(start, s->bytes, MADV_DONTNEED);
		kd_no_thp(start, s->bytes);
		kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
		advise(start, s->bytes, MADV_HUGEPAGE);
		return;
	}
	kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
	if (s->flags & LAZY)
		advise(start, s->bytes, MADV_FREE);
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
		{ "swap_total_kb", s->flags & PAGEOUT ? 0 : KD_FREE },
		{ "pswpout", 0 },
	};

	kd_audit_state(when, start, s->bytes, want, ARRAY_SIZE(want));
}

/* What the advice left: pages, and how many of them huge. */
static void state_after(const struct kd_scenario *s, long present, long huge_kb)
{
	long pages = KD_PAGES(s->bytes), kb = s->bytes / 1024;
	bool gone = s->flags & DONTNEED || s->flags & LAZY;

	kd_state(KD_DURING, "window_present_after", present, gone ? 0 : pages);
	kd_state(KD_DURING, "window_huge_kb_after", huge_kb,
		 s->flags & COLLAPSE || (s->flags & THP && !gone) ? kb : 0);
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "advise", scenarios,
					       ARRAY_SIZE(scenarios));
	long present = KD_FREE, huge_kb = KD_FREE;
	int advice = advice_of(s);
	char *start;

	kd_alone(4);
	start = kd_map(s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	kd_phase(ADVISE, "advise", "page", KD_PAGES(s->bytes));
	if (s->flags & (THP | COLLAPSE))
		kd_fault_thp(start, s->bytes);
	else
		kd_no_thp(start, s->bytes);
	fill(s, start);
	audit(KD_BEFORE, s, start);

	while (kd_next()) {
		fill(s, start);
		KD_WINDOW(ADVISE, advise(start, s->bytes, advice));
		kd_all(&present, kd_present(start, s->bytes));
		kd_all(&huge_kb, kd_audit(start, s->bytes).anon_huge_kb);
	}

	state_after(s, present, huge_kb);
	fill(s, start);
	audit(KD_AFTER, s, start);
	return kd_finish();
}
