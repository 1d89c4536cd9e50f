/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which lines of 64 bytes CPUs take from each other, when sharing=on is given.
 *
 * The model is coherence and nothing else: each CPU has a cache without an end, a line has copies in
 * several or was written by one.  An access of a line that another CPU has written since fetches it;
 * a write takes the copies of the others.  It sees what the workload's tasks do from ARM on, in
 * windows and between them, and not what interrupts and other tasks do.  Lines are known by their
 * physical address.
 *
 * A line that moves is shared in truth when this CPU goes on to access a byte that the others wrote,
 * or writes one that they accessed; where it does neither, only the line is shared, and no data.
 */
#ifndef KDELTA_SHARING_H
#define KDELTA_SHARING_H

#include <stdbool.h>
#include <stdint.h>

#include "stream.h"

#define MAX_SHARING 8u /* CPUs */

/* Beside what memory.c says of a line: 1 and 2. */
enum { SHARED_FETCHED = 4, SHARED_TAKEN = 8, SHARED_ATOMIC = 16 };

/*
 * What an access does to a line.  Bytes are masks: those accessed; of these what others wrote before
 * the line came, or accessed before it was taken; all such bytes of others.  by: the function that
 * wrote the line last, where another CPU did.
 */
struct moved {
	unsigned int how;
	uint32_t by;
	uint64_t bytes, same, theirs;
};

void sharing_want(void);
bool sharing_wanted(void);

/*
 * A function of the workload's accesses bytes of a line, of which they are a mask; locked: by an
 * instruction that reads and writes at once.  SHARED_ATOMIC: moved by such a one.
 */
struct moved sharing_touch(unsigned int cpu, uint32_t function, uint64_t line, uint64_t bytes,
			   bool write, bool locked);

/* ERROR_TOO_MUCH_MEMORY when there was no room for all; else 0. */
enum mark_error sharing_error(void);

#endif /* KDELTA_SHARING_H */
