// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loaded with changed functions of the kernel that it is loaded into: each one that has a place
 * in the image begins with a NOP of five bytes there, for the tracer, which becomes a jump behind
 * that NOP of the changed one.  Of a function that is not traced the jump takes the place of
 * endbr64, or of what sealing made of it, and goes behind that of the changed one.  So the way
 * through it is as long as if it had been linked there.
 * Addresses are those of the image: it runs where it was linked for (nokaslr).
 */
#include <linux/module.h>
#include <linux/stop_machine.h>
#include <linux/string.h>

#include "transplant.h"

#define NOP_BYTES 5
#define JUMP 0xe9
#define WRITE_PROTECT (1UL << 16)

static const unsigned char nop[NOP_BYTES] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
/* endbr64, and what arch/x86/include/asm/ibt.h seals it with, until 6.14 and from then on */
static const unsigned int marks[] = { 0xfa1e0ff3, 0x001f0f66, 0xd6401f0f };

/* Other CPUs spin in stop_machine() meanwhile. */
static int transplant_write(void *unused)
{
	unsigned long cr0;
	unsigned int i;

	asm volatile("mov %%cr0, %0" : "=r"(cr0) : : "memory");
	asm volatile("mov %0, %%cr0" : : "r"(cr0 & ~WRITE_PROTECT) : "memory");
	for (i = 0; i < transplant_constant_count; i++)
		memcpy(transplant_constants[i].where, (void *)transplant_constants[i].value,
		       transplant_constants[i].size);
	for (i = 0; i < transplant_jump_count; i++) {
		const struct transplant_jump *jump = &transplant_jumps[i];
		int distance = (unsigned long)jump->to - (jump->from + NOP_BYTES);
		unsigned char *code = (unsigned char *)jump->from;

		code[0] = JUMP;
		memcpy(code + 1, &distance, sizeof(distance));
	}
	asm volatile("mov %0, %%cr0" : : "r"(cr0) : "memory");
	return 0;
}

static bool __init transplant_fits(const struct transplant_jump *jump)
{
	unsigned int i;

	if (jump->nop)
		return !memcmp((void *)jump->nop, nop, NOP_BYTES);
	for (i = 0; i < ARRAY_SIZE(marks); i++)
		if (!memcmp((void *)jump->from, &marks[i], sizeof(marks[i])))
			return true;
	return false;
}

static int __init transplant_init(void)
{
	unsigned int i;

	for (i = 0; i < transplant_jump_count; i++)
		if (!transplant_fits(&transplant_jumps[i])) {
			pr_err("kdelta-transplant: no NOP at %lx\n", transplant_jumps[i].from);
			return -EUCLEAN;
		}
	return stop_machine(transplant_write, NULL, NULL);
}

module_init(transplant_init);
MODULE_DESCRIPTION("Changed functions in the place of a kernel's own");
MODULE_LICENSE("GPL");
