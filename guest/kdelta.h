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
 *	... map the memory, fault it in, audit(KD_BEFORE) ...
 *	while (kd_next())
 *		KD_WINDOW(SCAN, scan(...));
 *	... audit(KD_AFTER) ...
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
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kernel-page-flags.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25	/* Linux 6.1 */
#endif

#define KD_PAGE		4096UL
#define KD_HUGE		(2UL << 20)
#define KD_MIB(n)	((n) * 1024UL * 1024UL)
#define KD_PAGES(bytes)	((bytes) / KD_PAGE)

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define noinline	__attribute__((noinline))
#define kd_api		static __attribute__((unused))

/* ------------------------------------------------------------- marks --- */

/*
 * A mark is a no-op with a magic operand: hardware ignores it, an emulator
 * that counts instructions sees where a window of a phase begins and ends.
 * The operand carries op << 8 | phase, with op 1 for begin, 2 for end, and 3
 * for counting from now on: until then the emulator runs at full speed.
 */
#if defined(__x86_64__)
#define KD_MARK(code)	asm volatile("nopl %c0(%%rax)" : : "i"(0x6b640000 | (code)) : "memory")
#elif defined(__aarch64__)
#define KD_MARK(code)	asm volatile("movz xzr, #%c0" : : "i"(0xd000 | (code)) : "memory")
#elif defined(__riscv) && __riscv_xlen == 64
#define KD_MARK(code)	asm volatile("lui zero, %0" : : "i"(0x6b000 | (code)) : "memory")
#else
#define KD_MARK(code)	asm volatile("" : : "i"(code) : "memory")
#endif

#define KD_BEGIN(phase)	KD_MARK(1 << 8 | (phase))
#define KD_END(phase)	KD_MARK(2 << 8 | (phase))
#define KD_ARM()	KD_MARK(3 << 8)

/*
 * Run `work` as one window of `phase`: marked and timed or, while warming up,
 * neither.  `work` is a call of a noinline function, so that every window
 * runs the same instructions.
 */
#define KD_WINDOW(phase, work)						\
	do {								\
		uint64_t kd_began = kd_now();				\
									\
		if (kd_warming_up()) {					\
			work;						\
		} else {						\
			KD_BEGIN(phase);				\
			work;						\
			KD_END(phase);					\
			kd_sample(phase, kd_now() - kd_began);		\
		}							\
	} while (0)

/* ------------------------------------------------------------- state --- */

enum {
	KD_MAX_PHASES = 8,
	KD_MAX_FACTS = 64,
	KD_MAX_ITERATIONS = 10000,
	KD_MIN_STEPS = 100,	/* a sample of fewer clock steps is mostly clock */
};

struct kd_scenario {
	const char *name;
	const char *summary;
	size_t bytes;		/* of memory under test */
	unsigned int flags;	/* the workload's own */
	unsigned int calls;	/* system calls in one window */
};

struct kd_phase {
	const char *name;
	const char *operation;	/* what is counted: "page", "call" */
	size_t operations;	/* in one window */
};

enum kd_when { KD_BEFORE, KD_AFTER };	/* all windows */

/* Something known of the memory under test, and what it has to be. */
struct kd_fact {
	const char *name;
	long want;
	long value[2];		/* by kd_when */
};

#define KD_UNKNOWN	(-1L)	/* could not be read: never 0, never "fine" */
#define KD_MIXED	(-2L)	/* differs within the memory */

static struct {
	const char *name;
	const struct kd_scenario *scenario;
	bool protocol;		/* print records for kdelta, not tables */
	unsigned int iterations;
	unsigned int warmup;
	unsigned int begun;	/* iterations, warm-up included */
	unsigned int wrong;	/* facts */
	unsigned int unknown;	/* facts */
	struct kd_fact facts[KD_MAX_FACTS + 1];	/* the last one has no name */
	struct kd_phase phases[KD_MAX_PHASES];
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
#define kd_note(format, ...) \
	printf("%s " format "\n", kd.protocol ? "note" : "note:", __VA_ARGS__)

/* A fact's value as text; `text` holds 24 bytes. */
kd_api const char *kd_value(char *text, long value)
{
	if (value == KD_UNKNOWN)
		return "unknown";
	if (value == KD_MIXED)
		return "mixed";
	snprintf(text, 24, "%ld", value);
	return text;
}

/* State a fact.  The same facts are stated before and after. */
kd_api void kd_state(enum kd_when when, const char *name, long value, long want)
{
	struct kd_fact *fact = kd.facts;
	char text[24];

	while (fact->name && strcmp(fact->name, name))
		if (++fact == kd.facts + KD_MAX_FACTS)
			kd_exit(1, "more than %d facts", KD_MAX_FACTS);
	fact->name = name;
	fact->want = want;
	fact->value[when] = value;
	kd.unknown += value == KD_UNKNOWN;
	kd.wrong += value != KD_UNKNOWN && value != want;
	if (kd.protocol)
		printf("state %s %s %s %ld\n", when == KD_BEFORE ? "before" : "after", name,
		       kd_value(text, value), want);
}

kd_api void kd_print_facts(void)
{
	char before[24], after[24];

	printf("%-20s %12s %12s %12s\n", "page state", "before", "after", "wanted");
	for (const struct kd_fact *fact = kd.facts; fact->name; fact++)
		printf("%-20s %12s %12s %12ld\n", fact->name,
		       kd_value(before, fact->value[KD_BEFORE]),
		       kd_value(after, fact->value[KD_AFTER]), fact->want);
}

/* ------------------------------------------------------------- clock --- */

kd_api uint64_t kd_now(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_MONOTONIC_RAW, &ts))
		kd_die("clock_gettime");
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/*
 * The smallest step that the clock is seen to make.  clock_getres() says 1 ns
 * of a jiffies clock, too, and that one moves by 4 ms.
 */
kd_api uint64_t kd_clock_step(void)
{
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

kd_api void kd_parse(int argc, char **argv, const struct kd_scenario *all, size_t n)
{
	const char *wanted = NULL;

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
				"[--list] SCENARIO", kd.name);
		} else {
			wanted = argv[i];
		}
	}
	for (size_t i = 0; wanted && i < n; i++)
		if (!strcmp(wanted, all[i].name))
			kd.scenario = &all[i];
	if (!kd.scenario)
		kd_exit(2, "%s needs one of its scenarios: see --list", kd.name);
}

/* -------------------------------------------------------- iterations --- */

/* Stay on this CPU: a window is counted on the CPU where it began. */
kd_api void kd_pin(void)
{
	int cpu = sched_getcpu();
	cpu_set_t set;

	if (cpu < 0)
		kd_die("sched_getcpu");
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		kd_die("sched_setaffinity");
}

/* Read the command line, choose the scenario, make ready to measure. */
kd_api const struct kd_scenario *kd_start(int argc, char **argv, const char *name,
					  const struct kd_scenario *all, size_t n)
{
	size_t size;

	kd.name = name;
	kd_parse(argc, argv, all, n);
	if (kd.protocol)
		printf("kdelta-workload 1 %s %s\n", name, kd.scenario->name);
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
	if (!kd.begun) {
		KD_ARM();
		sched_yield(); /* arming takes effect when the emulator ends its block */
	}
	return kd.begun++ < kd.warmup + kd.iterations;
}

kd_api bool kd_warming_up(void)
{
	return kd.begun <= kd.warmup;
}

kd_api void kd_sample(unsigned int phase, uint64_t ns)
{
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

/* Print what was measured; returns the exit status. */
kd_api int kd_finish(void)
{
	struct utsname host;

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
	if (kd.unknown)
		kd_note("%u facts of the page state are unknown: root may know", kd.unknown);
	if (kd.wrong)
		kd_exit(1, "%u facts of the page state are not as wanted", kd.wrong);
	if (kd.protocol)
		puts("end 0");
	if (fflush(stdout))
		kd_die("standard output");
	return 0;
}

/* -------------------------------------------------- memory under test --- */

/*
 * Map `bytes` at a 2 MiB boundary, with inaccessible memory on both sides so
 * that no neighbour merges with it.  The hint gives the page tables the same
 * shape in every run; it is no more than a hint.
 */
kd_api char *kd_map(size_t bytes, int prot, int flags)
{
	char *hint = (char *)(64UL << 30), *base, *start;

	base = mmap(hint - KD_HUGE, bytes + 3 * KD_HUGE, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		kd_die("mmap of the guards");
	start = (char *)(((uintptr_t)base + 2 * KD_HUGE - 1) & ~(KD_HUGE - 1));
	if (mmap(start, bytes, prot, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		kd_die("mmap");
	return start;
}

/* Write one byte to each of `n` pages, `stride` bytes apart. */
kd_api noinline void kd_touch(char *start, size_t n, size_t stride)
{
	volatile char *page = start;

	for (; n; n--, page += stride)
		*page = 1;
}

/* Base pages only.  A kernel without THP says EINVAL, which is as good. */
kd_api void kd_no_thp(char *start, size_t bytes)
{
	if (madvise(start, bytes, MADV_NOHUGEPAGE) && errno != EINVAL)
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

kd_api bool kd_file_says(const char *path, const char *words)
{
	char *text = kd_read_file(path);
	bool says = text && strstr(text, words);

	free(text);
	return says;
}

/*
 * Huge pages wherever the kernel can: at the fault, and by MADV_COLLAPSE for
 * what the fault did not get.  The audit decides whether that was enough.
 */
kd_api void kd_fault_thp(char *start, size_t bytes)
{
	if (!kd_file_says("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"))
		kd_skip("the kernel has no transparent huge pages of 2 MiB");
	if (kd_file_says("/sys/kernel/mm/transparent_hugepage/enabled", "[never]"))
		kd_skip("transparent huge pages are off: set "
			"/sys/kernel/mm/transparent_hugepage/enabled to madvise");
	if (madvise(start, bytes, MADV_HUGEPAGE))
		kd_die("madvise(MADV_HUGEPAGE)");
	kd_touch(start, KD_PAGES(bytes), KD_PAGE);
	if (madvise(start, bytes, MADV_COLLAPSE) && errno != EINVAL)
		kd_note("madvise(MADV_COLLAPSE): %s", strerror(errno));
}

/* ------------------------------------------------------------- audit --- */

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
#define KD_PM_SWAPPED		(1ULL << 62)
#define KD_PM_PRESENT		(1ULL << 63)

kd_api void kd_audit_pages(struct kd_audit *audit, const char *start, size_t pages)
{
	uint64_t *map = malloc(pages * sizeof(*map));
	size_t present = 0;

	if (!map)
		kd_die("malloc");
	if (kd_read_words("/proc/self/pagemap", map, pages, KD_PAGES((uintptr_t)start))) {
		audit->swapped = audit->soft_dirty = 0;
		for (size_t i = 0; i < pages; i++) {
			audit->swapped += !!(map[i] & KD_PM_SWAPPED);
			audit->soft_dirty += !!(map[i] & KD_PM_SOFT_DIRTY);
			if (map[i] & KD_PM_PRESENT)
				map[present++] = map[i] & KD_PM_PFN;
		}
		audit->present = present;
		qsort(map, present, sizeof(*map), kd_compare);
		/* An ordinary user is shown frame 0 in place of any other. */
		if (present && map[0])
			kd_audit_frames(audit, map, present);
	}
	free(map);
}

enum kd_how { KD_COUNT, KD_SUM, KD_SAME, KD_FLAG };

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
		uintptr_t low = strtoul(line, &dash, 16);

		eol = strchrnul(line, '\n');
		if (dash > line && *dash == '-') {
			inside = low < (uintptr_t)end &&
				 strtoul(dash + 1, NULL, 16) > (uintptr_t)start;
			vmas += inside;
		}
		if (!inside || !key || strncmp(line, key, strlen(key)))
			continue;
		value = strtol(line + strlen(key), NULL, 10);
		if (how == KD_SAME && seen && value != result)
			return KD_MIXED;
		if (how == KD_FLAG)
			value = memmem(line, eol - line, flag, strlen(flag)) != NULL;
		result = how == KD_SAME ? value : result + value;
		seen++;
	}
	if (how == KD_COUNT)
		return text ? vmas : KD_UNKNOWN;
	return vmas && seen == vmas ? result : KD_UNKNOWN;	/* absent is not zero */
}

/* How many mappings the range consists of, now. */
kd_api long kd_vmas(const char *start, size_t bytes)
{
	char *maps = kd_read_file("/proc/self/maps");
	long vmas = kd_mappings(maps, start, start + bytes, KD_COUNT, NULL, NULL);

	free(maps);
	return vmas;
}

/* All that can be known of a range.  It takes long: never within a window. */
kd_api struct kd_audit kd_audit(const char *start, size_t bytes)
{
	char *smaps = kd_read_file("/proc/self/smaps");
	const char *end = start + bytes;
	struct kd_audit audit;

	memset(&audit, 0xff, sizeof(audit));	/* KD_UNKNOWN everywhere */
	kd_audit_pages(&audit, start, KD_PAGES(bytes));
	audit.vmas = kd_vmas(start, bytes);
	audit.writable_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " wr");
	audit.shared_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " sh");
	audit.soft_dirty_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " sd");
	audit.mergeable_vmas = kd_mappings(smaps, start, end, KD_FLAG, "VmFlags:", " mg");
	audit.rss_kb = kd_mappings(smaps, start, end, KD_SUM, "Rss:", NULL);
	audit.dirty_kb = kd_mappings(smaps, start, end, KD_SUM, "Private_Dirty:", NULL);
	audit.anon_huge_kb = kd_mappings(smaps, start, end, KD_SUM, "AnonHugePages:", NULL);
	audit.shmem_pmd_kb = kd_mappings(smaps, start, end, KD_SUM, "ShmemPmdMapped:", NULL);
	audit.kernel_page_kb = kd_mappings(smaps, start, end, KD_SAME, "KernelPageSize:", NULL);
	audit.mmu_page_kb = kd_mappings(smaps, start, end, KD_SAME, "MMUPageSize:", NULL);
	audit.thp_eligible = kd_mappings(smaps, start, end, KD_SAME, "THPeligible:", NULL);
	free(smaps);

	/* Where it is tracked, new memory is soft-dirty and says so twice. */
	if (!audit.soft_dirty && audit.soft_dirty_vmas <= 0)
		audit.soft_dirty = KD_UNKNOWN;
	if (audit.soft_dirty != KD_UNKNOWN)
		kd_note("%ld of %zu pages are soft-dirty", audit.soft_dirty, KD_PAGES(bytes));
	return audit;
}

#endif /* KDELTA_H */
