// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "registers.h"
#include "state.h"
#include "syscalls.h"
#include "tasks.h"

#define MAX_CALL_ROWS 256u
#define MAX_ERRNO 4095u

static struct {
	struct qemu_plugin_scoreboard *score; /* calls of the window that have not returned yet */
	uint64_t windows;
	bool overflow;
} syscalls;

static struct {
	uint64_t window; /* that is open, or was last: each has another number */
	unsigned int rows;
	struct {
		uint64_t number, error, count;
	} row[MAX_CALL_ROWS];
	struct nested_calls unknown; /* of the task that is not known yet */
} call_vcpu[MAX_VCPUS];

void syscalls_begin(void)
{
	syscalls.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
}

enum mark_error syscalls_error(void)
{
	return syscalls.overflow ? ERROR_TOO_MANY_CALLS : 0;
}

static uint64_t *calls_open_on(unsigned int index)
{
	return qemu_plugin_scoreboard_find(syscalls.score, index);
}

static void call_add(unsigned int index, uint64_t number, uint64_t error)
{
	unsigned int i, rows = call_vcpu[index].rows;

	for (i = 0; i < rows; i++)
		if (call_vcpu[index].row[i].number == number &&
		    call_vcpu[index].row[i].error == error)
			break;
	if (i == MAX_CALL_ROWS) {
		syscalls.overflow = true;
		return;
	}
	if (i == rows) {
		call_vcpu[index].rows++;
		call_vcpu[index].row[i].number = number;
		call_vcpu[index].row[i].error = error;
		call_vcpu[index].row[i].count = 0;
	}
	call_vcpu[index].row[i].count++;
}

static struct nested_calls *calls_of_task(unsigned int index)
{
	struct task *task = state.vcpu[index].task;

	return task ? &task->calls : &call_vcpu[index].unknown;
}

/*
 * Takes the task's call off that goes on at an address with this stack, and those that were begun
 * within it and never returned; its window is 0 when there is none.
 */
static struct begun_call call_take(unsigned int index, uint64_t next, uint64_t stack)
{
	struct nested_calls *calls = calls_of_task(index);
	uint64_t *open = calls_open_on(index);

	for (unsigned int i = calls->count; i-- > 0;) {
		struct begun_call found = calls->at[i];

		if (found.next != next || found.stack != stack)
			continue;
		for (; calls->count > i; calls->count--)
			*open -= *open && calls->at[calls->count - 1].window == call_vcpu[index].window;
		return found;
	}
	return (struct begun_call){ .window = 0 };
}

static void on_syscall(unsigned int index, void *userdata)
{
	uint64_t next = (uintptr_t)userdata;
	struct nested_calls *calls;
	uint64_t stack, number;

	if (index >= state.vcpus || !state.vcpu[index].open || state.vcpu[index].out)
		return;
	pthread_mutex_lock(&state.lock);
	number = register_value(index, REGISTER_CALL);
	stack = register_value(index, REGISTER_STACK);
	call_add(index, number, 0);
	call_take(index, next, stack); /* the kernel restarts it, or it never returned */
	calls = calls_of_task(index);
	if (calls->count == MAX_NESTED_CALLS)
		memmove(calls->at, calls->at + 1, --calls->count * sizeof(*calls->at));
	calls->at[calls->count++] = (struct begun_call){ next, stack, number,
							  call_vcpu[index].window };
	++*calls_open_on(index);
	pthread_mutex_unlock(&state.lock);
}

/* User space goes on at a block's first instruction, and a call has not returned yet. */
static void on_user_block(unsigned int index, void *userdata)
{
	struct begun_call found;
	uint64_t result;

	if (index >= state.vcpus || !state.vcpu[index].open || state.vcpu[index].out)
		return;
	pthread_mutex_lock(&state.lock);
	found = call_take(index, (uintptr_t)userdata, register_value(index, REGISTER_STACK));
	if (found.window == call_vcpu[index].window) {
		result = register_value(index, REGISTER_RESULT);
		if (-result - 1 < MAX_ERRNO)
			call_add(index, found.number, -result);
	}
	pthread_mutex_unlock(&state.lock);
}

void syscalls_watch(struct qemu_plugin_insn *insn, const struct code *code, bool first)
{
	qemu_plugin_u64 open = { syscalls.score, 0 };

	if (is_kernel(code->vaddr))
		return;
	if (first)
		qemu_plugin_register_vcpu_insn_exec_cond_cb(insn, on_user_block,
							    QEMU_PLUGIN_CB_R_REGS,
							    QEMU_PLUGIN_COND_NE, open, 0,
							    (void *)(uintptr_t)code->vaddr);
	if (is_syscall(state.target, code))
		qemu_plugin_register_vcpu_insn_exec_cb(
			insn, on_syscall, QEMU_PLUGIN_CB_R_REGS,
			(void *)(uintptr_t)(code->vaddr + code->size));
}

void syscalls_open(unsigned int index)
{
	call_vcpu[index].window = ++syscalls.windows;
	call_vcpu[index].rows = 0;
	*calls_open_on(index) = 0;
}

/* SYSCALLS: rows of (number, errno, how often); errno 0 is how often it was made, whatever became */
void emit_syscalls(unsigned int index)
{
	emit(RECORD_SYSCALLS, &call_vcpu[index].row[0].number, 3ul * call_vcpu[index].rows);
}
