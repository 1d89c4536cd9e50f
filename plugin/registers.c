// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "registers.h"
#include "state.h"

static const struct {
	const char *qemu; /* its name of the target */
	enum target target;
	const char *registers[REGISTERS];
} targets[] = {
	{ "x86_64",
	  TARGET_X86_64,
	  { "rdi", "rsi", "rdx", "rcx", "r8", "r9", "rcx", "rsp", "rax", NULL, NULL, NULL,
	    "rax", "r10" } },
	{ "aarch64",
	  TARGET_AARCH64,
	  { "x0", "x1", "x2", "x3", "x4", "x5", NULL, "sp", "x0", "ESR_EL1",
	    "ELR_EL1", NULL, "x8", "x3" } },
	{ "riscv64",
	  TARGET_RISCV64,
	  { "a0", "a1", "a2", "a3", "a4", "a5", NULL, "sp", "a0", "scause", "sepc",
	    "mtvec", "a7", "a3" } },
};

static const char *const *register_names; /* of the target */
static GByteArray *register_bytes; /* of the one that is read */

bool register_exists(enum register_index which)
{
	return register_names[which];
}

uint64_t register_value(unsigned int vcpu, unsigned int which)
{
	uint64_t value = 0;

	g_byte_array_set_size(register_bytes, 0);
	if (!state.vcpu[vcpu].registers[which] ||
	    qemu_plugin_read_register(state.vcpu[vcpu].registers[which], register_bytes) <= 0)
		die("a register cannot be read");
	memcpy(&value, register_bytes->data, register_bytes->len < 8 ? register_bytes->len : 8);
	return value;
}

void registers_find(qemu_plugin_id_t id, unsigned int index)
{
	GArray *all = qemu_plugin_get_registers();

	(void)id;
	if (!all || index >= state.vcpus)
		return;
	for (unsigned int i = 0; i < all->len; i++)
		for (unsigned int k = 0; k < REGISTERS; k++)
			if (register_names[k] && !strcmp(register_names[k], all->data[i].name))
				state.vcpu[index].registers[k] = all->data[i].handle;
}

int target_find(const qemu_info_t *info)
{
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++)
		if (!strcmp(info->target_name, targets[i].qemu)) {
			state.target = targets[i].target;
			register_names = targets[i].registers;
		}
	register_bytes = g_byte_array_new();
	if (register_names && info->system_emulation &&
	    info->system.max_vcpus <= (int)MAX_VCPUS)
		return 0;
	fprintf(stderr, "kdelta plugin: needs system emulation of a known CPU, with at most %u of them\n",
		MAX_VCPUS);
	return -1;
}
