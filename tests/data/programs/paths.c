// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A window whose call tree is known: calls in a loop, a tail call, a call by pointer, recursion,
 * a longjmp over three frames, and a page fault in the midst of a function.
 *
 * paths DEPTH: open 2 windows of phase 0; recur() is entered DEPTH times in each.
 */
#include "kdelta.h"

#include <setjmp.h>

#define apart __attribute__((noipa))

static jmp_buf out;
static volatile unsigned long sink;
static char *fresh; /* a page that is not there */

static apart void leaf(unsigned long n)
{
	sink += n;
}

static apart void branch(unsigned long n)
{
	leaf(n);
	leaf(n + 1);
	sink++;
}

/* Its last deed is a call: it jumps. */
static apart void tail(unsigned long n)
{
	sink++;
	leaf(n);
}

static apart unsigned long recur(unsigned long depth)
{
	unsigned long found = depth ? recur(depth - 1) : 0;

	sink += found;
	return found + 1;
}

static apart void third(void)
{
	sink++;
	longjmp(out, 1);
}

static apart void second(void)
{
	third();
	sink++;
}

static apart void first(void)
{
	second();
	sink++;
}

static apart void touch(void)
{
	*fresh = 1;
	leaf(7);
}

static void (*volatile pointer)(unsigned long) = branch;

static apart void window(unsigned long depth)
{
	int i;

	for (i = 0; i < 5; i++)
		branch(i);
	tail(1);
	pointer(2);
	recur(depth - 1);
	if (!setjmp(out))
		first();
	leaf(3);
	touch();
}

int main(int argc, char **argv)
{
	unsigned long depth = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	int i;

	if (!depth)
		return 2;
	fresh = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fresh == MAP_FAILED)
		return 1;
	window(2); /* the stack's pages */
	fresh += 4096;
	KD_ARM();
	sched_yield();
	for (i = 0; i < 2; i++) {
		KD_BEGIN(0);
		window(depth);
		KD_END(0);
		fresh += 4096;
	}
	return 0;
}
