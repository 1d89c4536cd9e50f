// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does mincore() pay per resident page: where it looks at every PTE
 * (no_thp_pte_scan), and where one PMD answers for 512 pages
 * (thp_pmd_shortcut)?
 */
#include "kdelta.h"

enum { SCAN };			/* phases */
enum { THP = 1 };		/* scenario flags */

/* Several calls a window where one is too short to be timed. */
static const struct kd_scenario scenarios[] = {
	{ "no_thp_pte_scan_4m", "4 MiB in base pages, 16 calls in a window", KD_MIB(4), 0, 16 },
	{ "no_thp_pte_scan_64m", "64 MiB in base pages, one call in a window", KD_MIB(64), 0, 1 },
	{ "thp_pmd_shortcut_4m", "4 MiB in huge pages, 16 calls in a window", KD_MIB(4), THP, 16 },
	{ "thp_pmd_shortcut_64m", "64 MiB in huge pages, 4 calls in a window", KD_MIB(64), THP, 4 },
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

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start, long bad)
{
	struct kd_audit now = kd_audit(start, s->bytes);
	long pages = KD_PAGES(s->bytes);
	long huge = s->flags & THP ? s->bytes / KD_HUGE : 0;

	kd_state(when, "present_pages", now.present, pages);
	kd_state(when, "swapped_pages", now.swapped, 0);
	kd_state(when, "anon_pages", now.kpf[KPF_ANON], pages);
	kd_state(when, "zero_pages", now.kpf[KPF_ZERO_PAGE], 0);
	kd_state(when, "mergeable_vmas", now.mergeable_vmas, 0);
	kd_state(when, "thp_pages", now.kpf[KPF_THP], huge ? pages : 0);
	kd_state(when, "compound_heads", now.kpf[KPF_COMPOUND_HEAD], huge);
	kd_state(when, "compound_tails", now.kpf[KPF_COMPOUND_TAIL], huge ? pages - huge : 0);
	kd_state(when, "rss_kb", now.rss_kb, s->bytes / 1024);
	kd_state(when, "anon_huge_kb", now.anon_huge_kb, huge ? s->bytes / 1024 : 0);
	kd_state(when, "kernel_page_kb", now.kernel_page_kb, 4);
	kd_state(when, "mmu_page_kb", now.mmu_page_kb, 4);
	kd_state(when, "thp_eligible", now.thp_eligible, !!huge);
	kd_state(when, "vmas", now.vmas, 1);
	kd_state(when, "vector_not_0x1", bad, 0);
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "mincore", scenarios,
					       ARRAY_SIZE(scenarios));
	size_t pages = KD_PAGES(s->bytes);
	char *start = kd_map(s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	long bad = 0;

	kd_phase(SCAN, "scan", "page", pages * s->calls);
	if (s->flags & THP) {
		kd_fault_thp(start, s->bytes);
	} else {
		kd_no_thp(start, s->bytes);
		kd_touch(start, pages, KD_PAGE);
	}

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
