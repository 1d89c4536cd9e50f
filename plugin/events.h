/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the address of an instruction means beside its count: the file events=, and the firmware. */
#ifndef KDELTA_EVENTS_H
#define KDELTA_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "insn_bytes.h"

/* Bits, in the file events= too. */
enum event {
	EVENT_INTERRUPT = 1, /* first instruction of an asynchronous entry */
	EVENT_EXCEPTION = 2, /* first instruction of a synchronous entry */
	EVENT_SWITCH = 4,    /* the vCPU goes from the task in its first argument to the next's */
	EVENT_RETURN = 8,    /* a return from interrupt or exception; found by its encoding */
	EVENT_STUB = 16,     /* of a few instructions that lead to an asynchronous entry */
	EVENT_NEW_TASK = 32, /* the task in its first argument is woken for the first time */
	EVENT_TRAP = 64, /* first instruction of an entry of both kinds, which a register tells apart */
	EVENT_WAKE = 128, /* the task in its first argument is woken */
	EVENT_ANSWER = 256, /* netlink answers a request, with the error in its third argument, or 0 */
};

#define EVENT_BITS 9
#define EVENT_WORD_BITS (EVENT_BITS + 5u) /* with a vector */

/* The file events=: lines "BITS START END SYMBOL", the first decimal, addresses hexadecimal. */
bool events_read(const char *path);

/* Where the firmware is entered; 0: there is none, or it is not known yet. */
void events_firmware(uint64_t vaddr);

/*
 * Events of an instruction, 0 for none: by its address, or as a return by its encoding.  Above them
 * stands the vector of an exception of x86-64.
 */
unsigned int event_of(const struct code *code);

#endif /* KDELTA_EVENTS_H */
