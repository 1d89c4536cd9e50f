/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What may differ between two guests of one kernel, and is the same in all restores of one: where
 * the timer's ticks fall, and which memory is free.  A seed decides both.  The first leaves memory
 * as the boot did; each other takes pages of both kinds that the kernel keeps apart (those that it
 * can move and those that it cannot) and gives every second one back, so that free lists and
 * batches stand elsewhere, and single pages lie free between used ones as on machines that have run
 * for a while.
 */
#ifndef KDELTA_SEED_H
#define KDELTA_SEED_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Turns of two instructions, at most: 10 ms, more than a tick, where one takes 2 ns. */
#define SEED_TURNS   2500000ULL
#define SEED_MOVABLE 256 /* pages that can be moved: fewer */
#define SEED_PIPES   12 /* of 16 pages each that cannot: fewer */
#define SEED_PIPE    16

/* Fractions whose multiples are spread evenly, however many there are: one of the golden ratio,
 * two of the plastic number.
 */
#define SEED_GOLDEN  2654435769U
#define SEED_PLASTIC 3242174889U
#define SEED_SQUARED 2447445414U

/* From 0 up to, but without, a limit. */
static uint64_t seed_part(uint64_t number, uint32_t fraction, uint64_t limit)
{
	return (number * fraction & UINT32_MAX) * limit >> 32;
}

/*
 * Pages of a file in memory, which are not mapped; every second one goes again.  A kernel without
 * such files has only the others.
 */
static int seed_movable(uint64_t pages)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	long size = sysconf(_SC_PAGESIZE);
	int file;

	if (!pages)
		return 0;
	file = memfd_create("seed", MFD_CLOEXEC);
	if (file < 0)
		return errno == ENOSYS ? 0 : errno;
	if (fallocate(file, 0, 0, (off_t)pages * size))
		return errno == EOPNOTSUPP ? 0 : errno;
	for (uint64_t page = 0; page < pages; page += 2)
		if (fallocate(file, hole, (off_t)page * size, size))
			return errno;
	return 0;
}

/* Pipes whose writes are a page each; every second one is closed again. */
static int seed_unmovable(uint64_t pipes)
{
	int ends[SEED_PIPES][2];

	for (uint64_t pipe = 0; pipe < pipes; pipe++)
		if (pipe2(ends[pipe], O_DIRECT | O_NONBLOCK | O_CLOEXEC))
			return errno;
	for (int page = 0; page < SEED_PIPE; page++)
		for (uint64_t pipe = 0; pipe < pipes; pipe++)
			if (write(ends[pipe][1], "", 1) != 1)
				return errno;
	for (uint64_t pipe = 0; pipe < pipes; pipe += 2) {
		close(ends[pipe][0]);
		close(ends[pipe][1]);
	}
	return 0;
}

/* An errno, 0 when all is as the seed has it. */
static int seed_sow(const char *text)
{
	uint64_t number = strtoull(text, NULL, 10), later = number ? number - 1 : 0;
	uint64_t turns = seed_part(number, SEED_GOLDEN, SEED_TURNS);
	int status = seed_movable(seed_part(later, SEED_PLASTIC, SEED_MOVABLE));

	if (!status)
		status = seed_unmovable(seed_part(later, SEED_SQUARED, SEED_PIPES));
	for (; turns; turns--)
		asm volatile("" : "+r"(turns));
	return status;
}

#endif /* KDELTA_SEED_H */
