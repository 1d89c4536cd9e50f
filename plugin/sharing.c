// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>
#include <stdlib.h>

#include "alloc.h"
#include "sharing.h"

#define MAX_LINES (1u << 21)

struct line {
	uint64_t number; /* plus one, 0: free */
	uint8_t holders; /* a bit for each CPU that has a copy */
	uint8_t writer; /* the CPU that wrote last, plus one */
	uint64_t written[MAX_SHARING]; /* bytes, by others while this CPU had no copy */
	uint64_t news[MAX_SHARING]; /* the same, when it fetched its copy */
};

/* A table by hash; as large as a power of two, at most half full. */
static struct {
	bool wanted, overflow;
	struct line *line;
	size_t count, room;
} sharing;

void sharing_want(void)
{
	sharing.wanted = true;
}

bool sharing_wanted(void)
{
	return sharing.wanted;
}

enum mark_error sharing_error(void)
{
	return sharing.overflow ? ERROR_TOO_MUCH_MEMORY : 0;
}

static struct line *line_slot(uint64_t number)
{
	size_t i = (number * 0x9e3779b97f4a7c15ULL >> 32) & (sharing.room - 1);

	while (sharing.line[i].number && sharing.line[i].number != number)
		i = (i + 1) & (sharing.room - 1);
	return &sharing.line[i];
}

static void line_grow(void)
{
	struct line *old = sharing.line;
	size_t room = sharing.room;

	sharing.room = room ? 2 * room : 1u << 12;
	sharing.line = allocate(sharing.room * sizeof(*old));
	for (size_t i = 0; i < room; i++)
		if (old[i].number)
			*line_slot(old[i].number) = old[i];
	free(old);
}

static struct line *line_at(uint64_t number)
{
	struct line *line;

	if (sharing.count < MAX_LINES && 2 * sharing.count >= sharing.room)
		line_grow();
	line = line_slot(number + 1);
	if (line->number)
		return line;
	if (sharing.count >= MAX_LINES) {
		sharing.overflow = true;
		return NULL;
	}
	sharing.count++;
	line->number = number + 1;
	return line;
}

unsigned int sharing_touch(unsigned int cpu, uint64_t number, uint64_t bytes, bool write, bool locked)
{
	struct line *line = line_at(number);
	unsigned int own = 1u << cpu, moved = 0;

	if (!line)
		return 0;
	if (!(line->holders & own)) {
		if (line->writer)
			moved |= SHARED_FETCHED;
		line->news[cpu] = line->written[cpu];
		line->written[cpu] = 0;
		line->holders |= own;
	}
	if (write || locked) {
		if (line->holders != own)
			moved |= SHARED_TAKEN;
		line->holders = own;
		line->writer = cpu + 1;
		for (unsigned int other = 0; other < MAX_SHARING; other++)
			line->written[other] |= other == cpu ? 0 : bytes;
	}
	if (moved && locked)
		moved |= SHARED_ATOMIC;
	return line->news[cpu] & bytes ? moved | SHARED_BYTES : moved;
}
