// SPDX-License-Identifier: GPL-2.0-or-later
#include <string.h>

#include "alloc.h"
#include "slots.h"

#define MAX_CHUNKS 256u

static struct {
	struct chunk *chunks[MAX_CHUNKS];
	uint32_t chunk_count;
	struct place *place; /* of all slots */
	size_t place_count, place_room;
	bool overflow;
} slots;

uint32_t chunks_count(void)
{
	return slots.chunk_count;
}

struct chunk *chunk_at(uint32_t i)
{
	return slots.chunks[i];
}

uint64_t *counters(const struct chunk *chunk, unsigned int vcpu)
{
	return qemu_plugin_scoreboard_find(chunk->score, vcpu);
}

uint64_t *counter(uint32_t slot, unsigned int vcpu)
{
	return counters(slots.chunks[slot / CHUNK_SLOTS], vcpu) + slot % CHUNK_SLOTS;
}

qemu_plugin_u64 slot_entry(uint32_t slot)
{
	const struct chunk *chunk = slots.chunks[slot / CHUNK_SLOTS];

	return (qemu_plugin_u64){ chunk->score, slot % CHUNK_SLOTS * sizeof(uint64_t) };
}

unsigned int slot_insns(uint32_t slot)
{
	return slots.chunks[slot / CHUNK_SLOTS]->insns[slot % CHUNK_SLOTS];
}

uint32_t *slot_how(uint32_t slot)
{
	return &slots.chunks[slot / CHUNK_SLOTS]->how[slot % CHUNK_SLOTS];
}

const struct place *slot_place(const struct chunk *chunk, uint32_t at)
{
	return slots.place + chunk->first[at];
}

static struct chunk *chunk_new(void)
{
	struct chunk *chunk;

	if (slots.chunk_count == MAX_CHUNKS) {
		slots.overflow = true;
		return NULL;
	}
	chunk = allocate(sizeof(*chunk));
	chunk->score = qemu_plugin_scoreboard_new(CHUNK_SLOTS * sizeof(uint64_t));
	chunk->used = !slots.chunk_count; /* slot 0 stays unused: 0 means "no slot" */
	slots.chunks[slots.chunk_count++] = chunk;
	return chunk;
}

uint32_t slots_reserve(size_t count)
{
	struct chunk *chunk = slots.chunk_count ? slots.chunks[slots.chunk_count - 1] : NULL;
	uint32_t slot;

	if (!chunk || chunk->used + count > CHUNK_SLOTS)
		chunk = chunk_new();
	if (!chunk)
		return 0;
	slot = (slots.chunk_count - 1) * CHUNK_SLOTS + chunk->used;
	chunk->used += count;
	return slot;
}

void slot_report(uint32_t slot, const struct code *code)
{
	struct chunk *chunk = slots.chunks[slot / CHUNK_SLOTS];
	struct place *place;

	if (slots.place_count == slots.place_room) {
		slots.place_room = slots.place_room * 2 + 4096;
		slots.place = grown(slots.place, slots.place_room, sizeof(*slots.place));
	}
	if (!chunk->insns[slot % CHUNK_SLOTS]++)
		chunk->first[slot % CHUNK_SLOTS] = slots.place_count;
	place = &slots.place[slots.place_count++];
	place->vaddr = code->vaddr;
	memcpy(place->bytes, code->bytes, MAX_INSN_BYTES);
	place->bytes[MAX_INSN_BYTES - 1] = code->size;
}

/*
 * CODE: slot, addresses of what retires as often as it says; BYTES: slot, then of each of these two
 * words of bytes, of which the last one is their number.
 */
void emit_code(uint32_t slot)
{
	struct chunk *chunk = slots.chunks[slot / CHUNK_SLOTS];
	uint32_t at = slot % CHUNK_SLOTS;
	const struct place *place = slot_place(chunk, at);
	const uint64_t code[] = { RECORD_CODE, 1 + chunk->insns[at], slot };
	const uint64_t bytes[] = { RECORD_BYTES, 1 + 2ul * chunk->insns[at], slot };

	chunk->told[at] = true;
	emit_words(code, 3);
	for (unsigned int i = 0; i < chunk->insns[at]; i++)
		emit_words(&place[i].vaddr, 1);
	emit_words(bytes, 3);
	for (unsigned int i = 0; i < chunk->insns[at]; i++) {
		uint64_t words[2];

		memcpy(words, place[i].bytes, sizeof(words));
		emit_words(words, 2);
	}
}

enum mark_error slots_error(void)
{
	return slots.overflow ? ERROR_TOO_MANY_SLOTS : 0;
}
