// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "blocks.h"
#include "calls.h"
#include "registers.h"
#include "rep_strings.h"
#include "slots.h"
#include "state.h"

#define MAX_STRINGS 1024u
#define MAX_BEGUN 64u

/* Per vCPU and instruction; the two callbacks are made only where there is something to do. */
enum string_state { STRING_IDLE, STRING_RUNS, STRING_LEFT };

struct string_insn {
	struct code code;
	uint64_t next; /* address behind it */
	unsigned int kind; /* see string_kind() */
	uint32_t ends; /* slot */
	uint32_t bytes; /* slot */
};

static struct {
	struct string_insn at[MAX_STRINGS];
	unsigned int count;
	bool translate_again, overflow;
	bool lost; /* one was left where no entry is known */
	struct qemu_plugin_scoreboard *score; /* enum string_state of each */
} strings;

/* An execution that has begun and not ended. */
struct begun {
	const struct string_insn *string;
	uint64_t stack;
};

static struct {
	const struct string_insn *running;
	uint64_t stack, rounds_left;
	struct begun left[MAX_BEGUN];
	unsigned int left_count;
} string_vcpu[MAX_VCPUS];

void strings_begin(void)
{
	strings.score = qemu_plugin_scoreboard_new(MAX_STRINGS * sizeof(uint64_t));
}

bool strings_translate_again(void)
{
	bool again = strings.translate_again;

	strings.translate_again = false;
	return again;
}

enum mark_error strings_error(void)
{
	return strings.overflow ? ERROR_TOO_MANY_SLOTS : strings.lost ? ERROR_LOST_STRING : 0;
}

static uint64_t *string_state(const struct string_insn *string, unsigned int vcpu)
{
	uint64_t *states = qemu_plugin_scoreboard_find(strings.score, vcpu);

	return states + (string - strings.at);
}

/* Adds what the running one handled since it started; it runs no longer. */
static void string_settle(unsigned int index)
{
	const struct string_insn *string = string_vcpu[index].running;
	uint64_t left = register_value(index, REGISTER_COUNT);

	if (left > string_vcpu[index].rounds_left)
		strings.lost = true;
	else
		*counter(string->bytes, index) +=
			(string_vcpu[index].rounds_left - left) * string_width(string->kind);
	string_vcpu[index].running = NULL;
}

/* Index of what was left in its midst with this stack pointer, -1 for nothing. */
static int string_find_left(unsigned int index, const struct string_insn *string, uint64_t stack)
{
	for (int i = string_vcpu[index].left_count - 1; i >= 0; i--) {
		const struct begun *begun = &string_vcpu[index].left[i];

		if (begun->string == string && begun->stack == stack)
			return i;
	}
	return -1;
}

static void string_forget(unsigned int index, int at)
{
	struct begun *left = string_vcpu[index].left;

	string_vcpu[index].left_count--;
	memmove(left + at, left + at + 1,
		(string_vcpu[index].left_count - at) * sizeof(*left));
}

static void string_idle(unsigned int index, const struct string_insn *string)
{
	enum string_state now = STRING_IDLE;

	for (unsigned int i = 0; i < string_vcpu[index].left_count; i++)
		if (string_vcpu[index].left[i].string == string)
			now = STRING_LEFT;
	*string_state(string, index) = now;
}

void string_leave(unsigned int index)
{
	const struct string_insn *string = string_vcpu[index].running;

	if (!string)
		return;
	if (string_vcpu[index].left_count == MAX_BEGUN)
		string_forget(index, 0);
	string_vcpu[index].left[string_vcpu[index].left_count++] =
		(struct begun){ string, string_vcpu[index].stack };
	string_settle(index);
	*string_state(string, index) = STRING_LEFT;
}

/* It starts, for the first time or again behind a fault or an interrupt. */
static void on_string_start(unsigned int index, void *userdata)
{
	struct string_insn *string = userdata;
	uint64_t stack;
	int left;

	if (index >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	if (string_vcpu[index].running) /* the kernel was entered, and we do not know where */
		strings.lost = true;
	stack = register_value(index, REGISTER_STACK);
	left = string_find_left(index, string, stack);
	if (left >= 0)
		string_forget(index, left);
	string_vcpu[index].running = string;
	string_vcpu[index].stack = stack;
	string_vcpu[index].rounds_left = register_value(index, REGISTER_COUNT);
	*string_state(string, index) = STRING_RUNS;
	pthread_mutex_unlock(&state.lock);
}

/* The instruction behind it is next, and an execution of it had begun, this one or another. */
static void on_string_end(unsigned int index, void *userdata)
{
	struct string_insn *string = userdata;
	bool searches = string->kind >> 8 == 'c' || string->kind >> 8 == 'a';
	bool ended = true;
	int left;

	if (index >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	if (string_vcpu[index].running == string) {
		string_settle(index);
	} else {
		left = string_find_left(index, string, register_value(index, REGISTER_STACK));
		ended = left >= 0;
		if (ended)
			string_forget(index, left);
	}
	/* One that was given up has rounds left; one that searches may end with rounds left. */
	if (ended && (searches || !register_value(index, REGISTER_COUNT)))
		count_once(string->ends, index);
	string_idle(index, string);
	pthread_mutex_unlock(&state.lock);
}

static struct string_insn *string_find(const struct code *code)
{
	for (unsigned int i = 0; i < strings.count; i++)
		if (strings.at[i].code.vaddr == code->vaddr && strings.at[i].code.size == code->size &&
		    !memcmp(strings.at[i].code.bytes, code->bytes, code->size))
			return &strings.at[i];
	return NULL;
}

static struct string_insn *string_add(const struct code *code, unsigned int kind)
{
	struct string_insn *string;
	uint32_t slot = strings.count < MAX_STRINGS ? slots_reserve(2) : 0;

	if (!slot) {
		strings.overflow = true;
		return NULL;
	}
	string = &strings.at[strings.count++];
	string->code = *code;
	string->next = code->vaddr + code->size;
	string->kind = kind;
	string->ends = slot;
	string->bytes = slot + 1;
	slot_report(slot, code);
	strings.translate_again |= seen_find(string->next);
	return string;
}

bool string_note(struct qemu_plugin_insn *insn, const struct code *code)
{
	unsigned int kind = state.target == TARGET_X86_64 ? string_kind(code) : 0;
	struct string_insn *string = kind ? string_find(code) : NULL;
	qemu_plugin_u64 entry;

	if (!kind)
		return false;
	if (!string && !(string = string_add(code, kind)))
		return true;
	entry = (qemu_plugin_u64){ strings.score, (string - strings.at) * sizeof(uint64_t) };
	qemu_plugin_register_vcpu_insn_exec_cond_cb(insn, on_string_start, QEMU_PLUGIN_CB_R_REGS,
						    QEMU_PLUGIN_COND_NE, entry, STRING_RUNS, string);
	return true;
}

void string_watch(struct qemu_plugin_insn *insn, uint64_t vaddr)
{
	for (unsigned int i = 0; i < strings.count; i++) {
		qemu_plugin_u64 entry = { strings.score, i * sizeof(uint64_t) };

		if (strings.at[i].next == vaddr)
			qemu_plugin_register_vcpu_insn_exec_cond_cb(
				insn, on_string_end, QEMU_PLUGIN_CB_R_REGS, QEMU_PLUGIN_COND_NE,
				entry, STRING_IDLE, &strings.at[i]);
	}
}

/* STRINGS: rows of (address, kind, executions that ended, bytes) */
void emit_strings(unsigned int vcpu)
{
	const uint64_t *base = state.vcpu[vcpu].base.counts;
	uint64_t rows[4 * MAX_STRINGS];
	size_t words = 0;

	for (unsigned int i = 0; i < strings.count; i++) {
		const struct string_insn *string = &strings.at[i];
		const uint64_t ends = *counter(string->ends, vcpu) - base[string->ends];
		const uint64_t bytes = *counter(string->bytes, vcpu) - base[string->bytes];

		if (ends || bytes) {
			rows[words++] = string->code.vaddr;
			rows[words++] = string->kind;
			rows[words++] = ends;
			rows[words++] = bytes;
		}
	}
	emit(RECORD_STRINGS, rows, words);
}
