/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Included by insns.c alone, behind its slots: all counters of a vCPU as they were at a moment. */
#ifndef KDELTA_SNAPSHOTS_H
#define KDELTA_SNAPSHOTS_H

/* Makes the snapshot cover all chunks; chunks that came since are zero, as they were then. */
static void snapshot_cover(struct snapshot *snapshot)
{
	size_t old = (size_t)snapshot->chunks * CHUNK_SLOTS;
	size_t new = (size_t)state.chunk_count * CHUNK_SLOTS;

	if (snapshot->chunks == state.chunk_count)
		return;
	snapshot->counts = grown(snapshot->counts, new, sizeof(uint64_t));
	memset(snapshot->counts + old, 0, (new - old) * sizeof(uint64_t));
	snapshot->chunks = state.chunk_count;
}

/* Slots that are not used yet are zero in every snapshot. */
static void snapshot_take(struct snapshot *snapshot, unsigned int index)
{
	snapshot_cover(snapshot);
	for (uint32_t i = 0; i < state.chunk_count; i++)
		memcpy(snapshot->counts + (size_t)i * CHUNK_SLOTS, counters(state.chunks[i], index),
		       state.chunks[i]->used * sizeof(uint64_t));
}

/* Moves what ran since the snapshot `left` into the window's base: it is left out. */
static void snapshot_drop(unsigned int index)
{
	struct vcpu *vcpu = &state.vcpu[index];

	snapshot_cover(&vcpu->base);
	snapshot_cover(&vcpu->left);
	for (uint32_t i = 0; i < state.chunk_count; i++) {
		const uint64_t *now = counters(state.chunks[i], index);
		uint64_t *base = vcpu->base.counts + (size_t)i * CHUNK_SLOTS;
		const uint64_t *begin = vcpu->left.counts + (size_t)i * CHUNK_SLOTS;

		for (uint32_t slot = 0; slot < state.chunks[i]->used; slot++)
			base[slot] += now[slot] - begin[slot];
	}
}

#endif /* KDELTA_SNAPSHOTS_H */
