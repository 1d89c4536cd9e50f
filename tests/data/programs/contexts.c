// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A window in which one thread has two stacks and goes from one to the other in the midst of calls,
 * so that returns come on another stack than the last call was made on.
 *
 * contexts ROUNDS: open 2 windows of phase 0; step() is entered 2 * ROUNDS times in each.
 */
#include "kdelta.h"

#include <ucontext.h>

#define apart __attribute__((noipa))

static ucontext_t one, other;
static volatile unsigned long sink;
static unsigned long rounds;
static char stack[1 << 16];

static apart void step(void)
{
	sink++;
}

static apart void deeper(ucontext_t *from, ucontext_t *to)
{
	step();
	swapcontext(from, to);
	sink++;
}

static apart void beside(void)
{
	for (;;)
		deeper(&other, &one);
}

static apart void window(void)
{
	unsigned long i;

	for (i = 0; i < rounds; i++)
		deeper(&one, &other);
}

int main(int argc, char **argv)
{
	int i;

	rounds = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	if (!rounds || getcontext(&other))
		return 2;
	other.uc_stack.ss_sp = stack;
	other.uc_stack.ss_size = sizeof(stack);
	makecontext(&other, beside, 0);
	window();
	KD_ARM();
	sched_yield();
	for (i = 0; i < 2; i++) {
		KD_BEGIN(0);
		window();
		KD_END(0);
	}
	return 0;
}
