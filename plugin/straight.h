/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which instructions go straight on to the next one, always: neither fault nor leave the block?
 * And which tell by their access to memory that they did not fault?
 *
 * Such instructions share one counter with their successor.  So only what is listed here is
 * taken for one; memory accesses, divisions, everything privileged and every instruction that is
 * not known may leave.  The kernel's accesses to its own stack, its image and its per-CPU
 * variables at fixed places cannot fault in a kernel that lives; those of user space can.
 */
#ifndef KDELTA_STRAIGHT_H
#define KDELTA_STRAIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "insn_bytes.h"

/* Of an instruction of x86-64: what stands in front of its opcode, and its operand. */
struct x86 {
	bool kernel;
	bool rep, repne, lock, gs, other_segment, short_address;
	uint8_t rex;
	const uint8_t *opcode;
};

/*
 * How the last instruction of a block is known to have retired, when it may fault: by the one
 * access to memory that it makes, and makes last; WRITTEN where it also reads.
 */
enum access { ACCESS_UNKNOWN, ACCESS_READ, ACCESS_WRITTEN };

/* Reads it; false for what cannot be read so far, and for what is locked. */
bool x86_read(const struct code *code, struct x86 *insn);

bool is_straight(enum target target, const struct code *code);

/* Of the last instruction of a block; UNKNOWN also for one that does not fault. */
enum access last_access(enum target target, const struct code *code);

#endif /* KDELTA_STRAIGHT_H */
