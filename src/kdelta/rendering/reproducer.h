/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What stands for the harness of kdelta.h in a file of `kdelta workload export`: the
 * same calls, with times in place of marks, and the page state as far as
 * an ordinary user is told of it.
 */

static struct phase {
	const char *name, *operation;
	size_t operations;	/* in one window */
	uint64_t ns[ITERATIONS];
} kd_phases[PHASES];
static int kd_round = -WARMUP - 1, kd_wrong;

#define kd_die(what)		err(1, "%s", what)
#define kd_exit(status, ...)	errx(status, __VA_ARGS__)
#define kd_skip(...)		errx(77, __VA_ARGS__)
#define kd_note(...)		warnx(__VA_ARGS__)
#define kd_phase(id, ...)	(kd_phases[id] = (struct phase){ __VA_ARGS__, { 0 } })
#define kd_warming_up()		(kd_round < 0)
#define kd_metric_value(name, unit, value) printf("%s: %.10g %s\n", name, (double)(value), unit)
#define kd_metric_absent(name, unit, ...) printf("%s: absent\n", name)

#define kd_sample(phase, time) \
	do { if (!kd_warming_up()) kd_phases[phase].ns[kd_round] = time; } while (0)

/* Run `work` as one window of a phase, and take its time. */
#define KD_WINDOW(phase, work) \
	do { uint64_t t = kd_now(); work; t = kd_now() - t; \
	     if (kd_round >= 0) kd_phases[phase].ns[kd_round] = t; } while (0)

/* Room of `bytes` at a boundary of `align`, and some around it. */
static char *kd_reserve(size_t bytes, size_t align)
{
	uintptr_t base = (uintptr_t)mmap(NULL, bytes + 3 * align, PROT_NONE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return (char *)((base + 2 * align - 1) & ~(align - 1));
}

static char *kd_map_at(char *start, size_t bytes, int prot, int flags, int fd)
{
	flags |= MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);
	if (mmap(start, bytes, prot, flags, fd, 0) == MAP_FAILED)
		kd_die("mmap");
	return start;
}

/* Memory at a boundary of huge pages, and room around it. */
static char *kd_map(size_t bytes, int prot, int flags)
{
	char *room = mmap(NULL, bytes + 3 * KD_HUGE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *start = (char *)(((uintptr_t)room + 2 * KD_HUGE - 1) & ~(KD_HUGE - 1));

	if (mmap(start, bytes, prot, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		err(1, "mmap");
	return start;
}

#define kd_no_thp(start, bytes)	madvise(start, bytes, MADV_NOHUGEPAGE)
#define kd_drop(start, bytes)	madvise(start, bytes, MADV_DONTNEED)

static uint64_t kd_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int kd_finish(void)
{
	for (struct phase *p = kd_phases; p < kd_phases + PHASES; p++) {
		qsort(p->ns, ITERATIONS, sizeof(*p->ns), kd_compare);
		if (p->name)
			printf("%s: median %.3f, min %.3f ns/%s\n", p->name,
			       (double)p->ns[ITERATIONS / 2] / p->operations,
			       (double)p->ns[0] / p->operations, p->operation);
	}
	return kd_wrong > 0;
}

#define KD_UNKNOWN	(-1L)	/* could not be read */
#define KD_MIXED	(-2L)	/* not the same in all windows */
#define KD_SAME		(-3L)
#define KD_FREE		(-4L)	/* may be anything */

static void kd_check(const char *name, long value, long want)
{
	if (want >= 0 && value != want && value != KD_UNKNOWN) {
		printf("%s is %ld and not %ld\n", name, value, want);
		kd_wrong++;
	}
}

#define kd_state(name, value, want)	kd_check(name, value, want)

/* How many pages of a range have a bit in pagemap. */
static long kd_pagemap_count(const char *start, size_t bytes, uint64_t bit)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uintptr_t page = (uintptr_t)start / KD_PAGE, end = page + KD_PAGES(bytes);
	uint64_t word;
	long count = fd < 0 ? KD_UNKNOWN : 0;

	for (; fd >= 0 && page < end; page++)
		count += pread(fd, &word, sizeof(word), page * sizeof(word)) > 0 && word & bit;
	close(fd);
	return count;
}

#define kd_present(start, bytes)	kd_pagemap_count(start, bytes, KD_PM_PRESENT)

/* What smaps says of a range in kB, added up over its mappings. */
static long kd_smaps(const char *start, size_t bytes, const char *key)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	unsigned long low, high, first = (unsigned long)start;
	bool inside = false;
	char line[512];
	long sum = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx ", &low, &high) == 2)
			inside = low < first + bytes && high > first;
		else if (inside && !strncmp(line, key, strlen(key)))
			sum += strtol(line + strlen(key), NULL, 10);
	return file ? fclose(file), sum : KD_UNKNOWN;
}

/* How many mappings the range consists of. */
static long kd_vmas(const char *start, size_t bytes)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long low, high, first = (unsigned long)start;
	char line[512];
	long vmas = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx ", &low, &high) == 2)
			vmas += low < first + bytes && high > first;
	return file ? fclose(file), vmas : KD_UNKNOWN;
}

#define KD_THP	"/sys/kernel/mm/transparent_hugepage/"

static void kd_need_thp(void)
{
	if (access(KD_THP "enabled", F_OK))
		kd_skip("no transparent huge pages");
}

/* What a file says, NULL when it cannot be read. */
static char *kd_read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (file && getdelim(&text, &size, '\0', file) < 0)
		text = NULL;
	return file ? fclose(file), text : NULL;
}

static long kd_file_number(const char *path)
{
	FILE *file = fopen(path, "re");
	long value;

	if (file && fscanf(file, "%ld", &value) != 1)
		value = KD_UNKNOWN;
	return file ? fclose(file), value : KD_UNKNOWN;
}

static bool kd_write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	return file && fputs(text, file) >= 0 && !fclose(file);
}

/* Put back at the end, and by Ctrl-C. */
#define kd_at_end(undo)	(atexit(undo), signal(SIGINT, exit), signal(SIGTERM, exit))

/* Huge pages wherever the kernel can. */
static void kd_fault_thp(char *start, size_t bytes)
{
	if (madvise(start, bytes, MADV_HUGEPAGE))
		kd_skip("no transparent huge pages");
	kd_touch(start, KD_PAGES(bytes), KD_PAGE);
	madvise(start, bytes, MADV_COLLAPSE);
}

struct kd_audit {
	long present, swapped, anon_huge_kb;
};

static struct kd_audit kd_audit(const char *start, size_t bytes)
{
	return (struct kd_audit){
		.present = kd_present(start, bytes),
		.swapped = kd_pagemap_count(start, bytes, KD_PM_SWAPPED),
		.anon_huge_kb = kd_smaps(start, bytes, "AnonHugePages:"),
	};
}

static char *kd_ladder[2];
#define kd_ladders(below, above) (kd_ladder[0] = below, kd_ladder[1] = above)

/* A ladder of that height: neighbours differ, the rest is inaccessible. */
static void kd_set_ladder(char *ladder, unsigned int height, bool from_top)
{
	char *page = ladder + (from_top ? KD_LADDER - KD_PAGE : 0);

	kd_map_at(ladder, KD_LADDER, PROT_NONE, MAP_PRIVATE, -1);
	for (unsigned int i = 0; i < height; i++, page += from_top ? -KD_PAGE : KD_PAGE)
		if (mprotect(page, KD_PAGE, i % 2 ? KD_RW : PROT_READ))
			kd_die("mprotect of a ladder");
}

/* The layout of that number; both ladders grow towards the memory. */
static void kd_lay_out(unsigned int number)
{
	kd_set_ladder(kd_ladder[0], (number * 49472 % 65536) * KD_HEIGHTS / 65536, false);
	kd_set_ladder(kd_ladder[1], (number * 37345 % 65536) * KD_HEIGHTS / 65536, true);
}

static int kd_loop(void (*once)(void), unsigned int calls, int threads, long faults, int waits)
{
	kd_phase(0, "call", "call", calls);
	while (kd_next())
		KD_WINDOW(0, for (unsigned int i = 0; i < calls; i++) once());
	return kd_finish();
}

#define kd_must(fine)	do { if (!(fine)) err(1, #fine); } while (0)

static const char kd_folder[] = "/tmp";

/* A tmpfs that nobody else sees. */
static void kd_enter_tmpfs(void)
{
	if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", kd_folder, "tmpfs", 0, NULL) || chdir(kd_folder))
		err(77, "a tmpfs of its own");
}
