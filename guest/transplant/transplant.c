// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loaded with changed functions of the kernel that it is loaded into: each one that has a place
 * in the image begins with a NOP of five bytes there, for the tracer, which becomes a jump behind
 * that NOP of the changed one.  Of a function that is not traced the jump takes the place of
 * endbr64, or of what sealing made of it, and goes behind that of the changed one.  So the way
 * through it is as long as if it had been linked there.
 * Addresses are those of the image: it runs where it was linked for (nokaslr).
 * Its parameter "used" takes the jumps back, by as many instructions as it writes them.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/stop_machine.h>
#include <linux/string.h>

#include "transplant.h"

#define JUMP 0xe9
#define WRITE_PROTECT (1UL << 16)

static const unsigned char nop[NOP_BYTES] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
/* endbr64, and what arch/x86/include/asm/ibt.h seals it with, until 6.14 and from then on */
static const unsigned int marks[] = { 0xfa1e0ff3, 0x001f0f66, 0xd6401f0f };

static unsigned int transplant_used = 1;

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

		memcpy((void *)jump->from, jump->code[transplant_used], NOP_BYTES);
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

static int transplant_set(const char *value, const struct kernel_param *param)
{
	transplant_used = value[0] & 1;
	return stop_machine(transplant_write, NULL, NULL);
}

static const struct kernel_param_ops transplant_ops = {
	.set = transplant_set,
	.get = param_get_uint,
};

module_param_cb(used, &transplant_ops, &transplant_used, 0600);

static int __init transplant_init(void)
{
	unsigned int i;

	for (i = 0; i < transplant_jump_count; i++) {
		struct transplant_jump *jump = &transplant_jumps[i];
		int distance = (unsigned long)jump->to - (jump->from + NOP_BYTES);

		if (!transplant_fits(jump)) {
			pr_err("kdelta-transplant: no NOP at %lx\n", jump->from);
			return -EUCLEAN;
		}
		memcpy(jump->code[0], (void *)jump->from, NOP_BYTES);
		jump->code[1][0] = JUMP;
		memcpy(&jump->code[1][1], &distance, sizeof(distance));
	}
	return stop_machine(transplant_write, NULL, NULL);
}

module_init(transplant_init);
MODULE_DESCRIPTION("Changed functions in the place of a kernel's own");
MODULE_LICENSE("GPL");
