// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does mincore() pay per resident page: where it looks at every PTE
 * (no_thp_pte_scan), and where one PMD answers for 512 pages
 * (thp_pmd_shortcut)?
 */
#include "kdelta.h"

enum { SCAN };			/* phases */
enum { THP = 1, MTHP = 2, LARGE = 4 };	/* scenario flags */

/* Several calls a window where one is too short to be timed. */
static const struct kd_scenario scenarios[] = {
	{ "no_thp_pte_scan_4m", "4 MiB in base pages, 16 calls in a window", KD_MIB(4), 0, 16 },
	{ "no_thp_pte_scan_64m", "64 MiB in base pages, one call in a window", KD_MIB(64), 0, 1 },
	{ "thp_pmd_shortcut_4m", "4 MiB in huge pages, 16 calls in a window", KD_MIB(4), THP, 16 },
	{ "thp_pmd_shortcut_64m", "64 MiB in huge pages, 4 calls in a window", KD_MIB(64), THP, 4 },
	{ "mthp_64k_scan_4m", "3.9 MiB in folios of 64 KiB, 16 calls in a window",
	  62 * KD_64K, MTHP, 16 },
	{ "mthp_64k_scan_64m", "64 MiB in folios of 64 KiB, 4 calls in a window",
	  KD_MIB(64), MTHP | LARGE, 4 },
};

static unsigned char vector[KD_PAGES(KD_MIB(64))];

static noinline void scan(char *start, size_t bytes, unsigned int calls)
{
	for (; calls; calls--)
		if (mincore(start, bytes, vector))
			kd_die("mincore");
}

/* Resident is exactly 0x1, not merely a set low bit. */
static long not_resident(size_t pages)
{
	long bad = 0;

	for (size_t i = 0; i < pages; i++)
		bad += vector[i] != 0x1;
	return bad;
}

static char *map(const struct kd_scenario *s)
{
	if (s->flags & LARGE) {		/* whole ranges of 2 MiB, which may not become huge pages */
		if (!kd_file_says(KD_THP "enabled", "[madvise]") ||
		    !kd_file_says(KD_THP "hugepages-64kB/enabled", "[always]"))
			kd_skip("folios of 64 KiB and none larger: set %senabled to madvise and "
				"hugepages-64kB/enabled to always", KD_THP);
	} else if (s->flags & MTHP) {
		return kd_map_64k(s->bytes);
	}
	return kd_map(s->bytes, KD_RW, MAP_PRIVATE);
}

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start, long bad)
{
	bool huge = s->flags & THP, mthp = s->flags & MTHP;
	const struct kd_want want[] = {
		{ "rss_kb", s->bytes / 1024 },
		{ "mmu_page_kb", 4 },
		{ "thp_eligible", mthp ? KD_FREE : huge },
	};

	kd_state(when, "vector_not_0x1", bad, 0);
	kd_audit_anon(when, start, s->bytes, huge ? KD_HUGE : mthp ? KD_64K : KD_PAGE, want,
		      ARRAY_SIZE(want));
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "mincore", scenarios,
					       ARRAY_SIZE(scenarios));
	size_t pages = KD_PAGES(s->bytes);
	char *start = map(s);
	long bad = 0;

	kd_phase(SCAN, "scan", "page", pages * s->calls);
	if (s->flags & MTHP)
		kd_touch(start, pages, KD_PAGE);
	else
		kd_fault_in(start, s->bytes, s->flags & THP);

	memset(vector, 0xee, pages);
	scan(start, s->bytes, 1);
	audit(KD_BEFORE, s, start, not_resident(pages));

	while (kd_next()) {
		memset(vector, 0xee, pages);
		KD_WINDOW(SCAN, scan(start, s->bytes, s->calls));
		bad += not_resident(pages);
	}

	audit(KD_AFTER, s, start, bad);
	return kd_finish();
}
