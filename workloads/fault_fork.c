// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What do fork() and exit() pay per resident page, and what does the parent
 * pay to write to a page that fork() left shared?
 */
#include "kdelta.h"

enum { FORK, TOUCH, EXIT };				/* phases */
enum { THP = 1, OWN = 2, UNTOUCHED = 4 };		/* scenario flags */

static const struct kd_scenario scenarios[] = {
	{ "fork_touch", "fork(), the parent writes to each page, the child exits",
	  KD_BATCHES, 0, 1 },
	{ "fork_touch_thp", "the same with huge pages", KD_MIB(4), THP, 1 },
	{ "fork_untouched", "fork(), and the child exits: nobody writes to the pages",
	  KD_BATCHES, UNTOUCHED, 1 },
	{ "exit_teardown", "a child exits that has pages of its own",
	  KD_BATCHES, OWN | KD_OVER_BATCHES, 1 },
	{ "exit_teardown_thp", "a child exits that has huge pages of its own",
	  KD_MIB(4), OWN | THP, 1 },
};

static struct {
	pid_t pid;
	int told[2];		/* pipe from the child: its resident pages */
	int go[2];		/* pipe to the child: exit now */
} child;

static void fill(const struct kd_scenario *s, char *start)
{
	if (s->flags & THP)
		kd_fault_thp(start, s->bytes);
	else if (kd_folio())
		kd_fault_folios(start, s->bytes);
	else
		kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
}

/* The child: says what it has, and exits when told to. */
static __attribute__((noreturn)) void live(const struct kd_scenario *s, char *start)
{
	long present;
	char order;

	if (s->flags & OWN)
		fill(s, start);
	present = kd_present(start, s->bytes);
	if (write(child.told[1], &present, sizeof(present)) != sizeof(present))
		_exit(1);
	_exit(read(child.go[0], &order, 1) != 1);
}

static noinline void start_child(const struct kd_scenario *s, char *start)
{
	child.pid = fork();
	if (child.pid < 0)
		kd_die("fork");
	if (!child.pid)
		live(s, start);
}

static noinline void end_child(void)
{
	if (write(child.go[1], "", 1) != 1)
		kd_die("write");
	kd_reap(child.pid);
}

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start)
{
	bool own = s->flags & OWN, thp = s->flags & THP;
	long pages = own ? 0 : KD_PAGES(s->bytes);
	long folios = thp && !own ? s->bytes / KD_HUGE : 0;
	const struct kd_want want[] = {
		{ "present_pages", own ? KD_FREE : pages },	/* the child has them */
		{ "swapped_pages", 0 },
		{ "anon_pages", own ? KD_FREE : pages },
		{ "compound_heads", own ? KD_FREE : folios },
		{ "compound_tails", own ? KD_FREE : folios ? pages - folios : 0 },
		{ "mergeable_vmas", 0 },
		{ "rss_kb", pages * 4 },
		{ "dirty_kb", pages * 4 },	/* no other process maps them */
		{ "anon_huge_kb", thp ? pages * 4 : 0 },
		{ "vmas", 1 },
		{ "shared_vmas", 0 },
	};

	kd_audit_state(when, start, s->bytes, want, ARRAY_SIZE(want));
}

/* Remember which page frames the range has, and count those that are others than last time. */
static long moved_pages(const struct kd_scenario *s, const char *start)
{
	static uint64_t last[KD_PAGES(KD_MIB(4))];
	uint64_t map[ARRAY_SIZE(last)];
	size_t n = KD_PAGES(s->bytes);
	long moved = 0;

	if (!kd_read_words("/proc/self/pagemap", map, n, KD_PAGES((uintptr_t)start)))
		return KD_UNKNOWN;
	for (size_t i = 0; i < n; i++) {
		map[i] &= KD_PM_PFN;
		moved += map[i] != last[i];
	}
	memcpy(last, map, n * sizeof(*map));
	return map[0] || s->flags & OWN ? moved : KD_UNKNOWN;	/* frame 0: may not be told */
}

static long child_present(void)
{
	long present;

	if (read(child.told[0], &present, sizeof(present)) != sizeof(present))
		kd_die("read");
	return present;
}

int main(int argc, char **argv)
{
	long present = KD_FREE, faults = KD_FREE, copied = KD_FREE, before;
	const struct kd_scenario *s;
	char *start;
	bool own, touched;

	kd_fixed_layout(argv);
	s = kd_start(argc, argv, "fault_fork", scenarios, ARRAY_SIZE(scenarios));
	kd_alone(20);
	own = s->flags & OWN;
	touched = !(s->flags & (OWN | UNTOUCHED));
	start = kd_map(s->bytes, KD_RW, MAP_PRIVATE);
	if (pipe(child.told) || pipe(child.go))
		kd_die("pipe");
	if (!own)
		kd_phase(FORK, "fork", "page", KD_PAGES(s->bytes));
	if (touched)
		kd_phase(TOUCH, "touch", "page", KD_PAGES(s->bytes));
	kd_phase(EXIT, "exit", "page", KD_PAGES(s->bytes));
	if (!(s->flags & THP))
		kd_no_thp(start, s->bytes);
	if (!own)
		fill(s, start);
	audit(KD_BEFORE, s, start);

	while (kd_next()) {
		if (own)
			start_child(s, start);
		else
			KD_WINDOW(FORK, start_child(s, start));
		kd_all(&present, child_present());
		moved_pages(s, start);
		if (!kd_warming_up())
			kd_sample(TOUCH, 0);	/* the page of the sample was shared, too */
		before = kd_minor_faults();
		if (touched)
			KD_WINDOW(TOUCH, kd_touch(start, KD_PAGES(s->bytes), KD_PAGE));
		if (!kd_warming_up())
			kd_all(&faults, kd_minor_faults() - before);
		kd_all(&copied, moved_pages(s, start));
		KD_WINDOW(EXIT, end_child());
		if ((s->flags & THP || kd_folio()) && !own)	/* else a write may copy base pages */
			kd_drop(start, s->bytes);
		if (!own)
			fill(s, start);
	}

	kd_state(KD_DURING, "child_present_pages", present, KD_PAGES(s->bytes));
	kd_state(KD_DURING, "window_faults", faults, touched ? KD_PAGES(s->bytes) : 0);
	kd_state(KD_DURING, "window_copied_pages", copied, touched ? KD_PAGES(s->bytes) : 0);
	audit(KD_AFTER, s, start);
	return kd_finish();
}
