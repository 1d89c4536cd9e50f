/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tables by hash, as large as a power of two and at most half full.  A row is `width` words and
 * begins with `keys` words that name it; the first of these is 0 in a free one.
 */
#ifndef KDELTA_TABLE_H
#define KDELTA_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

#define WORDS(type) (sizeof(type) / sizeof(uint64_t))

struct table {
	uint64_t *words;
	size_t count, room;
};

static inline size_t table_hash(const uint64_t *key, size_t keys)
{
	uint64_t second = keys > 1 ? key[1] * 0xc2b2ae3d27d4eb4fULL : 0;

	return (key[0] * 0x9e3779b97f4a7c15ULL ^ second) >> 20;
}

/* The row of that key, or a free one. */
static inline uint64_t *table_slot(const struct table *table, const uint64_t *key, size_t keys,
				   size_t width)
{
	size_t i = table_hash(key, keys) & (table->room - 1);
	uint64_t *row;

	for (;; i = (i + 1) & (table->room - 1)) {
		row = table->words + i * width;
		if (!row[0] || !memcmp(row, key, keys * sizeof(*key)))
			return row;
	}
}

/* The row of that key; a new one has zeros behind it, or is NULL where there are `most`. */
static inline void *table_row(struct table *table, const uint64_t *key, size_t keys, size_t width,
			      size_t most)
{
	struct table old = *table;
	uint64_t *row;

	if (2 * old.count >= old.room) {
		table->room = old.room ? 2 * old.room : 1u << 12;
		table->words = allocate(table->room * width * sizeof(*row));
		for (row = old.words; row < old.words + old.room * width; row += width)
			if (row[0])
				memcpy(table_slot(table, row, keys, width), row,
				       width * sizeof(*row));
		free(old.words);
	}
	row = table_slot(table, key, keys, width);
	if (row[0])
		return row;
	if (table->count >= most)
		return NULL;
	table->count++;
	return memcpy(row, key, keys * sizeof(*key));
}

static inline void table_clear(struct table *table, size_t width)
{
	if (table->count)
		memset(table->words, 0, table->room * width * sizeof(*table->words));
	table->count = 0;
}

#endif /* KDELTA_TABLE_H */
