/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
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

#include <stdbool.h>
#include <stdint.h>

#include "syscalls.h"

#define TASK_BUCKETS 8192u /* a power of two */

struct vcpu;

struct task {
	uint64_t address; /* of its task_struct; 0: free */
	uint64_t number; /* by creation, or by when it was first seen */
	uint64_t parent; /* 0: not known, it was there before */
	unsigned int depth; /* of interrupts, while it does not run; see struct vcpu */
	bool ours;
	unsigned int below; /* generations from the program's first task */
	uint64_t placed, placed_in; /* calls of a window, and of which */
	uint64_t placed_outside;
	uint64_t robust; /* its list of locks, see pointed.h */
	struct nested_calls calls;
};

/* The kernel says where it wakes new tasks: they can be told apart. */
void tasks_expect_new(void);

/* The task at an address, NULL when there are more than can be told apart. */
struct task *task_at(uint64_t address);

/* Its number, from 0 up to TASK_BUCKETS. */
uint32_t task_number(const struct task *task);

/* The task that runs is the workload's, and with it all that it and its own created. */
void tasks_own(struct task *root);

/* The task that runs is the program's first, and the only one. */
void tasks_alone(struct task *root);

/* Has the program made no task since? */
bool tasks_are_alone(void);

/* A task is woken for the first time, by the one that runs on the vCPU. */
void task_new(struct vcpu *vcpu, uint64_t address);

/* The vCPU goes from one task to another. */
void task_switch(struct vcpu *vcpu, uint64_t from, uint64_t to);

/* Are tasks told apart?  Not in a kernel that does not say where it makes new ones. */
bool tasks_are_told(void);

/* Does the vCPU run another's task?  One that is not known yet is the one that made the marks. */
bool is_foreign(const struct vcpu *vcpu);

/* The task at an address is woken: does it do its work where no window counts? */
bool task_is_others(uint64_t address);

/*
 * Has a tick made the workload's task give way, to a kernel thread say?  Then the window holds its
 * own part of the switch there and back, which the path did not ask for.  One that waits for
 * something leaves its CPU to the idle task.
 */
bool gave_way(const struct vcpu *vcpu);

#endif /* KDELTA_TASKS_H */
