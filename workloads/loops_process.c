// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops that start processes and threads and wait for their end, beside those
 * of process.c, under the names that robots and suites have for them.
 */
#include "kdelta.h"
#include <sys/syscall.h>

enum { SPAWN };							/* phases */
enum {							/* calls */
	VFORK, WAITID, ZOMBIES, KILL, SESSION, CLONE_SHARED, FORK, THREADS_4, IN_PLACE,
};

enum { EXECUTED = 16 };				/* times in place, in a window */

enum {							/* what is needed */
	CALL = 255,
	THREADS = 1 << 8,	/* a second thread, which sleeps */
	MAPPINGS = 1 << 9,
	DESCRIPTORS = 1 << 10,
};

enum { SLEEPS = 1, OWN_SESSION };			/* what a child does */

static const struct kd_scenario scenarios[] = {
	{ "vfork", "vfork() of a child that exits, and wait()", 0, VFORK | KD_OVER_BATCHES, 1 },
	{ "waitid", "fork() of a child that exits, and waitid()", 0, WAITID | KD_OVER_BATCHES, 1 },
	{ "zombies_4", "four children that have ended before they are waited for",
	  0, ZOMBIES | KD_OVER_BATCHES, 1 },
	{ "kill_child", "a child that sleeps, killed and waited for",
	  0, KILL | KD_OVER_BATCHES, 1 },
	{ "session", "a child that begins a session and exits", 0, SESSION | KD_OVER_BATCHES, 1 },
	{ "clone_files", "a child that shares descriptors and folders",
	  0, CLONE_SHARED | KD_OVER_BATCHES, 1 },
	{ "fork_vmas_64", "fork() of a process with 128 more mappings",
	  0, FORK | MAPPINGS | KD_OVER_BATCHES, 1 },
	{ "fork_fds_256", "fork() of a process with 256 more descriptors",
	  0, FORK | DESCRIPTORS | KD_OVER_BATCHES, 1 },
	{ "fork_threads", "fork() of a process of two threads",
	  0, FORK | THREADS | KD_OVER_BATCHES, 1 },
	{ "threads_4", "four threads made, ended and joined", 0, THREADS_4 | KD_OVER_BATCHES, 1 },
	{ "exec_in_place", "execve() of this program by itself, without a child for each",
	  0, IN_PLACE | KD_OVER_BATCHES, EXECUTED },
};

static char program[] = "/proc/self/exe";
static char in_place[] = "in-place";

static pid_t started(int what)
{
	pid_t pid = fork();

	kd_must(pid >= 0);
	if (pid)
		return pid;
	while (what == SLEEPS)
		pause();
	_exit(what == OWN_SESSION && setsid() < 0);
}

static void vfork_exit(void)
{
	pid_t pid = vfork();

	if (!pid)
		_exit(0);
	kd_must(pid > 0);
	kd_reap(pid);
}

static void wait_by_id(void)
{
	pid_t pid = started(0);
	siginfo_t ended;

	kd_must(!waitid(P_PID, pid, &ended, WEXITED) && !ended.si_status);
}

static void four_zombies(void)
{
	pid_t pids[4];

	for (unsigned int i = 0; i < 4; i++)
		pids[i] = started(0);
	for (unsigned int i = 0; i < 4; i++)
		kd_reap(pids[i]);
}

static void kill_child(void)
{
	pid_t pid = started(SLEEPS);
	int status;

	kd_must(!kill(pid, SIGKILL));
	kd_must(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

static void begin_session(void)
{
	kd_reap(started(OWN_SESSION));
}

static void share_files(void)
{
	long pid = syscall(SYS_clone, CLONE_FILES | CLONE_FS | SIGCHLD, NULL, NULL, NULL, 0);

	if (!pid)
		_exit(0);
	kd_must(pid > 0);
	kd_reap(pid);
}

static void fork_and_wait(void)
{
	kd_reap(started(0));
}

static void *nothing(void *argument)
{
	return argument;
}

static void four_threads(void)
{
	pthread_t threads[4];

	for (unsigned int i = 0; i < 4; i++)
		kd_must(!pthread_create(&threads[i], NULL, nothing, NULL));
	for (unsigned int i = 0; i < 4; i++)
		kd_must(!pthread_join(threads[i], NULL));
}

/* This program again, in place of what runs: the argument says how often it is still to be so. */
static void become(unsigned int times)
{
	char left[] = { '0' + times / 10, '0' + times % 10, '\0' };
	char *const arguments[] = { program, in_place, left, NULL }, *const environment[] = { NULL };

	execve(program, arguments, environment);
	_exit(127);
}

static void exec_in_place(void)
{
	pid_t pid = vfork();

	if (!pid)
		become(EXECUTED - 1);
	kd_must(pid > 0);
	kd_reap(pid);
}

/* One of those programs: the next one, or the end of the last. */
static int executed(const char *left)
{
	unsigned int times = (left[0] - '0') * 10 + left[1] - '0';

	if (times)
		become(times - 1);
	return 0;
}

static void add_mappings(void)
{
	char *start = kd_map(128 * KD_PAGE, KD_RW, MAP_PRIVATE);

	for (unsigned int page = 0; page < 128; page += 2)
		kd_must(!mprotect(start + page * KD_PAGE, KD_PAGE, PROT_READ));
}

static void add_descriptors(void)
{
	for (int fd = 300; fd < 556; fd++)
		kd_must(dup2(STDERR_FILENO, fd) == fd);
}

static void set_up(const struct kd_scenario *s)
{
	if (s->flags & MAPPINGS)
		add_mappings();
	if (s->flags & DESCRIPTORS)
		add_descriptors();
	if (s->flags & THREADS)
		kd_start_another();
}

/* Stacks and slabs for the next child are there; what a child had comes back by RCU. */
static void settle(void (*once)(void))
{
	for (unsigned int round = 0; round < 8; round++) {
		once();
		kd_sleep_us(20000);
	}
}

int main(int argc, char **argv)
{
	static void (*const calls[])(void) = {
		[VFORK] = vfork_exit, [WAITID] = wait_by_id, [ZOMBIES] = four_zombies,
		[KILL] = kill_child, [SESSION] = begin_session, [CLONE_SHARED] = share_files,
		[FORK] = fork_and_wait, [THREADS_4] = four_threads, [IN_PLACE] = exec_in_place,
	};
	const struct kd_scenario *s;
	void (*once)(void);
	long threads;

	if (argc == 3 && !strcmp(argv[1], in_place))
		return executed(argv[2]);
	kd_fixed_layout(argv);
	s = kd_start(argc, argv, "loops_process", scenarios, ARRAY_SIZE(scenarios));
	once = calls[s->flags & CALL];
	threads = s->flags & THREADS ? 2 : 1;
	kd_alone(20);
	set_up(s);
	kd_phase(SPAWN, "spawn", "call", s->calls);
	settle(once);
	kd_audit_task(KD_BEFORE, threads);
	while (kd_next())
		KD_WINDOW(SPAWN, kd_repeat(once, once == exec_in_place ? 1 : s->calls));
	settle(once);
	kd_audit_task(KD_AFTER, threads);
	return kd_finish();
}
