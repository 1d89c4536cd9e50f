// SPDX-License-Identifier: GPL-2.0-or-later
#include "sharing.h"
#include "table.h"

#define MAX_LINES (1u << 21)

struct line {
	uint64_t number; /* plus one */
	uint8_t holders; /* a bit for each CPU that has a copy */
	uint8_t writer; /* the CPU that wrote last, plus one */
	uint32_t by; /* the function that did */
	uint64_t accessed[MAX_SHARING]; /* bytes, by a CPU since it has its copy */
	uint64_t written[MAX_SHARING]; /* bytes, by others while this CPU had no copy */
	uint64_t news[MAX_SHARING]; /* the same, when it fetched its copy */
	uint64_t missed[MAX_SHARING]; /* bytes that others accessed whose copies it took */
};

static struct {
	bool wanted, overflow;
	struct table lines;
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

static void line_fetch(struct line *line, unsigned int cpu)
{
	line->news[cpu] = line->written[cpu];
	line->written[cpu] = line->accessed[cpu] = line->missed[cpu] = 0;
	line->holders |= 1u << cpu;
}

static void line_write(struct line *line, unsigned int cpu, uint64_t bytes)
{
	for (unsigned int other = 0; other < MAX_SHARING; other++) {
		if (other == cpu)
			continue;
		if (line->holders & 1u << other)
			line->missed[cpu] |= line->accessed[other];
		line->written[other] |= bytes;
	}
	line->holders = 1u << cpu;
	line->writer = cpu + 1;
}

struct moved sharing_touch(unsigned int cpu, uint32_t function, uint64_t number, uint64_t bytes,
			   bool write, bool locked)
{
	struct moved moved = { 0 };
	struct line *line;

	number++;
	line = table_row(&sharing.lines, &number, 1, WORDS(struct line), MAX_LINES);
	if (!line) {
		sharing.overflow = true;
		return moved;
	}
	if (line->writer && line->writer != cpu + 1)
		moved.by = line->by;
	if (!(line->holders & 1u << cpu)) {
		if (line->writer)
			moved.how |= SHARED_FETCHED;
		line_fetch(line, cpu);
	}
	if (write || locked) {
		if (line->holders != 1u << cpu)
			moved.how |= SHARED_TAKEN;
		line_write(line, cpu, bytes);
		line->by = function;
	}
	line->accessed[cpu] |= bytes;
	if (moved.how && locked)
		moved.how |= SHARED_ATOMIC;
	moved.bytes = bytes;
	moved.theirs = line->news[cpu] | line->missed[cpu];
	moved.same = bytes & (line->news[cpu] | (write || locked ? line->missed[cpu] : 0));
	return moved;
}
