/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Of kernbench.c: the same tree and the same builds by the shell; nobody counts their objects. */

static char tree[] = "/tmp/kdelta-kernbench-XXXXXX";

static void remove_tree(void)
{
	if (system("rm -r \"$PWD\""))
		warnx("%s is left", tree);
}

/* What a statement may be, of a, b, c, c % 31, and the function that it calls. */
static const char *const statements[] = {
	"\tfor (unsigned i = 0; i < n; i++)\n\t\tv[i %% 64] = v[%1$u] * %3$uu + (v[%2$u] >> %4$u) + i;\n",
	"\tif (v[%1$u] %% %3$u > v[%2$u])\n\t\ts ^= v[%1$u] << %4$u;\n",
	"\ts = s * %3$uu + v[%1$u] - v[%2$u];\n",
	"\ts += f%5$u_%6$u(v, n %% %3$u);\n",
};

static void write_function(FILE *file, unsigned int unit, unsigned int number)
{
	fprintf(file, "unsigned f%u_%u(unsigned *v, unsigned n)\n{\n\tunsigned s = %u;\n\n", unit,
		number, draw(1000));
	for (unsigned int i = 0; i < STATEMENTS; i++) {
		unsigned int a = draw(64), b = draw(64), c = 1 + draw(97), kind = draw(number ? 4 : 3);

		fprintf(file, statements[kind], a, b, c, c % 31, unit, kind == 3 ? draw(number) : 0);
	}
	fprintf(file, "\treturn s;\n}\n\n");
}

static void write_tree(unsigned int units)
{
	FILE *calls = fopen("main.c", "we"), *file = fopen("Makefile", "we");
	char name[32];

	if (!calls || !file)
		kd_die(tree);
	fprintf(file, "CC = cc\nCFLAGS = -O2 -std=gnu11\nOBJECTS = $(patsubst %%.c,%%.o,$(wildcard *.c))\n\n"
		"prog: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\n"
		"clean:\n\trm -f prog $(OBJECTS)\n\n.PHONY: clean\n");
	for (unsigned int unit = 1; unit < units; unit++)
		fprintf(calls, "unsigned f%u_%u(unsigned *v, unsigned n);\n", unit, FUNCTIONS - 1);
	fprintf(calls, "\nint main(void)\n{\n\tstatic unsigned v[64];\n\tunsigned s = 0;\n\n");
	for (unsigned int unit = 1; unit < units; unit++) {
		fprintf(calls, "\ts += f%u_%u(v, 1);\n", unit, FUNCTIONS - 1);
		snprintf(name, sizeof(name), "u%u.c", unit);
		file = freopen(name, "we", file);
		for (unsigned int number = 0; file && number < FUNCTIONS; number++)
			write_function(file, unit, number);
	}
	fprintf(calls, "\treturn s == 1;\n}\n");
	fflush(NULL);
}

static void choose_tree(const struct kd_scenario *s)
{
	const char *named = getenv("KDELTA_WORKLOAD_TREE");

	if (s->flags & NAMED) {
		if (!named || chdir(named))
			kd_skip("KDELTA_WORKLOAD_TREE does not name the tree to build");
		return;
	}
	if (!mkdtemp(tree) || chdir(tree))
		kd_die(tree);
	kd_at_end(remove_tree);
	write_tree(s->calls);
}

static void build(unsigned int jobs)
{
	struct rusage before, after;
	char make[64];
	uint64_t began;

	snprintf(make, sizeof(make), "exec make -s -j%u >/dev/null", jobs);
	if (system("exec make -s clean >/dev/null"))
		kd_exit(1, "make clean failed: run it in that tree to see why");
	getrusage(RUSAGE_CHILDREN, &before);
	began = kd_now();
	if (system(make))
		kd_exit(1, "make failed: run it in that tree to see why");
	began = kd_now() - began;
	getrusage(RUSAGE_CHILDREN, &after);
	if (!kd_warming_up()) {
		kd_sample(USER, ns(after.ru_utime) - ns(before.ru_utime));
		kd_sample(SYST, ns(after.ru_stime) - ns(before.ru_stime));
		kd_sample(ELSP, began);
	}
}

int main(void)
{
	cpu_set_t all = kd_spread();

	kd_phase(USER, "user", "build", 1);
	kd_phase(SYST, "syst", "build", 1);
	kd_phase(ELSP, "elsp", "build", 1);
	unsetenv("MAKEFLAGS");
	unsetenv("MAKELEVEL");
	setenv("CCACHE_DISABLE", "1", 1);
	choose_tree(s);
	while (kd_next())
		build(CPU_COUNT(&all));
	kd_metric_value("jobs", "1", CPU_COUNT(&all));
	return kd_finish();
}
