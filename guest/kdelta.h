/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kdelta.h - what every kdelta workload shares: marks that an instruction
 * counter can see, a clock that knows its own step, an audit of the pages
 * under test, one command line and one output format.
 *
 * A workload is one C file that reads like this:
 *
 *	s = kd_start(argc, argv, "name", scenarios, ARRAY_SIZE(scenarios));
 *	kd_phase(SCAN, "scan", "page", pages);
 *	... map the memory, fault it in, kd_audit_state(KD_BEFORE, ...) ...
 *	while (kd_next())
 *		KD_WINDOW(SCAN, scan(...));
 *	... kd_audit_state(KD_AFTER, ...) ...
 *	return kd_finish();
 *
 * Exit status: 0 fine, 1 the page state is not what the scenario promises or
 * a system call failed, 2 usage, 77 not supported here.
 */
#ifndef KDELTA_H
#define KDELTA_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kernel-page-flags.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25	/* Linux 6.1 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE	23	/* Linux 5.14 */
#endif

#define KD_PAGE		4096UL
#define KD_HUGE		(2UL << 20)
#define KD_MIB(n)	((n) * 1024UL * 1024UL)
#define KD_PAGES(bytes)	((bytes) / KD_PAGE)
#define KD_RW		(PROT_READ | PROT_WRITE)

/*
 * 465 pages are whole batches of both sizes, 15 and 31 pages, in which kernels move pages between
 * the lists of reclaim: windows over as many, or a multiple, each move the same number.
 */
#define KD_BATCHES	(465 * KD_PAGE)

/* Layouts of the tree of mappings, and the flag of scenarios that go through them: kd_ladders(). */
#define KD_LAYOUTS	60
#define KD_OVER_LAYOUTS	(1U << 31)

/*
 * The flag of scenarios whose windows are too few pages to be whole batches: as many windows as a
 * batch has pages are, whatever each of them takes.  How full the lists are is a layout, too.
 */
#define KD_OVER_BATCHES	(1U << 30)
#define KD_BATCH	31

/*
 * The flag of scenarios whose windows are turns of so many CPUs, up to 8; see kd_loop_in_turns().
 * So many windows are whole batches of each of them.
 */
#define KD_TURNS(cpus)	((cpus) << 24)

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define noinline	__attribute__((noinline))
#define kd_api		static __attribute__((unused))

/* ------------------------------------------------------------- marks --- */

/*
 * A mark is a no-op with a magic operand: hardware ignores it, an emulator
 * that counts instructions sees where a window of a phase begins and ends.
 * The operand carries op << 8 | phase, with op 1 for begin, 2 for end, and 3
 * for counting from now on: until then the emulator runs at full speed.  4 to
 * 6 are told below.
 */
#if defined(__x86_64__)
#define KD_MARK(code, ...)	\
	asm volatile("nopl %c0(%%rax)" : : "i"(0x6b640000 | (code)), ##__VA_ARGS__ : "memory")
#define KD_FIRST	"rdi"
#elif defined(__aarch64__)
#define KD_MARK(code, ...)	\
	asm volatile("movz xzr, #%c0" : : "i"(0xd000 | (code)), ##__VA_ARGS__ : "memory")
#define KD_FIRST	"x0"
#elif defined(__riscv) && __riscv_xlen == 64
#define KD_MARK(code, ...)	\
	asm volatile("lui zero, %0" : : "i"(0x6b000 | (code)), ##__VA_ARGS__ : "memory")
#define KD_FIRST	"a0"
#else
#define KD_MARK(code, ...)	asm volatile("" : : "i"(code) : "memory")
#endif

#define KD_BEGIN(phase)	KD_MARK(1 << 8 | (phase))
#define KD_END(phase)	KD_MARK(2 << 8 | (phase))
#define KD_ARM()	KD_MARK(3 << 8)

/*
 * In a program that nobody has looked at, what it does outside its windows is recorded, too: from
 * KD_MAIN() on, but for functions that begin by KD_APART.  These read and print what is not of the
 * same length on all kernels.
 */
#ifdef KD_WATCHED
#define KD_STARTS(vdso)							\
	do {								\
		register unsigned long kd_vdso asm(KD_FIRST) = (vdso);	\
		KD_MARK(4 << 8, "r"(kd_vdso));				\
	} while (0)
#define KD_MAIN()	KD_STARTS(getauxval(AT_SYSINFO_EHDR))
#define KD_APART	__attribute__((cleanup(kd_back), unused)) char kd_away = kd_leave()
static inline char kd_leave(void)
{
	KD_MARK(5 << 8);
	return 0;
}

static inline void kd_back(char *away)
{
	(void)away;
	KD_MARK(6 << 8);
}
#else
#define KD_MAIN()
#define KD_APART
#endif

#ifndef MADV_COLD
#define MADV_COLD	20	/* Linux 5.4 */
#endif

/*
 * Have the kernel empty this CPU's batches of pages that are on their way to a list of the LRU: it
 * does so for MADV_COLD, which finds nothing here.  Up to 30 pages that were unmapped before a
 * window would else be freed in it, and as many of its own later, as the boot left the batch.
 * What a window leaves in a batch that is not full is moved on behind it, and not counted.
 */
kd_api void kd_drain_batches(void)
{
	static char room[2 * KD_PAGE];	/* a page of it that nobody touches */
	uintptr_t page = ((uintptr_t)room + KD_PAGE - 1) & -KD_PAGE;
	int error = errno;

	if (madvise((void *)page, KD_PAGE, MADV_COLD))
		errno = error;	/* not else: behind fork() it would be a fault of its own */
}

/*
 * Run `work` as one window of `phase`: marked and timed or, while warming up,
 * neither.  `work` is a call of a noinline function, so that every window
 * runs the same instructions.
 */
#define KD_WINDOW(phase, work)						\
	do {								\
		uint64_t kd_began;					\
									\
		if (!kd_over_batches())					\
			kd_drain_batches();				\
		kd_began = kd_sampled();				\
		if (kd_warming_up()) {					\
			work;						\
		} else {						\
			KD_BEGIN(phase);				\
			work;						\
			KD_END(phase);					\
			kd_sample(phase, kd_sampled() - kd_began);	\
		}							\
	} while (0)

/*
 * Say behind a window how many operations it did: each window of a phase must have done as many.
 * A count is then per operation.  So no window has to read a clock, which forbids a verdict.
 */
#define KD_OPS(n)	kd_ops(n)

/* ------------------------------------------------------------- state --- */

enum {
	KD_MAX_PHASES = 8,
	KD_MAX_FACTS = 192,
	KD_MAX_METRICS = 64,
	KD_MAX_NODES = 4,
	KD_MAX_ITERATIONS = 10000,
	KD_MIN_STEPS = 100,	/* a sample of fewer clock steps is mostly clock */
};

struct kd_scenario {
	const char *name;
	const char *summary;
	size_t bytes;		/* of memory under test */
	unsigned int flags;	/* the workload's own, and KD_OVER_... */
	unsigned int calls;	/* system calls in one window */
};

/* A cell of a scenario: the same in folios, which its name has behind a dot. */
struct kd_cell {
	const char *name;
	size_t folio;		/* bytes */
	bool by_ptes;		/* mapped so, though it could be mapped as a whole */
};

struct kd_phase {
	const char *name;
	const char *operation;	/* what is counted: "page", "call" */
	size_t operations;	/* in one window */
};

/* All windows; KD_DURING is for what the kernel counted from before them to after them. */
enum kd_when { KD_BEFORE, KD_AFTER, KD_DURING };

/* Something known of the memory under test, and what it has to be. */
struct kd_fact {
	char name[40];
	long want;
	long value[3];		/* by kd_when */
	bool stated[3];
};

#define KD_UNKNOWN	(-1L)	/* could not be read: never 0, never "fine" */
#define KD_MIXED	(-2L)	/* differs within the memory */
#define KD_SAME		(-3L)	/* wanted: known, and equal on all kernels that are compared */
#define KD_FREE		(-4L)	/* wanted: nothing; it is only told */

struct kd_want {
	const char *name;
	long value;
};

/* A figure beside the time of the phases. */
struct kd_metric {
	char name[64];
	const char *unit;
	double value;
	char absent[120];	/* why there is no value; "" where there is one */
};

static struct {
	const char *name;
	const struct kd_scenario *scenario;
	const struct kd_cell *cell;	/* NULL: pages as the scenario has them */
	bool protocol;		/* print records for kdelta, not tables */
	long pause_us;		/* of sleep before each iteration */
	char *ladders[2];	/* see kd_ladders() */
	long layouts_off;	/* layouts that were not as they were meant */
	unsigned int iterations;
	unsigned int warmup;
	unsigned int begun;	/* iterations, warm-up included */
	unsigned int wrong;	/* facts */
	unsigned int unknown;	/* facts */
	struct kd_fact facts[KD_MAX_FACTS + 1];	/* the last one has no name */
	struct kd_metric metrics[KD_MAX_METRICS];
	unsigned int metric_count;
	char *vmstat;		/* text of /proc/vmstat before the windows */
	struct kd_phase phases[KD_MAX_PHASES];
	unsigned int last;	/* phase of the window that closed last */
	struct {
		size_t each;		/* operations of each window, by KD_OPS(); 0: not told */
		unsigned int windows;	/* that told it */
		bool differ;
	} ops[KD_MAX_PHASES];
	struct {
		long pages;		/* that are as they were to become, see kd_audit_out() */
		long want;
	} done[2];
	uint64_t *ns;		/* [phase][iteration] */
	uint64_t clock_step;	/* ns, measured */
} kd = { .iterations = 16, .warmup = 4 };

/* ------------------------------------------------------------ output --- */

/* End now.  The reason is the last thing said. */
kd_api __attribute__((noreturn, format(printf, 2, 3)))
void kd_exit(int status, const char *format, ...)
{
	va_list args;

	fflush(stdout);
	if (kd.protocol)
		printf("note ");
	va_start(args, format);
	vfprintf(kd.protocol ? stdout : stderr, format, args);
	va_end(args);
	if (kd.protocol)
		printf("\nend %d\n", status);
	else
		fputc('\n', stderr);
	exit(status);
}

/* A system call that must not fail did. */
#define kd_die(what)	kd_exit(1, "%s: %s (errno %d)", what, strerror(errno), errno)
#define kd_skip(...)	kd_exit(77, __VA_ARGS__)
#define kd_must(fine)				\
	do {					\
		if (!(fine))			\
			kd_die(#fine);		\
	} while (0)
#define kd_note(format, ...) \
	printf("%s " format "\n", kd.protocol ? "note" : "note:", __VA_ARGS__)

/* A fact's value, or what is wanted of it, as text; `text` holds 24 bytes. */
kd_api const char *kd_text(char *text, long value)
{
	static const char *const words[] = { "unknown", "mixed", "same", "free" };

	if (value < 0 && value >= KD_FREE)
		return words[-value - 1];
	snprintf(text, 24, "%ld", value);
	return text;
}

/* State a fact.  The same facts are stated before and after. */
kd_api void kd_state(enum kd_when when, const char *name, long value, long want)
{
	KD_APART;
	static const char *const words[] = { "before", "after", "during" };
	struct kd_fact *fact = kd.facts;
	char text[24], wanted[24];

	while (fact->name[0] && strcmp(fact->name, name))
		if (++fact == kd.facts + KD_MAX_FACTS)
			kd_exit(1, "more than %d facts", KD_MAX_FACTS);
	snprintf(fact->name, sizeof(fact->name), "%s", name);
	fact->want = want;
	if (when == KD_DURING && want == KD_FREE && fact->stated[when] && fact->value[when] > value)
		value = fact->value[when];	/* of several looks the most */
	fact->value[when] = value;
	fact->stated[when] = true;
	if (want != KD_FREE) {
		kd.unknown += value == KD_UNKNOWN;
		if (want == KD_SAME)
			kd.wrong += value == KD_MIXED;
		else
			kd.wrong += value != KD_UNKNOWN && value != want;
	}
	if (kd.protocol)
		printf("state %s %s %s %s\n", words[when], name, kd_text(text, value),
		       kd_text(wanted, want));
}

kd_api void kd_print_facts(void)
{
	char text[24];

	printf("%-24s %12s %12s %12s %12s\n", "page state", "before", "after", "during", "wanted");
	for (const struct kd_fact *fact = kd.facts; fact->name[0]; fact++) {
		printf("%-24s", fact->name);
		for (enum kd_when when = KD_BEFORE; when <= KD_DURING; when++)
			printf(" %12s", fact->stated[when] ? kd_text(text, fact->value[when]) : "");
		printf(" %12s\n", fact->want == KD_FREE ? "" : kd_text(text, fact->want));
	}
}

/* Tell a figure that is not the time of a phase; the workload's TOML says what it means. */
__attribute__((format(printf, 4, 5)))
kd_api void kd_metric(const char *name, const char *unit, double value, const char *absent, ...)
{
	struct kd_metric *metric = &kd.metrics[kd.metric_count];
	va_list args;

	if (kd.metric_count++ == KD_MAX_METRICS)
		kd_exit(1, "more than %d metrics", KD_MAX_METRICS);
	snprintf(metric->name, sizeof(metric->name), "%s", name);
	metric->unit = unit;
	metric->value = value;
	va_start(args, absent);
	vsnprintf(metric->absent, sizeof(metric->absent), absent, args);
	va_end(args);
}

/* The same of a figure that cannot be had here: absent is never zero. */
#define kd_metric_value(name, unit, value)	kd_metric(name, unit, value, "%s", "")
#define kd_metric_absent(name, unit, ...)	kd_metric(name, unit, 0, __VA_ARGS__)

kd_api void kd_print_metrics(void)
{
	for (unsigned int i = 0; i < kd.metric_count; i++) {
		const struct kd_metric *metric = &kd.metrics[i];

		if (kd.protocol && metric->absent[0])
			printf("metric %s %s absent %s\n", metric->name, metric->unit, metric->absent);
		else if (kd.protocol)
			printf("metric %s %s %.17g\n", metric->name, metric->unit, metric->value);
		else if (metric->absent[0])
			printf("%-32s %14s  (%s)\n", metric->name, "absent", metric->absent);
		else
			printf("%-32s %14.10g  %s\n", metric->name, metric->value, metric->unit);
	}
}

/* ------------------------------------------------------------- clock --- */

kd_api uint64_t kd_now(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_MONOTONIC_RAW, &ts))
		kd_die("clock_gettime");
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The time of a sample, which is none of the program's own reading. */
static inline uint64_t kd_sampled(void)
{
	KD_APART;
	return kd_now();
}

/*
 * The smallest step that the clock is seen to make.  clock_getres() says 1 ns
 * of a jiffies clock, too, and that one moves by 4 ms.
 */
kd_api uint64_t kd_clock_step(void)
{
	KD_APART;
	uint64_t step = UINT64_MAX, last = kd_now(), now;

	for (unsigned int steps = 0, idle = 0; steps < 16; ) {
		now = kd_now();
		if (now == last) {
			if (++idle > 1U << 28)
				kd_exit(1, "CLOCK_MONOTONIC_RAW does not move");
			continue;
		}
		if (now - last < step)
			step = now - last;
		last = now;
		steps++;
	}
	return step;
}

/* ------------------------------------------------------ command line --- */

kd_api unsigned int kd_number(const char *option, const char *text, unsigned int min)
{
	unsigned long value = 0;
	char *end = NULL;

	if (text)
		value = strtoul(text, &end, 10);
	if (end == text || *end || value < min || value > KD_MAX_ITERATIONS)
		kd_exit(2, "%s needs a number from %u to %d", option, min, KD_MAX_ITERATIONS);
	return value;
}

/*
 * The scenario of a command line that names none.  A file written by `kdelta workload export` defines one.
 * The programs with and without it differ in these bytes alone: as far as the compiler knows the
 * array can change, so no code depends on what it holds, and an empty one takes as much room.
 */
#ifndef KD_SCENARIO
#define KD_SCENARIO	""
#endif
__attribute__((used, section(".data"))) static char kd_chosen[128] = KD_SCENARIO;

/* The cell that a wanted scenario has behind its dot, if it has one. */
kd_api const struct kd_cell *kd_cell_of(const char *wanted)
{
	static const struct kd_cell cells[] = {
		{ "64K", 64UL << 10, false },
		{ "2M", KD_HUGE, false },
		{ "2M-ptes", KD_HUGE, true },
	};
	const char *dot = wanted ? strchr(wanted, '.') : NULL;

	for (size_t i = 0; dot && i < ARRAY_SIZE(cells); i++)
		if (!strcmp(dot + 1, cells[i].name))
			return &cells[i];
	return NULL;
}

/* The scenario in folios: whole ones, so its memory may be more. */
kd_api const struct kd_scenario *kd_in_folios(const struct kd_scenario *one, const char *name)
{
	static struct kd_scenario cell;

	cell = *one;
	cell.name = name;
	cell.bytes = (one->bytes + kd.cell->folio - 1) / kd.cell->folio * kd.cell->folio;
	return &cell;
}

kd_api void kd_parse(int argc, char **argv, const struct kd_scenario *all, size_t n)
{
	const char *wanted = NULL;
	size_t length;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--protocol")) {
			kd.protocol = true;
		} else if (!strcmp(argv[i], "--iterations")) {
			kd.iterations = kd_number("--iterations", argv[++i], 1);
		} else if (!strcmp(argv[i], "--warmup")) {
			kd.warmup = kd_number("--warmup", argv[++i], 0);
		} else if (!strcmp(argv[i], "--list")) {
			for (size_t j = 0; j < n; j++)
				printf("%-30s %s\n", all[j].name, all[j].summary);
			exit(0);
		} else if (argv[i][0] == '-' || wanted) {
			kd_exit(2, "usage: %s [--protocol] [--iterations N] [--warmup N] "
				"[--list] [SCENARIO]", kd.name);
		} else {
			wanted = argv[i];
		}
	}
	if (!wanted && kd_chosen[0])
		wanted = kd_chosen;
	kd.cell = kd_cell_of(wanted);
	length = wanted ? strcspn(wanted, kd.cell ? "." : "") : 0;
	for (size_t i = 0; wanted && i < n; i++)
		if (!strncmp(wanted, all[i].name, length) && !all[i].name[length])
			kd.scenario = kd.cell ? kd_in_folios(&all[i], wanted) : &all[i];
	if (!kd.scenario)
		kd_exit(2, "%s needs one of its scenarios: see --list", kd.name);
}

/* -------------------------------------------------------- iterations --- */

kd_api void kd_sleep_us(long us)
{
	const struct timespec delay = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&delay, NULL);
}

/* Stay on that CPU: a window is counted on the CPU where it began. */
kd_api void kd_pin_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		kd_die("sched_setaffinity");
}

kd_api void kd_pin(void)
{
	int cpu = sched_getcpu();

	if (cpu < 0)
		kd_die("sched_getcpu");
	kd_pin_to(cpu);
}

/* Leave that CPU again, for all that we may have; returns them. */
kd_api cpu_set_t kd_spread(void)
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	if (sched_setaffinity(0, sizeof(all), &all) || sched_getaffinity(0, sizeof(all), &all))
		kd_die("sched_setaffinity");
	return all;
}

/*
 * Start over with stack, heap and program at the same addresses in every run, for windows that
 * copy or take down the whole address space, and for those that map where the kernel likes: one
 * that lies in no page table of another mapping makes a table each time.  Call it first in main().  Where that is forbidden,
 * the addresses stay random.
 */
kd_api void kd_fixed_layout(char **argv)
{
	int now = personality(0xffffffff);

	if (now < 0 || now & ADDR_NO_RANDOMIZE || personality(now | ADDR_NO_RANDOMIZE) < 0)
		return;
	execv("/proc/self/exe", argv);
}

/*
 * Move the program's mappings and heap by as many pages as KD_ADDRESSES says (guest/seed.h), and
 * have other mappings beside them: in which page table memory lies, and where the nodes of the tree
 * of mappings end, decides how long a path is.  Both are the same on all kernels for a number.
 */
__attribute__((constructor(101))) static void kd_move(void)
{
	KD_MAIN();
	KD_APART;
	const char *text = getenv("KD_ADDRESSES");
	size_t pages = text ? strtoul(text, NULL, 10) % 512 : 0, others = pages % 31;
	char *room;

	if (!text)
		return;
	room = mmap(NULL, (64 + pages) * KD_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED || sbrk(pages * KD_PAGE) == (void *)-1)
		_exit(126);
	for (size_t other = 0; other < others; other++)
		if (mprotect(room + (2 * other + 1) * KD_PAGE, KD_PAGE, PROT_READ))
			_exit(126);
}

/*
 * Let no other task of this CPU into the windows: kernel threads (RCU, DAMON, writeback) get their
 * turn before each iteration, when we sleep for so long.  20 ms see most grace periods of RCU end,
 * so that what windows freed is free again.  For work of one task only: tasks that wake each other
 * would be scheduled by the rules of real time.  Where that is forbidden, we only sleep.
 */
kd_api void kd_alone(unsigned int pause_ms)
{
	struct sched_param first = { .sched_priority = 1 };

	if (sched_setscheduler(0, SCHED_FIFO, &first) && errno != EPERM)
		kd_die("sched_setscheduler");
	kd.pause_us = pause_ms * 1000L;
}

static struct {
	pid_t owner;		/* children change nothing back */
	void (*undo)(void);
} kd_end;

kd_api void kd_clean_up(void)
{
	if (getpid() == kd_end.owner)
		kd_end.undo();
}

kd_api void kd_ended(int number)
{
	kd_clean_up();
	_exit(128 + number);
}

/* Call `undo` at the end, even when a signal is the end: it leaves the machine as it was. */
kd_api void kd_at_end(void (*undo)(void))
{
	kd_end.owner = getpid();
	kd_end.undo = undo;
	if (atexit(kd_clean_up))
		kd_exit(1, "atexit failed");
	signal(SIGHUP, kd_ended);
	signal(SIGINT, kd_ended);
	signal(SIGTERM, kd_ended);
}

/* Wait for a child, which must have ended well. */
kd_api void kd_reap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		kd_die("waitpid");
	if (status)
		kd_exit(1, "the child ended with status %d", status);
}

kd_api bool kd_over_layouts(void)
{
	return kd.scenario->flags & KD_OVER_LAYOUTS;
}

/* Whole batches go through the windows together, and through none of them. */
kd_api bool kd_over_batches(void)
{
	return kd.scenario->flags & KD_OVER_BATCHES;
}

/* How many CPUs take turns; 0 for none. */
kd_api unsigned int kd_turns(void)
{
	return kd.scenario->flags >> 24 & 15;
}

/* How many layouts the windows go through in turn. */
kd_api unsigned int kd_layouts(void)
{
	if (kd_turns())
		return KD_BATCH * kd_turns();
	return kd_over_layouts() ? KD_LAYOUTS : kd_over_batches() ? KD_BATCH : 1;
}

/* Read the command line, choose the scenario, make ready to measure. */
kd_api const struct kd_scenario *kd_start(int argc, char **argv, const char *name,
					  const struct kd_scenario *all, size_t n)
{
	KD_APART;
	size_t size;

	kd.name = name;
	kd_parse(argc, argv, all, n);
	if (kd.protocol)
		printf("kdelta-workload 1 %s %s\n", name, kd.scenario->name);
	if (kd_layouts() > 1) {		/* as many windows of each as of the others */
		kd.iterations += kd_layouts() - 1;
		kd.iterations -= kd.iterations % kd_layouts();
		if (kd.protocol)
			printf("layouts %u\n", kd_layouts());
	}
	if (sysconf(_SC_PAGESIZE) != (long)KD_PAGE)
		kd_skip("the scenario needs base pages of 4 KiB");

	kd_pin();
	size = kd.iterations * KD_MAX_PHASES * sizeof(*kd.ns);
	kd.ns = malloc(size);
	if (!kd.ns)
		kd_die("malloc");
	memset(kd.ns, 0xff, size);
	kd.clock_step = kd_clock_step();
	return kd.scenario;
}

/*
 * Where the nodes of the kernel's tree of mappings begin and end decides what it costs to change a
 * mapping: at the end of a node brk() takes twice as many instructions.  So a scenario over layouts
 * has two ladders of up to 31 small mappings, one below and one above the memory under test, which
 * move the ends of nodes past it.  Of all pairs of heights each layout has another one, spread
 * evenly (Roberts 2018, the R2 sequence: multiples of 1/g and 1/g^2 with g^3 = g + 1).
 */
#define KD_HEIGHTS	32U
#define KD_LADDER	((KD_HEIGHTS + 1) * KD_PAGE)

kd_api long kd_vmas(const char *start, size_t bytes);

/* A ladder of that height: neighbours differ, the rest is inaccessible. */
kd_api void kd_set_ladder(char *ladder, unsigned int height, bool from_top)
{
	char *page = ladder + (from_top ? KD_LADDER - KD_PAGE : 0);

	if (mmap(ladder, KD_LADDER, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	    ladder)
		kd_die("mmap of a ladder");
	for (unsigned int i = 0; i < height; i++, page += from_top ? -KD_PAGE : KD_PAGE)
		if (mprotect(page, KD_PAGE, i % 2 ? KD_RW : PROT_READ))
			kd_die("mprotect of a ladder");
}

/* The layout of that number; both ladders grow towards the memory. */
kd_api void kd_lay_out(unsigned int number)
{
	unsigned int lower = (number * 49472 % 65536) * KD_HEIGHTS / 65536;
	unsigned int upper = (number * 37345 % 65536) * KD_HEIGHTS / 65536;

	kd_set_ladder(kd.ladders[0], lower, false);
	kd_set_ladder(kd.ladders[1], upper, true);
	if (number % 8 == 7)		/* it takes longer than the ladders did */
		kd.layouts_off += kd_vmas(kd.ladders[0], KD_LADDER) != (long)lower + 1 ||
				  kd_vmas(kd.ladders[1], KD_LADDER) != (long)upper + 1;
}

/*
 * Have the windows go through the layouts; `below` and `above` are free for KD_LADDER bytes.  There
 * are so many windows that each leaves little behind: short pauses will do.
 */
kd_api void kd_ladders(char *below, char *above)
{
	kd_alone(4);
	kd.ladders[0] = below;
	kd.ladders[1] = above;
}

/* Declare a phase: `operations` times `operation` in each of its windows. */
kd_api void kd_phase(unsigned int id, const char *name, const char *operation, size_t operations)
{
	kd.phases[id] = (struct kd_phase){ name, operation, operations };
	if (kd.protocol)
		printf("phase %u %s %s %zu\n", id, name, operation, operations);
}

/* True once for every iteration to run, those of the warm-up first. */
kd_api bool kd_next(void)
{
	if (kd.ladders[0]) {
		KD_APART;
		kd_lay_out(kd.begun % KD_LAYOUTS);
	}
	if (kd.pause_us)
		kd_sleep_us(kd.pause_us);
	KD_APART;
	if (!kd.begun) {
		kd_drain_batches();
		KD_ARM();
		sched_yield(); /* arming takes effect when the emulator ends its block */
	}
	return kd.begun++ < kd.warmup + kd.iterations;
}

kd_api bool kd_warming_up(void)
{
	return kd.begun <= kd.warmup;
}

kd_api void kd_ops(size_t n)
{
	unsigned int phase = kd.last;

	if (kd_warming_up() && kd.begun)
		return;
	if (!kd.ops[phase].windows++)
		kd.ops[phase].each = n;
	kd.ops[phase].differ |= kd.ops[phase].each != n || !n;
}

/* Why the operations that KD_OPS() told are none, "" where they are. */
kd_api const char *kd_ops_fault(unsigned int phase, unsigned int windows)
{
	if (kd.ops[phase].differ)
		return "windows of a phase did different numbers of operations: do as many in each";
	if (kd.ops[phase].windows && kd.ops[phase].windows != windows)
		return "KD_OPS(n) was told of some windows of a phase: tell it behind each KD_END()";
	if (kd.ops[phase].windows && kd.phases[phase].operations &&
	    kd.phases[phase].operations != kd.ops[phase].each)
		return "KD_OPS(n) and kd_phase() tell different numbers of operations";
	return "";
}

kd_api void kd_sample(unsigned int phase, uint64_t ns)
{
	kd.last = phase;
	kd.ns[phase * kd.iterations + kd.begun - kd.warmup - 1] = ns;
}

kd_api int kd_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Print the samples of one phase: each of them, or a line of the table. */
kd_api void kd_report(const struct kd_phase *phase, uint64_t *ns)
{
	unsigned int n = kd.iterations, coarse = 0;
	double each = phase->operations;

	for (unsigned int i = 0; i < n; i++) {
		coarse += ns[i] < KD_MIN_STEPS * kd.clock_step;
		if (kd.protocol)
			printf("sample %s %u %" PRIu64 " %zu\n", phase->name, i, ns[i],
			       phase->operations);
	}
	if (!kd.protocol) {
		qsort(ns, n, sizeof(*ns), kd_compare);
		printf("%-10s %12.3f %12.3f %12.3f  ns/%s, %zu in a window\n", phase->name,
		       ns[0] / each, (ns[(n - 1) / 2] + ns[n / 2]) / 2 / each, ns[n - 1] / each,
		       phase->operation, phase->operations);
	}
	if (coarse)
		kd_note("%s: %u of %u samples span fewer than %d clock steps of %" PRIu64 " ns",
			phase->name, coarse, n, KD_MIN_STEPS, kd.clock_step);
}

kd_api void kd_tell_vdso(void);

/* What kd_audit_out() and kd_audit_on_node() saw, as facts of all windows. */
kd_api void kd_state_done(void)
{
	static const char *const names[] = { "window_pages_out", "window_pages_on_node" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (kd.done[i].want)
			kd_state(KD_DURING, names[i], kd.done[i].pages, kd.done[i].want);
}

/* Print what was measured; returns the exit status. */
kd_api int kd_finish(void)
{
	struct utsname host;
	const char *fault;

	if (kd_over_layouts())
		kd_state(KD_DURING, "layouts_off", kd.layouts_off, 0);
	kd_state_done();
	if (kd.protocol)
		kd_tell_vdso();
	if (!kd.protocol) {
		if (uname(&host))
			kd_die("uname");
		printf("%s %s: %s\n", kd.name, kd.scenario->name, kd.scenario->summary);
		printf("Linux %s %s, %u iterations after %u to warm up, clock step %" PRIu64 " ns\n\n",
		       host.release, host.machine, kd.iterations, kd.warmup, kd.clock_step);
		kd_print_facts();
		printf("\n%-10s %12s %12s %12s\n", "phase", "min", "median", "max");
	}
	for (unsigned int id = 0; id < KD_MAX_PHASES; id++)
		if (kd.phases[id].name)
			kd_report(&kd.phases[id], kd.ns + id * kd.iterations);
	if (!kd.protocol && kd.metric_count)
		putchar('\n');
	kd_print_metrics();
	for (unsigned int id = 0; id < KD_MAX_PHASES; id++)
		if (*(fault = kd_ops_fault(id, kd.iterations)))
			kd_exit(1, "%s", fault);
	if (kd.unknown)
		kd_note("%u facts of the page state are unknown: root may know", kd.unknown);
	if (kd.wrong)
		kd_exit(1, "%u facts of the page state are not as wanted", kd.wrong);
	if (kd.protocol)
		puts("end 0");
	if (fflush(stdout))
		kd_die("standard output");
	if (kd.protocol && getenv("KD_LAST")) /* PID 1's: the guest ends now, and gives nothing back */
		raise(SIGSTOP);
	return 0;
}

/* -------------------------------------------------- memory under test --- */

/*
 * Inaccessible memory for `bytes` at a boundary of `align`, and more of it on both sides so that
 * no neighbour merges with what is mapped there.  The hint gives the page tables the same shape in
 * every run; it is no more than a hint.
 */
kd_api char *kd_reserve(size_t bytes, size_t align)
{
	char *hint = (char *)(64UL << 30), *base;

	base = mmap(hint - align, bytes + 3 * align, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		kd_die("mmap of the address space");
	return (char *)(((uintptr_t)base + 2 * align - 1) & ~(align - 1));
}

/* Map at that place, whatever is there; fd -1 is anonymous memory. */
kd_api void kd_map_at(char *start, size_t bytes, int prot, int flags, int fd)
{
	flags |= MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);
	if (mmap(start, bytes, prot, flags, fd, 0) == MAP_FAILED)
		kd_die("mmap");
}

/* Map `bytes` of anonymous memory at a 2 MiB boundary. */
kd_api char *kd_map(size_t bytes, int prot, int flags)
{
	char *start = kd_reserve(bytes, KD_HUGE);

	kd_map_at(start, bytes, prot, flags, -1);
	return start;
}

/* Give the pages of anonymous memory back. */
kd_api void kd_drop(char *start, size_t bytes)
{
	if (madvise(start, bytes, MADV_DONTNEED))
		kd_die("madvise(MADV_DONTNEED)");
}

/* An empty file without a path, on the kernel's own tmpfs; gone when the program ends. */
kd_api int kd_memfd(void)
{
	int fd = memfd_create("kdelta", MFD_CLOEXEC);

	if (fd < 0)
		kd_die("memfd_create");
	return fd;
}

/* Write one byte to each of `n` pages, `stride` bytes apart. */
kd_api noinline void kd_touch(char *start, size_t n, size_t stride)
{
	volatile char *page = start;

	for (; n; n--, page += stride)
		*page = 1;
}

/*
 * The same in a set-up.  Where the kernel can bring all pages in by one call (5.14), no fault of each
 * has to leave the emulator's code; for few pages this is more code than it saves.
 */
kd_api void kd_bring_in(char *start, size_t bytes)
{
	if (bytes >= KD_MIB(16))
		madvise(start, bytes, MADV_POPULATE_WRITE);
	kd_touch(start, KD_PAGES(bytes), KD_PAGE);
}

kd_api void kd_fault_folios(char *start, size_t bytes);

/* Bytes of the folios that the scenario's cell wants; 0 for none. */
kd_api size_t kd_folio(void)
{
	return kd.cell ? kd.cell->folio : 0;
}

/* True when the cell wants them mapped by PTEs. */
kd_api bool kd_by_ptes(void)
{
	return kd.cell && kd.cell->by_ptes;
}

/*
 * Base pages only.  A kernel without THP says EINVAL, which is as good.  In a cell of folios this
 * is what brings them in.
 */
kd_api void kd_no_thp(char *start, size_t bytes)
{
	if (kd_folio())
		kd_fault_folios(start, bytes);
	else if (madvise(start, bytes, MADV_NOHUGEPAGE) && errno != EINVAL)
		kd_die("madvise(MADV_NOHUGEPAGE)");
}

/* All of a file as a string to free(), or NULL. */
kd_api char *kd_read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (!file)
		return NULL;
	if (getdelim(&text, &size, '\0', file) < 0) {
		free(text);
		text = NULL;
	}
	fclose(file);
	return text;
}

/* Write a knob of sysfs or procfs, or make a small file. */
kd_api bool kd_write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

kd_api bool kd_file_says(const char *path, const char *words)
{
	char *text = kd_read_file(path);
	bool says = text && strstr(text, words);

	free(text);
	return says;
}

#define KD_THP	"/sys/kernel/mm/transparent_hugepage/"

kd_api void kd_need_64k(void)
{
	const char *enabled = KD_THP "hugepages-64kB/enabled";

	if (access(enabled, R_OK))
		kd_skip("the kernel has no anonymous folios of 64 KiB");
	if (kd_file_says(enabled, "[never]"))
		kd_skip("folios of 64 KiB are off: set %s to madvise", enabled);
}

kd_api void kd_need_thp(void)
{
	if (!kd_file_says(KD_THP "hpage_pmd_size", "2097152\n"))
		kd_skip("the kernel has no transparent huge pages of 2 MiB");
	if (kd_file_says(KD_THP "enabled", "[never]"))
		kd_skip("transparent huge pages are off: set " KD_THP "enabled to madvise");
}

/*
 * Huge pages wherever the kernel can: at the fault, and by MADV_COLLAPSE for
 * what the fault did not get.  The audit decides whether that was enough.
 */
kd_api void kd_fault_thp(char *start, size_t bytes)
{
	kd_need_thp();
	if (madvise(start, bytes, MADV_HUGEPAGE))
		kd_die("madvise(MADV_HUGEPAGE)");
	kd_touch(start, KD_PAGES(bytes), KD_PAGE);

	KD_APART;	/* kernels of before do not know it */
	if (madvise(start, bytes, MADV_COLLAPSE) && errno != EINVAL)
		kd_note("madvise(MADV_COLLAPSE): %s", strerror(errno));
}

/*
 * Have each huge page mapped by PTEs: a page of it gets another protection for a moment.  No
 * khugepaged may map it as a whole again.
 */
kd_api void kd_map_by_ptes(char *start, size_t bytes)
{
	for (char *huge = start; huge < start + bytes; huge += KD_HUGE)
		if (mprotect(huge, KD_PAGE, PROT_READ) || mprotect(huge, KD_PAGE, KD_RW))
			kd_die("mprotect");
	if (madvise(start, bytes, MADV_NOHUGEPAGE))
		kd_die("madvise(MADV_NOHUGEPAGE)");
}

/* Bring private anonymous memory in by the folios of the cell, where faults may give them. */
kd_api void kd_fault_folios(char *start, size_t bytes)
{
	if (kd_folio() == KD_HUGE)
		kd_fault_thp(start, bytes);
	else
		kd_need_64k();
	kd_touch(start, KD_PAGES(bytes), KD_PAGE);
	if (kd_by_ptes())
		kd_map_by_ptes(start, bytes);
}

/* Bring all of the memory in, written to: huge pages, or base pages only. */
kd_api void kd_fault_in(char *start, size_t bytes, bool thp)
{
	if (thp)
		kd_fault_thp(start, bytes);
	else
		kd_no_thp(start, bytes);
	kd_bring_in(start, bytes);
}

#define KD_64K	(64UL << 10)

/*
 * Private anonymous memory that faults bring in folios of 64 KiB where the kernel has them and may
 * use them, and in none larger: at most 62 of them, so that no 2 MiB lie within the mapping.
 */
kd_api char *kd_map_64k(size_t bytes)
{
	char *start;

	kd_need_64k();
	start = kd_map(bytes + KD_64K, KD_RW, MAP_PRIVATE);
	if (mprotect(start, KD_64K, PROT_NONE))
		kd_die("mprotect");
	if (madvise(start + KD_64K, bytes, MADV_HUGEPAGE))
		kd_die("madvise(MADV_HUGEPAGE)");
	return start + KD_64K;
}

/* ------------------------------------------------------------- audit --- */

/* A file of the process whose memory is audited. */
#ifndef KD_PROC
#define KD_PROC(name)	"/proc/self/" name
#endif

/* What the kernel says of a range; KD_UNKNOWN where it does not say. */
struct kd_audit {
	long present;		/* pages, by pagemap */
	long swapped;
	long soft_dirty;
	long kpf[64];		/* pages with this KPF_ bit, by kpageflags */
	long vmas;		/* mappings, by maps */
	long writable_vmas;	/* mappings with this VmFlag, by smaps */
	long shared_vmas;
	long soft_dirty_vmas;
	long mergeable_vmas;	/* open to KSM; some kernels set KPF_KSM for all anon pages */
	long rss_kb;		/* sums over the mappings, by smaps */
	long dirty_kb;		/* ... of pages that nobody else maps */
	long anon_huge_kb;
	long shmem_pmd_kb;
	long kernel_page_kb;	/* the same in all mappings, by smaps */
	long mmu_page_kb;
	long thp_eligible;
	long sealed_vmas;
	long node[KD_MAX_NODES];	/* pages on a NUMA node, by numa_maps */
};

/* Read the `n` words from word `first` on: all of them, or fail. */
kd_api bool kd_read_words(const char *path, uint64_t *to, size_t n, uint64_t first)
{
	size_t size = n * sizeof(*to), done = 0;
	ssize_t got = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	do {
		done += got;
		got = pread(fd, (char *)to + done, size - done, first * sizeof(*to) + done);
	} while (got > 0);
	close(fd);
	return done == size;
}

/* Count the KPF_ bits of sorted page frames, one read per run of them. */
kd_api void kd_audit_frames(struct kd_audit *audit, const uint64_t *pfn, size_t n)
{
	uint64_t flags[512];
	long count[64] = { 0 };

	for (size_t i = 0, run; i < n; i += run) {
		for (run = 1; run < ARRAY_SIZE(flags) && i + run < n; run++)
			if (pfn[i + run] != pfn[i] + run)
				break;
		if (!kd_read_words("/proc/kpageflags", flags, run, pfn[i]))
			return;
		for (size_t page = 0; page < run; page++)
			for (uint64_t left = flags[page]; left; left &= left - 1)
				count[__builtin_ctzll(left)]++;
	}
	memcpy(audit->kpf, count, sizeof(count));
}

/* Bits of a pagemap word: Documentation/admin-guide/mm/pagemap.rst */
#define KD_PM_PFN		((1ULL << 55) - 1)
#define KD_PM_SOFT_DIRTY	(1ULL << 55)
#define KD_PM_UFFD_WP		(1ULL << 57)
#define KD_PM_SWAPPED		(1ULL << 62)
#define KD_PM_PRESENT		(1ULL << 63)

/* Sort page frames, by their digits: many are sorted in each audit. */
kd_api void kd_sort_frames(uint64_t *pfn, size_t n)
{
	uint64_t *from = pfn, *to = malloc(n * sizeof(*to) + 1), *other = to, all = 0;

	if (!to)
		kd_die("malloc");
	for (size_t i = 0; i < n; i++)
		all |= pfn[i];
	for (unsigned int shift = 0; all >> shift; shift += 8) {
		size_t at[257] = { 0 };

		for (size_t i = 0; i < n; i++)
			at[(from[i] >> shift) % 256 + 1]++;
		for (unsigned int digit = 0; digit < 256; digit++)
			at[digit + 1] += at[digit];
		for (size_t i = 0; i < n; i++)
			to[at[(from[i] >> shift) % 256]++] = from[i];
		from = to;
		to = to == pfn ? other : pfn;
	}
	if (from != pfn)
		memcpy(pfn, from, n * sizeof(*pfn));
	free(other);
}

kd_api void kd_audit_pages(struct kd_audit *audit, const char *start, size_t pages)
{
	KD_APART;
	uint64_t *map = malloc(pages * sizeof(*map));
	size_t present = 0;

	if (!map)
		kd_die("malloc");
	if (kd_read_words(KD_PROC("pagemap"), map, pages, KD_PAGES((uintptr_t)start))) {
		audit->swapped = audit->soft_dirty = 0;
		for (size_t i = 0; i < pages; i++) {
			audit->swapped += !!(map[i] & KD_PM_SWAPPED);
			audit->soft_dirty += !!(map[i] & KD_PM_SOFT_DIRTY);
			if (map[i] & KD_PM_PRESENT)
				map[present++] = map[i] & KD_PM_PFN;
		}
		audit->present = present;
		kd_sort_frames(map, present);
		/* An ordinary user is shown frame 0 in place of any other. */
		if (present && map[0])
			kd_audit_frames(audit, map, present);
	}
	free(map);
}

/* How many pages of the range have a bit in pagemap, now. */
kd_api long kd_pagemap_count(const char *start, size_t bytes, uint64_t bit)
{
	KD_APART;
	uint64_t map[512];
	long count = 0;

	for (size_t n, i = 0; i < KD_PAGES(bytes); i += n) {
		n = KD_PAGES(bytes) - i < ARRAY_SIZE(map) ? KD_PAGES(bytes) - i : ARRAY_SIZE(map);
		if (!kd_read_words("/proc/self/pagemap", map, n, KD_PAGES((uintptr_t)start) + i))
			return KD_UNKNOWN;
		for (size_t page = 0; page < n; page++)
			count += !!(map[page] & bit);
	}
	return count;
}

/* How many are in memory, now: less than an audit, for use in every iteration. */
kd_api long kd_present(const char *start, size_t bytes)
{
	return kd_pagemap_count(start, bytes, KD_PM_PRESENT);
}

kd_api struct rusage kd_usage(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		kd_die("getrusage");
	return usage;
}

/* Page faults of this process so far that needed no reading from a disk. */
kd_api long kd_minor_faults(void)
{
	KD_APART;
	return kd_usage().ru_minflt;
}

/* How often this process has waited so far. */
kd_api long kd_waits(void)
{
	KD_APART;
	return kd_usage().ru_nvcsw;
}

/*
 * One number for what all windows did, to be stated as a fact KD_DURING: the first value, and
 * KD_MIXED as soon as another differs.  `all` begins as KD_FREE.
 */
kd_api void kd_all(long *all, long value)
{
	*all = *all == KD_FREE || *all == value ? value : KD_MIXED;
}

/* So many pages, of all, are now as a window was to make them. */
kd_api void kd_audit_done(unsigned int which, long pages, long want)
{
	if (!kd.done[which].want)
		kd.done[which].pages = KD_FREE;
	kd_all(&kd.done[which].pages, pages);
	kd.done[which].want = want;
}

/*
 * Behind a window that was to move all pages of a range out: is none present, and each swapped?
 * MADV_PAGEOUT returns 0 where there is no swap, and moves nothing.
 */
kd_api void kd_audit_out(const char *start, size_t bytes)
{
	KD_APART;
	long out = kd_pagemap_count(start, bytes, KD_PM_SWAPPED), in = kd_present(start, bytes);

	kd_audit_done(0, in > 0 ? KD_MIXED : in < 0 ? KD_UNKNOWN : out, KD_PAGES(bytes));
}

enum kd_how { KD_COUNT, KD_SUM, KD_UNIFORM, KD_FLAG };

/*
 * Go through the text of maps or smaps, looking at the mappings from `start`
 * to `end`: count them, add up the numbers of their `key` lines, see whether
 * these are the same, or count the `key` lines that have a flag.
 */
kd_api long kd_mappings(const char *text, const char *start, const char *end,
			enum kd_how how, const char *key, const char *flag)
{
	long vmas = 0, seen = 0, result = 0, value;
	bool inside = false;
	const char *eol;
	char *dash;

	for (const char *line = text; line && *line; line = *eol ? eol + 1 : eol) {
		eol = strchrnul(line, '\n');
		if (*line < 'A' || *line > 'Z') {	/* no key: where a mapping begins and ends */
			uintptr_t low = strtoul(line, &dash, 16);

			inside = low < (uintptr_t)end &&
				 strtoul(dash + 1, NULL, 16) > (uintptr_t)start;
			vmas += inside;
		}
		if (!inside || !key || strncmp(line, key, strlen(key)))
			continue;
		value = strtol(line + strlen(key), NULL, 10);
		if (how == KD_UNIFORM && seen && value != result)
			return KD_MIXED;
		if (how == KD_FLAG)
			value = memmem(line, eol - line, flag, strlen(flag)) != NULL;
		result = how == KD_UNIFORM ? value : result + value;
		seen++;
	}
	if (how == KD_COUNT)
		return text ? vmas : KD_UNKNOWN;
	return vmas && seen == vmas ? result : KD_UNKNOWN;	/* absent is not zero */
}

/* Pages per NUMA node of the mappings from `start` to `end`, by numa_maps. */
kd_api void kd_audit_nodes(struct kd_audit *audit, const char *start, const char *end)
{
	char *maps = kd_read_file("/proc/self/numa_maps"), *next = maps, *line;

	if (maps)
		memset(audit->node, 0, sizeof(audit->node));
	while ((line = strsep(&next, "\n"))) {
		uintptr_t low = strtoul(line, NULL, 16);

		if (low < (uintptr_t)start || low >= (uintptr_t)end)
			continue;
		while ((line = strstr(line, " N"))) {
			unsigned long node = strtoul(line + 2, &line, 10);

			if (node < KD_MAX_NODES && *line == '=')
				audit->node[node] += strtol(line + 1, &line, 10);
		}
	}
	free(maps);
}

/* Behind a window that was to move all pages of mappings to a NUMA node: are they there? */
kd_api void kd_audit_on_node(const char *start, size_t bytes, unsigned int node)
{
	KD_APART;
	struct kd_audit audit;

	memset(&audit, 0xff, sizeof(audit));
	kd_audit_nodes(&audit, start, start + bytes);
	kd_audit_done(1, node < KD_MAX_NODES ? audit.node[node] : KD_UNKNOWN, KD_PAGES(bytes));
}

/* How many mappings the range consists of, now. */
kd_api long kd_vmas(const char *start, size_t bytes)
{
	KD_APART;
	char *maps = kd_read_file("/proc/self/maps");
	long vmas = kd_mappings(maps, start, start + bytes, KD_COUNT, NULL, NULL);

	free(maps);
	return vmas;
}

/* How much of a range are huge pages that are mapped as such, now. */
kd_api long kd_anon_huge_kb(const char *start, size_t bytes)
{
	KD_APART;
	char *smaps = kd_read_file("/proc/self/smaps");
	long kb = kd_mappings(smaps, start, start + bytes, KD_SUM, "AnonHugePages:", NULL);

	free(smaps);
	return kb;
}

/* All that can be known of a range but its nodes.  It takes long: never within a window. */
kd_api struct kd_audit kd_audit(const char *start, size_t bytes)
{
	KD_APART;
	char *smaps = kd_read_file("/proc/self/smaps");
	const char *end = start + bytes;
	struct kd_audit audit;

	memset(&audit, 0xff, sizeof(audit));	/* KD_UNKNOWN everywhere */
	kd_audit_pages(&audit, start, KD_PAGES(bytes));
	audit.vmas = kd_mappings(smaps, start, end, KD_COUNT, NULL, NULL);
	audit.writable_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " wr");
	audit.shared_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " sh");
	audit.soft_dirty_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " sd");
	audit.mergeable_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " mg");
	audit.rss_kb = kd_mappings(smaps, start, end, KD_SUM, "Rss:", NULL);
	audit.dirty_kb = kd_mappings(smaps, start, end, KD_SUM, "Private_Dirty:", NULL);
	audit.anon_huge_kb = kd_mappings(smaps, start, end, KD_SUM, "AnonHugePages:", NULL);
	audit.shmem_pmd_kb = kd_mappings(smaps, start, end, KD_SUM, "ShmemPmdMapped:", NULL);
	audit.kernel_page_kb = kd_mappings(smaps, start, end, KD_UNIFORM, "KernelPageSize:", NULL);
	audit.mmu_page_kb = kd_mappings(smaps, start, end, KD_UNIFORM, "MMUPageSize:", NULL);
	audit.thp_eligible = kd_mappings(smaps, start, end, KD_UNIFORM, "THPeligible:", NULL);
	audit.sealed_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " sl");
	free(smaps);

	/* Where it is tracked, new memory is soft-dirty and says so twice. */
	if (!audit.soft_dirty && audit.soft_dirty_vmas <= 0)
		audit.soft_dirty = KD_UNKNOWN;
	return audit;
}

#define KD_AUDITED(name, member) { name, offsetof(struct kd_audit, member) }

static const struct {
	const char *name;
	size_t offset;
} kd_audited[] = {
	KD_AUDITED("present_pages", present),
	KD_AUDITED("swapped_pages", swapped),
	KD_AUDITED("soft_dirty_pages", soft_dirty),
	KD_AUDITED("anon_pages", kpf[KPF_ANON]),
	KD_AUDITED("ksm_pages", kpf[KPF_KSM]),
	KD_AUDITED("zero_pages", kpf[KPF_ZERO_PAGE]),
	KD_AUDITED("thp_pages", kpf[KPF_THP]),
	KD_AUDITED("huge_pages", kpf[KPF_HUGE]),
	KD_AUDITED("compound_heads", kpf[KPF_COMPOUND_HEAD]),
	KD_AUDITED("compound_tails", kpf[KPF_COMPOUND_TAIL]),
	KD_AUDITED("rss_kb", rss_kb),
	KD_AUDITED("dirty_kb", dirty_kb),
	KD_AUDITED("anon_huge_kb", anon_huge_kb),
	KD_AUDITED("shmem_pmd_kb", shmem_pmd_kb),
	KD_AUDITED("kernel_page_kb", kernel_page_kb),
	KD_AUDITED("mmu_page_kb", mmu_page_kb),
	KD_AUDITED("thp_eligible", thp_eligible),
	KD_AUDITED("vmas", vmas),
	KD_AUDITED("writable_vmas", writable_vmas),
	KD_AUDITED("shared_vmas", shared_vmas),
	KD_AUDITED("mergeable_vmas", mergeable_vmas),
	KD_AUDITED("sealed_vmas", sealed_vmas),
};

/* What is wanted of a fact: nothing, unless the list says more. */
kd_api long kd_wanted(const char *name, const struct kd_want *want, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(want[i].name, name))
			return want[i].value;
	return KD_FREE;
}

/* On which node pages are, where there are two: each reading of numa_maps goes through all pages. */
kd_api void kd_state_nodes(enum kd_when when, const char *start, const char *end,
			   const struct kd_want *want, size_t n)
{
	static const char *const names[] = { "node0_pages", "node1_pages" };
	struct kd_audit audit;

	if (kd_wanted(names[0], want, n) == KD_FREE && access("/sys/devices/system/node/node1", F_OK))
		return;
	memset(&audit, 0xff, sizeof(audit));
	kd_audit_nodes(&audit, start, end);
	for (size_t node = 0; node < ARRAY_SIZE(names); node++)
		kd_state(when, names[node], audit.node[node], kd_wanted(names[node], want, n));
}

/* What a cell of folios wants of a fact, in place of what the scenario wants of base pages. */
kd_api long kd_wanted_in_folios(const char *name, size_t bytes, long otherwise)
{
	static const char *const told[] = { "thp_pages", "thp_eligible", "dirty_kb" };
	long pages = KD_PAGES(bytes), folios = bytes / kd_folio();

	for (size_t i = 0; i < ARRAY_SIZE(told); i++)	/* kernels differ in what they say there */
		if (!strcmp(name, told[i]))
			return KD_FREE;
	if (!strcmp(name, "compound_heads"))
		return folios;
	if (!strcmp(name, "compound_tails"))
		return pages - folios;
	if (!strcmp(name, "anon_huge_kb"))
		return kd_folio() == KD_HUGE && !kd_by_ptes() ? pages * 4 : 0;
	return otherwise;
}

/* A number that a file holds alone, such as a counter of sysfs. */
kd_api long kd_file_number(const char *path)
{
	char *text = kd_read_file(path), *end = text;
	long value = KD_UNKNOWN;

	if (text)
		value = strtol(text, &end, 10);
	if (end == text)
		value = KD_UNKNOWN;
	free(text);
	return value;
}

/* The number behind a key at the beginning of a line, as in vmstat and meminfo. */
kd_api long kd_keyed(const char *text, const char *key)
{
	size_t size = strlen(key);

	for (const char *line = text; line && *line; ) {
		if (!strncmp(line, key, size) && (line[size] == ' ' || line[size] == ':'))
			return strtol(line + size + 1, NULL, 10);
		line = strchr(line, '\n');
		line += !!line;
	}
	return KD_UNKNOWN;
}

/* The pools that memory may come from; they are the machine's, not the range's. */
kd_api void kd_state_pools(enum kd_when when, const struct kd_want *want, size_t n)
{
	KD_APART;
	static const char *const pools[][2] = {
		{ "hugetlb_2m_total", "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages" },
		{ "hugetlb_2m_free", "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages" },
		{ "hugetlb_1g_total", "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages" },
		{ "hugetlb_1g_free", "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages" },
	};
	char *meminfo = kd_read_file("/proc/meminfo");

	for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
		kd_state(when, pools[i][0], kd_file_number(pools[i][1]),
			 kd_wanted(pools[i][0], want, n));
	kd_state(when, "swap_total_kb", kd_keyed(meminfo, "SwapTotal"),
		 kd_wanted("swap_total_kb", want, n));
	free(meminfo);
}

/* Where the code of the vDSO lies: a window that runs it may read a clock without a system call. */
kd_api void kd_tell_vdso(void)
{
	char *maps = kd_read_file("/proc/self/maps"), *next = maps, *line;
	unsigned long low, high;

	while ((line = strsep(&next, "\n")))
		if (strstr(line, "[vdso]") && sscanf(line, "%lx-%lx", &low, &high) == 2)
			printf("vdso %lu %lu\n", low, high);
	free(maps);
}

kd_api bool kd_stated(const char *name)
{
	for (const struct kd_fact *fact = kd.facts; fact->name[0]; fact++)
		if (!strcmp(fact->name, name))
			return true;
	return false;
}

/*
 * Counters of what was not done (dropped, refused, put off) and of huge pages.  Files of lines
 * "NAME VALUE", or of pairs "GROUP: NAME ..." and "GROUP: VALUE ..."; the words say which.
 */
static const char *const kd_undone[] = {
	"/proc/net/snmp",	/* net/ipv4/proc.c: RFC 1213, RFC 4293 */
	"/proc/net/netstat",	/* net/ipv4/proc.c: LINUX_MIB_* of include/uapi/linux/snmp.h */
	"/proc/vmstat",		/* mm/vmstat.c: include/linux/vm_event_item.h */
};
static const char *const kd_undone_words[] = {
	"DelayedACK", "Discard", "Drop", "Err", "Fail", "Lost", "NoPorts", "NoRoutes", "Overflow",
	"Prune", "RateLimit", "Retrans", "Timeouts", "TooBig", "Truncated",
	"allocstall", "compact_stall", "fail", "fallback", "oom_kill", "throttle",
	"thp_fault_alloc",	/* a huge page may come and go within a window */
};

/* Before the windows.  It takes as many pages whatever a kernel counts, and so does their text. */
static struct {
	char name[40];
	long value;
} kd_undone_before[160];

#define KD_UNDONE_TEXT	(64UL << 10)

kd_api void kd_undone_row(enum kd_when when, const char *group, const char *name, const char *value)
{
	char fact[sizeof(kd_undone_before->name)];
	size_t row = 0;
	bool ours = false;

	if (!strcmp(group, "UdpLite") || !strcmp(group, "MPTcpExt"))
		return;		/* there is no room for all */
	for (size_t i = 0; i < ARRAY_SIZE(kd_undone_words); i++)
		ours |= strstr(name, kd_undone_words[i]) != NULL;
	snprintf(fact, sizeof(fact), "undone_%s%s%s", group, *group ? "_" : "", name);
	while (row < ARRAY_SIZE(kd_undone_before) - 1 && kd_undone_before[row].name[0] &&
	       strcmp(kd_undone_before[row].name, fact))
		row++;
	if (ours && when == KD_BEFORE) {
		strcpy(kd_undone_before[row].name, fact);
		kd_undone_before[row].value = strtol(value, NULL, 10);
	} else if (ours) {
		kd_state(KD_DURING, fact, strtol(value, NULL, 10) - kd_undone_before[row].value,
			 KD_FREE);
	}
}

kd_api void kd_undone_rows(enum kd_when when, char *text)
{
	char *names, *values, *name;

	while ((names = strsep(&text, "\n")) && *names) {
		const char *group = strchr(names, ':') ? strsep(&names, ":") : "";

		name = strsep(&names, " ");
		if (!*group) {
			kd_undone_row(when, group, name, names ?: "");
			continue;
		}
		values = strsep(&text, "\n");
		strsep(&values, " ");
		while ((name = strsep(&names, " ")))
			kd_undone_row(when, group, name, strsep(&values, " ") ?: "");
	}
}

kd_api void kd_state_undone(enum kd_when when)
{
	char *text = mmap(NULL, KD_UNDONE_TEXT, KD_RW,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (text == MAP_FAILED)
		kd_die("mmap of counters");
	if (when == KD_BEFORE)
		memset(kd_undone_before, 0, sizeof(kd_undone_before));
	for (size_t i = 0; i < ARRAY_SIZE(kd_undone); i++) {
		int fd = open(kd_undone[i], O_RDONLY | O_CLOEXEC);
		ssize_t got, size = 0;

		while (fd >= 0 && (got = read(fd, text + size, KD_UNDONE_TEXT - 1 - size)) > 0)
			size += got;
		text[size] = '\0';
		kd_undone_rows(when, text);
		if (fd >= 0)
			close(fd);
	}
	munmap(text, KD_UNDONE_TEXT);
}

/*
 * The state of the machine that paths may grow with: how many tasks and mounts there are, and free
 * pages.  Nothing is wanted of it.
 */
kd_api void kd_state_machine(enum kd_when when)
{
	KD_APART;
	static bool told[2];	/* once, whatever else is audited */
	char *load, *mounts, *meminfo, *tasks;
	long free_kb, lines = 0;

	if (when == KD_DURING || told[when])
		return;
	told[when] = true;
	load = kd_read_file("/proc/loadavg");
	mounts = kd_read_file("/proc/self/mounts");
	meminfo = kd_read_file("/proc/meminfo");
	tasks = load ? strchr(load, '/') : NULL;
	free_kb = kd_keyed(meminfo, "MemFree");
	for (const char *at = mounts; at && (at = strchr(at, '\n')); at++)
		lines++;
	kd_state(when, "machine_tasks", tasks ? strtol(tasks + 1, NULL, 10) : KD_UNKNOWN, KD_FREE);
	kd_state(when, "machine_mounts", mounts ? lines : KD_UNKNOWN, KD_FREE);
	kd_state(when, "machine_free_pages", free_kb < 0 ? KD_UNKNOWN : free_kb / 4, KD_FREE);
#ifdef KD_WATCHED
	if (sizeof(KD_SCENARIO) == 1) {	/* an export is counted as its workload is */
		/* Also of files that nobody maps, and of children. */
		kd_state(when, "memory_anon_huge_kb", kd_keyed(meminfo, "AnonHugePages"), KD_FREE);
		kd_state(when, "memory_file_huge_kb", kd_keyed(meminfo, "FileHugePages"), KD_FREE);
		kd_state(when, "memory_shmem_huge_kb", kd_keyed(meminfo, "ShmemHugePages"), KD_FREE);
		kd_state_undone(when);
	}
#endif
	free(load);
	free(mounts);
	free(meminfo);
}

/* Counters of vmstat that tell what became of pages: told when they moved or are wanted. */
kd_api void kd_state_vmstat(const struct kd_want *want, size_t n)
{
	KD_APART;
	static const char *const prefixes[] = {
		"thp_", "pgsteal", "pswp", "pgmigrate_", "compact_", "numa_pages_migrated",
	};
	char *now = kd_read_file("/proc/vmstat"), *next = now, *line;
	const char *then = kd.vmstat;	/* the same counters in the same order */

	while ((line = strsep(&next, "\n"))) {
		char *value = strchr(line, ' ');
		bool ours = false;
		long wanted, delta;

		if (!value)
			continue;
		*value++ = '\0';
		for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
			ours |= !strncmp(line, prefixes[i], strlen(prefixes[i]));
		wanted = kd_wanted(line, want, n);
		delta = strtol(value, NULL, 10) - kd_keyed(then, line);
		then = then ? strchr(then, '\n') : NULL;
		then += !!then;
		if (wanted != KD_FREE || (ours && delta > 0))
			kd_state(KD_DURING, line, delta, wanted);
	}
	free(now);
	/* What is wanted and this kernel does not count is unknown. */
	for (size_t i = 0; i < n; i++)
		if (!kd_stated(want[i].name))
			kd_state(KD_DURING, want[i].name, KD_UNKNOWN, want[i].value);
}

/*
 * State all that is known of the range, and of what the kernel counted meanwhile.  `want` lists
 * what must hold: facts of the range before and after, counters of /proc/vmstat (by their names
 * there) as differences over all windows.  Call it last before and first after the windows.
 */
kd_api void kd_audit_state(enum kd_when when, const char *start, size_t bytes,
			   const struct kd_want *want, size_t n)
{
	KD_APART;
	struct kd_audit audit;

	if (when == KD_AFTER)
		kd_state_vmstat(want, n);
	audit = kd_audit(start, bytes);
	for (size_t i = 0; i < ARRAY_SIZE(kd_audited); i++) {
		const char *name = kd_audited[i].name;
		long value, wanted = kd_wanted(name, want, n);

		if (kd_folio())
			wanted = kd_wanted_in_folios(name, bytes, wanted);
		memcpy(&value, (char *)&audit + kd_audited[i].offset, sizeof(value));
		kd_state(when, name, value, wanted);
	}
	kd_state_nodes(when, start, start + bytes, want, n);
	kd_state_pools(when, want, n);
	kd_state_machine(when);
	if (when == KD_BEFORE)
		kd.vmstat = kd_read_file("/proc/vmstat");
}

/*
 * The same of private anonymous memory, resident in folios of `folio` bytes and mapped as a whole:
 * all of that is wanted, and what `want` lists besides, or otherwise.
 */
kd_api void kd_audit_anon(enum kd_when when, const char *start, size_t bytes, size_t folio,
			  const struct kd_want *want, size_t n)
{
	long pages = KD_PAGES(bytes), folios = folio > KD_PAGE ? bytes / folio : 0;
	bool huge = folio == KD_HUGE;
	const struct kd_want anon[] = {
		{ "present_pages", pages },
		{ "swapped_pages", 0 },
		{ "anon_pages", pages },
		{ "zero_pages", 0 },
		{ "mergeable_vmas", 0 },
		{ "thp_pages", huge ? pages : folios ? KD_FREE : 0 },
		{ "compound_heads", folios },
		{ "compound_tails", folios ? pages - folios : 0 },
		{ "anon_huge_kb", huge ? pages * 4 : 0 },
		{ "kernel_page_kb", 4 },
		{ "vmas", 1 },
	};
	struct kd_want all[ARRAY_SIZE(anon) + 32];

	if (n > 32)
		kd_exit(1, "more than 32 facts are wanted");
	if (n)
		memcpy(all, want, n * sizeof(*want));	/* they come first: the first counts */
	memcpy(all + n, anon, sizeof(anon));
	kd_audit_state(when, start, bytes, all, n + ARRAY_SIZE(anon));
}

/* ------------------------------------------------------------- loops --- */

static char kd_folder[64];

kd_api void kd_leave_tmpfs(void)
{
	DIR *folder = opendir(kd_folder);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		if (unlinkat(dirfd(folder), entry->d_name, 0))
			unlinkat(dirfd(folder), entry->d_name, AT_REMOVEDIR);
	if (folder)
		closedir(folder);
	umount2(kd_folder, MNT_DETACH);
	rmdir(kd_folder);
}

/* A folder of our own on tmpfs becomes the working directory; it goes when the program ends. */
kd_api void kd_enter_tmpfs(void)
{
	struct statfs found;
	bool shm = !statfs("/dev/shm", &found) && found.f_type == TMPFS_MAGIC &&
		   !access("/dev/shm", W_OK);

	snprintf(kd_folder, sizeof(kd_folder), "%s/kdelta-%d", shm ? "/dev/shm" : "",
		 (int)getpid());
	if (mkdir(kd_folder, 0700))
		kd_skip("there is no tmpfs at /dev/shm, and no place for one: %s", strerror(errno));
	kd_at_end(kd_leave_tmpfs);
	if (!shm && mount("none", kd_folder, "tmpfs", 0, NULL))
		kd_skip("there is no tmpfs at /dev/shm, and none may be mounted: %s",
			strerror(errno));
	if (chdir(kd_folder))
		kd_die("chdir");
}

/* A thread that sleeps all the time: that it exists may change the path of the other. */
kd_api void *kd_rest(void *unused)
{
	for (;;)
		pause();
	return unused;
}

kd_api void kd_start_another(void)
{
	pthread_t other;

	errno = pthread_create(&other, NULL, kd_rest, NULL);
	if (errno)
		kd_die("pthread_create");
}

/* What would put another path before each system call, or another task on the CPU. */
kd_api void kd_audit_task(enum kd_when when, long threads)
{
	KD_APART;
	char *status = kd_read_file("/proc/self/status");
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		kd_die("sched_getaffinity");
	kd_state(when, "cpus_allowed", CPU_COUNT(&set), 1);
	kd_state(when, "threads", kd_keyed(status, "Threads"), threads);
	kd_state(when, "tracer", kd_keyed(status, "TracerPid"), 0);
	free(status);
	kd_state_machine(when);
}

kd_api noinline void kd_repeat(void (*once)(void), unsigned int calls)
{
	for (; calls; calls--)
		once();
}

/*
 * Measure `once`, so many times in each window, as phase 0, "call"; returns the exit status.  The
 * task has so many `threads`.  A window of all takes so many page faults and waits so often.
 */
kd_api int kd_loop(void (*once)(void), unsigned int calls, long threads, long faults, long waits)
{
	long faulted = KD_FREE, waited = KD_FREE, faults_before, waits_before;

	kd_alone(4);
	kd_phase(0, "call", "call", calls);
	kd_repeat(once, calls);
	kd_audit_task(KD_BEFORE, threads);
	while (kd_next()) {
		faults_before = kd_minor_faults();
		waits_before = kd_waits();
		KD_WINDOW(0, kd_repeat(once, calls));
		if (!kd_warming_up()) {
			kd_all(&faulted, kd_minor_faults() - faults_before);
			kd_all(&waited, kd_waits() - waits_before);
		}
	}
	kd_state(KD_DURING, "window_faults", faulted, faults);
	kd_state(KD_DURING, "window_waits", waited, waits);
	kd_audit_task(KD_AFTER, threads);
	return kd_finish();
}

/* --------------------------------------------------------------- turns --- */

#if defined(__x86_64__)
#define KD_RELAX()	__builtin_ia32_pause()
#elif defined(__aarch64__)
#define KD_RELAX()	asm volatile("yield")
#else
#define KD_RELAX()
#endif

/* Whose turn it is; one that waits for its own asks the kernel for nothing, so no line moves. */
static struct kd_turn {
	volatile unsigned int whose;	/* task, 0 for the one that gives them out */
	volatile bool counted;
	void (*once)(void);
} *kd_turn;

static __thread unsigned int kd_task;	/* our number */

kd_api noinline void kd_take_turn(void)
{
	if (!kd_turn->counted) {
		kd_turn->once();
		return;
	}
	KD_BEGIN(0);
	kd_turn->once();
	KD_END(0);
}

kd_api void *kd_take_turns(void *number)
{
	kd_task = (uintptr_t)number;
	kd_pin_to(kd_task);
	for (kd_turn->whose = 0; ; kd_turn->whose = 0) {
		while (kd_turn->whose != kd_task)
			KD_RELAX();
		kd_take_turn();
	}
	return NULL;
}

kd_api void kd_give_turn(unsigned int task, bool counted)
{
	kd_turn->counted = counted;
	if (!task) {
		kd_take_turn();
		return;
	}
	kd_turn->whose = task;
	while (kd_turn->whose)
		KD_RELAX();
}

/* Start the task of that number, and wait until it stands on its CPU. */
kd_api void kd_start_task(unsigned int task, bool process)
{
	void *number = (void *)(uintptr_t)task;
	pthread_t thread;
	pid_t pid;

	kd_turn->whose = task;
	if (!process) {
		errno = pthread_create(&thread, NULL, kd_take_turns, number);
		if (errno)
			kd_die("pthread_create");
	} else {
		pid = fork();
		if (pid < 0)
			kd_die("fork");
		if (!pid && prctl(PR_SET_PDEATHSIG, SIGKILL))
			_exit(126);
		if (!pid)
			kd_take_turns(number);
	}
	while (kd_turn->whose)
		KD_RELAX();
}

/*
 * Measure `once`, once in each window, as phase 0, "call", by tasks that take turns, each on a CPU
 * of its own: threads of this process, or processes.  Returns the exit status.
 */
kd_api int kd_loop_in_turns(void (*once)(void), bool processes)
{
	unsigned int cpus = kd_turns(), turns = 0;
	uint64_t began;

	if (sysconf(_SC_NPROCESSORS_ONLN) < (long)cpus)
		kd_skip("the scenario needs %u CPUs", cpus);
	kd_turn = mmap(NULL, sizeof(*kd_turn), KD_RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (kd_turn == MAP_FAILED)
		kd_die("mmap");
	kd_turn->once = once;
	kd_phase(0, "call", "call", 1);
	kd_pin_to(0);
	for (unsigned int task = 1; task < cpus; task++)
		kd_start_task(task, processes);
	kd_audit_task(KD_BEFORE, processes ? 1 : cpus);
	while (kd_next()) {
		/* A turn to warm up is 16 rounds, so that some grace periods of RCU end. */
		for (unsigned int i = 0; kd_warming_up() && i < 16 * kd_layouts(); i++)
			kd_give_turn(i % cpus, false);
		if (kd_warming_up())
			continue;
		began = kd_sampled();
		kd_give_turn(turns++ % cpus, true);
		kd_sample(0, kd_sampled() - began);
	}
	kd_audit_task(KD_AFTER, processes ? 1 : cpus);
	return kd_finish();
}

#if defined(KD_THEIRS) && !defined(KD_LONE)
/* What a program's author has apart, nobody records. */
#pragma GCC poison KD_APART kd_leave kd_back
#endif

#endif /* KDELTA_H */
