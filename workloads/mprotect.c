// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does mprotect() pay per resident page to make memory read-only and
 * writable again, and what does the next write to each page pay?
 */
#include "kdelta.h"

enum { PROTECT, RESTORE, TOUCH };			/* phases */
enum {							/* scenario flags */
	SHARED = 1,
	SPLIT = 2,		/* parts of a mapping */
	SINGLE = 4,		/* mappings of one page */
	THP = 8,
	PTE_MAPPED = 16,
	THIRD = 32,		/* SPLIT: its middle third, else pages of it */
};

static const struct kd_scenario scenarios[] = {
	{ "shared_dirty_full_toggle_16m", "all of 16 MiB, shared anonymous", KD_MIB(16), SHARED, 1 },
	{ "shared_dirty_full_toggle_64m", "all of 64 MiB, shared anonymous", KD_MIB(64), SHARED, 1 },
	{ "anon_full_toggle", "all of 64 MiB, private anonymous", KD_MIB(64), 0, 1 },
	{ "anon_toggle_4m", "all of 4 MiB, private anonymous", KD_MIB(4), 0, 1 },
	{ "thp_toggle_16m", "all of 16 MiB, private anonymous, in huge pages", KD_MIB(16), THP, 1 },
	{ "pte_mapped_thp", "all of 16 MiB, shared, in huge pages that are mapped by PTEs",
	  KD_MIB(16), SHARED | PTE_MAPPED, 1 },
	{ "anon_split_restore", "the middle third of 48 MiB, private anonymous",
	  KD_MIB(48), SPLIT | THIRD, 1 },
	{ "split_pages", "a page of every 64 KiB of 1 MiB, private anonymous, one a call",
	  KD_MIB(1), SPLIT | KD_OVER_LAYOUTS, 16 },
	{ "single_protect", "one private anonymous page a call, 512 calls",
	  KD_MIB(4), SINGLE, 512 },
};

/* The memory that a window changes. */
struct span {
	char *start;
	size_t bytes;		/* by one call */
	size_t stride;		/* from call to call, from touch to touch */
	unsigned int calls;
};

static noinline void set(const struct span *span, int prot)
{
	char *piece = span->start;

	for (unsigned int i = 0; i < span->calls; i++, piece += span->stride)
		if (mprotect(piece, span->bytes, prot))
			kd_die("mprotect");
}

/*
 * Huge pages of tmpfs, mapped where none can be mapped as a whole: a page off the boundary of
 * 2 MiB.  This is the control of the base pages: what helps these must not cost what batching
 * gained here.
 */
static char *map_huge_by_ptes(size_t bytes)
{
	char *whole = kd_reserve(bytes, KD_HUGE);
	char *start = kd_map(bytes + KD_HUGE, PROT_NONE, MAP_PRIVATE) + KD_PAGE;
	int fd = kd_memfd();

	if (ftruncate(fd, bytes))
		kd_die("ftruncate");
	kd_map_at(whole, bytes, KD_RW, MAP_SHARED, fd);
	kd_touch(whole, KD_PAGES(bytes), KD_PAGE);
	if (madvise(whole, bytes, MADV_COLLAPSE))
		kd_skip("the kernel makes no huge pages of tmpfs: %s", strerror(errno));
	if (munmap(whole, bytes))
		kd_die("munmap");
	kd_map_at(start, bytes, KD_RW, MAP_SHARED, fd);
	close(fd);
	return start;
}

static char *map(const struct kd_scenario *s)
{
	char *start;

	if (s->flags & PTE_MAPPED)
		start = map_huge_by_ptes(s->bytes);
	else
		start = kd_map(s->bytes, s->flags & SINGLE ? PROT_NONE : KD_RW,
			       s->flags & SHARED ? MAP_SHARED : MAP_PRIVATE);
	if (s->flags & THP)
		kd_fault_thp(start, s->bytes);
	else
		kd_no_thp(start, s->bytes);
	return start;
}

static struct span span_of(const struct kd_scenario *s, char *start)
{
	struct span span = { start, s->bytes, KD_PAGE, s->calls };

	if (s->flags & THIRD) {
		span.bytes = s->bytes / 3;
		span.start += span.bytes;
	} else if (s->flags & SPLIT) {
		span.bytes = KD_PAGE;
		span.stride = s->bytes / s->calls;
		span.start += span.stride / 2;
	} else if (s->flags & SINGLE) {
		/* Every other page; what lies between stays inaccessible. */
		span.bytes = KD_PAGE;
		span.stride = 2 * KD_PAGE;
	}
	return span;
}

static void audit(enum kd_when when, const struct kd_scenario *s, char *start,
		  const struct span *span)
{
	bool single = s->flags & SINGLE, shared = s->flags & SHARED, thp = s->flags & THP;
	long pages = single ? s->calls : KD_PAGES(s->bytes);
	const struct kd_want want[] = {
		{ "present_pages", pages },
		{ "anon_pages", shared ? 0 : pages },
		/* Some kernels call a THP's pages shared here, whoever maps them. */
		{ "dirty_kb", thp ? KD_FREE : pages * 4 },
		{ "anon_huge_kb", thp ? pages * 4 : 0 },
		{ "shmem_pmd_kb", 0 },
		{ "mmu_page_kb", 4 },
		{ "thp_eligible", thp },
		{ "vmas", single ? 2 * pages : 1 },
		{ "writable_vmas", single ? pages : 1 },
		{ "shared_vmas", shared },
	};
	long vmas_protected;

	set(span, PROT_READ);
	vmas_protected = kd_vmas(start, s->bytes);
	set(span, KD_RW);
	kd_state(when, "vmas_protected", vmas_protected,
		 single ? 2 * pages : s->flags & SPLIT ? 2 * s->calls + 1 : 1);
	kd_audit_anon(when, start, s->bytes, s->flags & (THP | PTE_MAPPED) ? KD_HUGE : KD_PAGE, want,
		      ARRAY_SIZE(want));
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "mprotect", scenarios,
					       ARRAY_SIZE(scenarios));
	char *start = map(s);
	struct span span = span_of(s, start);
	size_t pages = span.calls * KD_PAGES(span.bytes);

	kd_phase(PROTECT, "protect", "page", pages);
	kd_phase(RESTORE, "restore", "page", pages);
	kd_phase(TOUCH, "touch", "page", pages);

	if (s->flags & SPLIT)
		kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
	if (kd_over_layouts())
		kd_ladders(start - KD_LADDER, start + s->bytes);
	set(&span, KD_RW);		/* no change but in single_protect */
	kd_touch(span.start, pages, span.stride);
	audit(KD_BEFORE, s, start, &span);

	while (kd_next()) {
		KD_WINDOW(PROTECT, set(&span, PROT_READ));
		KD_WINDOW(RESTORE, set(&span, KD_RW));
		KD_WINDOW(TOUCH, kd_touch(span.start, pages, span.stride));
	}

	audit(KD_AFTER, s, start, &span);
	return kd_finish();
}
