// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "calls.h"
#include "registers.h"
#include "slots.h"
#include "state.h"
#include "tasks.h"

#define MAX_CONTEXTS (1u << 20)
#define MAX_FRAMES (1u << 17)
#define KERNEL_STACK (64u << 10) /* more than one has, less than between two */
#define USER_STACK (1ull << 30)
#define POINT_BITS (1u << 16)
#define NOBODY UINT64_MAX /* the function that runs is not known */

struct function_range {
	uint64_t start, end, function;
};

/* A function on a path: who called it, and what it did in the window that is open. */
struct context {
	uint32_t parent, function, child, sibling; /* 0: none; 0 is the root */
	uint64_t calls, insns;
};

struct frame {
	uint64_t stack; /* the stack pointer when it was entered */
	uint32_t function, context;
};

struct frames {
	struct frame *at;
	uint32_t depth, room;
};

static struct {
	bool wanted;
	bool overflow;
	struct function_range *range;
	size_t ranges;
	struct context *context;
	uint32_t contexts, told;
	struct frames of_task[TASK_BUCKETS], of_vcpu[MAX_VCPUS];
	uint64_t settled[MAX_VCPUS]; /* the total up to which all belongs to some context */
	struct qemu_plugin_scoreboard *total; /* instructions, of every vCPU */
	struct qemu_plugin_scoreboard *running; /* its function */
	uint8_t point[POINT_BITS / 8]; /* hashed addresses behind calls of the own function */
} calls;

void calls_want(void)
{
	calls.wanted = true;
}

bool calls_wanted(void)
{
	return calls.wanted;
}

bool calls_have_functions(void)
{
	return calls.ranges;
}

enum mark_error calls_error(void)
{
	return calls.overflow ? ERROR_TOO_MANY_PATHS : 0;
}

static uint64_t *calls_total(unsigned int index)
{
	return qemu_plugin_scoreboard_find(calls.total, index);
}

static uint64_t *calls_running(unsigned int index)
{
	return qemu_plugin_scoreboard_find(calls.running, index);
}

bool calls_read(const char *path)
{
	FILE *file = fopen(path, "re");
	size_t room = 0;

	if (!file)
		return false;
	do {
		if (calls.ranges == room) {
			room = room * 2 + 4096;
			calls.range = grown(calls.range, room, sizeof(*calls.range));
		}
		calls.ranges += fread(calls.range + calls.ranges, sizeof(*calls.range),
				      room - calls.ranges, file);
	} while (calls.ranges == room);
	fclose(file);
	for (size_t i = 0; i < calls.ranges; i++)
		if (calls.range[i].start >= calls.range[i].end ||
		    calls.range[i].function >> 1 >= UINT32_MAX >> 2 ||
		    (i && calls.range[i].start < calls.range[i - 1].end))
			return false;
	calls.context = grown(NULL, MAX_CONTEXTS, sizeof(*calls.context));
	calls.total = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	calls.running = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	return calls.ranges;
}

uint32_t function_of(uint64_t vaddr, enum come *come)
{
	size_t low = 0, high = calls.ranges;

	*come = COME_BACK;
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (vaddr >= calls.range[middle].end)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == calls.ranges || vaddr < calls.range[low].start)
		return 0;
	if (calls.range[low].start == vaddr && calls.range[low].function & 1)
		*come = COME_ENTERED;
	return calls.range[low].function >> 1;
}

static struct frames *frames_of(unsigned int index)
{
	struct task *task = state.vcpu[index].task;

	return task ? &calls.of_task[task_number(task)] : &calls.of_vcpu[index];
}

static uint32_t context_new(uint32_t parent, uint32_t function)
{
	struct context *context;

	if (calls.contexts == MAX_CONTEXTS) {
		calls.overflow = true;
		return parent;
	}
	context = &calls.context[calls.contexts];
	*context = (struct context){ .parent = parent, .function = function };
	if (calls.contexts) {
		context->sibling = calls.context[parent].child;
		calls.context[parent].child = calls.contexts;
	}
	return calls.contexts++;
}

static uint32_t context_of(uint32_t parent, uint32_t function)
{
	uint32_t i = calls.context[parent].child;

	while (i && calls.context[i].function != function)
		i = calls.context[i].sibling;
	return i ? i : context_new(parent, function);
}

static uint32_t frames_push(struct frames *frames, uint32_t function, uint64_t stack)
{
	uint32_t parent = frames->depth ? frames->at[frames->depth - 1].context : 0;

	if (frames->depth == MAX_FRAMES) {
		calls.overflow = true;
		return parent;
	}
	if (frames->depth == frames->room) {
		frames->room = frames->room * 2 + 64;
		frames->at = grown(frames->at, frames->room, sizeof(*frames->at));
	}
	parent = context_of(parent, function);
	frames->at[frames->depth++] = (struct frame){ stack, function, parent };
	return parent;
}

static bool on_one_stack(uint64_t a, uint64_t b)
{
	return is_kernel(a) == is_kernel(b) &&
	       (a > b ? a - b : b - a) < (is_kernel(a) ? KERNEL_STACK : USER_STACK);
}

/* A function goes on: the frames above its own are gone. */
static void frames_resume(struct frames *frames, uint32_t function, uint64_t stack, enum come come)
{
	/* Where a call leaves the stack alone, the frame of the callee is at this very place. */
	uint64_t least = stack + (come == COME_POINT && state.target != TARGET_X86_64);

	for (uint32_t i = frames->depth; i-- > 0;) {
		const struct frame *frame = &frames->at[i];

		if (frame->function != function)
			continue;
		if (!i || (on_one_stack(frame->stack, stack) && frame->stack >= least)) {
			frames->depth = i + 1;
			return;
		}
	}
	/* Its begin was not seen: it lies in front of the window, or it was jumped into. */
	while (frames->depth > 1 && on_one_stack(frames->at[frames->depth - 1].stack, stack) &&
	       frames->at[frames->depth - 1].stack <= stack)
		frames->depth--;
	frames_push(frames, function, stack);
}

void count_once(uint32_t slot, unsigned int vcpu)
{
	++*counter(slot, vcpu);
	if (calls.wanted)
		*calls_total(vcpu) += slot_insns(slot);
}

void calls_settle(unsigned int index)
{
	const struct vcpu *vcpu = &state.vcpu[index];
	const struct frames *frames;
	uint64_t now;

	if (!calls.wanted)
		return;
	frames = frames_of(index);
	now = *calls_total(index);
	if (vcpu->open && !vcpu->out)
		calls.context[frames->depth ? frames->at[frames->depth - 1].context : 0].insns +=
			now - calls.settled[index];
	calls.settled[index] = now;
}

void calls_lose(unsigned int index)
{
	if (calls.wanted)
		*calls_running(index) = NOBODY;
}

/* An instruction of a function is next, before it counts; how: function << 2 | enum come. */
static void calls_come(unsigned int index, uint32_t how)
{
	uint32_t function = how >> 2;
	enum come come = how & 3;
	struct frames *frames;
	uint64_t stack;

	*calls_running(index) = function;
	if (!state.vcpu[index].open || state.vcpu[index].out)
		return;
	calls_settle(index);
	frames = frames_of(index);
	stack = register_value(index, REGISTER_STACK);
	if (come == COME_ENTERED)
		calls.context[frames_push(frames, function, stack)].calls++;
	else
		frames_resume(frames, function, stack, come);
}

void calls_come_to(unsigned int index, uint32_t slot)
{
	if (calls.wanted)
		calls_come(index, *slot_how(slot));
}

static void on_function(unsigned int index, void *userdata)
{
	if (index >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	calls_come(index, (uintptr_t)userdata);
	pthread_mutex_unlock(&state.lock);
}

void calls_open(unsigned int index)
{
	struct frames *frames;
	uint64_t running;

	if (!calls.wanted)
		return;
	for (unsigned int i = 0; i < TASK_BUCKETS; i++)
		calls.of_task[i].depth = 0;
	for (uint32_t i = 0; i < calls.contexts; i++)
		calls.context[i].insns = calls.context[i].calls = 0;
	if (!calls.contexts)
		context_new(0, 0);
	frames = frames_of(index);
	frames->depth = 0;
	running = *calls_running(index);
	frames_push(frames, running == NOBODY ? 0 : running, UINT64_MAX);
	calls.settled[index] = *calls_total(index);
}

void calls_leave(unsigned int index, uint64_t from)
{
	struct task *task = calls.wanted && !state.vcpu[index].task ? task_at(from) : NULL;
	struct frames frames;

	calls_settle(index);
	calls_lose(index);
	if (!task)
		return;
	frames = calls.of_task[task_number(task)];
	calls.of_task[task_number(task)] = calls.of_vcpu[index];
	calls.of_vcpu[index] = frames;
}

static uint32_t point_bit(uint64_t vaddr)
{
	return (vaddr * 0x9e3779b97f4a7c15ULL >> 40) % POINT_BITS;
}

/* Calls of riscv64 leave a return address in ra or t0: jal, jalr and c.jalr. */
static bool riscv64_may_recur(const struct code *code, uint32_t function)
{
	uint32_t word = word_of(code->bytes);
	int64_t offset = (int64_t)((uint64_t)(word & 0x80000000) << 32) >> 43;
	enum come come;

	if (code->size == 2) /* c.jalr; c.ebreak is the one of register 0 */
		return (word & 0xf07f) == 0x9002 && word >> 7 & 31;
	if ((word >> 7 & 31) != 1 && (word >> 7 & 31) != 5)
		return false;
	if ((word & 0x707f) == 0x67)
		return true;
	if ((word & 0x7f) != 0x6f)
		return false;
	offset |= (word & 0xff000) | (word >> 9 & 0x800) | (word >> 20 & 0x7fe);
	return function_of(code->vaddr + offset, &come) == function;
}

/* Does it call a function that may be its own?  Then nobody else runs between it and what follows. */
static bool may_recur(const struct code *code, uint32_t function)
{
	uint32_t word = word_of(code->bytes + (state.target == TARGET_X86_64));
	enum come come;

	if (state.target == TARGET_AARCH64) {
		if (word >> 26 == 0x25) /* bl */
			return function_of(code->vaddr + ((int64_t)((uint64_t)word << 38) >> 36),
					   &come) == function;
		return (word & 0xfffffc1f) == 0xd63f0000; /* blr */
	}
	if (state.target == TARGET_RISCV64)
		return riscv64_may_recur(code, function);
	if (code->size == 5 && code->bytes[0] == 0xe8)
		return function_of(code->vaddr + 5 + (int32_t)word, &come) == function;
	return (code->bytes[0] == 0xff && (code->bytes[1] >> 3 & 7) == 2) ||
	       (code->bytes[0] == 0x41 && code->bytes[1] == 0xff && (code->bytes[2] >> 3 & 7) == 2);
}

bool calls_note(struct cut *cut, size_t i)
{
	const struct code *code = &cut->code[i];
	enum come come;
	uint32_t function = function_of(code->vaddr, &come), bit = point_bit(code->vaddr);

	if (come == COME_BACK && calls.point[bit / 8] >> bit % 8 & 1)
		come = COME_POINT;
	cut->how[i] = function << 2 | come;
	bit = point_bit(code->vaddr + code->size);
	if (may_recur(code, function))
		calls.point[bit / 8] |= 1 << bit % 8;
	return !i || come != COME_BACK || function != cut->how[i - 1] >> 2;
}

void calls_count(struct qemu_plugin_insn *insn, unsigned int insns)
{
	qemu_plugin_u64 total = { calls.total, 0 };

	if (calls.wanted && insns)
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			insn, QEMU_PLUGIN_INLINE_ADD_U64, total, insns);
}

void calls_count_access(struct qemu_plugin_insn *insn, enum qemu_plugin_mem_rw rw)
{
	qemu_plugin_u64 total = { calls.total, 0 };

	if (calls.wanted)
		qemu_plugin_register_vcpu_mem_inline_per_vcpu(
			insn, rw, QEMU_PLUGIN_INLINE_ADD_U64, total, 1);
}

void calls_watch(struct qemu_plugin_insn *insn, const struct cut *cut, size_t i)
{
	qemu_plugin_u64 running = { calls.running, 0 };
	void *userdata = (void *)(uintptr_t)cut->how[i];

	if (!cut->watched[i])
		return;
	if ((cut->how[i] & 3) != COME_BACK)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_function, QEMU_PLUGIN_CB_R_REGS,
						       userdata);
	else
		qemu_plugin_register_vcpu_insn_exec_cond_cb(insn, on_function, QEMU_PLUGIN_CB_R_REGS,
							    QEMU_PLUGIN_COND_NE, running,
							    cut->how[i] >> 2, userdata);
}

/* CONTEXTS: rows of (number, parent's, function); CALLS: rows of (number, calls, insns) */
void emit_calls(void)
{
	uint64_t *words;
	size_t count = 0;

	if (!calls.wanted)
		return;
	words = grown(NULL, 3ul * calls.contexts, sizeof(*words));
	for (; calls.told < calls.contexts; calls.told++) {
		words[count++] = calls.told;
		words[count++] = calls.context[calls.told].parent;
		words[count++] = calls.context[calls.told].function;
	}
	emit(RECORD_CONTEXTS, words, count);
	count = 0;
	for (uint32_t i = 0; i < calls.contexts; i++) {
		if (!calls.context[i].calls && !calls.context[i].insns)
			continue;
		words[count++] = i;
		words[count++] = calls.context[i].calls;
		words[count++] = calls.context[i].insns;
	}
	emit(RECORD_CALLS, words, count);
	free(words);
}
