/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Of inotify_churn.c: the same calls in windows of the same begin and end, by as many workers,
 * worker N on CPU N.  One that fails says so and ends, which ends the leader.
 */

enum { COUNT = s->flags & WORKERS };
enum { GROUPS = 4, ROUNDS = 4, SETTLE = 16, RESTS = 14, REAP_US = 30000, SPINS = 4096, NAP_US = 50 };

static struct share {
	_Alignas(128) atomic_uint given;	/* orders */
	bool churns;				/* ... the last one */
	struct { _Alignas(128) atomic_uint steps; } worker[COUNT];	/* two of each order */
} *share;

static int group[GROUPS], watch[GROUPS];
static char directory[] = "/dev/shm/kdelta-XXXXXX", file[GROUPS][8];

static void churn(void)
{
	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (unsigned int i = 0; i < GROUPS; i++)
			kd_must((watch[i] = inotify_add_watch(group[i], file[i], IN_MODIFY)) >= 0);
		for (unsigned int i = 0; i < GROUPS; i++)
			kd_must(!inotify_rm_watch(group[i], watch[i]));
	}
}

/* Take the kernel's word of each removed watch out of the queues, which are not endless. */
static void drain(void)
{
	struct inotify_event events[64];

	for (unsigned int i = 0; i < GROUPS; i++)
		while (read(group[i], events, sizeof(events)) > 0)
			;
}

/* Wait until all workers have come that far. */
static void await(unsigned int steps)
{
	for (unsigned int i = 1; i < COUNT; i++)
		while (atomic_load(&share->worker[i].steps) < steps)
			;
}

/* Have all workers churn, or only wake up, this one included, and wait for them. */
static void command(bool churns)
{
	unsigned int number = atomic_load(&share->given) + 1;

	share->churns = churns;
	atomic_store(&share->given, number);
	if (churns)
		churn();
	await(2 * number - 1);
}

/* Empty the queues; let the kernel free what was removed, and have the workers awake again. */
static void collect(bool rests)
{
	drain();
	await(2 * atomic_load(&share->given));
	if (rests) {
		usleep(REAP_US);
		command(false);
		collect(false);
	}
}

static void remove_files(void)
{
	for (unsigned int i = 0; i < COUNT * GROUPS; i++) {
		snprintf(file[0], sizeof(file[0]), "%u", i % 1000);
		unlink(file[0]);
	}
	rmdir(directory);
}

static void prepare(unsigned int index)
{
	for (unsigned int i = 0; i < GROUPS; i++) {
		snprintf(file[i], sizeof(file[i]), "%u", s->flags & SHARED ? 0 : (index * GROUPS + i) % 1000);
		close(open(file[i], O_CREAT | O_RDWR, 0600));
		kd_must((group[i] = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) >= 0);
	}
}

static __attribute__((noreturn)) void work(unsigned int index, pid_t leader)
{
	kd_must(!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == leader);
	prepare(index);
	for (unsigned int number = 1;; number++) {
		for (unsigned int spins = 1; atomic_load(&share->given) != number; spins++)
			if (spins % SPINS == 0)
				usleep(NAP_US);
		if (share->churns)
			churn();
		atomic_store(&share->worker[index].steps, 2 * number - 1);
		drain();
		atomic_store(&share->worker[index].steps, 2 * number);
	}
}

int main(void)
{
	pid_t leader = getpid();
	cpu_set_t set;

	share = mmap(NULL, sizeof(*share), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	kd_must(share != MAP_FAILED && mkdtemp(directory) && !chdir(directory));
	kd_at_end(remove_files);
	kd_phase(CHURN, "churn", "watch", COUNT * GROUPS * ROUNDS);
	if (s->flags & SHARED) {	/* a watch keeps the inode watched */
		close(open("0", O_CREAT | O_RDWR, 0600));
		kd_must(inotify_add_watch(inotify_init1(IN_CLOEXEC), "0", IN_MODIFY) >= 0);
	}
	signal(SIGCHLD, exit);
	for (unsigned int i = COUNT; i-- > 0; ) {	/* the leader, worker 0, comes last to its CPU */
		CPU_ZERO(&set);
		CPU_SET(i, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			err(77, "worker %u has no CPU of its own", i);
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ 1 });
		if (i > 0 && !fork())
			work(i, leader);
	}
	prepare(0);
	for (unsigned int i = 0; i < SETTLE + RESTS; i++) {
		command(i < SETTLE);
		collect(i >= SETTLE);
	}
	while (kd_next()) {
		KD_WINDOW(CHURN, command(true));
		collect(true);
	}
	return kd_finish();
}
