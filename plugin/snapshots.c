// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>
#include <string.h>

#include "alloc.h"
#include "slots.h"
#include "snapshots.h"
#include "state.h"

void snapshot_cover(struct snapshot *snapshot)
{
	size_t old = (size_t)snapshot->chunks * CHUNK_SLOTS;
	size_t new = (size_t)chunks_count() * CHUNK_SLOTS;

	if (snapshot->chunks == chunks_count())
		return;
	snapshot->counts = grown(snapshot->counts, new, sizeof(uint64_t));
	memset(snapshot->counts + old, 0, (new - old) * sizeof(uint64_t));
	snapshot->chunks = chunks_count();
}

void snapshot_take(struct snapshot *snapshot, unsigned int index)
{
	snapshot_cover(snapshot);
	for (uint32_t i = 0; i < snapshot->chunks; i++) {
		const struct chunk *chunk = chunk_at(i);

		memcpy(snapshot->counts + (size_t)i * CHUNK_SLOTS, counters(chunk, index),
		       chunk->used * sizeof(uint64_t));
	}
}

void snapshot_drop(unsigned int index)
{
	struct vcpu *vcpu = &state.vcpu[index];

	snapshot_cover(&vcpu->base);
	snapshot_cover(&vcpu->left);
	for (uint32_t i = 0; i < vcpu->base.chunks; i++) {
		const struct chunk *chunk = chunk_at(i);
		const uint64_t *now = counters(chunk, index);
		uint64_t *base = vcpu->base.counts + (size_t)i * CHUNK_SLOTS;
		const uint64_t *begin = vcpu->left.counts + (size_t)i * CHUNK_SLOTS;

		for (uint32_t slot = 0; slot < chunk->used; slot++)
			base[slot] += now[slot] - begin[slot];
	}
}
