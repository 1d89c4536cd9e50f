// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>

#include "mappings.h"
#include "outside.h"
#include "pointed.h"
#include "state.h"
#include "syscalls.h"

static struct {
	struct qemu_plugin_scoreboard *score; /* instructions of user space, of each vCPU */
	uint64_t settled[MAX_VCPUS];
	uint64_t user;
} outside;

void outside_begin(void)
{
	outside.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
}

bool outside_wanted(void)
{
	return pointed_wanted();
}

void outside_watch(struct qemu_plugin_insn *insn, const struct code *code, uint64_t insns)
{
	qemu_plugin_u64 entry = { outside.score, 0 };

	if (outside_wanted() && !is_kernel(code->vaddr) && !is_vdso(code->vaddr))
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			insn, QEMU_PLUGIN_INLINE_ADD_U64, entry, insns);
}

bool is_outside(unsigned int index)
{
	const struct vcpu *vcpu = &state.vcpu[index];

	return outside_wanted() && vcpu->owned && !vcpu->open && !calls_of_task(index)->hushed;
}

void outside_settle(unsigned int index)
{
	const uint64_t *now = qemu_plugin_scoreboard_find(outside.score, index);

	if (is_outside(index))
		outside.user += *now - outside.settled[index];
	outside.settled[index] = *now;
}

uint64_t outside_user(void)
{
	return outside.user;
}
