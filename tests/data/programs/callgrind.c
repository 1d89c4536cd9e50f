// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Windows that are one call of work() and nothing else, for Callgrind to count the same function:
 * recursion, indirect calls, divisions, floating point, table look-ups, and memory that is not
 * there yet.  x86-64 only; without a library, whose functions differ by CPU.
 *
 * callgrind [WINDOWS]
 */
#include "kdelta.h"

#define MARK(code) "nopl 0x6b640000+" #code "(%%rax)\n\t"

enum { NUMBERS = 3000, PAGES = 40 };

static unsigned int numbers[NUMBERS];
static double roots;
static unsigned long sum;
static char *pages;

static noinline void sort(unsigned int *from, unsigned int *to)
{
	unsigned int *low = from, *high = to, pivot;

	if (to - from < 2)
		return;
	pivot = from[(to - from) / 2];
	for (;;) {
		unsigned int other;

		while (*low < pivot)
			low++;
		do
			high--;
		while (*high > pivot);
		if (low >= high)
			break;
		other = *low;
		*low++ = *high;
		*high = other;
	}
	sort(from, low);
	sort(low, to);
}

static noinline unsigned long divide(unsigned long n)
{
	unsigned long digits = 0;

	for (; n; n /= 7)
		digits += n % 7;
	return digits;
}

static noinline unsigned long fold(unsigned long n)
{
	return n & 1 ? n * 3 + 1 : n / 2;
}

static noinline void average(void)
{
	double value = 2;

	for (int i = 0; i < 1000; i++)
		value = (value + 1e6 / value) / 2;
	roots += value;
}

/* What the marks enclose, but for the call itself. */
__attribute__((used)) noinline void work(void)
{
	static unsigned long (*volatile const ways[])(unsigned long) = { divide, fold };
	unsigned int random = 1;

	for (int i = 0; i < NUMBERS; i++)
		numbers[i] = random = random * 1103515245 + 12345;
	sort(numbers, numbers + NUMBERS);
	for (int i = 0; i < NUMBERS; i++)
		sum += ways[i % 2](numbers[i]);
	average();
	for (int i = 0; i < PAGES; i++)
		pages[i * KD_PAGE + i] = i;
}

int main(int argc, char **argv)
{
	int windows = argc > 1 ? atoi(argv[1]) : 1;

	KD_ARM();
	sched_yield();
	for (; windows > 0; windows--) {
		pages = mmap(NULL, PAGES * KD_PAGE, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (pages == MAP_FAILED)
			kd_die("mmap");
		/* Below the red zone. */
		asm volatile("sub $128, %%rsp\n\t" MARK(0x100) "call work\n\t" MARK(0x200)
			     "add $128, %%rsp"
			     :
			     :
			     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc",
			       "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
			       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
		munmap(pages, PAGES * KD_PAGE);
	}
	printf("%lu %f\n", sum, roots);
	return 0;
}
