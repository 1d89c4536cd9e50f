// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does mprotect() pay per resident page to make memory read-only and
 * writable again, and what does the next write to each page pay?
 */
#include "kdelta.h"

enum { PROTECT, RESTORE, TOUCH };			/* phases */
enum { SHARED = 1, SPLIT = 2, SINGLE = 4 };		/* scenario flags */

#define RW (PROT_READ | PROT_WRITE)

static const struct kd_scenario scenarios[] = {
	{ "shared_dirty_full_toggle_16m", "all of 16 MiB, shared anonymous", KD_MIB(16), SHARED, 1 },
	{ "shared_dirty_full_toggle_64m", "all of 64 MiB, shared anonymous", KD_MIB(64), SHARED, 1 },
	{ "anon_full_toggle", "all of 64 MiB, private anonymous", KD_MIB(64), 0, 1 },
	{ "anon_split_restore", "the middle third of 48 MiB, private anonymous",
	  KD_MIB(48), SPLIT, 1 },
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

static struct span span_of(const struct kd_scenario *s, char *start)
{
	struct span span = { start, s->bytes, KD_PAGE, s->calls };

	if (s->flags & SPLIT) {
		span.bytes = s->bytes / 3;
		span.start += span.bytes;
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
	bool single = s->flags & SINGLE, shared = s->flags & SHARED;
	long pages = single ? s->calls : KD_PAGES(s->bytes);
	struct kd_audit now = kd_audit(start, s->bytes);
	long vmas_protected;

	set(span, PROT_READ);
	vmas_protected = kd_vmas(start, s->bytes);
	set(span, RW);

	kd_state(when, "present_pages", now.present, pages);
	kd_state(when, "swapped_pages", now.swapped, 0);
	kd_state(when, "anon_pages", now.kpf[KPF_ANON], shared ? 0 : pages);
	kd_state(when, "zero_pages", now.kpf[KPF_ZERO_PAGE], 0);
	kd_state(when, "mergeable_vmas", now.mergeable_vmas, 0);
	kd_state(when, "thp_pages", now.kpf[KPF_THP], 0);
	kd_state(when, "compound_heads", now.kpf[KPF_COMPOUND_HEAD], 0);
	kd_state(when, "compound_tails", now.kpf[KPF_COMPOUND_TAIL], 0);
	kd_state(when, "dirty_kb", now.dirty_kb, pages * 4);
	kd_state(when, "anon_huge_kb", now.anon_huge_kb, 0);
	kd_state(when, "shmem_pmd_kb", now.shmem_pmd_kb, 0);
	kd_state(when, "kernel_page_kb", now.kernel_page_kb, 4);
	kd_state(when, "mmu_page_kb", now.mmu_page_kb, 4);
	kd_state(when, "thp_eligible", now.thp_eligible, 0);
	kd_state(when, "vmas", now.vmas, single ? 2 * pages : 1);
	kd_state(when, "vmas_protected", vmas_protected,
		 single ? 2 * pages : s->flags & SPLIT ? 3 : 1);
	kd_state(when, "writable_vmas", now.writable_vmas, single ? pages : 1);
	kd_state(when, "shared_vmas", now.shared_vmas, shared);
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "mprotect", scenarios,
					       ARRAY_SIZE(scenarios));
	char *start = kd_map(s->bytes, s->flags & SINGLE ? PROT_NONE : RW,
			     s->flags & SHARED ? MAP_SHARED : MAP_PRIVATE);
	struct span span = span_of(s, start);
	size_t pages = span.calls * KD_PAGES(span.bytes);

	kd_phase(PROTECT, "protect", "page", pages);
	kd_phase(RESTORE, "restore", "page", pages);
	kd_phase(TOUCH, "touch", "page", pages);

	kd_no_thp(start, s->bytes);
	if (s->flags & SPLIT)
		kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
	set(&span, RW);		/* no change but in single_protect */
	kd_touch(span.start, pages, span.stride);
	audit(KD_BEFORE, s, start, &span);

	while (kd_next()) {
		KD_WINDOW(PROTECT, set(&span, PROT_READ));
		KD_WINDOW(RESTORE, set(&span, RW));
		KD_WINDOW(TOUCH, kd_touch(span.start, pages, span.stride));
	}

	audit(KD_AFTER, s, start, &span);
	return kd_finish();
}
