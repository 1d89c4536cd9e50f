// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>

#include "state.h"
#include "tasks.h"

static struct {
	struct task at[TASK_BUCKETS];
	uint64_t count, created;
	uint64_t made; /* by the program */
	bool lost; /* there were too many */
	bool new_ones; /* the kernel says where it makes them */
} tasks;

void tasks_expect_new(void)
{
	tasks.new_ones = true;
}

struct task *task_at(uint64_t address)
{
	uint64_t i = address * 0x9e3779b97f4a7c15ULL >> 32;

	for (;; i++) {
		struct task *task = &tasks.at[i % TASK_BUCKETS];

		if (task->address == address)
			return task;
		if (task->address)
			continue;
		if (tasks.count >= TASK_BUCKETS / 2) {
			tasks.lost = true;
			return NULL;
		}
		tasks.count++;
		task->address = address;
		task->number = ++tasks.created;
		return task;
	}
}

uint32_t task_number(const struct task *task)
{
	return task - tasks.at;
}

void tasks_own(struct task *root)
{
	bool more = !root->ours;

	root->ours = true;
	while (more) {
		more = false;
		for (unsigned int i = 0; i < TASK_BUCKETS; i++) {
			struct task *task = &tasks.at[i];

			if (!task->address || task->ours || !task->parent)
				continue;
			for (unsigned int k = 0; k < TASK_BUCKETS && !task->ours; k++)
				task->ours = tasks.at[k].ours && tasks.at[k].number == task->parent;
			more |= task->ours;
		}
	}
}

void tasks_alone(struct task *root)
{
	root->below = 0;
	tasks.made = 0;
}

bool tasks_are_alone(void)
{
	return !tasks.made;
}

void task_new(struct vcpu *vcpu, uint64_t address)
{
	struct task *task = task_at(address);

	if (!task)
		return;
	*task = (struct task){ .address = address, .number = ++tasks.created };
	if (vcpu->task) {
		task->parent = vcpu->task->number;
		task->ours = vcpu->task->ours;
		task->below = vcpu->task->below + 1;
		task->calls.hushed = vcpu->task->calls.hushed;
		tasks.made += task->ours;
	}
}

void task_switch(struct vcpu *vcpu, uint64_t from, uint64_t to)
{
	struct task *old = task_at(from), *new = task_at(to);

	if (!old || !new)
		return;
	if (!vcpu->task && vcpu->owned) /* it executed a mark before it was known */
		tasks_own(old);
	if (!vcpu->idle)
		vcpu->idle = old;
	old->depth = vcpu->depth;
	vcpu->depth = new->depth;
	vcpu->task = new;
	vcpu->owned = new->ours;
}

bool tasks_are_told(void)
{
	return tasks.new_ones && !tasks.lost;
}

bool is_foreign(const struct vcpu *vcpu)
{
	return tasks_are_told() && vcpu->task && !vcpu->task->ours;
}

bool task_is_others(uint64_t address)
{
	const struct task *task = tasks_are_told() ? task_at(address) : NULL;

	return task && !task->ours;
}

bool gave_way(const struct vcpu *vcpu)
{
	return vcpu->interrupts && is_foreign(vcpu) && vcpu->task != vcpu->idle;
}
