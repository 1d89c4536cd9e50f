// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a QEMU has to count right before anything is counted with it: windows that are assembly from
 * mark to mark, so that their numbers are known; they are in src/kdelta/run/selftest.py, by phase.
 * x86-64 and riscv64; with an argument, of two CPUs that take turns.
 */
#include "kdelta.h"

#include <sys/syscall.h>

enum { LOOPS = 10000, STRINGS = 100, BYTES = 5000, FAULTS = 64, CALLS = 1000, LONG_PAGES = 8 };

#if defined(__x86_64__) || (defined(__riscv) && __riscv_xlen == 64)

static char *untouched(void)
{
	char *pages = mmap(NULL, FAULTS * KD_PAGE, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		kd_die("mmap");
	madvise(pages, FAULTS * KD_PAGE, MADV_NOHUGEPAGE);
	return pages;
}

#endif

#if defined(__x86_64__)

#define BEGIN(phase) "nopl 0x6b640100+" #phase "(%%rax)\n\t"
#define END(phase) "nopl 0x6b640200+" #phase "(%%rax)\n\t"

static noinline void loop(void)
{
	asm volatile(BEGIN(0) "mov %[n], %%ecx\n"
		     "1:\tdec %%ecx\n\t"
		     "jnz 1b\n\t" END(0)
		     :
		     : [n] "i"(LOOPS)
		     : "rcx", "cc", "memory");
}

static noinline void strings(char *from, char *to)
{
	asm volatile(BEGIN(1) "mov %[n], %%edx\n"
		     "1:\tmov %[bytes], %%ecx\n\t"
		     "mov %[from], %%rdi\n\t"
		     "rep stosb\n\t"
		     "mov %[bytes], %%ecx\n\t"
		     "mov %[from], %%rsi\n\t"
		     "mov %[to], %%rdi\n\t"
		     "rep movsb\n\t"
		     "dec %%edx\n\t"
		     "jnz 1b\n\t" END(1)
		     :
		     : [n] "i"(STRINGS), [bytes] "i"(BYTES), [from] "r"(from), [to] "r"(to)
		     : "rcx", "rdx", "rsi", "rdi", "cc", "memory");
}

/* A store in the middle of its block meets a page that is not there. */
static noinline void faults(char *pages)
{
	asm volatile(BEGIN(2) "mov %[n], %%ecx\n\t"
		     "mov %[pages], %%rdi\n"
		     "1:\tinc %%rdx\n\t"
		     "movb $1, (%%rdi)\n\t"
		     "inc %%rdx\n\t"
		     "add $4096, %%rdi\n\t"
		     "dec %%ecx\n\t"
		     "jnz 1b\n\t" END(2)
		     :
		     : [n] "i"(FAULTS), [pages] "r"(pages)
		     : "rcx", "rdx", "rdi", "cc", "memory");
}

/* ... and the last of its block: it ends its page of code. */
static noinline void last_faults(char *pages)
{
	asm volatile(BEGIN(3) "mov %[n], %%ecx\n\t"
		     "mov %[pages], %%rdi\n\t"
		     "jmp 1f\n\t"
		     ".balign 4096\n\t"
		     ".skip 4096 - 3, 0xcc\n"
		     "1:\tmovb $1, (%%rdi)\n\t"
		     "add $4096, %%rdi\n\t"
		     "dec %%ecx\n\t"
		     "jnz 1b\n\t" END(3)
		     :
		     : [n] "i"(FAULTS), [pages] "r"(pages)
		     : "rcx", "rdi", "cc", "memory");
}

static noinline void calls(void)
{
	asm volatile(BEGIN(4) "mov %[n], %%ebx\n"
		     "1:\tmov %[number], %%eax\n\t"
		     "syscall\n\t"
		     "dec %%ebx\n\t"
		     "jnz 1b\n\t" END(4)
		     :
		     : [n] "i"(CALLS), [number] "i"(SYS_getppid)
		     : "rax", "rbx", "rcx", "r11", "cc", "memory");
}

/* One string instruction that a fault has start anew at each page. */
static noinline void long_string(char *pages)
{
	asm volatile("mov %[n], %%ecx\n\t"
		     "mov %[pages], %%rdi\n\t" BEGIN(5) "rep stosq\n\t" END(5)
		     :
		     : [n] "i"(LONG_PAGES * 4096 / 8), [pages] "r"(pages)
		     : "rcx", "rdi", "memory");
}

static unsigned int added[16] __attribute__((aligned(64)));

#define ADD(phase) case phase:	\
	asm volatile(BEGIN(phase) "lock incl %0\n\t" END(phase) : "+m"(added[0]) :: "cc"); break

/* Each CPU takes the line of one word from the other. */
static void add(void)
{
	static unsigned int turns;

	switch (turns++) {
		ADD(0);
		ADD(1);
		ADD(2);
		ADD(3);
	}
}

static int in_turns(void)
{
	kd_turn = mmap(NULL, sizeof(*kd_turn), KD_RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (kd_turn == MAP_FAILED)
		kd_die("mmap");
	kd_turn->once = add;
	kd_pin_to(0);
	KD_ARM();
	kd_start_task(1, false);
	for (unsigned int turn = 0; turn < 4; turn++)
		kd_give_turn(turn % 2, false);
	return 0;
}

int main(int argc, char **argv)
{
	static char from[BYTES], to[BYTES];

	(void)argv;
	if (argc > 1)
		return in_turns();
	KD_ARM();
	sched_yield();
	loop();
	strings(from, to);
	faults(untouched());
	last_faults(untouched());
	calls();
	long_string(untouched());
	return 0;
}

#elif defined(__riscv) && __riscv_xlen == 64

#define BEGIN(phase) "lui zero, 0x6b100+" #phase "\n\t"
#define END(phase) "lui zero, 0x6b200+" #phase "\n\t"

static noinline void loop(void)
{
	asm volatile(BEGIN(0) "mv t0, %[n]\n"
		     "1:\taddi t0, t0, -1\n\t"
		     "bnez t0, 1b\n\t" END(0)
		     :
		     : [n] "r"(LOOPS)
		     : "t0", "memory");
}

/* A store in the middle of its block meets a page that is not there. */
static noinline void faults(char *pages)
{
	asm volatile(BEGIN(1) "mv t0, %[n]\n\t"
		     "mv t1, %[pages]\n"
		     "1:\taddi t2, t2, 1\n\t"
		     "sb t0, (t1)\n\t"
		     "addi t2, t2, 1\n\t"
		     "add t1, t1, %[page]\n\t"
		     "addi t0, t0, -1\n\t"
		     "bnez t0, 1b\n\t" END(1)
		     :
		     : [n] "r"(FAULTS), [pages] "r"(pages), [page] "r"(KD_PAGE)
		     : "t0", "t1", "t2", "memory");
}

/* ... and the last of its block: it ends its page of code. */
static noinline void last_faults(char *pages)
{
	asm volatile(".option push\n\t"
		     ".option norvc\n\t" BEGIN(2) "mv t0, %[n]\n\t"
		     "mv t1, %[pages]\n\t"
		     "j 1f\n\t"
		     ".balign 4096\n\t"
		     ".skip 4096 - 4\n"
		     "1:\tsb t0, (t1)\n\t"
		     "add t1, t1, %[page]\n\t"
		     "addi t0, t0, -1\n\t"
		     "bnez t0, 1b\n\t" END(2) ".option pop"
		     :
		     : [n] "r"(FAULTS), [pages] "r"(pages), [page] "r"(KD_PAGE)
		     : "t0", "t1", "memory");
}

static noinline void calls(void)
{
	asm volatile(BEGIN(3) "mv t0, %[n]\n"
		     "1:\tli a7, %[number]\n\t"
		     "ecall\n\t"
		     "addi t0, t0, -1\n\t"
		     "bnez t0, 1b\n\t" END(3)
		     :
		     : [n] "r"(CALLS), [number] "i"(SYS_getppid)
		     : "t0", "a0", "a7", "memory");
}

int main(void)
{
	KD_ARM();
	sched_yield();
	loop();
	faults(untouched());
	last_faults(untouched());
	calls();
	return 0;
}

#else

int main(void)
{
	return 77;
}

#endif
