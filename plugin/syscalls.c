// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "behind.h"
#include "exceptions.h"
#include "mappings.h"
#include "outside.h"
#include "pointed.h"
#include "registers.h"
#include "state.h"
#include "syscalls.h"
#include "table.h"
#include "tasks.h"
#include "touched.h"

#define MAX_CALL_ROWS 256u
#define MAX_ERRNO 4095u
#define RESULT CALL_ARGUMENTS /* behind the arguments of a call */
#define POINTED (RESULT + 1) /* what the call itself has, and what its arguments point at */
#define HEARD (POINTED + 1 + CALL_ARGUMENTS) /* what the kernel wrote to one */
#define VALUES (HEARD + 1)
#define VALUE_WORDS 6u
/* Rows of a call. */
#define MOST_VALUES (VALUES + (CALL_ARGUMENTS + 1) * PLACES_OF_BYTES / IN_A_ROW)
#define NO_CALL UINT64_MAX
#define OLD_CALL (1ull << 32) /* added to its number, which has no more bits */
#define PLACES 2520u /* of calls, and of faults: so each period up to 10 stays apart beyond them */
#define TASK_SHIFT 48 /* of tasks, above the places of their calls */
#define PLACE_SHIFT 52 /* above the instructions */
#define COST_ROOM 8192u /* a power of two */
#define MOST_PLACED (COST_ROOM * 3 / 4) /* further calls are told apart by number only */
#define MAX_FILES 1024u
#define MAX_VECTOR 64u
#define MAX_CONTENTS (1u << 16)
#define PLACES_OF_CALLS 63u
#define IN_A_ROW 4u /* digests */
#define MAX_CHILDREN 1024u
#define FIRST_OF_ALL 3 /* tasks: "any", the caller itself, PID 1, kthreadd */
#define CHILD (1 << 24) /* the first one */
#define OTHER_TASK (1 << 25) /* the program's first, or one that is not its own */

static struct {
	struct qemu_plugin_scoreboard *score; /* calls of the window that have not returned yet */
	uint64_t windows;
	bool overflow;
	bool kernel_file[MAX_FILES]; /* by descriptor */
	bool led; /* any path may be of the kernel's files: a folder, a link or a mount leads there */
	int32_t child[MAX_CHILDREN]; /* numbers of tasks, in the order in which they were made */
	unsigned int children;
} syscalls;

/* Values of one argument, or what its calls returned. */
struct values {
	uint64_t least, most;
	uint64_t sum, digest; /* modulo 2^64, over all; their order is no part of it */
};

struct calls_made {
	unsigned int rows;
	struct {
		uint64_t number, error, count;
	} row[MAX_CALL_ROWS];
	struct values values[MAX_CALL_ROWS][VALUES]; /* of rows without an error */
	/* Digests of contents by the places of bytes: chance in some leaves the others as they are. */
	uint32_t place[MAX_CALL_ROWS][CALL_ARGUMENTS + 1][PLACES_OF_BYTES];
};

static struct {
	uint64_t window; /* that is open, or was last: each has another number */
	struct calls_made made; /* in it */
	struct nested_calls unknown; /* of the task that is not known yet */
	struct cost {
		uint64_t window, number, insns;
	} cost[COST_ROOM];
	unsigned int costs, at[COST_ROOM]; /* where they are */
	uint64_t faults; /* of pages, in no call and no other exception */
} call_vcpu[MAX_VCPUS];

static struct calls_made made_outside;
static struct {
	uint64_t start, size, pair[MAX_VECTOR][2];
} vector; /* of what the kernel told the program */
static struct order {
	uint64_t digest;
	/* First which contents are those of which call before: chance is no part of it. */
	uint32_t place[1 + PLACES_OF_CALLS]; /* then by the places of calls, modulo */
} order[2]; /* outside, inside */
static struct table contents; /* that were seen */

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
static unsigned int call_add(struct calls_made *made, uint64_t number, uint64_t error)
{
	unsigned int i;

	for (i = 0; i < made->rows; i++)
		if (made->row[i].number == number && made->row[i].error == error)
			break;
	if (i == MAX_CALL_ROWS) {
		syscalls.overflow = true;
		return i;
	}
	if (i == made->rows) {
		made->rows++;
		made->row[i].number = number;
		made->row[i].error = error;
		made->row[i].count = 0;
		for (unsigned int k = 0; k < VALUES; k++)
			made->values[i][k] = (struct values){ .least = UINT64_MAX };
		memset(made->place[i], 0, sizeof(made->place[i]));
	}
	made->row[i].count++;
	return i;
}

/* Where the calls are that are made like this one. */
static struct calls_made *made_by(unsigned int index, const struct begun_call *begun)
{
	return begun->outside ? &made_outside : &call_vcpu[index].made;
}

/* By splitmix64: a sum of what is mixed tells one set from another. */
static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
	return value ^ value >> 31;
}

static void values_add(struct values *values, uint64_t value)
{
	if (value < values->least)
		values->least = value;
	if (value > values->most)
		values->most = value;
	values->sum += value;
	values->digest += mix(value);
}

/*
 * The order of a task's calls, and which values belong to one, is a sum, too: of what each value is,
 * and where.  Who of several tasks makes a call is part of it by generations only: which of the
 * threads of a pool does a thing is chance.
 */
static void order_add(const struct begun_call *begun, unsigned int which, uint64_t value)
{
	struct order *of = &order[!begun->outside];
	uint64_t mixed = mix(mix(begun->place * VALUES + which) ^ mix(value));

	if (!begun->place)
		return;
	of->digest += mixed;
	of->place[1 + begun->place % PLACES_OF_CALLS] += mixed >> 32;
}

/* The same contents as of a call before have its number, and new ones the next. */
static void alike_add(const struct begun_call *begun, unsigned int which, uint64_t value)
{
	const uint64_t key = value | 1;
	uint64_t *row = table_row(&contents, &key, 1, 2, MAX_CONTENTS);

	if (!begun->place || !row || !tasks_are_alone())
		return;
	row[1] = row[1] ? row[1] : contents.count;
	order[!begun->outside].place[0] +=
		mix(mix(begun->place * VALUES + which) ^ mix(row[1])) >> 32;
}

static void order_begin(unsigned int index, struct begun_call *begun)
{
	struct task *task = state.vcpu[index].task;
	unsigned int count;
	const struct pointer *pointer = pointers_of(begun->number, &count);

	if (!task || call_is(begun->number, KIND_BY_TIME))
		return;
	if (!begun->outside && task->placed_in != begun->window) {
		task->placed_in = begun->window;
		task->placed = 0;
	}
	begun->place = ++*(begun->outside ? &task->placed_outside : &task->placed);
	if (!begun->outside && tasks_are_alone())
		touched_between_calls(begun->place);
	begun->place |= (task->below + 1ull) << TASK_SHIFT;
	order_add(begun, RESULT, begun->number);
	for (; count; count--, pointer++)
		for (unsigned int k = 0; k < CALL_ARGUMENTS; k++)
			/* Of several tasks it is chance which file a number is. */
			if (pointer->kind == KIND_NUMBERS &&
			    (pointer->mask | (tasks_are_alone() ? pointer->base : 0)) >> k & 1)
				order_add(begun, k, begun->argument[k]);
}

/* A thing that an argument points at; of several tasks it is chance where it was mapped. */
static void pointed_add(struct calls_made *made, unsigned int row, const struct begun_call *begun,
			const struct pointer *pointer, const struct pointed_at *found)
{
	uint64_t value = found->hash;

	if (found->unseen)
		call_add(made, POINTER_UNSEEN, 0);
	if (tasks_are_alone() && pointer->kind == KIND_ADDRESS && pointer->base)
		value ^= heap_value(begun->argument[pointer->argument - 1]);
	values_add(&made->values[row][POINTED + pointer->argument], value);
	if (!tasks_are_alone() && pointer->kind != KIND_STRING)
		return;
	for (unsigned int i = 0; i < PLACES_OF_BYTES; i++)
		if (found->place[i])
			made->place[row][pointer->argument][i] += mix(found->place[i]) >> 32;
	order_add(begun, POINTED + pointer->argument, value);
	alike_add(begun, POINTED + pointer->argument, value);
}

static uint64_t call_argument(unsigned int index, unsigned int argument)
{
	return register_value(index,
			      argument == 3 ? REGISTER_CALL_FOURTH : REGISTER_FIRST + argument);
}

/* What a program prints outside its windows, times for example, is its own affair. */
static bool is_printed(const struct begun_call *begun)
{
	return begun->outside && begun->argument[0] - 1 < 2 && call_is(begun->number, KIND_PRINTS);
}

static bool is_of_kernel(uint64_t file)
{
	return file < MAX_FILES && syscalls.kernel_file[file];
}

/* What is an address, and what a count, is for who reads it to say. */
static void arguments_add(unsigned int index, struct begun_call *begun, struct calls_made *made,
			  unsigned int row)
{
	const struct task *task = state.vcpu[index].task;
	uint64_t robust = task ? task->robust : 0;
	unsigned int count;
	const struct pointer *pointer = pointers_of(begun->number, &count);
	struct pointed_at found;

	if (is_printed(begun))
		return;
	order_begin(index, begun);
	for (unsigned int k = 0; k < CALL_ARGUMENTS; k++)
		if (k != 2 || !call_is(begun->number, KIND_LOCK) ||
		    is_lock_number(begun->argument[1]))
			values_add(&made->values[row][k], begun->argument[k]);
	for (; count; count--, pointer++) {
		if (pointer->kind == KIND_MOVES &&
		    is_of_kernel(begun->argument[pointer->argument - 1]))
			call_add(made, FILE_UNSEEN, 0);
		if (pointer->kind >= KIND_HEARD && pointer->kind != KIND_ENDS)
			continue;
		/* What is not in memory is there when the call returns. */
		if (pointed_value(pointer, begun->argument, robust, &found))
			pointed_add(made, row, begun, pointer, &found);
		else
			begun->late |= 1u << pointer->argument;
	}
}

static void late_add(const struct begun_call *begun, struct calls_made *made, unsigned int row)
{
	unsigned int count;
	const struct pointer *pointer = pointers_of(begun->number, &count);
	struct pointed_at found;

	for (; count; count--, pointer++) {
		if (!(begun->late >> pointer->argument & 1) || pointer->kind >= KIND_HEARD)
			continue;
		pointed_value(pointer, begun->argument, 0, &found);
		pointed_add(made, row, begun, pointer, &found);
	}
}

/* Has a call that returned, so that its path is in memory, such a file of the kernel's? */
static bool names_kernel_file(const struct begun_call *begun, enum kind kind)
{
	unsigned int count;
	const struct pointer *pointer = pointers_of(begun->number, &count);

	for (; count; count--, pointer++)
		if (pointer->kind == kind &&
		    (is_kernel_file(pointer, begun->argument) ||
		     (pointer->argument > 1 && is_of_kernel(begun->argument[0]))))
			return true;
	return false;
}

/* What a call did that the next ones are understood by. */
static void effects_of(unsigned int index, const struct begun_call *begun, uint64_t result)
{
	const uint64_t *argument = begun->argument;
	struct task *task = state.vcpu[index].task;

	if (call_is(begun->number, KIND_MAPS)) {
		mapping_add(result, argument[1]);
	} else if (call_is(begun->number, KIND_UNMAPS)) {
		mapping_drop(argument[0], argument[1]);
	} else if (call_is(begun->number, KIND_REMAPS)) {
		mapping_drop(argument[0], argument[1]);
		mapping_add(result, argument[2]);
	} else if (call_is(begun->number, KIND_OPENS) && result < MAX_FILES) {
		syscalls.kernel_file[result] = syscalls.led || names_kernel_file(begun, KIND_OPENS);
	} else if (call_is(begun->number, KIND_CLOSES) && argument[0] < MAX_FILES) {
		syscalls.kernel_file[argument[0]] = false;
	} else if (names_kernel_file(begun, KIND_LEADS)) {
		syscalls.led = true;
	} else if (task && call_is(begun->number, KIND_ROBUST)) {
		task->robust = argument[0];
	} else if (result && call_is(begun->number, KIND_MAKES) &&
		   syscalls.children < MAX_CHILDREN) {
		syscalls.child[syscalls.children++] = result;
	}
}

/* A number of a task, or of a group, as both kernels would have it. */
static int32_t task_name(int32_t number)
{
	if (number < 0)
		return number == INT32_MIN ? number : -task_name(-number);
	for (unsigned int i = syscalls.children; i-- > 0;)
		if (syscalls.child[i] == number)
			return CHILD + i;
	return number < FIRST_OF_ALL ? number : OTHER_TASK;
}

static void tasks_name(struct begun_call *begun)
{
	unsigned int count;
	const struct pointer *pointer = pointers_of(begun->number, &count);

	for (; count; count--, pointer++)
		for (unsigned int k = 0; k < CALL_ARGUMENTS; k++)
			if (pointer->kind == KIND_TASKS && pointer->mask >> k & 1)
				begun->argument[k] = task_name(begun->argument[k]);
}

/* The row of a number without an error, MAX_CALL_ROWS when there is none. */
static unsigned int row_of(const struct calls_made *made, uint64_t number)
{
	for (unsigned int i = 0; i < made->rows; i++)
		if (made->row[i].number == number && !made->row[i].error)
			return i;
	return MAX_CALL_ROWS;
}

static void result_add(struct values values[VALUES], const struct begun_call *begun, uint64_t result)
{
	unsigned int count;
	const struct pointer *pointer = pointers_of(begun->number, &count);
	uint64_t value;

	values_add(&values[RESULT], result);
	if (!is_of_kernel(begun->argument[0]))
		return;
	for (; count; count--, pointer++)
		if (pointer->kind == KIND_HEARD &&
		    heard_value(begun->argument[pointer->argument - 1], result, &value))
			values_add(&values[HEARD], value);
}

struct nested_calls *calls_of_task(unsigned int index)
{
	struct task *task = state.vcpu[index].task;

	return task ? &task->calls : &call_vcpu[index].unknown;
}

/*
 * Takes the task's call off that goes on at an address with this stack, and those that were begun
 * within it and never returned; false when there is none.
 */
static bool call_take(unsigned int index, uint64_t next, uint64_t stack, struct begun_call *found)
{
	struct nested_calls *calls = calls_of_task(index);
	uint64_t *open = calls_open_on(index);

	for (unsigned int i = calls->count; i-- > 0;) {
		*found = calls->at[i];
		if (found->next != next || found->stack != stack)
			continue;
		for (; calls->count > i; calls->count--)
			*open -= *open && calls->at[calls->count - 1].window == call_vcpu[index].window;
		return true;
	}
	return false;
}

static bool is_inside(unsigned int index)
{
	return state.vcpu[index].open && !state.vcpu[index].out;
}

void syscalls_exception(unsigned int index, unsigned int vector)
{
	struct nested_calls *calls = calls_of_task(index);
	struct begun_call made = { .outside = !is_inside(index) };
	uint64_t number = exception_number(index, vector), origin;

	if (is_asked(number) || (made.outside && !is_outside(index)))
		return;
	if (is_page_fault(number)) {
		call_vcpu[index].faults += !made.outside && !calls->count && !calls->exception;
		return;
	}
	origin = exception_origin(index);
	if (is_kernel(origin))
		return;
	calls->exception = EXCEPTION + number;
	calls->origin = origin;
	call_add(made_by(index, &made), calls->exception, 0);
}

void syscalls_go_on(unsigned int index)
{
	struct nested_calls *calls = calls_of_task(index);
	struct calls_made *made = is_inside(index) ? &call_vcpu[index].made : &made_outside;
	uint64_t address;
	unsigned int row;

	if (!calls->exception)
		return;
	address = exception_origin(index);
	if (is_kernel(address))
		return;
	row = row_of(made, calls->exception);
	if (address == calls->origin && row < MAX_CALL_ROWS)
		made->row[row].count -= !!made->row[row].count;
	else if (address - calls->origin <= LONGEST_INSN && is_outside(index))
		call_add(&made_outside, EMULATED, 0);
	calls->exception = 0;
}

void syscalls_answer(unsigned int index, uint64_t error)
{
	const struct nested_calls *calls = calls_of_task(index);
	const struct begun_call *begun = calls->count ? &calls->at[calls->count - 1] : NULL;

	if (error && begun && begun->window == call_vcpu[index].window)
		call_add(made_by(index, begun), begun->number, error);
}

/* Among the calls of a task in this window, or among its faults; 0: any. */
static uint64_t place_of(unsigned int index, const struct begun_call *begun)
{
	uint64_t place = call_vcpu[index].faults;

	if (begun && (begun->outside || begun->window != call_vcpu[index].window))
		place = 0;
	else if (begun && begun->place) /* of the first task the number of the call */
		place = begun->place - (1ull << TASK_SHIFT);
	else if (begun)
		place = 0;
	return place && outside_wanted() ? 1 + (place - 1) % PLACES : 0;
}

void syscalls_spent(unsigned int index, uint64_t insns)
{
	const struct nested_calls *calls = calls_of_task(index);
	const struct begun_call *begun = calls->count ? &calls->at[calls->count - 1] : NULL;
	uint64_t number = begun ? begun->number : calls->exception ? calls->exception : NO_CALL;
	uint64_t window = call_vcpu[index].window, place;
	struct cost *cost = call_vcpu[index].cost;
	size_t i;

	place = call_vcpu[index].costs < MOST_PLACED ? place_of(index, begun) << PLACE_SHIFT : 0;
	i = mix(number ^ place) % COST_ROOM;
	while (cost[i].window == window &&
	       (cost[i].number != number || cost[i].insns >> PLACE_SHIFT << PLACE_SHIFT != place))
		i = (i + 1) % COST_ROOM;
	if (cost[i].window != window) {
		if (call_vcpu[index].costs == COST_ROOM - 1) {
			syscalls.overflow = true;
			return;
		}
		call_vcpu[index].at[call_vcpu[index].costs++] = i;
		cost[i] = (struct cost){ window, number, place };
	}
	cost[i].insns += insns;
}

static void note_break(unsigned int index)
{
	uint64_t end = call_argument(index, 0);

	pthread_mutex_lock(&state.lock);
	if (end && call_is(register_value(index, REGISTER_CALL), KIND_BREAKS))
		heap_end(end);
	pthread_mutex_unlock(&state.lock);
}

static void on_syscall(unsigned int index, void *userdata)
{
	uint64_t next = (uintptr_t)userdata;
	struct nested_calls *calls;
	struct calls_made *made;
	struct begun_call begun;
	unsigned int row;

	if (index >= state.vcpus)
		return;
	if (outside_wanted() && state.vcpu[index].owned) /* kdelta.h moves the heap, too */
		note_break(index);
	if (!(is_inside(index) || is_outside(index)))
		return;
	pthread_mutex_lock(&state.lock);
	behind_settle(index);
	begun = (struct begun_call){ .next = next,
				     .stack = register_value(index, REGISTER_STACK),
				     .number = (uint32_t)register_value(index, REGISTER_CALL),
				     .window = call_vcpu[index].window,
				     .outside = !is_inside(index) };
	for (unsigned int k = 0; k < CALL_ARGUMENTS; k++)
		begun.argument[k] = call_argument(index, k);
	tasks_name(&begun);
	made = made_by(index, &begun);
	row = call_add(made, begun.number, 0);
	if (row < MAX_CALL_ROWS)
		arguments_add(index, &begun, made, row);
	/* The kernel restarts it, or it never returned. */
	call_take(index, next, begun.stack, &(struct begun_call){ 0 });
	calls = calls_of_task(index);
	if (calls->count == MAX_NESTED_CALLS)
		memmove(calls->at, calls->at + 1, --calls->count * sizeof(*calls->at));
	calls->at[calls->count++] = begun;
	++*calls_open_on(index);
	outside_settle(index);
	calls->hushed += begun.outside && call_is(begun.number, KIND_EXEC);
	pthread_mutex_unlock(&state.lock);
}

/* int 0x80 and the like have other numbers and arguments: that they were made is all that is known. */
static void on_old_syscall(unsigned int index, void *userdata)
{
	(void)userdata;
	if (index >= state.vcpus || !(is_inside(index) || is_outside(index)))
		return;
	pthread_mutex_lock(&state.lock);
	call_add(is_inside(index) ? &call_vcpu[index].made : &made_outside,
		 OLD_CALL + (uint32_t)register_value(index, REGISTER_CALL), 0);
	pthread_mutex_unlock(&state.lock);
}

static void call_returned(unsigned int index, const struct begun_call *begun, uint64_t result)
{
	struct calls_made *made = made_by(index, begun);
	unsigned int row = row_of(made, begun->number);
	bool failed = -result - 1 < MAX_ERRNO;

	if (failed)
		call_add(made, begun->number, -result);
	if (row < MAX_CALL_ROWS && !failed && !is_printed(begun))
		result_add(made->values[row], begun, result);
	if (row < MAX_CALL_ROWS)
		late_add(begun, made, row);
	outside_settle(index);
	if (begun->outside && call_is(begun->number, KIND_EXEC))
		calls_of_task(index)->hushed = 0; /* it failed */
}

/* A task that goes on elsewhere than behind its execve(), or in front of its handler: it is done. */
static void done_elsewhere(unsigned int index)
{
	const struct nested_calls *calls = calls_of_task(index);
	struct begun_call last;

	if (!calls->count)
		return;
	last = calls->at[calls->count - 1];
	if (call_is(last.number, KIND_EXEC) || call_is(last.number, KIND_ELSEWHERE))
		call_take(index, last.next, last.stack, &last);
}

/* User space goes on at a block's first instruction, and a call has not returned yet. */
static void on_user_block(unsigned int index, void *userdata)
{
	struct begun_call found;
	uint64_t result;

	if (index >= state.vcpus || !(is_inside(index) || outside_wanted()))
		return;
	pthread_mutex_lock(&state.lock);
	behind_settle(index);
	if (call_take(index, (uintptr_t)userdata, register_value(index, REGISTER_STACK), &found)) {
		result = register_value(index, REGISTER_RESULT);
		if (-result - 1 >= MAX_ERRNO)
			effects_of(index, &found, result);
		if (found.window == call_vcpu[index].window)
			call_returned(index, &found, result);
	} else {
		done_elsewhere(index);
	}
	pthread_mutex_unlock(&state.lock);
}

void clock_read(unsigned int index, uint64_t how)
{
	if (is_outside(index))
		call_add(&made_outside, how, 0);
}

void vdso_read(unsigned int index)
{
	const struct task *task = state.vcpu[index].task;

	if (!task || task->below || !(is_outside(index) || is_inside(index)))
		return;
	call_add(is_inside(index) ? &call_vcpu[index].made : &made_outside, VDSO_READ, 0);
}

void vector_begin(unsigned int index, uint64_t vdso)
{
	vector.size = sizeof(vector.pair[0]) *
		      vector_find(vdso, register_value(index, REGISTER_STACK), vector.pair,
				  MAX_VECTOR, &vector.start);
}

/* Where things lie, and what is drawn at random, is no news of the kernel. */
static bool is_place(uint64_t type)
{
	enum { PROGRAM = 3, LOADER = 7, ENTRY = 9, PLATFORM = 15, OTHER_PLATFORM = 24, RANDOM = 25,
	       NAME = 31, VDSO = 33 };

	return type == PROGRAM || type == LOADER || type == ENTRY || type == PLATFORM ||
	       type == OTHER_PLATFORM || type == RANDOM || type == NAME || type == VDSO;
}

bool is_vector(uint64_t address)
{
	return address - vector.start < vector.size;
}

void vector_read(unsigned int index, uint64_t address)
{
	const struct task *task = state.vcpu[index].task;
	const uint64_t *pair = vector.pair[(address - vector.start) / sizeof(vector.pair[0])];
	bool second = (address - vector.start) / sizeof(*pair) % 2;
	struct calls_made *made = is_inside(index) ? &call_vcpu[index].made : &made_outside;
	unsigned int row;

	if (!task || task->below)
		return;
	row = call_add(made, VECTOR_READ, 0);
	if (row < MAX_CALL_ROWS && !(second && is_place(pair[0])))
		values_add(&made->values[row][HEARD], pair[second]);
}

static void on_clock(unsigned int index, void *userdata)
{
	(void)userdata;
	if (index >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	clock_read(index, CLOCK_READ);
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
	if (outside_wanted() && is_clock(state.target, code))
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_clock, QEMU_PLUGIN_CB_NO_REGS, NULL);
	if (is_old_syscall(state.target, code))
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_old_syscall, QEMU_PLUGIN_CB_R_REGS,
						       NULL);
}

void syscalls_open(unsigned int index)
{
	call_vcpu[index].window = ++syscalls.windows;
	call_vcpu[index].made.rows = 0;
	call_vcpu[index].costs = call_vcpu[index].faults = 0;
	order[true] = (struct order){ 0 };
	*calls_open_on(index) = 0;
}

/* Rows of four digests, those that have any. */
static size_t put_places(uint64_t number, uint64_t which, const uint32_t *places, unsigned int most,
			 uint64_t *words)
{
	size_t count = 0;

	for (unsigned int i = 0; i < most; i += IN_A_ROW) {
		if (!(places[i] | places[i + 1] | places[i + 2] | places[i + 3]))
			continue;
		words[count++] = number;
		words[count++] = which + 256 * (1 + i / IN_A_ROW);
		for (unsigned int k = 0; k < IN_A_ROW; k++)
			words[count++] = places[i + k];
	}
	return count;
}

/*
 * Rows of (number, which, least, most, sum, digest); which: an argument from 0, 6 for what it
 * returned without an error, from 7 on what pointed.h makes of the call and of its arguments, 14 the
 * same of what the kernel wrote.  From 256 on four digests of the bytes of 7 to 13, by their places.
 */
static size_t put_values(const struct calls_made *made, unsigned int i, uint64_t *words)
{
	size_t count = 0;

	for (uint64_t k = 0; k < VALUES; k++) {
		const struct values *one = &made->values[i][k];
		const uint64_t row[] = { made->row[i].number, k, one->least, one->most, one->sum,
					 one->digest };

		if (one->least > one->most)
			continue;
		memcpy(words + count, row, sizeof(row));
		count += VALUE_WORDS;
	}
	for (uint64_t k = 0; k <= CALL_ARGUMENTS; k++)
		count += put_places(made->row[i].number, POINTED + k, made->place[i][k],
				    PLACES_OF_BYTES, words + count);
	return count;
}

/* Rows of (number, errno, how often), errno 0 is how often it was made, whatever became; values. */
static void emit_made(const struct calls_made *made, enum record calls, enum record values)
{
	static uint64_t words[(1 + MAX_CALL_ROWS) * MOST_VALUES * VALUE_WORDS];
	size_t count = 0;

	if (calls == RECORD_OUTSIDE)
		words[count++] = outside_user();
	memcpy(words + count, made->row, made->rows * sizeof(made->row[0]));
	emit(calls, words, count + 3ul * made->rows);
	count = 0;
	for (unsigned int i = 0; i < made->rows; i++)
		if (!made->row[i].error)
			count += put_values(made, i, words + count);
	if (outside_wanted())
		count += put_places(ORDER, 0, order[calls != RECORD_OUTSIDE].place,
				    1 + PLACES_OF_CALLS, words + count);
	emit(values, words, count);
}

/*
 * SYSCALLS and SCALARS: of a window.  SPENT: rows of (number, instructions of the kernel); the
 * number of what is no call's is the highest.  Above the instructions stands the place among the
 * calls of a task in this window, or among the window's faults, 0 for any.
 */
void emit_syscalls(unsigned int index)
{
	static uint64_t words[2 * COST_ROOM];
	size_t count = 0;

	for (unsigned int i = 0; i < call_vcpu[index].costs; i++) {
		const struct cost *cost = &call_vcpu[index].cost[call_vcpu[index].at[i]];

		words[count++] = cost->number;
		words[count++] = cost->insns;
	}
	emit_made(&call_vcpu[index].made, RECORD_SYSCALLS, RECORD_SCALARS);
	emit(RECORD_SPENT, words, count);
}

/* ORDER: of a window, and outside: all so far */
void emit_order(void)
{
	if (outside_wanted())
		emit(RECORD_ORDER, (uint64_t[]){ order[true].digest, order[false].digest }, 2);
}

/* OUTSIDE: instructions of user space, then as SYSCALLS; OUTSIDE_SCALARS: all so far */
void emit_outside(void)
{
	if (outside_wanted())
		emit_made(&made_outside, RECORD_OUTSIDE, RECORD_OUTSIDE_SCALARS);
}
