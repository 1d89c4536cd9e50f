// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Paths without memory management, and one without a kernel: what changes
 * here between two kernels changed everywhere.
 */
#include "kdelta.h"
#include <linux/futex.h>
#include <sys/syscall.h>

enum { CALL };						/* phases */
enum { USER, GETPPID, PIPE, SWITCH, WAKE, WAIT, SIGNAL };	/* scenario flags */

static const struct kd_scenario scenarios[] = {
	{ "user_loop", "a loop in user space: no kernel may change it", 0, USER, 1000000 },
	{ "getppid", "getppid()", 0, GETPPID, 256 },
	{ "pipe", "one byte written to a pipe and read back", 0, PIPE, 256 },
	{ "pipe_switch", "one byte to another task by a pipe, and one back", 0, SWITCH, 32 },
	{ "futex_wake", "FUTEX_WAKE where nobody waits", 0, WAKE, 256 },
	{ "futex_wait", "FUTEX_WAIT of a word that has changed already", 0, WAIT, 256 },
	{ "signal", "a signal to itself, caught", 0, SIGNAL, 256 },
};

static int there[2], back[2];
static uint32_t word;
static volatile sig_atomic_t caught;

static noinline void user_loop(unsigned int calls)
{
	for (; calls; calls--)
		asm volatile("" : : : "memory");
}

static noinline void getppids(unsigned int calls)
{
	for (; calls; calls--)
		if (syscall(SYS_getppid) < 0)
			kd_die("getppid");
}

static void send_byte(int fd)
{
	if (write(fd, "", 1) != 1)
		kd_die("write to a pipe");
}

static void receive_byte(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		kd_die("read from a pipe");
}

static noinline void pipe_alone(unsigned int calls)
{
	for (; calls; calls--) {
		send_byte(there[1]);
		receive_byte(there[0]);
	}
}

static noinline void pipe_both(unsigned int calls)
{
	for (; calls; calls--) {
		send_byte(there[1]);
		receive_byte(back[0]);
	}
}

static noinline void futex_wake(unsigned int calls)
{
	for (; calls; calls--)
		if (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0))
			kd_die("FUTEX_WAKE");
}

static noinline void futex_wait(unsigned int calls)
{
	for (; calls; calls--)
		if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0) != -1 ||
		    errno != EAGAIN)
			kd_die("FUTEX_WAIT");
}

static void catch(int number)
{
	caught += number == SIGUSR1;
}

static noinline void signals(unsigned int calls)
{
	pid_t self = getpid();

	for (; calls; calls--)
		if (kill(self, SIGUSR1))
			kd_die("kill");
}

/* The other task: sends each byte back, and ends with its parent. */
static void start_echo(void)
{
	pid_t pid = fork();
	char byte;

	if (pid < 0)
		kd_die("fork");
	if (pid)
		return;
	close(there[1]);
	while (read(there[0], &byte, 1) == 1)
		if (write(back[1], &byte, 1) != 1)
			break;
	_exit(0);
}

/*
 * The mode of this task.  A kernel that is built without seccomp has no such line in a status that
 * is otherwise there, and no task in another mode than 0.
 */
static long seccomp_mode(const char *status)
{
	long mode = kd_keyed(status, "Seccomp");

	return mode == KD_UNKNOWN && kd_keyed(status, "Threads") != KD_UNKNOWN ? 0 : mode;
}

static void audit(enum kd_when when)
{
	char *status = kd_read_file("/proc/self/status");

	kd_audit_task(when, 1);
	kd_state(when, "seccomp", seccomp_mode(status), KD_SAME);
	free(status);
}

static void set_up(const struct kd_scenario *s)
{
	if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC))
		kd_die("pipe");
	if (signal(SIGUSR1, catch) == SIG_ERR)
		kd_die("signal");
	if (s->flags == SWITCH)
		start_echo();
}

int main(int argc, char **argv)
{
	static void (*const calls[])(unsigned int calls) = {
		[USER] = user_loop,	[GETPPID] = getppids,	[PIPE] = pipe_alone,
		[SWITCH] = pipe_both,	[WAKE] = futex_wake,	[WAIT] = futex_wait,
		[SIGNAL] = signals,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "control", scenarios,
					       ARRAY_SIZE(scenarios));
	long waited = KD_FREE, signalled = KD_FREE, before;

	kd_alone(4);
	set_up(s);
	kd_phase(CALL, "call", "call", s->calls);
	calls[s->flags](s->calls);
	audit(KD_BEFORE);

	while (kd_next()) {
		caught = 0;
		before = kd_waits();
		KD_WINDOW(CALL, calls[s->flags](s->calls));
		kd_all(&waited, kd_waits() - before);
		kd_all(&signalled, caught);
	}

	kd_state(KD_DURING, "window_waits", waited, s->flags == SWITCH ? KD_FREE : 0);
	kd_state(KD_DURING, "window_signals", signalled, s->flags == SIGNAL ? s->calls : 0);
	audit(KD_AFTER);
	return kd_finish();
}
