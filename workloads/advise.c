// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does madvise() pay per resident page of private anonymous memory, for
 * each advice that changes what becomes of the page?
 */
#include "kdelta.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21	/* Linux 5.4 */
#endif

enum { ADVISE };					/* phases */
enum {							/* scenario flags */
	THP = 1,
	LAZY = 2,		/* before each window: MADV_FREE */
	DONTNEED = 4, FREE = 8, COLD = 16, PAGEOUT = 32, COLLAPSE = 64,	/* the advice */
};

static const struct kd_scenario scenarios[] = {
	{ "dontneed", "MADV_DONTNEED of resident base pages", KD_BATCHES, DONTNEED, 1 },
	{ "dontneed_thp", "MADV_DONTNEED of resident huge pages", KD_MIB(4), DONTNEED | THP, 1 },
	{ "free", "MADV_FREE of resident dirty base pages", KD_BATCHES, FREE, 1 },
	{ "free_thp", "MADV_FREE of resident dirty huge pages", KD_MIB(4), FREE | THP, 1 },
	{ "cold", "MADV_COLD of resident base pages", KD_BATCHES, COLD, 1 },
	{ "pageout_noswap", "MADV_PAGEOUT of dirty base pages without swap: all of them stay",
	  KD_BATCHES, PAGEOUT, 1 },
	{ "pageout_free", "MADV_PAGEOUT of base pages after MADV_FREE: all of them are reclaimed",
	  KD_BATCHES, PAGEOUT | LAZY, 1 },
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
		kd_drop(start, s->bytes);
		kd_no_thp(start, s->bytes);
		kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
		advise(start, s->bytes, MADV_HUGEPAGE);
		return;
	}
	if (kd_folio())
		kd_fault_folios(start, s->bytes);
	else
		kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
	if (s->flags & LAZY)
		advise(start, s->bytes, MADV_FREE);
}

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start)
{
	const struct kd_want want[] = {
		{ "swap_total_kb", s->flags & PAGEOUT ? 0 : KD_FREE },
		{ "pswpout", 0 },
	};

	kd_audit_anon(when, start, s->bytes, s->flags & THP ? KD_HUGE : KD_PAGE, want,
		      ARRAY_SIZE(want));
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
	start = kd_map(s->bytes, KD_RW, MAP_PRIVATE);
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
		kd_all(&huge_kb, kd_anon_huge_kb(start, s->bytes));
	}

	state_after(s, present, huge_kb);
	fill(s, start);
	audit(KD_AFTER, s, start);
	return kd_finish();
}
