/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters, and the addresses of what retires as often as each says.  A counter, one of each vCPU,
 * is known by the number of its slot; 0 is none.
 */
#ifndef KDELTA_SLOTS_H
#define KDELTA_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "insn_bytes.h"
#include "qemu_api.h"
#include "stream.h"

#define CHUNK_SLOTS 16384u

/* An instruction that is counted: its address, its bytes and, in the last one, their number. */
struct place {
	uint64_t vaddr;
	uint8_t bytes[MAX_INSN_BYTES];
};

/* Slots side by side. */
struct chunk {
	struct qemu_plugin_scoreboard *score; /* CHUNK_SLOTS counters a vCPU */
	uint32_t used;
	uint32_t first[CHUNK_SLOTS]; /* of its instructions in state.place */
	uint16_t insns[CHUNK_SLOTS];
	bool told[CHUNK_SLOTS]; /* its CODE record is written */
	uint32_t how[CHUNK_SLOTS]; /* of an instruction with a meaning, see calls_come() */
};

uint32_t chunks_count(void);
struct chunk *chunk_at(uint32_t i);

/* All counters of a chunk on a vCPU. */
uint64_t *counters(const struct chunk *chunk, unsigned int vcpu);
uint64_t *counter(uint32_t slot, unsigned int vcpu);

/* Where QEMU adds to a counter by itself. */
qemu_plugin_u64 slot_entry(uint32_t slot);

/* How many instructions retire as often as the slot counts. */
unsigned int slot_insns(uint32_t slot);

/* Of an instruction with a meaning, see calls_come(). */
uint32_t *slot_how(uint32_t slot);

/* The first instruction of a chunk's slot. */
const struct place *slot_place(const struct chunk *chunk, uint32_t at);

/* The first of some free slots side by side, 0 when there is no room. */
uint32_t slots_reserve(size_t count);

/* An instruction retires as often as the slot counts; all of a slot in a row. */
void slot_report(uint32_t slot, const struct code *code);

/* Before the first window that counts a slot: what it stands for. */
void emit_code(uint32_t slot);

/* ERROR_TOO_MANY_SLOTS when there was no room for all; else 0. */
enum mark_error slots_error(void);

#endif /* KDELTA_SLOTS_H */
