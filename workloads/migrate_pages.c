// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does migrate_pages() pay per page to move a process's anonymous
 * memory from one NUMA node to another, and back?
 */
#include "kdelta.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>

enum { MOVE, BACK };		/* phases */
enum { MAX_PAGES = KD_PAGES(KD_MIB(16)) };

static const struct kd_scenario scenarios[] = {
	{ "migrate_pages_4m_2nodes", "4 MiB of base pages from node 0 to node 1", KD_MIB(4), 0, 1 },
	{ "migrate_pages_16m_2nodes", "16 MiB of base pages from node 0 to node 1",
	  KD_MIB(16), 0, 1 },
};

/*
 * Pages that calls say they did not move, all calls together.  It is the whole process that they
 * speak of: Linux 7.3 counts the page of the vDSO's clock, which nobody can move.
 */
static long left_behind;

static noinline void migrate(unsigned int from, unsigned int to)
{
	unsigned long old = 1UL << from, new = 1UL << to;
	long left = syscall(__NR_migrate_pages, 0, 8 * sizeof(old), &old, &new);

	if (left < 0)
		kd_die("migrate_pages");
	left_behind += left;
}

/* Pages that move_pages() finds on a node; it moves none when it is given no nodes. */
static long pages_on(char *start, size_t pages, int node)
{
	static void *address[MAX_PAGES];
	static int status[MAX_PAGES];
	long found = 0;

	for (size_t i = 0; i < pages; i++)
		address[i] = start + i * KD_PAGE;
	if (syscall(__NR_move_pages, 0, pages, address, NULL, status, 0))
		return KD_UNKNOWN;
	for (size_t i = 0; i < pages; i++)
		found += status[i] == node;
	return found;
}

/* The program's own pages come along; how many that are is told beside the time. */
static void tell_moved(unsigned int calls)
{
	char *now = kd_read_file("/proc/vmstat");
	long before = kd_keyed(kd.vmstat, "pgmigrate_success");
	long after = kd_keyed(now, "pgmigrate_success");

	free(now);
	if (before == KD_UNKNOWN || after == KD_UNKNOWN)
		kd_metric_absent("pages_per_call", "pages", "no pgmigrate_success in /proc/vmstat");
	else
		kd_metric_value("pages_per_call", "pages", (double)(after - before) / calls);
}

static void demand_two_nodes(void)
{
	if (access("/sys/devices/system/node/node1", F_OK))
		kd_skip("the machine has one NUMA node only");
	if (!kd_file_says("/sys/devices/system/node/has_memory", "0-1") &&
	    !kd_file_says("/sys/devices/system/node/has_memory", "0,1"))
		kd_skip("NUMA nodes 0 and 1 do not both have memory");
}

static void demand(long result, const char *what)
{
	if (!result)
		return;
	if (errno == EPERM || errno == ENOSYS)
		kd_skip("%s: %s", what, strerror(errno));
	kd_die(what);
}

/*
 * The memory to node 0, everything else to either node: migrate_pages() does not ask policies, but
 * automatic NUMA balancing does, and leaves alone what has one.
 */
static void bind(char *start, size_t bytes)
{
	unsigned long node0 = 1, either = 3;

	demand(syscall(__NR_set_mempolicy, MPOL_BIND, &either, 8 * sizeof(either)),
	       "set_mempolicy");
	demand(syscall(__NR_mbind, start, bytes, MPOL_BIND, &node0, 8 * sizeof(node0), 0), "mbind");
}

static void audit(enum kd_when when, const struct kd_scenario *s, char *start, long astray)
{
	long pages = KD_PAGES(s->bytes);
	const struct kd_want want[] = {
		{ "node0_pages", pages },
		{ "node1_pages", 0 },
		{ "pgmigrate_fail", 0 },
	};

	kd_state(when, "queried_on_node0", pages_on(start, pages, 0), pages);
	kd_state(when, "pages_astray", astray, 0);
	kd_state(when, "pages_left_behind", left_behind, KD_FREE);
	kd_audit_anon(when, start, s->bytes, KD_PAGE, want, ARRAY_SIZE(want));
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "migrate_pages", scenarios,
					       ARRAY_SIZE(scenarios));
	long pages = KD_PAGES(s->bytes), astray = 0;
	char *start;

	demand_two_nodes();
	kd_phase(MOVE, "move", "page", pages);
	kd_phase(BACK, "back", "page", pages);

	start = kd_map(s->bytes, KD_RW, MAP_PRIVATE);
	bind(start, s->bytes);
	kd_fault_in(start, s->bytes, false);

	/* The program's own pages come along: from here on they are where the memory is. */
	migrate(1, 0);
	left_behind = 0;
	migrate(0, 1);
	astray += pages - pages_on(start, pages, 1);
	migrate(1, 0);
	audit(KD_BEFORE, s, start, astray);

	while (kd_next()) {
		KD_WINDOW(MOVE, migrate(0, 1));
		astray += pages - pages_on(start, pages, 1);
		KD_WINDOW(BACK, migrate(1, 0));
		astray += pages - pages_on(start, pages, 0);
	}

	tell_moved(2 * (kd.warmup + kd.iterations));
	audit(KD_AFTER, s, start, astray);
	return kd_finish();
}
