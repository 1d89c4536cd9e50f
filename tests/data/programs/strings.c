// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Are REP STOSB and REP MOVSB what they say, byte by byte?  Every distance from a word, both
 * directions, lengths around words and around 65,536, sources that overlap what they are copied
 * to, and an end in the midst, at a page that is not there.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { ROOM = 1 << 19, AT = 1 << 18, PAGE = 4096 };

static unsigned char *did, *should;
static sigjmp_buf back;
static uint64_t left, to, from, fault;
static long checks;

struct string {
	uint64_t to, from, left;
};

static void run(struct string *s, int move, int down, int value)
{
	if (down)
		asm volatile("std");
	if (move)
		asm volatile("rep movsb" : "+D"(s->to), "+S"(s->from), "+c"(s->left) : : "memory");
	else
		asm volatile("rep stosb" : "+D"(s->to), "+c"(s->left) : "a"(value) : "memory");
	asm volatile("cld");
}

static void reference(unsigned char *buffer, struct string *s, int move, int down, int value)
{
	for (; s->left; s->left--, s->to += down ? -1 : 1, s->from += down ? -1 : 1)
		*(volatile unsigned char *)(buffer + s->to) = move ? buffer[s->from] : value;
}

static void check(int move, int down, uint64_t to, uint64_t from, uint64_t length)
{
	struct string own = { (uint64_t)did + to, (uint64_t)did + from, length };
	struct string wanted = { to, from, length };

	run(&own, move, down, 0x12345600 + (int)checks % 251 + 1);
	reference(should, &wanted, move, down, checks % 251 + 1);
	const uint64_t least = length > 2 * PAGE ? 0 : AT - 2 * PAGE;

	checks++;
	if (own.left || own.to - (uint64_t)did != wanted.to ||
	    (move && own.from - (uint64_t)did != wanted.from) || memcmp(did + least, should + least, length > 2 * PAGE ? ROOM : 4 * PAGE)) {
		printf("wrong: move %d down %d to %lu from %lu length %lu\n", move, down, to, from,
		       length);
		exit(1);
	}
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)number;
	left = registers[REG_RCX];
	to = registers[REG_RDI];
	from = registers[REG_RSI];
	fault = (uint64_t)info->si_addr;
	asm volatile("cld");
	siglongjmp(back, 1);
}

/* A page is missing: bytes before it are there, and the registers say how many. */
static void check_fault(int move, int missing_source, uint64_t ahead, uint64_t beyond)
{
	unsigned char *hole = did + AT, *other = did + 2 * PAGE;
	const uint64_t to_hole = (uint64_t)hole - ahead, beside = (uint64_t)other - ahead;
	const struct string asked = { missing_source ? beside : to_hole,
				      missing_source ? to_hole : beside, ahead + beyond };
	struct string own = asked;

	memset(hole - PAGE, 1, PAGE);
	memset(other - PAGE, 2, 2 * PAGE);
	if (!sigsetjmp(back, 1)) {
		run(&own, move, 0, 0x77);
		printf("no fault\n");
		exit(1);
	}
	checks++;
	if (left != beyond || to != asked.to + ahead || (move && from != asked.from + ahead) ||
	    fault != (uint64_t)hole) {
		printf("wrong fault: move %d source %d ahead %lu beyond %lu: left %lu, at %ld\n", move,
		       missing_source, ahead, beyond, left, (long)(fault - (uint64_t)hole));
		exit(1);
	}
	for (uint64_t i = 0; i < ahead; i++)
		if (((unsigned char *)asked.to)[i] != (!move ? 0x77 : missing_source ? 1 : 2)) {
			printf("wrong bytes before a fault\n");
			exit(1);
		}
}

int main(void)
{
	static const uint64_t lengths[] = { 0,	1,  7,	8,   9,	  15,	16,   17,
					    63, 64, 65, 255, 256, 4095, 4096, 4097 };
	static const uint64_t longer[] = { 65527, 65528, 65535, 65536, 65537, 65543, 65544, 65545,
					   131071, 131072, 131073, 131080, 131081 };
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	did = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	should = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < ROOM; i++)
		did[i] = should[i] = i * 2654435761u >> 24;
	for (unsigned int i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		for (int down = 0; down < 2; down++)
			for (int to_at = 0; to_at < 9; to_at++) {
				check(0, down, AT + to_at, AT, lengths[i]);
				if (to_at > 2)
					continue;
				for (int shift = -17; shift < 18; shift++)
					check(1, down, AT + to_at, AT + to_at + shift, lengths[i]);
			}
	for (unsigned int i = 0; i < sizeof(longer) / sizeof(*longer); i++)
		for (int at = 0; at < 16; at += 7) {
			check(0, 0, AT + at, AT, longer[i]);
			check(1, 0, AT + at, AT + at + 8, longer[i]);
			check(1, 0, AT + at, at, longer[i]);
		}
	sigaction(SIGSEGV, &action, NULL);
	munmap(did + AT, PAGE);
	for (uint64_t ahead = 0; ahead < 40; ahead++)
		for (uint64_t beyond = 1; beyond < 40; beyond += 3) {
			check_fault(0, 0, ahead, beyond);
			check_fault(1, 0, ahead, beyond);
			check_fault(1, 1, ahead, beyond);
		}
	printf("%ld are right\n", checks);
	return 0;
}
