/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where a program's addresses lie, in numbers that do not depend on where the kernel put them: an
 * address within what the program mapped is its distance from the begin of that mapping.
 */
#ifndef KDELTA_MAPPINGS_H
#define KDELTA_MAPPINGS_H

#include <stdbool.h>
#include <stdint.h>

#define LEAST_ADDRESS 0x10000u /* below: NULL, a number, or SIG_IGN and the like */

/* The program's own code and data end here: they lie at the same addresses on all kernels. */
void mappings_image(uint64_t end);

/* The heap shall end there, first from main() on or further. */
void heap_end(uint64_t end);

/*
 * main() begins, or a program: it has mapped nothing yet.  vdso: where that lies, 0: do not ask;
 * stack: the pointer to its stack.
 */
void mappings_begin(uint64_t vdso, uint64_t stack);

/*
 * The page of an address, as a program sees it: its number or, on the stack, which begins anywhere
 * in a page, how many lie between it and where the stack was.
 */
uint64_t page_of(uint64_t address);

/* As address_value() for such a page. */
uint64_t page_value(uint64_t page);

/* Does the vDSO read its clocks there?  The pages lie below its code, six of them at most. */
bool is_clock_page(uint64_t address);

/* Is it in the vDSO itself, which is part of the kernel's image, two pages at least? */
bool is_vdso(uint64_t address);

/* The same as address_value() for an address of the heap, 0 for others. */
uint64_t heap_value(uint64_t address);

void mapping_add(uint64_t start, uint64_t length);
void mapping_drop(uint64_t start, uint64_t length);

/*
 * What stands for a place that a program asks for: as address_value(), but near a mapping of its own,
 * or where one was last, the distance from its begin, and elsewhere the address itself.
 */
uint64_t hint_value(uint64_t address);

/* Does an address lie within one? */
bool mapping_has(uint64_t address);

/*
 * What stands for an address: itself when it is none or of the program's image; by length and order
 * of its mapping, and the distance from its begin; where it lies in a page, for the heap; one number
 * for the stack, and what is not known.
 */
uint64_t address_value(uint64_t address);

#endif /* KDELTA_MAPPINGS_H */
