// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A window of a known mix of instructions: each line below is executed N times, by a loop of two
 * instructions that touch no memory.
 *
 * mix N: opens 3 windows of phase 0.
 */
#include "kdelta.h"

static unsigned long word[64] __attribute__((aligned(64)));

static __attribute__((naked, noipa)) void nothing(void)
{
	__asm__("ret");
}

static __attribute__((noipa)) void mix(unsigned long n)
{
	unsigned long target = (unsigned long)nothing;

	__asm__ volatile("1:\n\t"
			 "movq (%[at]), %%rax\n\t" /* load */
			 "movq %%rax, 8(%[at])\n\t" /* store */
			 "addq $1, 16(%[at])\n\t" /* both */
			 "lock addq $1, 24(%[at])\n\t" /* atomic */
			 "xchgq %%rax, 32(%[at])\n\t" /* atomic */
			 "mfence\n\t"
			 "lfence\n\t"
			 "cpuid\n\t" /* serialising */
			 "movl $7, %%eax\n\t"
			 "xorl %%edx, %%edx\n\t"
			 "movl $3, %%ecx\n\t"
			 "divl %%ecx\n\t" /* division */
			 "call *%[target]\n\t" /* indirect; a store, and a load by its return */
			 "movq %[at], %%rdi\n\t"
			 "movl $16, %%ecx\n\t"
			 "rep stosb\n\t" /* string */
			 "leaq 64(%[at]), %%rax\n\t"
			 "nopl 64(%[at])\n\t"
			 "prefetcht0 128(%[at])\n\t"
			 "subq $1, %[n]\n\t"
			 "jnz 1b\n\t"
			 : [n] "+r"(n)
			 : [at] "r"(word), [target] "r"(target)
			 : "rax", "rbx", "rcx", "rdx", "rdi", "memory", "cc");
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;

	KD_ARM();
	sched_yield();
	for (int i = 0; i < 3; i++) {
		KD_BEGIN(0);
		mix(n);
		KD_END(0);
	}
	return 0;
}
