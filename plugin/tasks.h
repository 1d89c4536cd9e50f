/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Included by insns.c alone, behind its state.
 *
 * Which of the guest's tasks belong to what is measured?  A task is known by the address of its
 * task_struct: the kernel hands it over where it goes from one to another, and where it wakes a new
 * one for the first time.  The task that executes a mark is the workload's, and so is whatever the
 * workload's tasks create, before the windows or within; everything else is not: kernel threads,
 * the idle task, PID 1.  All this is watched from the beginning, not only while counting.
 *
 * An address is used again when its task is gone: then it is woken as a new one again, which gives
 * it another number.
 */
#ifndef KDELTA_TASKS_H
#define KDELTA_TASKS_H

#define TASK_BUCKETS 8192u /* a power of two */

struct task {
	uint64_t address; /* of its task_struct; 0: free */
	uint64_t number; /* by creation, or by when it was first seen */
	uint64_t parent; /* 0: not known, it was there before */
	unsigned int depth; /* of interrupts, while it does not run; see struct vcpu */
	bool ours;
};

static struct {
	struct task at[TASK_BUCKETS];
	uint64_t count, created;
} tasks;

/* The task at an address, NULL when there are more than can be told apart. */
static struct task *task_at(uint64_t address)
{
	uint64_t i = address * 0x9e3779b97f4a7c15ULL >> 32;

	for (;; i++) {
		struct task *task = &tasks.at[i % TASK_BUCKETS];

		if (task->address == address)
			return task;
		if (task->address)
			continue;
		if (tasks.count >= TASK_BUCKETS / 2) {
			state.lost_tasks = true;
			return NULL;
		}
		tasks.count++;
		task->address = address;
		task->number = ++tasks.created;
		return task;
	}
}

/* The task that runs is the workload's, and with it all that it and its own created. */
static void tasks_own(struct task *root)
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

/* A task is woken for the first time, by the one that runs on the vCPU. */
static void task_new(struct vcpu *vcpu, uint64_t address)
{
	struct task *task = task_at(address);

	if (!task)
		return;
	*task = (struct task){ .address = address, .number = ++tasks.created };
	if (vcpu->task) {
		task->parent = vcpu->task->number;
		task->ours = vcpu->task->ours;
	}
}

/* The vCPU goes from one task to another. */
static void task_switch(struct vcpu *vcpu, uint64_t from, uint64_t to)
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

/* Are tasks told apart?  Not in a kernel that does not say where it makes new ones. */
static bool tasks_are_told(void)
{
	return state.new_tasks && !state.lost_tasks;
}

/* Does the vCPU run another's task?  One that is not known yet is the one that made the marks. */
static bool is_foreign(const struct vcpu *vcpu)
{
	return tasks_are_told() && vcpu->task && !vcpu->task->ours;
}

/*
 * Has a tick made the workload's task give way, to a kernel thread say?  Then the window holds its
 * own part of the switch there and back, which the path did not ask for.  One that waits for
 * something leaves its CPU to the idle task.
 */
static bool gave_way(const struct vcpu *vcpu)
{
	return vcpu->interrupts && is_foreign(vcpu) && vcpu->task != vcpu->idle;
}

#endif /* KDELTA_TASKS_H */
