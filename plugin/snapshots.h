/* SPDX-License-Identifier: GPL-2.0-or-later */
/* All counters of a vCPU as they were at a moment. */
#ifndef KDELTA_SNAPSHOTS_H
#define KDELTA_SNAPSHOTS_H

#include <stdint.h>

/* All counters of one vCPU at one moment, chunks side by side. */
struct snapshot {
	uint64_t *counts;
	uint32_t chunks;
};

/* Makes the snapshot cover all chunks; chunks that came since are zero, as they were then. */
void snapshot_cover(struct snapshot *snapshot);

/* Slots that are not used yet are zero in every snapshot. */
void snapshot_take(struct snapshot *snapshot, unsigned int index);

/* Moves what ran since the snapshot `left` of a vCPU into its window's base: it is left out. */
void snapshot_drop(unsigned int index);

#endif /* KDELTA_SNAPSHOTS_H */
