// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does it cost to charge memory to a cgroup, by how deep it lies?
 */
#include "kdelta.h"

enum {							/* calls */
	FAULT, TMPFS, PIPE,
};

enum {							/* how deep */
	CALL = 255,
	DEPTH_4 = 1 << 8,
	DEPTH_8 = 1 << 9,
};

#define SPAN	(15 * KD_PAGE)
#define ROOT	"/kdelta-cgroup"

static const struct kd_scenario scenarios[] = {
	{ "fault_depth_1", "15 pages mapped, written to and unmapped, in a cgroup of depth 1",
	  0, FAULT, 31 },
	{ "fault_depth_4", "15 pages mapped, written to and unmapped, in a cgroup of depth 4",
	  0, FAULT | DEPTH_4, 31 },
	{ "fault_depth_8", "15 pages mapped, written to and unmapped, in a cgroup of depth 8",
	  0, FAULT | DEPTH_8, 31 },
	{ "tmpfs_depth_1", "15 pages written to a new file and cut off, in a cgroup of depth 1",
	  0, TMPFS, 31 },
	{ "tmpfs_depth_4", "15 pages written to a new file and cut off, in a cgroup of depth 4",
	  0, TMPFS | DEPTH_4, 31 },
	{ "tmpfs_depth_8", "15 pages written to a new file and cut off, in a cgroup of depth 8",
	  0, TMPFS | DEPTH_8, 31 },
	{ "pipe_depth_1", "a pipe made, written to and closed, in a cgroup of depth 1",
	  0, PIPE, 62 },
	{ "pipe_depth_4", "a pipe made, written to and closed, in a cgroup of depth 4",
	  0, PIPE | DEPTH_4, 62 },
	{ "pipe_depth_8", "a pipe made, written to and closed, in a cgroup of depth 8",
	  0, PIPE | DEPTH_8, 62 },
};

static int file;
static char buffer[15 * 4096];
static char leaf[256];

static void charge_memory(void)
{
	char *memory = mmap(NULL, SPAN, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	kd_must(memory != MAP_FAILED);
	kd_touch(memory, SPAN / KD_PAGE, KD_PAGE);
	kd_must(!munmap(memory, SPAN));
}

static void charge_file(void)
{
	kd_must(pwrite(file, buffer, SPAN, 0) == (ssize_t)SPAN);
	kd_must(!ftruncate(file, 0));
}

static void charge_kernel(void)
{
	int ends[2];

	kd_must(!pipe(ends));
	kd_must(write(ends[1], buffer, KD_PAGE) == (ssize_t)KD_PAGE);
	kd_must(!close(ends[0]) && !close(ends[1]));
}

static bool write_into(const char *folder, const char *name, const char *text)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return kd_write_file(path, text);
}

/* Out of the cgroup, which then goes, with those above it. */
static void leave(void)
{
	write_into(ROOT, "cgroup.procs", "0");
	for (; strlen(leaf) > strlen(ROOT); *strrchr(leaf, '/') = '\0')
		rmdir(leaf);
	umount2(ROOT, MNT_DETACH);
	rmdir(ROOT);
}

static void enter(unsigned int depth)
{
	if (mkdir(ROOT, 0700))
		kd_skip("there is no place for cgroups at %s: %s", ROOT, strerror(errno));
	strcpy(leaf, ROOT);
	kd_at_end(leave);
	if (mount("none", ROOT, "cgroup2", 0, NULL))
		kd_skip("cgroups cannot be mounted: %s", strerror(errno));
	for (; depth; depth--) {
		if (!write_into(leaf, "cgroup.subtree_control", "+memory"))
			kd_skip("cgroups have no controller of memory: %s", strerror(errno));
		strcat(leaf, "/kdelta");
		if (mkdir(leaf, 0700))
			kd_die("mkdir of a cgroup");
	}
	kd_must(write_into(leaf, "cgroup.procs", "0"));
}

/* How many folders there are below the root, and whether anything is charged to the last. */
static void audit(unsigned int depth)
{
	char *text = kd_read_file("/proc/self/cgroup");
	char *own = text ? strstr(text, "0::/") : NULL;
	long found = own ? 0 : KD_UNKNOWN, charged;
	char path[300];

	for (; own && *own && *own != '\n'; own++)
		found += *own == '/';
	free(text);
	snprintf(path, sizeof(path), "%s/memory.current", leaf);
	charged = kd_file_number(path);
	kd_state(KD_DURING, "cgroup_depth", found, depth);
	kd_state(KD_DURING, "cgroup_charged", charged == KD_UNKNOWN ? charged : charged > 0, 1);
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[FAULT] = charge_memory, [TMPFS] = charge_file, [PIPE] = charge_kernel,
	};
	const struct kd_scenario *s;
	unsigned int depth;

	kd_fixed_layout(argv);
	s = kd_start(argc, argv, "memcg", scenarios, ARRAY_SIZE(scenarios));
	depth = s->flags & DEPTH_8 ? 8 : s->flags & DEPTH_4 ? 4 : 1;
	enter(depth);
	file = kd_memfd();
	memset(buffer, 1, sizeof(buffer));
	kd_repeat(once[s->flags & CALL], 4);
	audit(depth);
	return kd_loop(once[s->flags & CALL], s->calls, 1,
		       (s->flags & CALL) == FAULT ? s->calls * SPAN / KD_PAGE : 0, 0);
}
