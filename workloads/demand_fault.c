// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does it take to populate a region on demand, page by page, from memory
 * that the kernel has to clear first: with base pages, with transparent huge
 * pages, with pages of hugetlb?
 *
 * The work is that of `perf bench mem mmap -f demand`: map, write to each page
 * in ascending order, unmap.  Only the writes lie in the window.
 */
#include "kdelta.h"

#include <linux/mman.h>

enum { FAULT };				/* phases */
enum {					/* scenario flags */
	THP = 1,
	HUGETLB_2M = 2,
	HUGETLB_1G = 4,
	HUGETLB = HUGETLB_2M | HUGETLB_1G,
	TIMED = 8,			/* tells its throughput */
};

#define GIB (1UL << 30)

static const struct kd_scenario scenarios[] = {
	{ "base_465", "465 base pages", KD_BATCHES, 0, 1 },
	{ "base_4185", "4185 base pages, 16.3 MiB", 9 * KD_BATCHES, 0, 1 },
	{ "thp_16m", "16 MiB in transparent huge pages", KD_MIB(16), THP, 1 },
	{ "thp_64m", "64 MiB in transparent huge pages", KD_MIB(64), THP, 1 },
	{ "hugetlb_2m_16m", "16 MiB in hugetlb's pages of 2 MiB", KD_MIB(16), HUGETLB_2M, 1 },
	{ "hugetlb_2m_64m", "64 MiB in hugetlb's pages of 2 MiB", KD_MIB(64), HUGETLB_2M, 1 },
	{ "hugetlb_1g_1g", "one page of 1 GiB of hugetlb", GIB, HUGETLB_1G, 1 },
	{ "timed_base_64m", "64 MiB in base pages", KD_MIB(64), TIMED, 1 },
	{ "timed_thp_256m", "256 MiB in transparent huge pages", KD_MIB(256), THP | TIMED, 1 },
	{ "timed_hugetlb_2m_256m", "256 MiB in hugetlb's pages of 2 MiB",
	  KD_MIB(256), HUGETLB_2M | TIMED, 1 },
	{ "timed_hugetlb_1g_1g", "one page of 1 GiB of hugetlb", GIB, HUGETLB_1G | TIMED, 1 },
};

struct region {
	const struct kd_scenario *scenario;
	char *start;
	size_t page;			/* bytes that one fault maps */
	size_t faults;
	long pool;			/* free pages of hugetlb before the region was mapped */
};

static const char *pool_path(const struct region *region)
{
	return region->page == GIB ? "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages"
				   : "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
}

static void need_pages(struct region *region)
{
	long need = region->faults;

	region->pool = kd_file_number(pool_path(region));
	if (region->pool < need)
		kd_skip("hugetlb has %ld free pages of %zu kB, %ld are needed: raise nr_hugepages",
			region->pool == KD_UNKNOWN ? 0 : region->pool, region->page >> 10, need);
}

/* The region of a scenario, not mapped yet; skips what this machine cannot give. */
static struct region region_of(const struct kd_scenario *s)
{
	struct region region = { s, NULL, KD_PAGE, 0, KD_UNKNOWN };

	if (s->flags & HUGETLB_1G)
		region.page = GIB;
	else if (s->flags & (HUGETLB_2M | THP))
		region.page = KD_HUGE;
	region.faults = s->bytes / region.page;
	if (s->flags & HUGETLB)
		need_pages(&region);
	if (s->flags & THP)
		kd_need_thp();
	region.start = kd_reserve(s->bytes, region.page > KD_HUGE ? region.page : KD_HUGE);
	return region;
}

static void map(const struct region *region)
{
	unsigned int flags = region->scenario->flags;
	int huge = flags & HUGETLB_1G ? MAP_HUGETLB | MAP_HUGE_1GB :
		   flags & HUGETLB_2M ? MAP_HUGETLB | MAP_HUGE_2MB : 0;

	kd_map_at(region->start, region->scenario->bytes, KD_RW, MAP_PRIVATE | huge, -1);
	if (flags & THP && madvise(region->start, region->scenario->bytes, MADV_HUGEPAGE))
		kd_die("madvise(MADV_HUGEPAGE)");
	if (!(flags & (THP | HUGETLB)))
		kd_no_thp(region->start, region->scenario->bytes);
}

static void unmap(const struct region *region)
{
	kd_map_at(region->start, region->scenario->bytes, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE, -1);
}

/* Words of the region that are not as clearing and kd_touch() leave them. */
static noinline long unclean_words(const struct region *region)
{
	const uint64_t *word = (const uint64_t *)region->start;
	const size_t each = region->page / sizeof(*word);
	long bad = 0;

	for (size_t page = 0; page < region->faults; page++, word += each) {
		uint64_t seen = 0;

		bad += word[0] != 1;	/* the byte that was written; x86-64, arm64 and riscv64 are LE */
		for (size_t i = 1; i < each; i++)
			seen |= word[i];
		for (size_t i = 1; seen && i < each; i++)
			bad += !!word[i];
	}
	return bad;
}

/* Map and populate the region once and look at it. */
static void audit(enum kd_when when, const struct region *region)
{
	const struct kd_scenario *s = region->scenario;
	bool thp = s->flags & THP, hugetlb = s->flags & HUGETLB;
	long pages = KD_PAGES(s->bytes), compound = thp || hugetlb ? region->faults : 0;
	long page_kb = hugetlb ? region->page >> 10 : 4;
	const struct kd_want want[] = {
		{ "present_pages", pages },
		{ "swapped_pages", 0 },
		{ "zero_pages", 0 },
		{ "mergeable_vmas", 0 },
		{ "thp_pages", thp ? pages : 0 },
		{ "huge_pages", hugetlb ? pages : 0 },
		{ "compound_heads", compound },
		{ "compound_tails", compound ? pages - compound : 0 },
		{ "anon_huge_kb", thp ? pages * 4 : 0 },
		{ "kernel_page_kb", page_kb },
		{ "mmu_page_kb", page_kb },
		{ "vmas", 1 },
		{ "writable_vmas", 1 },
		{ "shared_vmas", 0 },
	};

	map(region);
	kd_touch(region->start, region->faults, region->page);
	if (hugetlb)
		kd_state(when, "pool_pages_taken", region->pool - kd_file_number(pool_path(region)),
			 region->faults);
	kd_state(when, "unclean_words", unclean_words(region), 0);
	kd_audit_state(when, region->start, s->bytes, want, ARRAY_SIZE(want));
	unmap(region);
}

/*
 * The faults of a window.  A few more than the region has pages are of other memory of the program,
 * which compaction moves now and then; one huge page that was not to be had would be 511 more.
 */
static long window_faults(const struct region *region, long taken)
{
	long more = taken - (long)region->faults;

	return more >= 0 && more <= 4 ? (long)region->faults : taken;
}

/* As `perf bench mem` counts: all bytes by all of the time, in units of 2^30. */
static void tell_throughput(const struct kd_scenario *s)
{
	uint64_t ns = 0;

	for (unsigned int i = 0; i < kd.iterations; i++)
		ns += kd.ns[FAULT * kd.iterations + i];
	if (ns)
		kd_metric_value("throughput", "GB/s",
				(double)s->bytes * kd.iterations / GIB / (ns / 1e9));
	else
		kd_metric_absent("throughput", "GB/s", "the clock did not move");
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "demand_fault", scenarios,
					       ARRAY_SIZE(scenarios));
	struct region region = region_of(s);
	long faults = KD_FREE, before;

	if (!(s->flags & TIMED))
		kd_alone(50);	/* long windows: real time may have 95 % of each second */
	kd_phase(FAULT, "fault", "page", region.faults);
	audit(KD_BEFORE, &region);

	while (kd_next()) {
		map(&region);
		before = kd_minor_faults();
		KD_WINDOW(FAULT, kd_touch(region.start, region.faults, region.page));
		kd_all(&faults, window_faults(&region, kd_minor_faults() - before));
		unmap(&region);
	}

	kd_state(KD_DURING, "window_faults", faults, region.faults);
	audit(KD_AFTER, &region);
	kd_metric_value("region", "B", (double)s->bytes);
	if (s->flags & TIMED)
		tell_throughput(s);
	return kd_finish();
}
