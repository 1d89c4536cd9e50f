// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does it cost to change the address space: to take mappings away with
 * their pages, to move and to resize them, to map and unmap a single page?
 */
#include "kdelta.h"

enum { UNMAP, MOVE, PAIR };				/* phases */
enum {							/* scenario flags */
	THP = 1,
	SHARED = 2,
	MOVED = 4,		/* phase MOVE */
	APART = 8,		/* the two places do not share their offset in a page table */
	RESIZED = 16,		/* phase PAIR: grow and shrink a mapping */
	BRK = 32,		/* phase PAIR: grow and shrink the heap */
	ONE = 64,		/* phase PAIR: map and unmap a page */
	TOUCHED = 128,		/* and write to it */
	SUSTAINED = 256,	/* what is freed goes on to the buddy allocator */
};

/* Pairs in one layout; where pages are touched, a whole batch: see kd_drain_batches(). */
#define PAIRS		16
#define TOUCHES		31
_Static_assert(TOUCHES % KD_BATCH == 0, "whole batches");

/*
 * How many free pages a CPU keeps to itself, as a part of a zone: next to none.  Left alone it
 * keeps up to an eighth, and no munmap() of less ever reaches the buddy allocator.
 */
#define KEPT		"/proc/sys/vm/percpu_pagelist_high_fraction"
#define KEPT_PART	10000

static const struct kd_scenario scenarios[] = {
	{ "munmap", "munmap() of resident private anonymous base pages",
	  KD_BATCHES, 0, 1 },
	{ "munmap_sustained", "the same, and the CPU keeps next to no free pages",
	  8 * KD_BATCHES, SUSTAINED, 1 },
	{ "munmap_thp", "munmap() of resident private anonymous huge pages",
	  KD_MIB(4), THP, 1 },
	{ "munmap_shmem", "munmap() of resident shared anonymous base pages",
	  KD_BATCHES, SHARED, 1 },
	{ "munmap_shmem_sustained", "the same, and the CPU keeps next to no free pages",
	  8 * KD_BATCHES, SHARED | SUSTAINED, 1 },
	{ "mremap_ptes", "mremap() of resident base pages, one page table entry after another",
	  KD_MIB(4), MOVED | APART, 2 },
	{ "mremap_pmds", "mremap() of resident base pages by whole page tables",
	  KD_MIB(4), MOVED | KD_OVER_LAYOUTS, PAIRS },
	{ "mremap_thp", "mremap() of resident huge pages",
	  KD_MIB(4), MOVED | THP | KD_OVER_LAYOUTS, PAIRS },
	{ "mremap_resize", "mremap() of a mapping to twice its size in place, and back",
	  KD_MIB(1), RESIZED | KD_OVER_LAYOUTS, PAIRS },
	{ "brk_page", "brk() up by one page and down again",
	  KD_PAGE, BRK | KD_OVER_LAYOUTS, PAIRS },
	{ "brk_touch_page", "brk() up by one page, one write, brk() down again",
	  KD_PAGE, BRK | TOUCHED | KD_OVER_LAYOUTS, TOUCHES },
	{ "mmap_page", "mmap() and munmap() of one page",
	  KD_PAGE, ONE | KD_OVER_LAYOUTS, PAIRS },
	{ "mmap_touch_page", "mmap(), one write, munmap() of one page",
	  KD_PAGE, ONE | TOUCHED | KD_OVER_LAYOUTS, TOUCHES },
};

static long kept_before;

static bool keep(long part)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", part);
	return kd_write_file(KEPT, text);
}

static void keep_as_before(void)
{
	keep(kept_before);
}

static void keep_few(void)
{
	kept_before = kd_file_number(KEPT);
	if (kept_before == KD_UNKNOWN)
		kd_skip("the kernel has no %s: it came with Linux 5.14", KEPT);
	kd_at_end(keep_as_before);
	if (!keep(KEPT_PART))
		kd_skip("%s cannot be written: only root may", KEPT);
}

static noinline void unmap(char *start, size_t bytes)
{
	if (munmap(start, bytes))
		kd_die("munmap");
}

static noinline void move(char *from, char *to, size_t bytes, unsigned int calls)
{
	for (; calls; calls -= 2) {
		if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED ||
		    mremap(to, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, from) == MAP_FAILED)
			kd_die("mremap");
	}
}

static noinline void resize_pairs(char *start, size_t bytes, unsigned int pairs)
{
	for (; pairs; pairs--)
		if (mremap(start, bytes, 2 * bytes, 0) != start ||
		    mremap(start, 2 * bytes, bytes, 0) != start)
			kd_die("mremap");
}

static noinline void brk_pairs(char *end, unsigned int pairs, bool touch)
{
	for (; pairs; pairs--) {
		if (brk(end + KD_PAGE))
			kd_die("brk");
		if (touch)
			*(volatile char *)end = 1;
		if (brk(end))
			kd_die("brk");
	}
}

static noinline void mmap_pairs(unsigned int pairs, bool touch)
{
	for (; pairs; pairs--) {
		char *page = mmap(NULL, KD_PAGE, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED)
			kd_die("mmap");
		if (touch)
			*(volatile char *)page = 1;
		if (munmap(page, KD_PAGE))
			kd_die("munmap");
	}
}

/* The mapping with its pages: new, or where munmap() left a hole. */
static void map(const struct kd_scenario *s, char *start)
{
	kd_map_at(start, s->bytes, KD_RW, s->flags & SHARED ? MAP_SHARED : MAP_PRIVATE, -1);
	kd_fault_in(start, s->bytes, s->flags & THP);
}

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start)
{
	bool shared = s->flags & SHARED;
	const struct kd_want want[] = {
		{ "anon_pages", shared ? 0 : KD_PAGES(s->bytes) },
		{ "shmem_pmd_kb", 0 },
		{ "shared_vmas", shared },
	};

	kd_state(when, "kept_part", kd_file_number(KEPT), s->flags & SUSTAINED ? KEPT_PART : KD_FREE);
	kd_audit_anon(when, start, s->bytes, s->flags & THP ? KD_HUGE : KD_PAGE, want,
		      ARRAY_SIZE(want));
}

/* Windows that take the memory away; it comes back outside of them. */
static void run_unmap(const struct kd_scenario *s, char *start)
{
	long vmas = KD_FREE, present = KD_FREE;

	kd_phase(UNMAP, "unmap", "page", KD_PAGES(s->bytes));
	audit(KD_BEFORE, s, start);
	while (kd_next()) {
		KD_WINDOW(UNMAP, unmap(start, s->bytes));
		kd_all(&vmas, kd_vmas(start, s->bytes));
		kd_all(&present, kd_present(start, s->bytes));
		map(s, start);
	}
	kd_state(KD_DURING, "window_vmas_after", vmas, 0);
	kd_state(KD_DURING, "window_present_after", present, 0);
	audit(KD_AFTER, s, start);
}

static void run_move(const struct kd_scenario *s, char *start)
{
	/* Room of its own, unmapped, for the other place. */
	char *room = kd_map(s->bytes + KD_HUGE, PROT_NONE, MAP_PRIVATE);
	char *there = s->flags & APART ? room + 5 * KD_PAGE : room;
	long moved = KD_FREE;

	kd_phase(MOVE, "move", "page", KD_PAGES(s->bytes) * s->calls);
	unmap(room, s->bytes + KD_HUGE);
	audit(KD_BEFORE, s, start);
	while (kd_next()) {
		if (mremap(start, s->bytes, s->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, there) != there)
			kd_die("mremap");
		kd_all(&moved, kd_present(there, s->bytes));
		if (mremap(there, s->bytes, s->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, start) != start)
			kd_die("mremap");
		KD_WINDOW(MOVE, move(start, there, s->bytes, s->calls));
	}
	kd_state(KD_DURING, "moved_pages", moved, KD_PAGES(s->bytes));
	audit(KD_AFTER, s, start);
}

static void run_pairs(const struct kd_scenario *s, char *start)
{
	long faults = KD_FREE, left = 0, before;
	char *end;

	kd_phase(PAIR, "pair", "pair", s->calls);
	if (s->flags & RESIZED)
		unmap(start + s->bytes, s->bytes);	/* room to grow */
	audit(KD_BEFORE, s, start);
	while (kd_next()) {
		before = kd_minor_faults();
		end = sbrk(0);
		if (s->flags & BRK)
			KD_WINDOW(PAIR, brk_pairs(end, s->calls, s->flags & TOUCHED));
		else if (s->flags & RESIZED)
			KD_WINDOW(PAIR, resize_pairs(start, s->bytes, s->calls));
		else
			KD_WINDOW(PAIR, mmap_pairs(s->calls, s->flags & TOUCHED));
		if (!kd_warming_up())
			kd_all(&faults, kd_minor_faults() - before);
		left += sbrk(0) != end;
	}
	kd_state(KD_DURING, "window_faults", faults, s->flags & TOUCHED ? s->calls : 0);
	kd_state(KD_DURING, "heap_changed", left, 0);
	audit(KD_AFTER, s, start);
}

/* Around what the windows map and unmap: the heap, the last place given, or the memory itself. */
static void lay_ladders(const struct kd_scenario *s, char *start)
{
	char *below = start - KD_LADDER;
	char *above = start + (s->flags & RESIZED ? 2 : 1) * s->bytes;

	if (s->flags & BRK) {
		below = (char *)KD_MIB(1);
		above = (char *)KD_MIB(256);
	} else if (s->flags & ONE) {
		above = mmap(NULL, KD_LADDER, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (above == MAP_FAILED)
			kd_die("mmap of a ladder");
	}
	kd_ladders(below, above);
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s;
	char *start;

	kd_fixed_layout(argv);
	s = kd_start(argc, argv, "unmap", scenarios, ARRAY_SIZE(scenarios));
	if (s->flags & SUSTAINED)
		keep_few();
	kd_alone(20);
	start = kd_reserve(s->bytes, KD_HUGE);
	map(s, start);
	if (kd_over_layouts())
		lay_ladders(s, start);
	if (s->flags & MOVED)
		run_move(s, start);
	else if (s->flags & (RESIZED | BRK | ONE))
		run_pairs(s, start);
	else
		run_unmap(s, start);
	return kd_finish();
}
