// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does it cost to start a process or a thread and to wait for its end,
 * when there is next to nothing to copy or to tear down?
 */
#include "kdelta.h"
#include <pthread.h>

enum { SPAWN };						/* phases */
enum { FORK, VFORK_EXEC, EXEC, THREAD };		/* scenario flags */

static const struct kd_scenario scenarios[] = {
	{ "fork_exit", "fork(), _exit(), waitpid()", 0, FORK | KD_OVER_BATCHES, 1 },
	{ "vfork_exec", "vfork(), execve() of this program, which exits at once, waitpid()",
	  0, VFORK_EXEC | KD_OVER_BATCHES, 1 },
	{ "fork_exec", "fork(), execve() of this program, which exits at once, waitpid()",
	  0, EXEC | KD_OVER_BATCHES, 1 },
	{ "thread", "a thread is created, ends and is joined", 0, THREAD | KD_OVER_BATCHES, 1 },
};

static char program[] = "/proc/self/exe";
static char end_at_once[] = "end-at-once";
static char *const arguments[] = { program, end_at_once, NULL };
static char *const environment[] = { NULL };

static noinline void fork_exit(unsigned int calls)
{
	for (; calls; calls--) {
		pid_t pid = fork();

		if (pid < 0)
			kd_die("fork");
		if (!pid)
			_exit(0);
		kd_reap(pid);
	}
}

static noinline void fork_exec(unsigned int calls)
{
	for (; calls; calls--) {
		pid_t pid = fork();

		if (pid < 0)
			kd_die("fork");
		if (!pid) {
			execve(program, arguments, environment);
			_exit(127);
		}
		kd_reap(pid);
	}
}

/* A function of its own: the child runs on its parent's stack until execve(). */
static noinline pid_t vfork_one(void)
{
	pid_t pid = vfork();

	if (!pid) {
		execve(program, arguments, environment);
		_exit(127);
	}
	return pid;
}

static noinline void vfork_exec(unsigned int calls)
{
	for (; calls; calls--) {
		pid_t pid = vfork_one();

		if (pid < 0)
			kd_die("vfork");
		kd_reap(pid);
	}
}

static void *nothing(void *argument)
{
	return argument;
}

static noinline void threads(unsigned int calls)
{
	pthread_t thread;

	for (; calls; calls--) {
		errno = pthread_create(&thread, NULL, nothing, NULL);
		if (errno)
			kd_die("pthread_create");
		errno = pthread_join(thread, NULL);
		if (errno)
			kd_die("pthread_join");
	}
}

static void spawn(const struct kd_scenario *s)
{
	static void (*const by_flags[])(unsigned int calls) = {
		[FORK] = fork_exit,
		[VFORK_EXEC] = vfork_exec,
		[EXEC] = fork_exec,
		[THREAD] = threads,
	};

	by_flags[s->flags & ~KD_OVER_BATCHES](s->calls);
}

/*
 * What the C library and the kernel keep for the next child, such as stacks and slabs, has to be
 * there; the kernel gets back what a child had only after a grace period of RCU.
 */
static void settle(const struct kd_scenario *s)
{
	for (unsigned int round = 0; round < 8; round++) {
		spawn(s);
		kd_sleep_us(20000);
	}
}

/* What a new process or thread has to be given, or to share. */
static void audit(enum kd_when when)
{
	char *status = kd_read_file("/proc/self/status");

	kd_state(when, "threads", kd_keyed(status, "Threads"), 1);
	kd_state(when, "tracer", kd_keyed(status, "TracerPid"), 0);
	kd_state(when, "swapped_kb", kd_keyed(status, "VmSwap"), 0);
	kd_state(when, "vmas", kd_vmas(NULL, (1UL << 47) - KD_PAGE), KD_FREE);
	free(status);
}

int main(int argc, char **argv)
{
	long children = KD_FREE, before;
	const struct kd_scenario *s;

	if (argc == 2 && !strcmp(argv[1], end_at_once))
		return 0;
	kd_fixed_layout(argv);
	s = kd_start(argc, argv, "process", scenarios, ARRAY_SIZE(scenarios));
	kd_alone(20);
	kd_phase(SPAWN, "spawn", "child", s->calls);
	settle(s);
	audit(KD_BEFORE);

	while (kd_next()) {
		before = kd_waits();
		KD_WINDOW(SPAWN, spawn(s));
		kd_all(&children, kd_waits() - before);
	}

	kd_state(KD_DURING, "window_waits", children, KD_FREE);
	settle(s);		/* a joined thread may not be gone yet */
	audit(KD_AFTER);
	return kd_finish();
}
