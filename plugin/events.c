// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <stdlib.h>

#include "events.h"
#include "exceptions.h"
#include "outside.h"
#include "state.h"
#include "tasks.h"

#define MAX_EVENTS 1024u
#define EXCEPTIONS (EVENT_EXCEPTION | EVENT_TRAP)

static struct {
	struct event_range {
		uint64_t start, end; /* addresses; the end is the first behind */
		unsigned int bits;
	} at[MAX_EVENTS]; /* by address */
	uint32_t count;
	uint64_t firmware;
} events;

void events_firmware(uint64_t vaddr)
{
	events.firmware = vaddr;
}

static int by_address(const void *a, const void *b)
{
	const struct event_range *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

bool events_read(const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned long long start, end;
	unsigned int bits, i = 0;
	char name[512];
	bool whole;

	if (!file)
		return false;
	while (i < MAX_EVENTS && fscanf(file, "%u %llx %llx %511s", &bits, &start, &end, name) == 4) {
		bits |= bits & EVENT_EXCEPTION ? vector_of(name) << EVENT_BITS : 0;
		events.at[i++] = (struct event_range){ start, end, bits };
		if (bits & EVENT_NEW_TASK)
			tasks_expect_new();
	}
	events.count = i;
	whole = feof(file);
	fclose(file);
	qsort(events.at, i, sizeof(*events.at), by_address);
	return whole;
}

/*
 * The firmware below a kernel of riscv64 is no part of a path: it is entered where mtvec says, for a
 * call of the kernel as for what it hands on to it, and left by mret.  Its addresses are physical.
 */
static unsigned int firmware_event(const struct code *code)
{
	if (!events.firmware)
		return 0;
	return code->vaddr == events.firmware ? EVENT_INTERRUPT : is_mret(code) ? EVENT_RETURN : 0;
}

unsigned int event_of(const struct code *code)
{
	uint32_t low = 0, high = events.count;
	unsigned int bits;

	if (!is_kernel(code->vaddr))
		return firmware_event(code);
	/* Tasks, and what they ask for, are watched from the beginning. */
	if (is_return(state.target, code))
		return state.armed || outside_wanted() ? EVENT_RETURN : 0;
	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (code->vaddr >= events.at[middle].end)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == events.count || code->vaddr < events.at[low].start)
		return 0;
	bits = events.at[low].bits;
	if (state.armed || (outside_wanted() && bits & EXCEPTIONS))
		return bits;
	return bits & (EVENT_SWITCH | EVENT_NEW_TASK | EVENT_ANSWER);
}
