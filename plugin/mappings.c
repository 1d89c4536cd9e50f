// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>
#include <string.h>

#include "mappings.h"
#include "tasks.h"

#define MAX_MAPPINGS 1024u
#define GUEST_PAGE 4096u
#define VDSO_DATA 0x6000u
#define VDSO_IMAGE 0x2000u
#define NEAR (1ull << 40)
#define STACK_ABOVE (16ull << 20) /* where the stack was: frames of before, and strings */
#define STACK (64ull << 20)
#define ON_STACK (1ull << 60)

static struct {
	uint64_t image, vdso, stack;
	uint64_t first_break, last_break; /* ends of the heap, 0: none was set since main() */
	unsigned int count;
	struct mapping {
		uint64_t start, length;
		uint64_t order; /* among those of its length, the lowest that is free */
	} at[MAX_MAPPINGS]; /* the last one behind */
	struct mapping dropped; /* last */
} mappings;

void mappings_image(uint64_t end)
{
	mappings.image = end;
}

void mappings_begin(uint64_t vdso, uint64_t stack)
{
	mappings.vdso = vdso;
	mappings.stack = stack;
	mappings.first_break = mappings.last_break = 0;
	mappings.count = 0;
	mappings.dropped = (struct mapping){ 0 };
}

void heap_end(uint64_t end)
{
	if (!mappings.first_break)
		mappings.first_break = end;
	if (end > mappings.last_break)
		mappings.last_break = end;
}

/* It begins at a random address, but what libc takes before main() is as long on all kernels. */
static bool is_heap(uint64_t address)
{
	return mappings.image && address >= mappings.image && address < mappings.last_break &&
	       !mapping_has(address);
}

uint64_t heap_value(uint64_t address)
{
	return is_heap(address) ? address - mappings.first_break : 0;
}

static void forget(unsigned int i)
{
	mappings.dropped = mappings.at[i];
	mappings.count--;
	memmove(mappings.at + i, mappings.at + i + 1,
		(mappings.count - i) * sizeof(*mappings.at));
}

/* Of one that is covered in part the rest stays as it was. */
void mapping_drop(uint64_t start, uint64_t length)
{
	for (unsigned int i = mappings.count; i-- > 0;)
		if (mappings.at[i].start >= start &&
		    mappings.at[i].start - start + mappings.at[i].length <= length)
			forget(i);
}

void mapping_add(uint64_t start, uint64_t length)
{
	struct mapping added = { start, length, 0 };

	length = (length + 0xfff) & ~0xfffULL;
	mapping_drop(start, length);
	if (mappings.count == MAX_MAPPINGS)
		forget(0);
	for (unsigned int i = 0; i < mappings.count; i++)
		if (mappings.at[i].length == added.length && mappings.at[i].order == added.order) {
			added.order++;
			i = -1;
		}
	mappings.at[mappings.count++] = added;
}

static const struct mapping *mapping_of(uint64_t address)
{
	for (unsigned int i = mappings.count; i-- > 0;)
		if (address - mappings.at[i].start < mappings.at[i].length)
			return &mappings.at[i];
	return NULL;
}

bool mapping_has(uint64_t address)
{
	return mapping_of(address);
}

bool is_clock_page(uint64_t address)
{
	return mappings.vdso - address - 1 < VDSO_DATA && !mapping_has(address);
}

bool is_vdso(uint64_t address)
{
	return mappings.vdso && address - mappings.vdso < VDSO_IMAGE && !mapping_has(address);
}

static uint64_t value_in(const struct mapping *mapping, uint64_t address)
{
	return (mapping->length * 0x9e3779b97f4a7c15ULL ^ mapping->order << 48) +
	       (address - mapping->start);
}

uint64_t address_value(uint64_t address)
{
	const struct mapping *mapping = mapping_of(address);

	if (mapping)
		return value_in(mapping, address);
	if (address < LEAST_ADDRESS || address < mappings.image)
		return address;
	/* Where in its page says, with a length, which it crosses; of several tasks it is chance. */
	return LEAST_ADDRESS + (is_heap(address) && tasks_are_alone() ? address % GUEST_PAGE : 0);
}

uint64_t page_of(uint64_t address)
{
	uint64_t below = mappings.stack + STACK_ABOVE - address - 1;

	return below < STACK ? ON_STACK | below / GUEST_PAGE : address / GUEST_PAGE;
}

uint64_t page_value(uint64_t page)
{
	return page & ON_STACK ? page : address_value(page * GUEST_PAGE);
}

static uint64_t distance(const struct mapping *mapping, uint64_t address)
{
	return mapping->start < address ? address - mapping->start : mapping->start - address;
}

uint64_t hint_value(uint64_t address)
{
	const struct mapping *nearest = &mappings.dropped;

	if (address < LEAST_ADDRESS || address < mappings.image || mapping_has(address))
		return address_value(address);
	for (unsigned int i = 0; i < mappings.count; i++)
		if (distance(&mappings.at[i], address) < distance(nearest, address))
			nearest = &mappings.at[i];
	return nearest->length && distance(nearest, address) < NEAR ? value_in(nearest, address) :
								      address;
}
