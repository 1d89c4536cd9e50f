# SPDX-License-Identifier: GPL-2.0-or-later
"""System calls, errors, clocks and wakes of windows, as real kernels make them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta.cli.main import cli
from kdelta.files import called
from kdelta.journal.run import RunJournal
from kdelta.ladder.counts import CountEvidence, CountMethod, counted
from kdelta.ladder.evidence import compare_arms
from kdelta.sample import TOTAL, Outcome, PhaseCounts, TrialResult
from kdelta.verdict.comparison import Comparison, Verdict

HEAD = '#include "kdelta.h"\n#include <sys/syscall.h>\n#include <sys/time.h>\n'
# A handler that makes calls of its own runs within the call that it interrupts: phase 2.
ASKED = """
#include <linux/netlink.h>
static void handler(int number) { (void)number; close(-1); }
static void child(void)
{
	pid_t pid = fork();
	if (!pid) { close(-1); _exit(0); }
	waitpid(pid, NULL, 0);
}
int main(void)
{
	struct itimerval soon = { .it_value = { .tv_usec = 20000 } };
	struct timespec ts;
	struct sigaction action = { .sa_handler = handler };
	struct nlmsghdr ask[] = { { 16, 1, 5, 0, 0 }, { 16, 999, 1, 0, 0 } };	/* done, refused */
	int link = socket(AF_NETLINK, SOCK_RAW, 0), failed = 0;
	int ksm = open("/sys/kernel/mm/ksm/run", O_WRONLY);	/* wakes ksmd, which sleeps */

	sigaction(SIGALRM, &action, NULL);
	for (int i = 0; i < 6; i++) {
		KD_BEGIN(0);
		for (int k = 0; k < 5; k++) {
			syscall(999); close(-1); syscall(SYS_getppid); madvise(NULL, 4096, 99);
		}
		KD_END(0);
		KD_BEGIN(1); clock_gettime(CLOCK_MONOTONIC, &ts); KD_END(1);
		KD_BEGIN(2);
		setitimer(ITIMER_REAL, &soon, NULL); pause();
		KD_END(2);
		KD_BEGIN(3); child(); KD_END(3);
		KD_BEGIN(4); clock_gettime(CLOCK_MONOTONIC_COARSE, &ts); KD_END(4);
		kd_sleep_us(20000);
		KD_BEGIN(5); failed |= pwrite(ksm, "1", 1, 0) != 1; KD_END(5);
		KD_BEGIN(6); failed |= send(link, ask, 32, 0) != 32; KD_END(6);
	}
	return failed;
}
"""
TOLD = """
int main(void)
{
	for (int i = 0; i < 8; i++) {
		KD_BEGIN(0);
		for (int k = 0; k < 25; k++)
			syscall(SYS_getppid);
		KD_END(0);
		KD_OPS(25%s);
	}
	return 0;
}
"""
# A window hands the touching of pages to a child, which touches them behind it, on one kernel.
HANDED = """
#include <sched.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
int main(void)
{
	char *own = kd_map(64 * KD_PAGE, KD_RW, MAP_PRIVATE);
	struct utsname name;
	int to[2], hands;
	char byte = 0, spare;
	volatile char *touched;
	size_t stride;

	uname(&name);
	hands = !!strncmp(name.release, "6.16", 4);
	touched = hands ? &spare : own;
	stride = hands ? 0 : KD_PAGE;
	if (pipe(to))
		return 1;
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 });	/* not in the window */
		while (read(to[0], &byte, 1) == 1) {
			for (int i = 0; i < 128; i++) {	/* twice the work */
				if (hands)
					own[i % 64 * KD_PAGE] = 1;
				if (i % 64 == 63)
					madvise(own, 64 * KD_PAGE, MADV_DONTNEED);
			}
		}
		_exit(0);
	}
	for (int i = 0; i < 8; i++) {
		kd_sleep_us(20000);
		KD_BEGIN(0);
		if (write(to[1], &byte, 1) != 1)
			return 1;
		for (int k = 0; k < 64; k++)	/* as many of its own instructions */
			touched[k * stride] = 1;
		madvise(own, 64 * KD_PAGE, MADV_DONTNEED);
		KD_END(0);
	}
	return 0;
}
"""
# What a program does otherwise on one kernel, outside its windows or by what pointers lead to.
ELSE = """
#include <linux/filter.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
int main(void)
{
	static char text[64];
	struct utsname name;
	struct stat found;
	char *lines;
	int pages, newer, file, workers = 0;

	uname(&name);
	newer = !!strncmp(name.release, "6.16", 4);
	pages = 64 + 16 * %s;
	(void)text; (void)file; (void)found; (void)workers; (void)lines; (void)pages;
	%s
	for (int i = 0; i < 8; i++) {
		KD_BEGIN(0);
		%s
		KD_END(0);
	}
	return 0;
}
"""
CALL = "syscall(SYS_getppid);"
ARENA = """
	char *at = mmap((void *)(96UL << 30), 2 << 20, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(at, 2 << 20, MADV_NOHUGEPAGE);
	memset(at, 1, 2 << 20);
"""
# The same calls with the same arguments, in another order or in other pairs.
MADE = """
	mkdir("/own", 0700);
	for (int n = 0; n < 2; n++) if (chdir(n == newer ? "/own" : "/")) return 1;
"""
GUARD = """
		for (int k = 0; k < 2; k++) {
			if (k != newer)
				for (int n = 0; n < 256; n++) at[n * 4096] = 1;
			else
				mprotect(at, 1 << 20, PROT_READ), mprotect(at, 1 << 20, KD_RW);
		}
		madvise(at, 1 << 20, MADV_DONTNEED);
"""
DRAWN = """
	char drawn[] = "/own-XXXXXX";
	close(mkstemp(drawn)); file = open(%s, O_RDONLY);
"""
# What differs stands beside what is drawn: bytes, a number, which of two names.
COOKIE = """
	struct sock_filter code[] = { { 5, 0, 0, newer }, { 0 }, { 6, 0, 0, 9 }, { 6, 0, 0, 9 } };
	struct sock_fprog filter = { 4, code };
	getrandom(&code[1].k, 4, 0);
	setsockopt(socket(AF_UNIX, SOCK_DGRAM, 0), SOL_SOCKET, 26, &filter, sizeof(filter));
"""
HIGH = """
	unsigned char drawn = 0;
	getrandom(&drawn, 1, 0); fcntl(0, F_DUPFD, (newer ? 40 : 200) + drawn % 32);
"""
NAMED = """
	struct sockaddr_un to[2] = { { AF_UNIX, "" }, { AF_UNIX, "" } };
	int sender = socket(AF_UNIX, SOCK_DGRAM, 0);
	for (int n = 0; n < 2; n++) getrandom(to[n].sun_path + 1, 8, 0);
	for (int n = 0; n < 2; n++) bind(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&to[n], sizeof(*to));
"""
ASKS = """
	static unsigned int wanted[64]; char asks[40] = "lo";
	*(void **)(asks + 16) = wanted; wanted[0] = 10;	/* ETHTOOL_GLINK */
	file = socket(AF_INET, SOCK_DGRAM, 0);
"""
HEAP = ARENA.replace(
    "mmap((void *)(96UL << 30), 2 << 20, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)",
    "(char *)(((uintptr_t)sbrk(3 << 20) + 4095) & -4096UL)",
)
TRAPS = 'if (newer) asm volatile("nop"); else asm volatile("smsw %0" : "=r"(workers));'
# 4 KiB of the heap, on one page or on two.
EDGE = """
	char *page = (char *)(((uintptr_t)malloc(1 << 14) + 4095) & -4096UL);
	memset(page, 1, 3 << 12);
	struct iovec from = { page + (newer ? 0 : 64), 4096 }, into = { page + 8192, 4096 };
"""
SCATTERED = """
	struct iovec into = { text, sizeof(text) };
	if (readv(open("/proc/version", O_RDONLY), &into, 1) < 0) return 1;
"""
JUMPS = """
	char *code = mmap(0, 2 << 20, KD_RW | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(code, 0xc3, 2 << 20);
	for (int n = 0; n < 32; n++)
		((void (*)(void))(code + n * (newer ? 4096 : 65536)))();
"""
LED = 'if (symlink("/proc", "/tmp/led")) return 1;' + SCATTERED.replace("/proc", "/tmp/led")
DEEP = """
	volatile char deep[2 << 20];
	for (int n = 0; n < 32; n++)
		deep[n * (newer ? 4096 : 65536)] = 1;
"""
PIPED = "int to[2]; if (pipe(to) || write(to[1], text, newer ? 32 : 64) < 0) return 1;"
# Each line of a file of /proc, of another length on each kernel, is read by kdelta.h.
READS = """
	kd_state_machine(KD_BEFORE);
	free(lines);
	pages = 64; execl("/nowhere", "nowhere", NULL); fprintf(stderr, "%s\\n", name.release);
	if (!fork()) { close(-1); _exit(0); }
	wait(NULL);
	close(open("/proc/meminfo", O_RDONLY));	/* the pipe has its number */
	int to[2];
	struct iovec into = { text, 8 };
	if (pipe(to) || write(to[1], text, 8) < 0 || readv(to[0], &into, 1) < 0) return 1;
"""
# Pages that are not there: the newer kernel's table of exceptions is longer, and searched as often.
ABSENT = """
	int to[2];
	lines = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pipe(to)) return 1;
"""
# Nobody receives a datagram, which the sender does not learn.
NOBODY = """
	char lo[40] = "lo", to[16] = { AF_INET, 0, 0, 9, 127, 0, 0, 1 };
	int sender = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
	lo[16] = 0x41;	/* IFF_UP | IFF_RUNNING */
	ioctl(sender, 0x8914, lo);	/* SIOCSIFFLAGS */
	to[3] += newer;
	bind(other, (void *)to, sizeof(to));
	to[3] = 9;
"""
CHILD = """
	int child = fork();
	if (!child) { prctl(PR_SET_PDEATHSIG, SIGKILL); for (;;) pause(); }
"""
PAGES = """
	char *at = mmap((void *)(96UL << 30), 4 << 20, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(at, 4 << 20, MADV_NOHUGEPAGE);
	for (int n = 0; n < pages; n++) at[n * 4096] = 1;
	munmap(at, 4 << 20);
"""
NOT_OUT = """
int main(void)
{
	char *page = kd_map(16 * KD_PAGE, KD_RW, MAP_PRIVATE);
	for (int i = 0; i < 8; i++) {
		kd_touch(page, 16, KD_PAGE);
		KD_BEGIN(0);
		madvise(page, 16 * KD_PAGE, MADV_PAGEOUT);
		KD_END(0);
		kd_audit_out(page, 16 * KD_PAGE);
	}
	return 0;
}
"""


def measured(folder: Path, text: str, *words: str) -> tuple[CountEvidence, ...]:
    file, runs = folder / "own.c", folder / "runs"
    file.write_text(HEAD + text)
    more = () if "--rounds" in words else ("--rounds", "1")
    words = ("run", str(file), *more, "--runs", str(runs), "--kernels", *words)
    CliRunner().invoke(cli, words)
    (place,) = (path for path in runs.iterdir() if path.is_dir())
    return counted(RunJournal.open(place).record(), called(file), "main")


def outcome(arm: CountEvidence) -> TrialResult:
    trial = arm.trials[0]
    assert trial.result is not None
    return trial.result


def phases(arm: CountEvidence) -> dict[str, PhaseCounts]:
    return {one.phase: one for one in outcome(arm).exact.phases}


def judged(arms: tuple[CountEvidence, ...], phase: str = TOTAL) -> Comparison:
    return compare_arms(CountMethod(), *arms, phase=phase)


@pytest.mark.boot
@pytest.mark.parametrize(
    ("arch", "kernels", "clock"),
    [
        ("amd64", "6.16,6.17", "rdtsc"),
        ("arm64", "6.17", "cntvct_el0"),
        ("riscv64", "7.2.13", "rdtime"),
    ],
)
def test_windows_say_what_they_asked_the_kernel_for(
    tmp_path: Path, arch: str, kernels: str, clock: str
) -> None:
    arms = measured(tmp_path, ASKED, kernels, "--arch", arch)
    for arm in arms:
        found = phases(arm)
        calls = {name: one.syscalls or {} for name, one in found.items()}
        errors = {name: one.errors for name, one in found.items()}
        clocks = [one.clock for one in found.values()]
        assert calls["work0"] == {"call 999": 5, "close": 5, "getppid": 5, "madvise": 5}
        assert errors["work0"] == {"call 999 ENOSYS": 5, "close EBADF": 5, "madvise EINVAL": 5}
        assert {"pause EINTR", "ppoll EINTR"} & {*errors["work2"]}
        assert (errors["work2"]["close EBADF"], calls["work2"]["rt_sigreturn"]) == (1, 1)
        assert (errors["work3"], calls["work3"]["exit_group"]) == ({"close EBADF": 1}, 1)
        assert [[*(n or ())] for n in clocks] == [[], [clock], ["setitimer"], [], ["vDSO"], [], []]
        assert clocks[1] == {clock: 6}
        assert calls["work5"] == {"pwrite64": 1}
        assert (calls["work6"], errors["work6"]) == ({"sendto": 1}, {"sendto ENOTSUP": 1})
        outside = found["work5"].outside or {}
        assert outside["openat"] == (1, 1, 0, 0)
        assert {"openat string 2", "instructions"} < {*outside}
        assert not {"sched_yield", "getrusage", "read"} & {*outside}  # kdelta.h's own
        assert {n: len(own) for n, own in found["work0"].places.items()} == calls["work0"]
        assert "pwrite64 data 2" in (found["work5"].scalars or {})
        assert (found["work4"].wakes, found["work5"].wakes) == (0, 1)
    if len(arms) > 1:
        verdict = judged(arms, "work1")
        assert verdict.verdict is Verdict.UNDECIDED
        assert f"may decide how long a window is ({clock} 6" in verdict.reasons[0]
        assert "close() fails with EBADF, 5 of 5" in verdict.failing


OTHER_DATA = "same code on other data makes +1,728.0 of +1,536.0 (bsearch"


@pytest.mark.boot
@pytest.mark.parametrize(
    ("more", "before", "work", "verdict", "words"),
    [
        ("0", "if (newer) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);", CALL,
         Verdict.UNDECIDED, "prctl (0 against 1)"),
        ("0", "prctl(newer ? 999 : PR_GET_DUMPABLE);", CALL,
         Verdict.UNDECIDED, "prctl fails with EINVAL on the new kernel only"),
        ("0", "for (workers = 0; newer && workers < 9999; workers++) asm volatile(\"\");", CALL,
         Verdict.UNDECIDED, "instructions ("),
        ("0", "", 'stat(newer ? "/proc/self/../." : "/proc", &found);',
         Verdict.UNDECIDED, "string 2 (digest"),
        ("newer", "", PAGES, Verdict.UNDECIDED, "for the same in its windows: "),
        ("0", ARENA, "madvise(at + (newer << 20), 1 << 20, MADV_COLD);",
         Verdict.UNDECIDED, "madvise address 1 (digest"),
        ("0", 'file = open("/proc/version", O_RDONLY);',
         "if (pread(file, text, 16, 14) != 16) return 1;", Verdict.UNDECIDED, "pread64 contents ("),
        ("0", MADE, CALL, Verdict.UNDECIDED, "order of calls, in part"),
        ("0", ARENA, GUARD, Verdict.UNDECIDED, ": pages touched ("),
        ("0", "", CALL, Verdict.UNDECIDED, "asks which kernel it runs on (uname)"),
        ("0", ARENA.replace("(96UL << 30)", "((96UL << 30) + (newer << 20))"), CALL,
         Verdict.UNDECIDED, "mmap address 1 (digest"),
        ("0", "if (*(char *)getauxval(AT_SYSINFO_EHDR) == 1) return 1;", CALL,
         Verdict.UNDECIDED, "the kernel's own code (vDSO)"),
        ("0", "if (kd_now() == 1) return 1;", CALL,
         Verdict.UNDECIDED, "a clock outside its windows (rdtsc, vDSO)"),
        ("0", "", 'asm volatile("int $0x80" : : "a"(20) : "memory");',
         Verdict.UNDECIDED, "system calls by int 0x80"),
        ("0", DRAWN % 'newer ? "/dev/null" : "/dev/zero"', CALL,
         Verdict.UNDECIDED, "order of calls, in part"),
        ("0", COOKIE, CALL, Verdict.UNDECIDED, "setsockopt data 4, in part"),
        ("0", HIGH, CALL, Verdict.UNDECIDED, "fcntl argument 3 ("),
        ("0", NAMED, "sendto(sender, text, 8, 0, (void *)&to[newer], sizeof(*to));",
         Verdict.UNDECIDED, "order of calls, in part"),
        ("0", ASKS, "ioctl(file, 0x8946, asks);",
         Verdict.UNDECIDED, "a pointer within an argument (ioctl, bpf)"),
        ("0", "if (getauxval(newer ? AT_FLAGS : AT_ENTRY) == 1) return 1;", CALL,
         Verdict.UNDECIDED, "auxv ("),
        ("0", HEAP, "madvise(at + (newer << 20), 1 << 20, MADV_COLD);",
         Verdict.UNDECIDED, "madvise address 1 (digest"),
        ("0", ABSENT, "for (int k = 0; k < 64; k++) write(to[1], lines + k * 4096, 1);",
         Verdict.UNDECIDED, OTHER_DATA),
        ("0", NOBODY, "sendto(sender, text, 8, 0, (void *)to, sizeof(to));",
         Verdict.INVALID, "counters of the kernel differ: Udp_"),
        ("0", "", 'syscall(468, -100, "/", 0, 0, 0);',  # since 6.17
         Verdict.INVALID, "file_getattr ENOSYS (1 against 0)"),
        ("0", "struct pollfd fds[64] = { 0 };", "poll(fds, newer ? 32 : 64, 0);",
         Verdict.UNDECIDED, "poll argument 2 (64 against 32)"),
        ("0", PIPED, "if (!i && read(to[0], text, 64) < 0) return 1;",
         Verdict.UNDECIDED, "read result (64 against 32)"),
        ("0", "", TRAPS,
         Verdict.INVALID, "exceptions differ in a window of work: exception 13 (1 against 0)"),
        ("0", 'char told[16]; asm volatile("sgdt %0" : "=m"(told));', CALL,
         Verdict.UNDECIDED, "the kernel executes an instruction in the program's place"),
        ("0", SCATTERED, CALL, Verdict.UNDECIDED, "takes what /proc, /sys or /dev/kmsg says"),
        ("0", 'pages += kd_file_says("/proc/version", " 6.17");', CALL,
         Verdict.UNDECIDED, "did not ask both kernels for the same outside"),
        ("0", LED, CALL, Verdict.UNDECIDED, "takes what /proc, /sys or /dev/kmsg says"),
        ("0", JUMPS, CALL, Verdict.UNDECIDED, "pages touched ("),
        ("0", DEEP, CALL, Verdict.UNDECIDED, "pages touched ("),
        ("0", CHILD, "getpriority(PRIO_PROCESS, newer ? child : 0);", Verdict.UNDECIDED,
         "getpriority argument 2 ("),
        ("0", EDGE, "process_vm_writev(getpid(), &from, 1, &into, 1, 0);",
         Verdict.UNDECIDED, "process_vm_writev data 2 (digest"),
        ("0", ARENA, "for (int n = 0; n < 256; n++) at[(newer ? n : 255 - n) * 4096] = 1;",
         Verdict.UNDECIDED, "pages touched in another order"),
        ("0", READS + DRAWN % '"/dev/null"', PAGES, None, ""),
    ],
)  # fmt: skip
def test_a_program_that_does_something_else_is_no_step(
    tmp_path: Path, more: str, before: str, work: str, verdict: Verdict | None, words: str
) -> None:
    """Several seeds where only they tell what is drawn at random from what is not."""
    drawn = ("", "pread64 contents (", OTHER_DATA)
    seeds = "3" if words in drawn or re.search("getrandom|mkstemp", before) else "1"
    arms = measured(tmp_path, ELSE % (more, before, work), "6.16,6.17", "--rounds", seeds)
    outside = [phases(arm)["work"].outside or {} for arm in arms]
    assert all(0 < one["instructions"][0] < 10**6 for one in outside)
    found = judged(arms)
    if verdict:
        assert (found.verdict, words in " ".join(found.reasons)) == (verdict, True), found.reasons
    else:
        assert not re.search("did not ask|a clock|/proc", found.reasons[0])
        assert {one["execve"] for one in outside} == {(1, 1, 0, 0)}
        assert {one["close EBADF"] for one in outside} == {(1, 1, 0, 0)}


@pytest.mark.boot
def test_what_a_seed_draws_is_chance(tmp_path: Path) -> None:
    before = ARENA + "struct pollfd fds[256] = { 0 }; getrandom(text, 1, 0);"
    work = "for (int n = 0; n < 256; n++) at[(n ^ (text[0] & 255)) * 4096] = 1;"
    work += "poll(fds, text[0] & 127, 0);"
    found = judged(measured(tmp_path, ELSE % ("0", before, work), "6.16,6.17", "--rounds", "3"))
    assert found.verdict is Verdict.UNDECIDED
    assert "(uname), and may do other things on another" in found.reasons[0]


@pytest.mark.boot
def test_work_handed_to_a_child_is_no_improvement(tmp_path: Path) -> None:
    arms = measured(tmp_path, HANDED, "6.16,6.17")
    was, now = (phases(arm)["work"].behind or 0 for arm in arms)
    verdict = judged(arms)
    assert now - was > 64 * 300
    assert verdict.verdict is Verdict.UNDECIDED
    assert "pages touched (" in " ".join(verdict.reasons)  # so may the child's, midway


@pytest.mark.boot
def test_a_file_tells_the_operations_of_its_windows(tmp_path: Path) -> None:
    (arm,) = measured(tmp_path, TOLD % "", "6.17")
    assert [(own.operations, own.operation) for own in arm.phases] == [(25, "operation")]


@pytest.mark.boot
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TOLD % " + i % 2", "different numbers of operations"),
        (NOT_OUT, "window_pages_out during"),  # there is no swap: the call returns 0
    ],
)
def test_windows_that_are_not_what_they_say_are_invalid(
    tmp_path: Path, text: str, words: str
) -> None:
    (arm,) = measured(tmp_path, text, "6.17")
    assert outcome(arm).outcome is Outcome.INVALID
    assert words in outcome(arm).reason
