// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>

#include "behind.h"
#include "state.h"
#include "syscalls.h"
#include "tasks.h"

static struct {
	struct qemu_plugin_scoreboard *score; /* instructions of the kernel, of each vCPU */
	uint64_t settled[MAX_VCPUS];
	uint64_t sum;
	uint64_t marker, opener, parent; /* numbers of tasks, 0: not known */
} behind;

void behind_begin(void)
{
	behind.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
}

void behind_watch(struct qemu_plugin_insn *insn, const struct code *code, uint64_t insns)
{
	qemu_plugin_u64 entry = { behind.score, 0 };

	if (is_kernel(code->vaddr))
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			insn, QEMU_PLUGIN_INLINE_ADD_U64, entry, insns);
}

void behind_settle(unsigned int index)
{
	const uint64_t *now = qemu_plugin_scoreboard_find(behind.score, index);
	const struct vcpu *vcpu = &state.vcpu[index];
	const struct task *task = vcpu->task;

	if (!vcpu->open && !vcpu->depth && task && task->ours && behind.marker &&
	    task->number != behind.marker && task->number != behind.parent)
		behind.sum += *now - behind.settled[index];
	if (vcpu->open && !vcpu->out && *now != behind.settled[index])
		syscalls_spent(index, *now - behind.settled[index]);
	behind.settled[index] = *now;
}

void behind_mark(unsigned int index, bool opens)
{
	const struct task *task = state.vcpu[index].task;
	uint64_t marker = task ? task->number : 0;

	for (unsigned int i = 0; i < state.vcpus; i++)
		behind_settle(i);
	if (opens) { /* another task than the one before was made for it */
		behind.parent = task && marker != behind.opener ? task->parent : 0;
		behind.opener = marker;
	}
	behind.marker = marker;
}

uint64_t behind_take(void)
{
	uint64_t sum = behind.sum;

	behind.sum = 0;
	return sum;
}
