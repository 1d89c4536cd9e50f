// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Windows whose instructions are known by construction: what lies between the marks is written
 * in assembly, mark to mark, so that no compiler adds to it.  x86-64 only.
 *
 * oracle WHAT N WINDOWS: open WINDOWS windows of phase 0, each running WHAT for N rounds.
 */
#include "kdelta.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MARK(code) "nopl 0x6b640000+" #code "(%%rax)\n\t"
#define BEGIN MARK(0x100)
#define END MARK(0x200)

/* 1 + 2 n */
static noinline void loop(unsigned long n)
{
	asm volatile(BEGIN "mov %[n], %%rcx\n"
		     "1:\tdec %%rcx\n\t"
		     "jnz 1b\n\t" END
		     :
		     : [n] "r"(n)
		     : "rcx", "cc", "memory");
}

/* 2 + 6 n; every store meets a page that is not there, in the middle of its block. */
static noinline void touch(char *pages, unsigned long n)
{
	asm volatile(BEGIN "mov %[n], %%rcx\n\t"
		     "mov %[pages], %%rdi\n"
		     "1:\tinc %%rax\n\t"
		     "movb $1, (%%rdi)\n\t"
		     "inc %%rax\n\t"
		     "add $4096, %%rdi\n\t"
		     "dec %%rcx\n\t"
		     "jnz 1b\n\t" END
		     :
		     : [n] "r"(n), [pages] "r"(pages)
		     : "rax", "rcx", "rdi", "cc", "memory");
}

/* 3 + 4 n; the store ends its page of code, so that it is the last instruction of its block. */
static noinline void touch_last(char *pages, unsigned long n)
{
	asm volatile(BEGIN "mov %[n], %%rcx\n\t"
		     "mov %[pages], %%rdi\n\t"
		     "jmp 1f\n\t"
		     ".balign 4096\n\t"
		     ".skip 4096 - 3, 0xcc\n"
		     "1:\tmovb $1, (%%rdi)\n\t"
		     "add $4096, %%rdi\n\t"
		     "dec %%rcx\n\t"
		     "jnz 1b\n\t" END
		     :
		     : [n] "r"(n), [pages] "r"(pages)
		     : "rcx", "rdi", "cc", "memory");
}

/* 2 + 4 n; the second instruction of the loop begins in one page of code and ends in the next. */
static noinline void cross(unsigned long n)
{
	asm volatile(BEGIN "mov %[n], %%rcx\n\t"
		     "jmp 1f\n\t"
		     ".balign 4096\n\t"
		     ".skip 4096 - 6, 0xcc\n"
		     "1:\tinc %%rax\n\t"
		     "movabs $0x1122334455667788, %%rdx\n\t"
		     "dec %%rcx\n\t"
		     "jnz 1b\n\t" END
		     :
		     : [n] "r"(n)
		     : "rax", "rcx", "rdx", "cc", "memory");
}

/* 1 + 4 n, and n times the kernel's shortest call */
static noinline void calls(unsigned long n)
{
	asm volatile(BEGIN "mov %[n], %%rbx\n"
		     "1:\tmov %[number], %%eax\n\t"
		     "syscall\n\t"
		     "dec %%rbx\n\t"
		     "jnz 1b\n\t" END
		     :
		     : [n] "r"(n), [number] "i"(SYS_getppid)
		     : "rax", "rbx", "rcx", "r11", "cc", "memory");
}

/* 1: `rep stosb` of n bytes, however often QEMU says that it ran */
static noinline void fill(char *bytes, unsigned long n)
{
	asm volatile("mov %[n], %%rcx\n\t"
		     "mov %[bytes], %%rdi\n\t" BEGIN "rep stosb\n\t" END
		     :
		     : [n] "r"(n), [bytes] "r"(bytes)
		     : "rcx", "rdi", "memory");
}

/*
 * n times `rep stosb` of 100 bytes, and n times the instruction behind it without it, first of
 * all: so that one is translated before the `rep stosb` is.
 */
static noinline void fill_often(char *bytes, unsigned long n)
{
	asm volatile("mov %[n], %%rdx\n\t"
		     "xor %%ebx, %%ebx\n\t" BEGIN "jmp 2f\n"
		     "1:\tmov $100, %%ecx\n\t"
		     "mov %[bytes], %%rdi\n\t"
		     "rep stosb\n"
		     "2:\txor $1, %%ebx\n\t"
		     "jnz 1b\n\t"
		     "dec %%rdx\n\t"
		     "jnz 2b\n\t" END
		     :
		     : [n] "r"(n), [bytes] "r"(bytes)
		     : "rbx", "rcx", "rdx", "rdi", "cc", "memory");
}

static void sleep_inside(unsigned long ms)
{
	struct timespec delay = { 0, (long)ms * 1000000 };

	KD_BEGIN(0);
	nanosleep(&delay, NULL);
	KD_END(0);
}

static char *map(unsigned long pages)
{
	char *start = mmap(NULL, pages * KD_PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (start == MAP_FAILED || madvise(start, pages * KD_PAGE, MADV_NOHUGEPAGE))
		kd_die("mmap");
	return start;
}

/* 1 + 2 n, without marks */
static noinline void for_rounds(unsigned long n)
{
	asm volatile("mov %[n], %%rcx\n"
		     "1:\tdec %%rcx\n\t"
		     "jnz 1b\n\t"
		     :
		     : [n] "r"(n)
		     : "rcx", "cc");
}

/* A child runs a loop and ends; its parent waits for it. */
static void run_child(unsigned long n)
{
	pid_t child;
	int status;

	KD_BEGIN(0);
	child = fork();
	if (!child) {
		for_rounds(n);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		kd_die("the child");
	KD_END(0);
}

/* A child that was made before the windows is woken, runs a loop, and wakes its parent. */
static void wake_partner(unsigned long n)
{
	static int to[2], from[2];
	char byte = 0;

	if (!to[1]) {
		if (pipe(to) || pipe(from))
			kd_die("pipe");
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (read(to[0], &byte, 1) == 1) {
				for_rounds(n);
				if (write(from[1], &byte, 1) != 1)
					break;
			}
			_exit(1);
		}
	}
	KD_BEGIN(0);
	if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
		kd_die("the partner");
	KD_END(0);
}

/*
 * write() of two pages into a pipe, from 100 bytes behind the beginning of two: the kernel copies
 * the first page, and of the second all but the 100 bytes that are not there.
 */
static void write_hole(void)
{
	char *pages = map(3);
	int to[2];

	memset(pages, 1, 2 * KD_PAGE);
	if (pipe(to) || munmap(pages + 2 * KD_PAGE, KD_PAGE))
		kd_die("pipe");
	KD_BEGIN(0);
	if (write(to[1], pages + 100, 2 * KD_PAGE) != KD_PAGE)
		kd_die("write");
	KD_END(0);
	close(to[0]);
	close(to[1]);
}

/* n pages of memory become read-only, writable again, and are written to. */
static void protect(unsigned long n)
{
	char *pages = map(n);

	memset(pages, 1, n * KD_PAGE);
	KD_BEGIN(0);
	if (mprotect(pages, n * KD_PAGE, PROT_READ) ||
	    mprotect(pages, n * KD_PAGE, PROT_READ | PROT_WRITE))
		kd_die("mprotect");
	memset(pages, 2, n * KD_PAGE);
	KD_END(0);
	munmap(pages, n * KD_PAGE);
}

static void window(const char *what, unsigned long n)
{
	static char bytes[1 << 20];
	char *pages;

	if (!strcmp(what, "loop") || !strcmp(what, "noisy-loop"))
		loop(n);
	else if (!strcmp(what, "cross"))
		cross(n);
	else if (!strcmp(what, "calls"))
		calls(n);
	else if (!strcmp(what, "fill") && n <= sizeof(bytes))
		fill(bytes, n);
	else if (!strcmp(what, "fill-often"))
		fill_often(bytes, n);
	else if (!strcmp(what, "sleep"))
		sleep_inside(n);
	else if (!strcmp(what, "child"))
		run_child(n);
	else if (!strcmp(what, "partner"))
		wake_partner(n);
	else if (!strcmp(what, "protect"))
		protect(n);
	else if (!strcmp(what, "write-hole"))
		write_hole();
	else if (!strncmp(what, "touch", 5)) {
		pages = map(n);
		(strcmp(what, "touch") ? touch_last : touch)(pages, n);
		munmap(pages, n * KD_PAGE);
	} else
		kd_exit(2, "nothing is called %s", what);
}

/* Another process that never stops executing, on the first CPU; it is there already. */
static pid_t make_noise(void)
{
	cpu_set_t first;
	pid_t child;
	int ready[2];
	char byte = 0;

	if (pipe(ready))
		kd_die("pipe");
	child = fork();
	if (child < 0)
		kd_die("fork");
	if (child) {
		if (read(ready[0], &byte, 1) != 1)
			kd_die("the noise");
		return child;
	}
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || sched_setaffinity(0, sizeof(first), &first) ||
	    write(ready[1], &byte, 1) != 1)
		_exit(1);
	for (volatile unsigned long turns = 0;; turns++)
		;
}

int main(int argc, char **argv)
{
	unsigned long n, windows;
	pid_t noise = 0;

	KD_ARM();
	sched_yield();
	if (argc != 4)
		kd_exit(2, "usage: oracle WHAT N WINDOWS");
	n = strtoul(argv[2], NULL, 10);
	windows = strtoul(argv[3], NULL, 10);
	if (!strncmp(argv[1], "noisy-", 6))
		noise = make_noise();
	KD_ARM();
	sched_yield();
	for (; windows; windows--)
		window(argv[1], n);
	printf("cpu %d\n", sched_getcpu());
	if (noise && (kill(noise, SIGKILL) || waitpid(noise, NULL, 0) != noise))
		kd_die("the noise");
	return 0;
}
