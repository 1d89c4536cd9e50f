/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Translated blocks, cut into what counts together. */
#ifndef KDELTA_BLOCKS_H
#define KDELTA_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "insn_bytes.h"
#include "qemu_api.h"
#include "straight.h"

#define MAX_BLOCK 512u /* instructions */

/*
 * A block cut up: segments of instructions that start together, and of each the group of those
 * that retire together, which lies one instruction earlier; see insns.c.
 */
struct cut {
	size_t insns;
	struct code code[MAX_BLOCK];
	unsigned int mark[MAX_BLOCK]; /* code, 0: none */
	unsigned int event[MAX_BLOCK]; /* bits */
	bool string[MAX_BLOCK];
	enum access access; /* of the last one */
	uint16_t segment[MAX_BLOCK]; /* of an instruction */
	uint16_t segments;
	bool watched[MAX_BLOCK]; /* for calls, see calls_note() */
	uint32_t how[MAX_BLOCK];
};

/* Reads the block, and cuts it where an instruction may not go on to the next, or means something. */
void cut_block(struct cut *cut, const struct qemu_plugin_tb *tb);

/* Slot of the block's first segment; a block translated again (after a flush) keeps its slots. */
uint32_t block_slots(const struct cut *cut);

/* The first instruction of a segment counts for it, where there is something to report. */
void count_starts(struct qemu_plugin_insn *insn, const struct cut *cut, size_t i, uint32_t slot);

/* The last instruction of a block retires when its access to memory is made. */
void count_accesses(struct qemu_plugin_insn *insn, enum access access, uint32_t slot);

/* An instruction at this address is translated. */
void seen_note(uint64_t vaddr);

/* Was an instruction at this address translated?  Sometimes yes for one that was not. */
bool seen_find(uint64_t vaddr);

#endif /* KDELTA_BLOCKS_H */
