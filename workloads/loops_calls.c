// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops over signals, timers and what else a process asks for itself, under
 * the names that robots and suites have for them: written from what these
 * do.  Most are as short as a system call can be.
 */
#include "kdelta.h"
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/kcmp.h>
#include <linux/keyctl.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>

enum {							/* calls */
	SIGACTION, SIGPROCMASK, SIGTIMEDWAIT, SIGNALFD, SIGPENDING, TGKILL, ALTSTACK,
	TIMER_CREATE_CALL, TIMER_SETTIME, TIMERFD, SETITIMER, CLOCK_GETTIME, CPU_CLOCK,
	NANOSLEEP, YIELD, GETAFFINITY, SETAFFINITY, GETPARAM, SETPRIORITY, GETPGID, GETUID,
	UMASK, GETRUSAGE, TIMES, UNAME, SYSINFO, PRLIMIT, CAPGET, PRCTL, PERSONALITY, SECCOMP,
	GETRANDOM, READ_KEY, UPDATE_KEY, KCMP, IOPRIO, MEMBARRIER, GETCPU, CLOSE_BAD,
	NULL_WRITE, ZERO_READ,
};

enum {							/* what is needed */
	CALL = 255,
	FILTER = 1 << 8,	/* a filter of seccomp */
	KEY = 1 << 9,
	BARRIER = 1 << 10,	/* membarrier() registered */
	OTHER_STACK = 1 << 11,	/* for the handler of SIGUSR2 */
	DEVICES = 1 << 12,	/* /dev/null and /dev/zero */
	MAY_WAIT = 1 << 13,	/* for a timer that has expired */
};

static const struct kd_scenario scenarios[] = {
	{ "sigaction", "sigaction() to another handler", 0, SIGACTION, 256 },
	{ "sigprocmask", "a signal blocked and let through", 0, SIGPROCMASK, 256 },
	{ "sigtimedwait", "a queued signal to itself, taken by sigtimedwait()",
	  0, SIGTIMEDWAIT, 62 },
	{ "signalfd", "a queued signal to itself, read from a signalfd", 0, SIGNALFD, 62 },
	{ "sigpending", "sigpending()", 0, SIGPENDING, 256 },
	{ "tgkill", "a signal to the own thread, caught", 0, TGKILL, 256 },
	{ "signal_altstack", "a signal to itself, caught on another stack",
	  0, ALTSTACK | OTHER_STACK, 256 },
	{ "timer_create", "a POSIX timer created and deleted", 0, TIMER_CREATE_CALL, 62 },
	{ "timer_settime", "a POSIX timer set to an hour from now, and stopped",
	  0, TIMER_SETTIME, 256 },
	{ "timerfd", "a timerfd set to an hour from now, and stopped", 0, TIMERFD, 256 },
	{ "setitimer", "the timer of setitimer() set to an hour from now, and stopped",
	  0, SETITIMER, 256 },
	{ "clock_gettime", "clock_gettime() by a system call", 0, CLOCK_GETTIME, 256 },
	{ "cpu_clock", "clock_gettime() of the CPU time of the process", 0, CPU_CLOCK, 256 },
	{ "nanosleep_past", "clock_nanosleep() to a time that has passed",
	  0, NANOSLEEP | MAY_WAIT, 256 },
	{ "sched_yield", "sched_yield() where nobody else wants the CPU", 0, YIELD, 256 },
	{ "sched_getaffinity", "sched_getaffinity()", 0, GETAFFINITY, 256 },
	{ "sched_setaffinity", "sched_setaffinity() to the CPU that it is on", 0, SETAFFINITY, 62 },
	{ "sched_getattr", "sched_getparam()", 0, GETPARAM, 256 },
	{ "setpriority", "setpriority() to the same", 0, SETPRIORITY, 256 },
	{ "getpgid", "getpgid()", 0, GETPGID, 256 },
	{ "getuid", "getuid()", 0, GETUID, 256 },
	{ "umask", "umask()", 0, UMASK, 256 },
	{ "getrusage", "getrusage()", 0, GETRUSAGE, 256 },
	{ "times", "times()", 0, TIMES, 256 },
	{ "uname", "uname()", 0, UNAME, 256 },
	{ "sysinfo", "sysinfo()", 0, SYSINFO, 256 },
	{ "prlimit", "prlimit() of the number of descriptors", 0, PRLIMIT, 256 },
	{ "capget", "capget()", 0, CAPGET, 256 },
	{ "prctl", "prctl() that sets and reads the name of the task", 0, PRCTL, 256 },
	{ "personality", "personality() asked", 0, PERSONALITY, 256 },
	{ "seccomp", "getppid() under a filter of seccomp that allows all",
	  0, SECCOMP | FILTER, 256 },
	{ "getrandom", "getrandom() of 16 bytes", 0, GETRANDOM, 256 },
	{ "keyctl_read", "a key of a process keyring read", 0, READ_KEY | KEY, 62 },
	{ "keyctl_update", "a key of a process keyring updated", 0, UPDATE_KEY | KEY, 62 },
	{ "kcmp", "kcmp() of two descriptors", 0, KCMP, 256 },
	{ "ioprio", "ioprio_get()", 0, IOPRIO, 256 },
	{ "membarrier", "membarrier() for all tasks of the process, of which there is one",
	  0, MEMBARRIER | BARRIER, 256 },
	{ "getcpu", "getcpu() by a system call", 0, GETCPU, 256 },
	{ "close_bad", "close() of a descriptor that is not there", 0, CLOSE_BAD, 256 },
	{ "null_write", "one byte written to /dev/null", 0, NULL_WRITE | DEVICES, 256 },
	{ "zero_read", "one byte read from /dev/zero", 0, ZERO_READ | DEVICES, 256 },
};

static const struct itimerspec hour = { .it_value.tv_sec = 3600 };
static const struct itimerspec stopped;
static sigset_t user_signal;
static sigset_t queued_signal;
static int signals;
static int timer_file;
static int null_file;
static int zero_file;
static timer_t timer;
static long key;
static cpu_set_t own_cpu;

static void caught(int number)
{
	(void)number;
}

static void install_handler(void)
{
	struct sigaction action = { .sa_handler = caught };

	kd_must(!sigaction(SIGUSR2, &action, NULL));
}

static void mask_signal(void)
{
	kd_must(!sigprocmask(SIG_BLOCK, &user_signal, NULL));
	kd_must(!sigprocmask(SIG_UNBLOCK, &user_signal, NULL));
}

static void take_signal(void)
{
	static const struct timespec now;
	const union sigval nothing = { 0 };

	kd_must(!sigqueue(getpid(), SIGRTMIN, nothing));
	kd_must(sigtimedwait(&queued_signal, NULL, &now) == SIGRTMIN);
}

static void read_signal(void)
{
	const union sigval nothing = { 0 };
	struct signalfd_siginfo found;

	kd_must(!sigqueue(getpid(), SIGRTMIN, nothing));
	kd_must(read(signals, &found, sizeof(found)) == sizeof(found));
}

static void ask_pending(void)
{
	sigset_t pending;

	kd_must(!sigpending(&pending));
}

static void signal_thread(void)
{
	kd_must(!syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
}

static void signal_elsewhere(void)
{
	kd_must(!kill(getpid(), SIGUSR2));
}

static void make_timer(void)
{
	struct sigevent quiet = { .sigev_notify = SIGEV_NONE };
	timer_t made;

	kd_must(!timer_create(CLOCK_MONOTONIC, &quiet, &made));
	kd_must(!timer_delete(made));
}

static void set_timer(void)
{
	kd_must(!timer_settime(timer, 0, &hour, NULL));
	kd_must(!timer_settime(timer, 0, &stopped, NULL));
}

static void set_timer_file(void)
{
	kd_must(!timerfd_settime(timer_file, 0, &hour, NULL));
	kd_must(!timerfd_settime(timer_file, 0, &stopped, NULL));
}

static void set_interval(void)
{
	static const struct itimerval soon = { .it_value.tv_sec = 3600 }, never;

	kd_must(!setitimer(ITIMER_REAL, &soon, NULL));
	kd_must(!setitimer(ITIMER_REAL, &never, NULL));
}

static void ask_clock(void)
{
	struct timespec now;

	kd_must(!syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now));
}

static void ask_cpu_clock(void)
{
	struct timespec now;

	kd_must(!syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &now));
}

static void sleep_no_more(void)
{
	static const struct timespec past = { 0, 1 };

	kd_must(!clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &past, NULL));
}

static void yield_cpu(void)
{
	kd_must(!sched_yield());
}

static void ask_cpus(void)
{
	cpu_set_t found;

	kd_must(!sched_getaffinity(0, sizeof(found), &found));
}

static void stay_here(void)
{
	kd_must(!sched_setaffinity(0, sizeof(own_cpu), &own_cpu));
}

static void ask_scheduling(void)
{
	struct sched_param found;

	kd_must(!sched_getparam(0, &found));
}

static void set_nice(void)
{
	kd_must(!setpriority(PRIO_PROCESS, 0, 0));
}

static void ask_group(void)
{
	kd_must(getpgid(0) >= 0);
}

static void ask_user(void)
{
	kd_must(syscall(SYS_getuid) >= 0);
}

static void set_mask(void)
{
	umask(077);
}

static void ask_usage(void)
{
	struct rusage used;

	kd_must(!getrusage(RUSAGE_SELF, &used));
}

static void ask_times(void)
{
	struct tms used;

	kd_must(times(&used) != (clock_t)-1);
}

static void ask_name(void)
{
	struct utsname host;

	kd_must(!uname(&host));
}

static void ask_memory(void)
{
	struct sysinfo found;

	kd_must(!sysinfo(&found));
}

static void ask_limit(void)
{
	struct rlimit found;

	kd_must(!prlimit(0, RLIMIT_NOFILE, NULL, &found));
}

static void ask_capabilities(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct found[2];

	kd_must(!syscall(SYS_capget, &head, found));
}

static void name_task(void)
{
	char name[16] = "kdelta";

	kd_must(!prctl(PR_SET_NAME, name));
	kd_must(!prctl(PR_GET_NAME, name));
}

static void ask_personality(void)
{
	kd_must(personality(0xffffffff) >= 0);
}

static void filtered_call(void)
{
	kd_must(syscall(SYS_getppid) >= 0);
}

static void ask_random(void)
{
	char bytes[16];

	kd_must(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes));
}

static void read_key(void)
{
	char text[16];

	kd_must(syscall(SYS_keyctl, KEYCTL_READ, key, text, sizeof(text)) == 3);
}

static void update_key(void)
{
	kd_must(!syscall(SYS_keyctl, KEYCTL_UPDATE, key, "two", 3));
}

static void kcmp_own(void)
{
	pid_t self = getpid();

	if (!syscall(SYS_kcmp, self, self, KCMP_FILE, timer_file, timer_file))
		return;
	if (errno == ENOSYS || errno == EPERM)
		kd_skip("kcmp() cannot be called: %s", strerror(errno));
	kd_die("kcmp");
}

static void compare_descriptors(void)
{
	kcmp_own();
}

static void ask_io_priority(void)
{
	kd_must(syscall(SYS_ioprio_get, 1, 0) >= 0);
}

static void order_memory(void)
{
	kd_must(!syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
}

static void ask_cpu(void)
{
	unsigned int cpu;

	kd_must(!syscall(SYS_getcpu, &cpu, NULL, NULL));
}

static void close_nothing(void)
{
	kd_must(syscall(SYS_close, 999) && errno == EBADF);
}

static void write_null(void)
{
	kd_must(write(null_file, "", 1) == 1);
}

static void read_zero(void)
{
	char byte;

	kd_must(read(zero_file, &byte, 1) == 1);
}

static void add_filter(void)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = { 1, &all };

	kd_must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		kd_skip("the kernel has no filters of seccomp: %s", strerror(errno));
}

static void add_key(void)
{
	key = syscall(SYS_add_key, "user", "kdelta", "one", 3, KEY_SPEC_PROCESS_KEYRING);
	if (key < 0)
		kd_skip("no key can be added: %s", strerror(errno));
}

static void register_barrier(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		kd_skip("the kernel has no membarrier() for it: %s", strerror(errno));
}

static void set_other_stack(void)
{
	static char memory[64 << 10];
	const stack_t stack = { .ss_sp = memory, .ss_size = sizeof(memory) };
	struct sigaction action = { .sa_handler = caught, .sa_flags = SA_ONSTACK };

	kd_must(!sigaltstack(&stack, NULL));
	kd_must(!sigaction(SIGUSR2, &action, NULL));
}

static void open_devices(void)
{
	null_file = open("/dev/null", O_WRONLY);
	zero_file = open("/dev/zero", O_RDONLY);
	if (null_file < 0 || zero_file < 0)
		kd_skip("there is no /dev/null or /dev/zero: %s", strerror(errno));
}

static void set_up_signals(int call)
{
	kd_must(!sigemptyset(&user_signal) && !sigaddset(&user_signal, SIGUSR1));
	kd_must(!sigemptyset(&queued_signal) && !sigaddset(&queued_signal, SIGRTMIN));
	kd_must(!sigprocmask(SIG_BLOCK, &queued_signal, NULL));
	kd_must(signal(SIGUSR1, caught) != SIG_ERR);
	signals = signalfd(-1, &queued_signal, 0);
	if (signals < 0 && call == SIGNALFD)
		kd_skip("the kernel has no signalfd: %s", strerror(errno));
}

static void set_up_timers(int call)
{
	struct sigevent quiet = { .sigev_notify = SIGEV_NONE };

	timer_file = timerfd_create(CLOCK_MONOTONIC, 0);
	if (timer_file < 0 && (call == TIMERFD || call == KCMP))
		kd_skip("the kernel has no timerfd: %s", strerror(errno));
	kd_must(!timer_create(CLOCK_MONOTONIC, &quiet, &timer));
}

static void set_up(const struct kd_scenario *s)
{
	set_up_signals(s->flags & CALL);
	set_up_timers(s->flags & CALL);
	kd_must(!sched_getaffinity(0, sizeof(own_cpu), &own_cpu));
	if (s->flags & FILTER)
		add_filter();
	if (s->flags & KEY)
		add_key();
	if (s->flags & BARRIER)
		register_barrier();
	if (s->flags & OTHER_STACK)
		set_other_stack();
	if (s->flags & DEVICES)
		open_devices();
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[SIGACTION] = install_handler, [SIGPROCMASK] = mask_signal,
		[SIGTIMEDWAIT] = take_signal, [SIGNALFD] = read_signal,
		[SIGPENDING] = ask_pending, [TGKILL] = signal_thread,
		[ALTSTACK] = signal_elsewhere, [TIMER_CREATE_CALL] = make_timer,
		[TIMER_SETTIME] = set_timer, [TIMERFD] = set_timer_file,
		[SETITIMER] = set_interval, [CLOCK_GETTIME] = ask_clock,
		[CPU_CLOCK] = ask_cpu_clock, [NANOSLEEP] = sleep_no_more, [YIELD] = yield_cpu,
		[GETAFFINITY] = ask_cpus, [SETAFFINITY] = stay_here, [GETPARAM] = ask_scheduling,
		[SETPRIORITY] = set_nice, [GETPGID] = ask_group, [GETUID] = ask_user,
		[UMASK] = set_mask, [GETRUSAGE] = ask_usage, [TIMES] = ask_times,
		[UNAME] = ask_name, [SYSINFO] = ask_memory, [PRLIMIT] = ask_limit,
		[CAPGET] = ask_capabilities, [PRCTL] = name_task, [PERSONALITY] = ask_personality,
		[SECCOMP] = filtered_call, [GETRANDOM] = ask_random, [READ_KEY] = read_key,
		[UPDATE_KEY] = update_key, [KCMP] = compare_descriptors,
		[IOPRIO] = ask_io_priority, [MEMBARRIER] = order_memory, [GETCPU] = ask_cpu,
		[CLOSE_BAD] = close_nothing, [NULL_WRITE] = write_null, [ZERO_READ] = read_zero,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "loops_calls", scenarios,
					       ARRAY_SIZE(scenarios));

	set_up(s);
	return kd_loop(once[s->flags & CALL], s->calls, 1, 0, s->flags & MAY_WAIT ? KD_FREE : 0);
}
