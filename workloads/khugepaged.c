// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Three tasks, hot1, cold and hot2, have as much memory each, in base pages.  The hot ones go on
 * using theirs; the cold one has told the kernel by MADV_FREE that nobody needs its own.  How
 * long does hot2, the last on khugepaged's list, wait for its huge pages?
 *
 * Where khugepaged is stepped, each of its passes is started by hand and waited for, and the hot
 * tasks use all of their memory before each: what counts is the passes, not how long they take.
 * Elsewhere it runs freely, with a short sleep between passes, beside tasks that never pause.
 */
#include "kdelta.h"

#include <linux/perf_event.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define KNOBS KD_THP "khugepaged/"
#define TRACING "/sys/kernel/tracing"
#define INSTANCE TRACING "/instances/kdelta-khugepaged"
#define EVENTS INSTANCE "/events/huge_memory"

enum { ACCESS, SCAN };				/* phases */
enum { STEPPED = 1, TRACED = 2, TIMED = 4 };	/* scenario flags */
enum { HOT1, COLD, HOT2, TASKS };
enum {
	STEP_PAGES = 512,	/* of a counted pass: one range of 2 MiB, the finest step */
	PASS_PAGES = 4096, PASS_SLEEP_S = 10,	/* the kernel's defaults: of a pass, after it */
	ROUND_PAGES = 1 << 30,	/* such a pass ends where the list of tasks ends */
	NEVER_MS = 1000000000, SHORT_MS = 100,	/* sleeps between passes */
	LIMIT_S = 60, MAX_STATUSES = 24,
};

/* calls: how often hot2 goes over its memory in a window */
static const struct kd_scenario scenarios[] = {
	{ "hot_cold_hot_16m", "16 MiB a task, khugepaged pass by pass", KD_MIB(16), STEPPED, 1 },
	{ "scan_status_16m", "16 MiB a task, full scans, traced", KD_MIB(16), STEPPED | TRACED, 1 },
	{ "hot_cold_hot_128m", "128 MiB a task, khugepaged every 100 ms", KD_MIB(128), TIMED, 320 },
	{ "scan_status_128m", "128 MiB a task, full scans, traced", KD_MIB(128),
	  STEPPED | TRACED | TIMED, 32 },
};

enum what { MAP, FREE, USE, USE_ON, WINDOW, MARKED_WINDOW };	/* orders of a task */

static struct task {
	const char *name;
	pid_t pid;
	int orders;		/* a socket: one byte each, and one in answer */
	long passes;		/* until all of its memory was huge; 0: it is not */
	uint64_t huge_ns;
} tasks[TASKS] = { { .name = "hot1" }, { .name = "cold" }, { .name = "hot2" } };

struct event {
	int fd, error;		/* why there is no count */
	struct { uint64_t count, enabled, running; } read;
};

/* What the tasks tell, in memory that all of them share. */
static struct shared {
	char *start[TASKS];
	uint64_t window_ns;
	struct event cycles, misses;
} *shared;

/* ------------------------------------------------------------- knobs --- */

enum { PAGES, SLEEP };

static struct knob {
	const char *path;
	char *saved;
} knobs[] = {
	{ KNOBS "pages_to_scan", NULL },
	{ KNOBS "scan_sleep_millisecs", NULL },
};

static pid_t khugepaged;
static cpu_set_t its_cpus;	/* before us; none: nothing to put back */
static int its_nice;

static void turn(unsigned int knob, unsigned int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	if (!kd_write_file(knobs[knob].path, text))
		kd_die(knobs[knob].path);
}

/* Leave the machine as it was.  The sleep comes last: to write it wakes khugepaged up. */
static void restore(void)
{
	struct sched_param none = { 0 };

	if (CPU_COUNT(&its_cpus)) {
		sched_setaffinity(khugepaged, sizeof(its_cpus), &its_cpus);
		sched_setscheduler(khugepaged, SCHED_OTHER, &none);
		setpriority(PRIO_PROCESS, khugepaged, its_nice);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(knobs); i++)
		if (knobs[i].saved)
			kd_write_file(knobs[i].path, knobs[i].saved);
	rmdir(INSTANCE);
}

static void take_knobs(void)
{
	if (access(KNOBS, F_OK))
		kd_skip("the kernel has no khugepaged");
	kd_need_thp();
	if (access(knobs[SLEEP].path, W_OK))
		kd_skip("khugepaged's knobs cannot be written: root may");
	if (flock(open(knobs[SLEEP].path, O_RDONLY | O_CLOEXEC), LOCK_EX | LOCK_NB))
		kd_skip("another program like this one has khugepaged");
	for (unsigned int i = 0; i < ARRAY_SIZE(knobs); i++)
		knobs[i].saved = kd_read_file(knobs[i].path);
	kd_at_end(restore);
	turn(PAGES, ROUND_PAGES);
	turn(SLEEP, NEVER_MS);
}

static void find_khugepaged(void)
{
	char path[40];

	for (pid_t pid = 2; !khugepaged && pid < 1 << 15; pid++) {
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		if (kd_file_says(path, "khugepaged\n"))
			khugepaged = pid;
	}
	if (!khugepaged)
		kd_skip("khugepaged is not among the processes that can be seen here");
}

/*
 * Have its work done on this CPU and at once: it has done its pass when the write that wakes it
 * up returns, unless it has to wait for something itself.  Running freely it only gets its share.
 */
static void take_khugepaged(bool stepped)
{
	struct sched_param first = { .sched_priority = 1 };
	cpu_set_t here;

	if (sched_getaffinity(khugepaged, sizeof(its_cpus), &its_cpus) ||
	    sched_getaffinity(0, sizeof(here), &here))
		kd_die("sched_getaffinity");
	its_nice = getpriority(PRIO_PROCESS, khugepaged);
	if (setpriority(PRIO_PROCESS, khugepaged, 0) ||
	    (stepped && (sched_setaffinity(khugepaged, sizeof(here), &here) ||
			 sched_setscheduler(khugepaged, SCHED_FIFO, &first))))
		kd_skip("khugepaged cannot be moved: %s", strerror(errno));
}

/* ------------------------------------------------------------ passes --- */

/*
 * How often it has gone to sleep, or -1 when it is not in the sleep between two passes: that one
 * is interruptible, and none within a pass is.
 */
static long sleeps(void)
{
	char path[40];
	char *status;
	long count;

	snprintf(path, sizeof(path), "/proc/%d/status", khugepaged);
	status = kd_read_file(path);
	count = status && strstr(status, "State:\tS") ?
		kd_keyed(status, "voluntary_ctxt_switches") : -1;
	free(status);
	return count;
}

static long wait_for_sleep(long before)
{
	uint64_t deadline = kd_now() + LIMIT_S * 1000000000ULL;
	long now;

	while ((now = sleeps()) <= before) {
		if (kd_now() > deadline)
			kd_exit(1, "khugepaged did not end a pass in %d s", LIMIT_S);
		kd_sleep_us(200);
	}
	return now;
}

/* One pass, from its beginning to its end. */
static void pass(void)
{
	long before = wait_for_sleep(-1);

	turn(SLEEP, NEVER_MS);
	wait_for_sleep(before);
}

/* Passes until khugepaged has come to the end of its list. */
static long full_scan(unsigned int pages)
{
	long before = kd_file_number(KNOBS "full_scans"), passes = 0;

	turn(PAGES, pages);
	for (; kd_file_number(KNOBS "full_scans") == before && passes < 100000; passes++)
		pass();
	return passes;
}

static int wakes, scans;	/* files, open for the [scan] windows */
static char scans_before[24], scans_now[24];

static const char *read_scans(char *to)
{
	if (pread(scans, to, sizeof(scans_now), 0) <= 0)
		kd_die(KNOBS "full_scans");
	return to;
}

/* The work of a [scan] window: wake it up, and wait for the end of its list. */
static noinline void scan(void)
{
	if (pwrite(wakes, "1000000000", 10, 0) != 10)
		kd_die(knobs[SLEEP].path);
	do
		sched_yield();
	while (!strcmp(read_scans(scans_now), scans_before));
}

static void scan_window(void)
{
	read_scans(scans_before);
	KD_WINDOW(SCAN, scan());
	wait_for_sleep(-1);
}

/* ------------------------------------------------------------- tasks --- */

/* Read one byte of each page, each in another cache line. */
static noinline void use(const char *start, size_t pages, unsigned int rounds)
{
	for (; rounds; rounds--)
		for (size_t page = 0; page < pages; page++)
			(void)*(const volatile char *)(start + page * KD_PAGE + page * 64 % KD_PAGE);
}

/* Base pages, on khugepaged's list; what surrounds them is none of its business. */
static char *map(size_t bytes)
{
	char *start = kd_map(bytes, KD_RW, MAP_PRIVATE);

	kd_no_thp(start - KD_HUGE, bytes + 2 * KD_HUGE);
	kd_touch(start, KD_PAGES(bytes), KD_PAGE);
	if (madvise(start, bytes, MADV_HUGEPAGE))
		kd_die("madvise(MADV_HUGEPAGE)");
	return start;
}

/*
 * Be on khugepaged's list before anybody else, with nothing to scan: the first one on the list
 * wakes it up, those to come do not.  It then stands at the beginning of its list.
 */
static void enter_list(void)
{
	if (munmap(map(KD_HUGE) - KD_HUGE, 3 * KD_HUGE))
		kd_die("munmap");
	pass();
	pass();
}

static void open_event(struct event *event, uint32_t type, uint64_t config)
{
	struct perf_event_attr attr = {
		.type = type, .size = sizeof(attr), .config = config, .disabled = 1,
		.exclude_kernel = 1, .exclude_hv = 1,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
	};

	event->fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	event->error = event->fd < 0 ? errno : 0;
}

static void switch_event(struct event *event, unsigned long to)
{
	if (event->fd >= 0 && (ioctl(event->fd, to, 0) ||
			       read(event->fd, &event->read, sizeof(event->read)) < 0))
		event->error = errno;
}

static void marked_window(const char *start, size_t pages, unsigned int rounds)
{
	uint64_t began;

	kd_drain_batches();
	switch_event(&shared->cycles, PERF_EVENT_IOC_ENABLE);
	switch_event(&shared->misses, PERF_EVENT_IOC_ENABLE);
	began = kd_now();
	KD_BEGIN(ACCESS);
	use(start, pages, rounds);
	KD_END(ACCESS);
	shared->window_ns = kd_now() - began;
	switch_event(&shared->misses, PERF_EVENT_IOC_DISABLE);
	switch_event(&shared->cycles, PERF_EVENT_IOC_DISABLE);
}

/* Go elsewhere than the task that is timed, if there is an elsewhere. */
static void make_room(void)
{
	cpu_set_t others;

	memset(&others, 0xff, sizeof(others));
	CPU_CLR(sched_getcpu(), &others);
	sched_setaffinity(0, sizeof(others), &others);
}

static void obey(const struct kd_scenario *s, unsigned int me, enum what what)
{
	char *start = shared->start[me];
	size_t pages = KD_PAGES(s->bytes);

	switch (what) {
	case MAP:
		shared->start[me] = map(s->bytes);
		open_event(&shared->cycles, PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
		open_event(&shared->misses, PERF_TYPE_HW_CACHE, PERF_COUNT_HW_CACHE_DTLB |
			   PERF_COUNT_HW_CACHE_OP_READ << 8 |
			   PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
		break;
	case FREE:
		/* What the first call leaves in this CPU's batch, the second moves on. */
		if (madvise(start, s->bytes, MADV_FREE) || madvise(start, s->bytes, MADV_FREE))
			kd_die("madvise(MADV_FREE)");
		break;
	case USE_ON:
		make_room();
		/* fall through */
	case USE:
		use(start, pages, 1);
		break;
	case WINDOW:
		use(start, pages, s->calls);
		break;
	case MARKED_WINDOW:
		marked_window(start, pages, s->calls);
	}
}

static void give(struct task *task, enum what what)
{
	char byte = what;

	if (write(task->orders, &byte, 1) != 1 || read(task->orders, &byte, 1) != 1)
		kd_exit(1, "task %s has died", task->name);
}

static void use_hot(void)
{
	give(&tasks[HOT1], USE);
	give(&tasks[HOT2], USE);
}

/* Fork a task that does one order after the other until its parent is gone. */
static void start_task(const struct kd_scenario *s, unsigned int me)
{
	int ends[2];
	char order;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		kd_die("socketpair");
	fflush(stdout);
	tasks[me].orders = ends[0];
	tasks[me].pid = fork();
	if (tasks[me].pid < 0)
		kd_die("fork");
	if (tasks[me].pid)
		return;
	kd.protocol = false;	/* its complaints are none of the records */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(ends[0]);
	while (read(ends[1], &order, 1) == 1) {
		obey(s, me, order);
		if (write(ends[1], &order, 1) != 1)
			break;
		while (order == USE_ON)
			use(shared->start[me], KD_PAGES(s->bytes), 100);
	}
	_exit(1);
}

/* ------------------------------------------------------------- state --- */

/* What smaps says of a task's memory, in kB. */
static long kilobytes(const struct kd_scenario *s, const struct task *task, const char *key)
{
	const char *start = shared->start[task - tasks];
	char path[40];
	char *smaps;
	long sum;

	snprintf(path, sizeof(path), "/proc/%d/smaps", task->pid);
	smaps = kd_read_file(path);
	sum = kd_mappings(smaps, start, start + s->bytes, KD_SUM, key, NULL);
	free(smaps);
	return sum;
}

/* The state before khugepaged may do anything ("first") and at the end ("last"). */
static void tell_state(const struct kd_scenario *s, const char *when, bool last)
{
	long all = s->bytes / 1024, left = s->flags & TIMED ? KD_FREE : KD_SAME;
	char name[40];

	for (const struct task *task = tasks; task < tasks + TASKS; task++) {
		bool cold = task == &tasks[COLD];
		const struct { const char *key, *fact; long want; } facts[] = {
			{ "AnonHugePages:", "huge", last ? cold ? left : all : 0 },
			{ "LazyFree:", "lazyfree", cold ? last ? left : all : 0 },
			{ "Rss:", "rss", all },
		};

		for (unsigned int i = 0; i < ARRAY_SIZE(facts); i++) {
			snprintf(name, sizeof(name), "%s_%s_kb_%s", task->name, facts[i].fact, when);
			kd_state(KD_DURING, name, kilobytes(s, task, facts[i].key), facts[i].want);
		}
	}
}

/* Note what has become huge; true when the hot tasks have. */
static bool look(const struct kd_scenario *s, long passes, uint64_t ns)
{
	for (struct task *task = tasks; task < tasks + TASKS; task++)
		if (!task->passes &&
		    kilobytes(s, task, "AnonHugePages:") == (long)s->bytes / 1024) {
			task->passes = passes;
			task->huge_ns = ns;
		}
	return tasks[HOT1].passes && tasks[HOT2].passes;
}

/* ------------------------------------------------------------- trace --- */

static bool has_scan_event;	/* huge_memory:mm_khugepaged_scan */

/* A trace of our own, in a view of the file system of our own. */
static void start_trace(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		kd_skip("no mount namespace of our own: %s", strerror(errno));
	if (access(TRACING "/events", F_OK) && mount("tracefs", TRACING, "tracefs", 0, NULL))
		kd_skip("tracefs: %s", strerror(errno));
	if (mkdir(INSTANCE, 0700) && errno != EEXIST)
		kd_skip("no trace instance: %s", strerror(errno));
	if (access(EVENTS "/mm_khugepaged_scan_pmd", F_OK))
		kd_skip("the kernel has no event huge_memory:mm_khugepaged_scan_pmd");
	has_scan_event = !access(EVENTS "/mm_khugepaged_scan", F_OK);
	if (!has_scan_event)
		kd_note("%s", "no event mm_khugepaged_scan: progress is 512 pages for each range");
	if (!kd_write_file(INSTANCE "/buffer_size_kb", "4096") ||
	    !kd_write_file(EVENTS "/mm_khugepaged_scan_pmd/enable", "1") ||
	    (has_scan_event && !kd_write_file(EVENTS "/mm_khugepaged_scan/enable", "1")))
		kd_die("the events of khugepaged");
}

static struct status {
	char name[40];
	unsigned long ranges;
} statuses[MAX_STATUSES + 1];

static void count_status(const char *line)
{
	const char *word = strstr(line, " status=");
	struct status *status = statuses;
	char name[40];

	if (!word || sscanf(word, " status=%39[A-Za-z0-9_]", name) != 1)
		kd_exit(1, "an event without a status: %s", line);
	while (status->ranges && strcmp(status->name, name))
		if (++status == statuses + MAX_STATUSES)
			kd_exit(1, "more than %d kinds of status", MAX_STATUSES);
	memcpy(status->name, name, sizeof(name));
	status->ranges++;
}

/* Pages that the scan was charged for; its ranges go into `statuses`. */
static unsigned long read_trace(void)
{
	char *text = kd_read_file(INSTANCE "/trace"), *next = text, *line, *at;
	unsigned long kept = 0, written = 1, ranges = 0, progress = 0;

	memset(statuses, 0, sizeof(statuses));
	while ((line = strsep(&next, "\n"))) {
		sscanf(line, "# entries-in-buffer/entries-written: %lu/%lu", &kept, &written);
		if (strstr(line, " mm_khugepaged_scan_pmd: ")) {
			count_status(line);
			ranges++;
		} else if (strstr(line, " mm_khugepaged_scan: ") && (at = strstr(line, " progress="))) {
			progress += strtoul(at + strlen(" progress="), NULL, 10);
		}
	}
	free(text);
	if (kept != written)
		kd_exit(1, "%lu of %lu events of the trace were kept", kept, written);
	return has_scan_event ? progress : ranges * 512;
}

/* One full scan, and what its trace says. */
static void traced_scan(const struct kd_scenario *s, const char *which)
{
	unsigned long progress;
	char name[64];
	uint64_t ns;

	use_hot();
	kd_write_file(INSTANCE "/trace", "");
	ns = kd_now();
	pass();
	ns = kd_now() - ns;
	progress = read_trace();
	for (const struct status *status = statuses; status->ranges; status++) {
		snprintf(name, sizeof(name), "%.8s_status.%.39s", which, status->name);
		kd_metric_value(name, "1", status->ranges);
	}
	snprintf(name, sizeof(name), "%s_progress", which);
	kd_metric_value(name, "pages", progress);
	snprintf(name, sizeof(name), "%s_sleep", which);
	kd_metric_value(name, "s", (progress + PASS_PAGES - 1) / PASS_PAGES * PASS_SLEEP_S);
	snprintf(name, sizeof(name), "%s_work", which);
	if (s->flags & TIMED)
		kd_metric_value(name, "s", ns / 1e9);
}

/* -------------------------------------------------------- experiments --- */

/* When each task had become huge: its passes, or the time. */
static void tell_tasks(const char *family, const char *unit, bool time)
{
	char name[64];

	for (const struct task *task = tasks; task < tasks + TASKS; task++) {
		snprintf(name, sizeof(name), "%s.%s", family, task->name);
		if (task->passes)
			kd_metric_value(name, unit, time ? task->huge_ns / 1e9 : task->passes);
		else
			kd_metric_absent(name, unit, "not huge in the end");
	}
}

/* What khugepaged has counted since it was idle (`sign` -1, and then 1). */
static void tell_counters(int sign)
{
	static long full_scans, collapsed;

	full_scans += sign * kd_file_number(KNOBS "full_scans");
	collapsed += sign * kd_file_number(KNOBS "pages_collapsed");
	if (sign < 0)
		return;
	kd_metric_value("full_scans", "1", full_scans);
	kd_metric_value("pages_collapsed", "1", collapsed);
}

static void tell_event(const char *name, const char *unit, const struct event *event, double per)
{
	if (event->error)
		kd_metric_absent(name, unit, "no PMU for us: %s", strerror(event->error));
	else if (!event->read.running || event->read.running != event->read.enabled)
		kd_metric_absent(name, unit, "the PMU did not count all of the time");
	else
		kd_metric_value(name, unit, event->read.count / per);
}

static void tell_times(const struct kd_scenario *s)
{
	double accesses = (double)KD_PAGES(s->bytes) * s->calls * kd.iterations, seconds = 0;

	for (unsigned int i = 0; i < kd.iterations; i++)
		seconds += kd.ns[ACCESS * kd.iterations + i] / 1e9;
	kd_metric_value("total_access_time", "s", seconds);
	kd_metric_value("throughput", "M/s", accesses / seconds / 1e6);
	tell_event("cycles_per_access", "cycles", &shared->cycles, accesses);
	tell_event("dtlb_load_misses", "1", &shared->misses, 1);
	tell_tasks("huge_after", "s", true);
}

static void access_window(void)
{
	give(&tasks[HOT2], kd_warming_up() ? WINDOW : MARKED_WINDOW);
	if (!kd_warming_up())
		kd_sample(ACCESS, shared->window_ns);
}

/* khugepaged runs freely from the first window that is measured. */
static void run_free(const struct kd_scenario *s)
{
	uint64_t began = 0;

	tell_counters(-1);
	turn(PAGES, PASS_PAGES);
	give(&tasks[HOT1], USE_ON);
	while (kd_next()) {
		if (!kd_warming_up() && !began) {
			began = kd_now();
			turn(SLEEP, SHORT_MS);
		}
		access_window();
		look(s, 1, kd_now() - began);
	}
	while (!look(s, 1, kd_now() - began) && kd_now() - began < LIMIT_S * 1000000000ULL) {
		give(&tasks[HOT2], USE);
		kd_sleep_us(200);
	}
	tell_times(s);
	tell_counters(1);
}

/* Pass by pass until the hot tasks are huge; then a full scan that finds nothing to do. */
static void step(const struct kd_scenario *s)
{
	long limit = 8 * TASKS * s->bytes / KD_HUGE, passes = 0;

	tell_counters(-1);
	turn(PAGES, STEP_PAGES);
	do {
		use_hot();
		pass();
	} while (!look(s, ++passes, 0) && passes < limit);
	tell_tasks("passes", "1", false);
	tell_counters(1);
	full_scan(ROUND_PAGES);
	kd_metric_value("idle_passes", "1", full_scan(STEP_PAGES));
	full_scan(ROUND_PAGES);
	wakes = open(knobs[SLEEP].path, O_WRONLY | O_CLOEXEC);
	scans = open(KNOBS "full_scans", O_RDONLY | O_CLOEXEC);
	while (kd_next()) {
		access_window();
		scan_window();
	}
}

/* Full scans until the hot tasks are huge, and one more. */
static void step_traced(const struct kd_scenario *s)
{
	start_trace();
	traced_scan(s, "first");
	for (unsigned int more = 0; !look(s, 1, 0) && more < 8; more++) {
		use_hot();
		pass();
	}
	traced_scan(s, "idle");
	while (kd_next())
		access_window();
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "khugepaged", scenarios,
					       ARRAY_SIZE(scenarios));

	kd_phase(ACCESS, "access", "access", KD_PAGES(s->bytes) * s->calls);
	if (s->flags == STEPPED)
		kd_phase(SCAN, "scan", "scan", 1);
	shared = mmap(NULL, sizeof(*shared), KD_RW, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED)
		kd_die("mmap");
	take_knobs();
	find_khugepaged();
	take_khugepaged(s->flags & STEPPED);
	enter_list();

	for (unsigned int i = 0; i < TASKS; i++) {
		start_task(s, i);
		give(&tasks[i], MAP);
	}
	give(&tasks[COLD], FREE);
	tell_state(s, "first", false);
	if (s->flags & TRACED)
		step_traced(s);
	else if (s->flags & STEPPED)
		step(s);
	else
		run_free(s);
	tell_state(s, "last", true);
	return kd_finish();
}
