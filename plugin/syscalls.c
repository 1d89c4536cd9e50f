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
#define RESULT 6u /* behind the arguments of a call */

static struct {
	struct qemu_plugin_scoreboard *score; /* calls of the window that have not returned yet */
	uint64_t windows;
	bool overflow;
} syscalls;

/* Values of one argument, or what its calls returned. */
struct values {
	uint64_t least, most;
	uint64_t sum, digest; /* modulo 2^64, over all; their order is no part of it */
};

static struct {
	uint64_t window; /* that is open, or was last: each has another number */
	unsigned int rows;
	struct {
		uint64_t number, error, count;
	} row[MAX_CALL_ROWS];
	struct values values[MAX_CALL_ROWS][RESULT + 1]; /* of rows without an error */
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

/* The row of a number and an error, one more than the last where there is no room. */
static unsigned int call_add(unsigned int index, uint64_t number, uint64_t error)
{
	unsigned int i, rows = call_vcpu[index].rows;

	for (i = 0; i < rows; i++)
		if (call_vcpu[index].row[i].number == number &&
		    call_vcpu[index].row[i].error == error)
			break;
	if (i == MAX_CALL_ROWS) {
		syscalls.overflow = true;
		return i;
	}
	if (i == rows) {
		call_vcpu[index].rows++;
		call_vcpu[index].row[i].number = number;
		call_vcpu[index].row[i].error = error;
		call_vcpu[index].row[i].count = 0;
		for (unsigned int k = 0; k <= RESULT; k++)
			call_vcpu[index].values[i][k] = (struct values){ .least = UINT64_MAX };
	}
	call_vcpu[index].row[i].count++;
	return i;
}

static void values_add(struct values *values, uint64_t value)
{
	uint64_t mixed = value; /* by splitmix64: a sum of what is mixed tells one set from another */

	if (value < values->least)
		values->least = value;
	if (value > values->most)
		values->most = value;
	values->sum += value;
	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ULL;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebULL;
	values->digest += mixed ^ mixed >> 31;
}

/* What is an address, and what a count, is for who reads it to say. */
static void arguments_add(unsigned int index, unsigned int row)
{
	for (unsigned int k = 0; row < MAX_CALL_ROWS && k < RESULT; k++)
		values_add(&call_vcpu[index].values[row][k],
			   register_value(index, k == 3 ? REGISTER_CALL_FOURTH : REGISTER_FIRST + k));
}

static void result_add(unsigned int index, uint64_t number, uint64_t result)
{
	for (unsigned int i = 0; i < call_vcpu[index].rows; i++)
		if (call_vcpu[index].row[i].number == number && !call_vcpu[index].row[i].error)
			values_add(&call_vcpu[index].values[i][RESULT], result);
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
	arguments_add(index, call_add(index, number, 0));
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
		else
			result_add(index, found.number, result);
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

/*
 * SYSCALLS: rows of (number, errno, how often); errno 0 is how often it was made, whatever became.
 * SCALARS: rows of (number, which, least, most, sum, digest); which: an argument from 0, or 6 for
 * what it returned without an error.
 */
void emit_syscalls(unsigned int index)
{
	static uint64_t words[MAX_CALL_ROWS * (RESULT + 1) * 6];
	size_t count = 0;

	for (unsigned int i = 0; i < call_vcpu[index].rows; i++) {
		for (unsigned int k = 0; k <= RESULT && !call_vcpu[index].row[i].error; k++) {
			const struct values *values = &call_vcpu[index].values[i][k];
			const uint64_t row[] = { call_vcpu[index].row[i].number, k, values->least,
						 values->most, values->sum, values->digest };

			if (values->least > values->most)
				continue;
			memcpy(words + count, row, sizeof(row));
			count += sizeof(row) / sizeof(row[0]);
		}
	}
	emit(RECORD_SYSCALLS, &call_vcpu[index].row[0].number, 3ul * call_vcpu[index].rows);
	emit(RECORD_SCALARS, words, count);
}
