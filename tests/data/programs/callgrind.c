// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Windows that are one call of work() and nothing else, for Callgrind to count the same function:
 * recursion, indirect calls, divisions, floating point, table look-ups, and memory that is not
 * there yet.  Without a library, whose functions differ by CPU.
 *
 * callgrind [WINDOWS]
 */
#include "kdelta.h"

#define BEGIN 0x100
#define END 0x200
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* A call of work() between two marks, and nothing else there. */
#if defined(__x86_64__)
#define MARK(code) "nopl 0x6b640000+" TEXT(code) "(%%rax)\n\t"
/* Below the red zone. */
#define CALL "sub $128, %%rsp\n\t" MARK(BEGIN) "call work\n\t" MARK(END) "add $128, %%rsp"
#define CLOBBERS "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory",	\
	"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",		\
	"xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#elif defined(__aarch64__)
#define MARK(code) "movz xzr, #0xd000 + " TEXT(code) "\n\t"
#define CALL MARK(BEGIN) "bl work\n\t" MARK(END)
#define CLOBBERS "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",	\
	"x12", "x13", "x14", "x15", "x16", "x17", "x18", "x30", "cc", "memory",			\
	"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20",	\
	"v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"
#elif defined(__riscv) && __riscv_xlen == 64
#define MARK(code) "lui zero, 0x6b000 + " TEXT(code) "\n\t"
#define CALL MARK(BEGIN) "jal ra, work\n\t" MARK(END)
#define CLOBBERS "ra", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a0", "a1", "a2", "a3", "a4",	\
	"a5", "a6", "a7", "memory", "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7",	\
	"ft8", "ft9", "ft10", "ft11", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5", "fa6", "fa7"
#endif

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
		asm volatile(CALL : : : CLOBBERS);
		munmap(pages, PAGES * KD_PAGE);
	}
	printf("%lu %f\n", sum, roots);
	return 0;
}
