// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How long does `make -j N` take, and how much CPU time?  N is the number of CPUs: a build uses all
 * of them, so unlike other workloads it does not stay on one.  Tree and objects are the same in
 * every iteration; "make clean" lies outside the time.
 */
#include "kdelta.h"

#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>

enum { USER, SYST, ELSP };	/* phases */
enum { NAMED = 1 };		/* scenario flags */
enum { FUNCTIONS = 4, STATEMENTS = 8 };	/* of a generated file, of a function */

/* calls: files of the tree */
static const struct kd_scenario scenarios[] = {
	{ "tiny", "4 files that the program makes up", 0, 0, 4 },
	{ "bundled", "32 files that the program makes up", 0, 0, 32 },
	{ "tree", "the tree that KDELTA_WORKLOAD_TREE names", 0, NAMED, 0 },
};

static char tree[PATH_MAX];

/* --------------------------------------------------------------- tree --- */

static int forget(const char *path, const struct stat *entry, int kind, struct FTW *at)
{
	(void)entry;
	(void)kind;
	(void)at;
	return remove(path);
}

static void remove_tree(void)
{
	nftw(tree, forget, 16, FTW_DEPTH | FTW_PHYS);
}

static FILE *create(const char *name)
{
	char path[PATH_MAX + 32];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	file = fopen(path, "we");
	if (!file)
		kd_die(path);
	return file;
}

/* The same sequence everywhere and always: Knuth's MMIX generator, its upper bits. */
static unsigned int draw(unsigned int below)
{
	static uint64_t seed = 1;

	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (seed >> 33) % below;
}

/* One function of loops, branches and calls of the functions before it. */
static void write_function(FILE *file, unsigned int unit, unsigned int number)
{
	fprintf(file, "unsigned f%u_%u(unsigned *v, unsigned n)\n{\n\tunsigned s = %u;\n\n", unit,
		number, draw(1000));
	for (unsigned int i = 0; i < STATEMENTS; i++) {
		unsigned int a = draw(64), b = draw(64), c = 1 + draw(97);

		switch (draw(number ? 4 : 3)) {
		case 0:
			fprintf(file, "\tfor (unsigned i = 0; i < n; i++)\n"
				"\t\tv[i %% 64] = v[%u] * %uu + (v[%u] >> %u) + i;\n", a, c, b, c % 31);
			break;
		case 1:
			fprintf(file, "\tif (v[%u] %% %u > v[%u])\n\t\ts ^= v[%u] << %u;\n", a, c, b, a,
				c % 31);
			break;
		case 2:
			fprintf(file, "\ts = s * %uu + v[%u] - v[%u];\n", c, a, b);
			break;
		default:
			fprintf(file, "\ts += f%u_%u(v, n %% %u);\n", unit, draw(number), c);
		}
	}
	fprintf(file, "\treturn s;\n}\n\n");
}

static void write_unit(unsigned int unit)
{
	char name[32];
	FILE *file;

	snprintf(name, sizeof(name), "u%u.c", unit);
	file = create(name);
	for (unsigned int number = 0; number < FUNCTIONS; number++)
		write_function(file, unit, number);
	if (fclose(file))
		kd_die(name);
}

/* `units` files, one that calls them all, and a Makefile. */
static void write_tree(unsigned int units)
{
	FILE *file = create("Makefile");

	fprintf(file, "CC = cc\nCFLAGS = -O2 -std=gnu11\nOBJECTS = $(patsubst %%.c,%%.o,$(wildcard *.c))\n\n"
		"prog: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\n"
		"clean:\n\trm -f prog $(OBJECTS)\n\n.PHONY: clean\n");
	if (fclose(file))
		kd_die("Makefile");
	file = create("main.c");
	for (unsigned int unit = 1; unit < units; unit++)
		fprintf(file, "unsigned f%u_%u(unsigned *v, unsigned n);\n", unit, FUNCTIONS - 1);
	fprintf(file, "\nint main(void)\n{\n\tstatic unsigned v[64];\n\tunsigned s = 0;\n\n");
	for (unsigned int unit = 1; unit < units; unit++)
		fprintf(file, "\ts += f%u_%u(v, 1);\n", unit, FUNCTIONS - 1);
	fprintf(file, "\treturn s == 1;\n}\n");
	if (fclose(file))
		kd_die("main.c");
	for (unsigned int unit = 1; unit < units; unit++)
		write_unit(unit);
}

static void choose_tree(const struct kd_scenario *s)
{
	const char *named = getenv("KDELTA_WORKLOAD_TREE"), *where = getenv("TMPDIR");

	if (s->flags & NAMED) {
		if (!named)
			kd_skip("KDELTA_WORKLOAD_TREE does not name the tree to build");
		if (!realpath(named, tree))
			kd_skip("KDELTA_WORKLOAD_TREE: %s: %s", named, strerror(errno));
		return;
	}
	if (!where || strlen(where) > PATH_MAX / 2)
		where = "/tmp";
	snprintf(tree, sizeof(tree), "%s/kdelta-kernbench-XXXXXX", where);
	if (!mkdtemp(tree))
		kd_skip("no directory in %s: %s", where, strerror(errno));
	kd_at_end(remove_tree);
	write_tree(s->calls);
}

/* -------------------------------------------------------------- build --- */

/* Run a command, its output unseen; how it ended, 127 when there is no such command. */
static int run(const char *const argv[], struct rusage *used)
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (child < 0)
		kd_die("fork");
	if (!child) {
		int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);

		dup2(nowhere, 0);
		dup2(nowhere, 1);
		if (!used)
			dup2(nowhere, 2);
		unsetenv("MAKEFLAGS");
		unsetenv("MAKELEVEL");
		setenv("CCACHE_DISABLE", "1", 1);
		execvp(argv[0], (char **)argv);
		_exit(127);
	}
	if (wait4(child, &status, 0, used) != child)
		kd_die("wait4");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void need(const char *program)
{
	const char *const argv[] = { program, "--version", NULL };

	if (run(argv, NULL))
		kd_skip("%s is not installed here", program);
}

static long objects;

static int count_object(const char *path, const struct stat *entry, int kind, struct FTW *at)
{
	size_t size = strlen(path);

	(void)entry;
	(void)at;
	objects += kind == FTW_F && size > 2 && !strcmp(path + size - 2, ".o");
	return 0;
}

static long count_objects(void)
{
	objects = 0;
	if (nftw(tree, count_object, 16, FTW_PHYS))
		kd_die("nftw");
	return objects;
}

static uint64_t ns(struct timeval time)
{
	return time.tv_sec * 1000000000ULL + time.tv_usec * 1000ULL;
}

/* One build of the clean tree; returns its number of objects. */
static long build(unsigned int jobs)
{
	const char *const clean[] = { "make", "-s", "-C", tree, "clean", NULL };
	char parallel[16];
	const char *const make[] = { "make", "-s", "-C", tree, parallel, NULL };
	struct rusage used;
	uint64_t began;
	int status;

	snprintf(parallel, sizeof(parallel), "-j%u", jobs);
	status = run(clean, &used);
	if (status)
		kd_exit(1, "make clean ended with status %d: run it in that tree to see why", status);
	began = kd_now();
	status = run(make, &used);
	began = kd_now() - began;
	if (status)
		kd_exit(1, "make %s ended with status %d: run it in that tree to see why", parallel, status);
	if (!kd_warming_up()) {
		kd_sample(USER, ns(used.ru_utime));
		kd_sample(SYST, ns(used.ru_stime));
		kd_sample(ELSP, began);
	}
	return count_objects();
}

/* All CPUs that we may have; kd_start() has put us on one. */
static unsigned int spread(void)
{
	char list[256] = "";
	cpu_set_t all = kd_spread();

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && strlen(list) < sizeof(list) - 8)
			sprintf(list + strlen(list), " %d", cpu);
	kd_note("make runs on CPUs%s", list);
	return CPU_COUNT(&all);
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "kernbench", scenarios,
					       ARRAY_SIZE(scenarios));
	unsigned int jobs = spread();
	long first = 0, now;

	kd_phase(USER, "user", "build", 1);
	kd_phase(SYST, "syst", "build", 1);
	kd_phase(ELSP, "elsp", "build", 1);
	need("make");
	if (!(s->flags & NAMED))
		need("cc");
	choose_tree(s);
	while (kd_next()) {
		now = build(jobs);
		if (first && now != first)
			kd_exit(1, "a build made %ld objects, the first one %ld", now, first);
		first = now;
	}
	kd_state(KD_DURING, "objects", first, s->flags & NAMED ? KD_SAME : (long)s->calls);
	kd_metric_value("jobs", "1", jobs);
	return kd_finish();
}
