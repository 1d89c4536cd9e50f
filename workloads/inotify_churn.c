// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does it cost to add an inotify watch and to remove it again, when
 * every group watches an inode of its own (distinct), and when all of them
 * watch the same one (shared, the control)?  And when several workers, each
 * on a CPU of its own, do it at the same time?
 */
#include "kdelta.h"

#include <stdatomic.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

enum { CHURN };				/* phases */
enum { SHARED = 0x100, WORKERS = 0xff };	/* scenario flags: the low bits are a number */

enum {
	GROUPS = 4,		/* of each worker; 128 is all that a user may have by default */
	ROUNDS = 4,		/* in a window */
	SETTLE = 16,		/* windows' worth before any is measured */
	RESTS = 14,		/* after them: what RCU frees, it frees ten at a tick */
	MAX_WORKERS = 16,
	REAP_US = 30000,	/* the kernel frees removed watches a few ms later */
	SPINS = 4096,		/* until a waiting worker falls asleep */
	NAP_US = 50,
};

static const struct kd_scenario scenarios[] = {
	{ "distinct_1", "1 worker with 4 groups each, 4 inodes", KD_PAGE, 1, ROUNDS },
	{ "distinct_2", "2 workers with 4 groups each, 8 inodes", KD_PAGE, 2, ROUNDS },
	{ "distinct_4", "4 workers with 4 groups each, 16 inodes", KD_PAGE, 4, ROUNDS },
	{ "distinct_8", "8 workers with 4 groups each, 32 inodes", KD_PAGE, 8, ROUNDS },
	{ "distinct_16", "16 workers with 4 groups each, 64 inodes", KD_PAGE, 16, ROUNDS },
	{ "shared_1", "1 worker with 4 groups each, one inode", KD_PAGE, SHARED | 1, ROUNDS },
	{ "shared_2", "2 workers with 4 groups each, one inode", KD_PAGE, SHARED | 2, ROUNDS },
	{ "shared_4", "4 workers with 4 groups each, one inode", KD_PAGE, SHARED | 4, ROUNDS },
	{ "shared_8", "8 workers with 4 groups each, one inode", KD_PAGE, SHARED | 8, ROUNDS },
	{ "shared_16", "16 workers with 4 groups each, one inode", KD_PAGE, SHARED | 16, ROUNDS },
};

enum order { DO_NOTHING, DO_CHURN, DO_ADD, DO_REMOVE, DO_STOP };

/* What a worker tells; a cache line or two of its own. */
struct worker {
	_Alignas(128) atomic_uint done;		/* number of the last order that it followed */
	atomic_uint ready;			/* ... and tidied up after */
	int cpu;
	long pinned;		/* the kernel says so */
	long fifo;		/* runs under SCHED_FIFO */
	long astray;		/* orders that found it on another CPU */
	long watches;		/* in all of its groups, by fdinfo */
	long removals;		/* that the kernel told it of */
	unsigned long inode[GROUPS];	/* by fdinfo */
	int error;
	const char *what;	/* failed, if anything */
};

_Static_assert(SETTLE * ROUNDS > 63, "numbers of two levels when the measurement begins");

static struct share {
	atomic_uint given;	/* number of the last order */
	enum order order;
	struct worker worker[MAX_WORKERS];
} *share;

static struct {
	unsigned int workers;
	bool shared;
	int keeper;		/* a group whose watch keeps the shared inode watched */
	char directory[256];
	unsigned int files;
	long removed;		/* watches, by all workers */
} setup;

static int group[GROUPS], watch[GROUPS];	/* each worker's own */
static char file[GROUPS][8];			/* ... relative to the directory */

_Static_assert(sizeof(struct share) <= KD_PAGE, "the workers' words fit into a page");

/* ----------------------------------------------------------- a worker --- */

static bool fail(struct worker *self, const char *what)
{
	self->error = errno;
	self->what = what;
	return false;
}

static noinline bool add(struct worker *self)
{
	for (unsigned int i = 0; i < GROUPS; i++) {
		watch[i] = inotify_add_watch(group[i], file[i], IN_MODIFY);
		if (watch[i] < 0)
			return fail(self, "inotify_add_watch");
	}
	return true;
}

static noinline bool drop(struct worker *self)
{
	for (unsigned int i = 0; i < GROUPS; i++)
		if (inotify_rm_watch(group[i], watch[i]))
			return fail(self, "inotify_rm_watch");
	return true;
}

/* Watches of a group, and the inode of the last, as the kernel tells of its descriptor. */
static long watches_of(int fd, unsigned long *inode)
{
	char path[48], *text, *line, *next;
	long watches = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	next = text = kd_read_file(path);
	if (!text)
		return KD_UNKNOWN;
	while ((line = strsep(&next, "\n"))) {
		char *ino = strstr(line, " ino:");

		if (strncmp(line, "inotify wd:", 11) || !ino)
			continue;
		watches++;
		*inode = strtoul(ino + 5, NULL, 16);
	}
	free(text);
	return watches;
}

static void count_watches(struct worker *self)
{
	self->watches = 0;
	for (unsigned int i = 0; i < GROUPS; i++) {
		long watches = watches_of(group[i], &self->inode[i]);

		if (watches == KD_UNKNOWN) {
			self->watches = KD_UNKNOWN;
			return;
		}
		self->watches += watches;
	}
}

/* Take the kernel's word of each removed watch out of the queues, which are not endless. */
static bool drain(struct worker *self)
{
	struct inotify_event events[64];
	ssize_t got;

	for (unsigned int i = 0; i < GROUPS; i++) {
		while ((got = read(group[i], events, sizeof(events))) > 0)
			for (size_t at = 0; at < got / sizeof(*events); at++)
				self->removals += events[at].mask == IN_IGNORED;
		if (got < 0 && errno != EAGAIN)
			return fail(self, "read of inotify events");
	}
	return true;
}

static noinline bool churn(struct worker *self)
{
	for (unsigned int i = 0; i < ROUNDS; i++)
		if (!add(self) || !drop(self))
			return false;
	return true;
}

static bool follow(struct worker *self, enum order order)
{
	bool fine = true;

	self->astray += sched_getcpu() != self->cpu;
	if (order == DO_CHURN) {
		fine = churn(self);
	} else if (order == DO_ADD) {
		fine = add(self);
		count_watches(self);
	} else if (order == DO_REMOVE) {
		fine = drop(self);
		count_watches(self);
	}
	return fine;
}

/* Wait a little longer; true when this has taken long by now. */
static bool relax(unsigned int *spins)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
	return ++*spins % SPINS == 0;
}

static bool pin(struct worker *self)
{
	const struct sched_param priority = { 1 };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(self->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return fail(self, "sched_setaffinity");
	if (sched_getaffinity(0, sizeof(set), &set))
		return fail(self, "sched_getaffinity");
	self->pinned = CPU_COUNT(&set) == 1 && CPU_ISSET(self->cpu, &set);
	/* Above the kernel's threads that free what was removed; not everybody is allowed to. */
	self->fifo = !sched_setscheduler(0, SCHED_FIFO, &priority);
	return true;
}

static bool prepare(struct worker *self, unsigned int index)
{
	for (unsigned int i = 0; i < GROUPS; i++) {
		snprintf(file[i], sizeof(file[i]), "%u",
			 setup.shared ? 0 : (index * GROUPS + i) % 1000);
		group[i] = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		if (group[i] < 0)
			return fail(self, "inotify_init1");
	}
	return pin(self);
}

static __attribute__((noreturn)) void work(struct worker *self, unsigned int index)
{
	bool fine = prepare(self, index);
	unsigned int number = 0;

	while (fine) {
		unsigned int spins = 0;
		enum order order;

		atomic_store(&self->ready, number);
		while (atomic_load(&share->given) == number)
			if (relax(&spins))
				kd_sleep_us(NAP_US);
		number++;
		order = share->order;
		if (order == DO_STOP)
			break;
		fine = follow(self, order);
		atomic_store(&self->done, number);
		fine = fine && drain(self);
	}
	_exit(!fine);
}

/* ------------------------------------- the leader, which is worker 0 --- */

static void check(void)
{
	bool died = waitpid(-1, NULL, WNOHANG) > 0;

	for (unsigned int i = 0; i < setup.workers; i++) {
		const struct worker *worker = &share->worker[i];

		if (!worker->what)
			continue;
		if (worker->error == EMFILE)
			kd_skip("no more inotify groups for this user: raise "
				"/proc/sys/fs/inotify/max_user_instances");
		kd_exit(1, "worker %u: %s: %s", i, worker->what, strerror(worker->error));
	}
	if (died)
		kd_exit(1, "a worker died");
}

/* Wait until all workers are done with an order, or have tidied up after it, too. */
static noinline void await(unsigned int number, bool tidy)
{
	for (unsigned int i = 1, spins = 0; i < setup.workers; ) {
		struct worker *worker = &share->worker[i];

		if (atomic_load(tidy ? &worker->ready : &worker->done) == number) {
			i++;
			continue;
		}
		if (!relax(&spins))
			continue;
		check();
		sched_yield();	/* in case a worker shares this CPU */
	}
}

/* Have all workers follow an order, this one included, and wait for them. */
static noinline void command(enum order order)
{
	unsigned int number = atomic_load(&share->given) + 1;
	bool fine;

	if (order == DO_CHURN || order == DO_REMOVE)
		setup.removed += setup.workers * GROUPS * (order == DO_CHURN ? ROUNDS : 1);
	share->order = order;
	atomic_store(&share->given, number);
	fine = follow(&share->worker[0], order);
	await(number, false);
	if (!fine)
		check();
}

/* Empty the queues of all workers. */
static void collect(void)
{
	if (!drain(&share->worker[0]))
		check();
	await(atomic_load(&share->given), true);
}

/* Let the kernel free what was removed, then have the workers awake for the next order. */
static void rest(void)
{
	kd_sleep_us(REAP_US);
	command(DO_NOTHING);
	collect();
}

/*
 * The first rounds are not like those that follow.  Slabs grow; and a group numbers its watches
 * upwards, in a tree that has one level up to 63 and two up to 4095.
 */
static void settle(void)
{
	for (unsigned int i = 0; i < SETTLE; i++) {
		command(DO_CHURN);
		collect();
	}
	for (unsigned int i = 0; i < RESTS; i++)
		rest();
}

static long sum(size_t offset)
{
	long total = 0;

	for (unsigned int i = 0; i < setup.workers; i++) {
		long value;

		memcpy(&value, (char *)&share->worker[i] + offset, sizeof(value));
		if (value == KD_UNKNOWN)
			return KD_UNKNOWN;
		total += value;
	}
	return total;
}

#define SUM(member)	sum(offsetof(struct worker, member))

/* How many different inodes are watched. */
static long inodes(void)
{
	unsigned long seen[MAX_WORKERS * GROUPS];
	size_t n = setup.workers * GROUPS, distinct = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned long inode = share->worker[i / GROUPS].inode[i % GROUPS];
		size_t j = 0;

		while (j < distinct && seen[j] != inode)
			j++;
		seen[j] = inode;
		distinct += j == distinct;
	}
	return distinct;
}

static long cpus_used(void)
{
	cpu_set_t used;

	CPU_ZERO(&used);
	for (unsigned int i = 0; i < setup.workers; i++)
		CPU_SET(share->worker[i].cpu, &used);
	return CPU_COUNT(&used);
}

static void audit(enum kd_when when, const struct kd_scenario *s)
{
	const struct kd_want want[] = {
		{ "present_pages", KD_PAGES(s->bytes) },
		{ "swapped_pages", 0 },
	};
	long workers = setup.workers, watches = workers * GROUPS;
	unsigned long keeper_inode;
	struct statfs fs;

	command(DO_ADD);
	kd_state(when, "watches_added", SUM(watches), watches);
	kd_state(when, "inodes_watched", inodes(), setup.shared ? 1 : watches);
	command(DO_REMOVE);
	kd_state(when, "watches_left", SUM(watches), 0);
	collect();
	kd_state(when, "watches_kept", watches_of(setup.keeper, &keeper_inode), setup.shared);
	kd_state(when, "removals_not_told", setup.removed - SUM(removals), 0);
	kd_state(when, "workers_pinned", SUM(pinned), workers);
	kd_state(when, "cpus_used", cpus_used(), workers);
	kd_state(when, "workers_fifo", SUM(fifo), KD_SAME);
	kd_state(when, "orders_off_cpu", SUM(astray), 0);
	for (unsigned int i = 0; i < setup.workers; i++) {
		char name[16];

		snprintf(name, sizeof(name), "worker%u_cpu", i % 100);
		kd_state(when, name, share->worker[i].cpu, KD_FREE);
	}
	if (statfs(".", &fs))
		kd_die("statfs");
	kd_state(when, "filesystem_magic", fs.f_type, KD_SAME);
	kd_audit_state(when, (char *)share, s->bytes, want, ARRAY_SIZE(want));
}

/* ------------------------------------------------------------- set-up --- */

static void remove_files(void)
{
	char name[8];

	while (setup.files) {
		snprintf(name, sizeof(name), "%u", --setup.files % 1000);
		unlink(name);
	}
	rmdir(setup.directory);
}

/* A directory of our own to work in: $TMPDIR, else the first of these that there is. */
static void make_files(void)
{
	static const char *const usual[] = { "/dev/shm", "/tmp", "/run" };
	const char *chosen = getenv("TMPDIR");
	unsigned int files = setup.shared ? 1 : setup.workers * GROUPS;

	for (size_t i = 0; !chosen && i < ARRAY_SIZE(usual); i++)
		if (!access(usual[i], W_OK | X_OK))
			chosen = usual[i];
	if (!chosen)
		kd_skip("no place for files: set TMPDIR");
	snprintf(setup.directory, sizeof(setup.directory), "%s/kdelta-XXXXXX", chosen);
	if (!mkdtemp(setup.directory))
		kd_exit(1, "mkdtemp: %s: %s", setup.directory, strerror(errno));
	if (chdir(setup.directory))
		kd_die("chdir");
	kd_at_end(remove_files);
	for (; setup.files < files; setup.files++) {
		char name[8];
		int fd;

		snprintf(name, sizeof(name), "%u", setup.files % 1000);
		fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
		if (fd < 0)
			kd_die("open");
		close(fd);
	}
	setup.keeper = inotify_init1(IN_CLOEXEC);
	if (setup.keeper < 0)
		kd_die("inotify_init1");
	if (setup.shared && inotify_add_watch(setup.keeper, "0", IN_MODIFY) < 0)
		kd_die("inotify_add_watch");
}

/* One CPU for each worker: those that the program was given or, given one only, all. */
static void choose_cpus(const cpu_set_t *given)
{
	cpu_set_t all = *given;
	int own = sched_getcpu();
	unsigned int chosen = 1;

	if (CPU_COUNT(&all) == 1)
		all = kd_spread();
	if ((unsigned int)CPU_COUNT(&all) < setup.workers)
		kd_skip("%u workers need as many CPUs, there are %d", setup.workers,
			CPU_COUNT(&all));
	share->worker[0].cpu = own;
	for (int cpu = 0; cpu < CPU_SETSIZE && chosen < setup.workers; cpu++)
		if (CPU_ISSET(cpu, &all) && cpu != own)
			share->worker[chosen++].cpu = cpu;
}

static void start_workers(void)
{
	pid_t leader = getpid();

	for (unsigned int i = 1; i < setup.workers; i++) {
		pid_t pid = fork();

		if (pid < 0)
			kd_die("fork");
		if (pid)
			continue;
		/* Never outlive the leader. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != leader)
			_exit(1);
		work(&share->worker[i], i);
	}
	if (!prepare(&share->worker[0], 0))
		check();
	await(0, true);
}

static void stop_workers(void)
{
	int status;

	share->order = DO_STOP;
	atomic_fetch_add(&share->given, 1);
	for (unsigned int i = 1; i < setup.workers; i++)
		if (wait(&status) < 0 || status)
			kd_exit(1, "a worker failed at its end");
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s;
	cpu_set_t given;

	if (sched_getaffinity(0, sizeof(given), &given))
		kd_die("sched_getaffinity");
	s = kd_start(argc, argv, "inotify_churn", scenarios, ARRAY_SIZE(scenarios));
	setup.workers = s->flags & WORKERS;
	setup.shared = s->flags & SHARED;
	kd_phase(CHURN, "churn", "watch", setup.workers * GROUPS * s->calls);

	share = (struct share *)kd_map(s->bytes, KD_RW, MAP_SHARED);
	memset(share, 0, s->bytes);
	for (unsigned int i = 0; i < MAX_WORKERS; i++)
		atomic_store(&share->worker[i].ready, UINT32_MAX);
	choose_cpus(&given);
	make_files();
	start_workers();
	settle();
	audit(KD_BEFORE, s);

	while (kd_next()) {
		KD_WINDOW(CHURN, command(DO_CHURN));
		collect();
		rest();
	}

	audit(KD_AFTER, s);
	stop_workers();
	return kd_finish();
}
