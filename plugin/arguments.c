// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "arguments.h"
#include "registers.h"
#include "state.h"
#include "straight.h"

#define MAX_ARGUMENTS 64u
#define VALUE_ROOM (1u << 17) /* a power of two */

struct argument {
	uint64_t start, end, how;
};

struct value {
	uint64_t value, count; /* 0: free */
	uint32_t argument;
};

static struct {
	struct argument at[MAX_ARGUMENTS];
	size_t count;
	bool overflow;
	size_t values;
	struct value *value;
} arguments;

enum mark_error arguments_error(void)
{
	return arguments.overflow ? ERROR_TOO_MANY_VALUES : 0;
}

bool arguments_read(const char *path)
{
	FILE *file = fopen(path, "re");
	bool whole;

	if (!file)
		return false;
	arguments.count = fread(arguments.at, sizeof(*arguments.at), MAX_ARGUMENTS, file);
	whole = fgetc(file) == EOF;
	fclose(file);
	for (size_t i = 0; i < arguments.count; i++)
		if (arguments.at[i].start >= arguments.at[i].end ||
		    arguments.at[i].how >> 1 >= REGISTERS)
			return false;
	arguments.value = allocate(VALUE_ROOM * sizeof(*arguments.value));
	return whole && arguments.count;
}

static void value_add(uint32_t argument, uint64_t value)
{
	size_t i = (value * 0x9e3779b97f4a7c15ULL >> 32) + argument * 0x9e3779b1ul;

	for (;; i++) {
		struct value *at = &arguments.value[i % VALUE_ROOM];

		if (at->count && (at->argument != argument || at->value != value))
			continue;
		if (!at->count && arguments.values >= VALUE_ROOM / 2) {
			arguments.overflow = true;
			return;
		}
		if (!at->count)
			arguments.values++;
		*at = (struct value){ value, at->count + 1, argument };
		return;
	}
}

static void on_argument(unsigned int index, void *userdata)
{
	uint32_t argument = (uintptr_t)userdata;

	if (index >= state.vcpus || !state.vcpu[index].open || state.vcpu[index].out)
		return;
	pthread_mutex_lock(&state.lock);
	value_add(argument, register_value(index, arguments.at[argument].how >> 1));
	pthread_mutex_unlock(&state.lock);
}

/* ret of x86-64, with or without what it takes off the stack; ret of arm64 and of riscv64. */
static bool is_function_return(const struct code *code)
{
	struct x86 insn;

	if (state.target == TARGET_X86_64) {
		(void)x86_read(code, &insn);
		return insn.opcode[0] == 0xc3 || insn.opcode[0] == 0xc2;
	}
	if (state.target == TARGET_AARCH64)
		return (word_of(code->bytes) & 0xfffff000) == 0xd65f0000;
	return word_of(code->bytes) == 0x00008067 || (code->size == 2 && code->bytes[0] == 0x82 &&
						      code->bytes[1] == 0x80);
}

void arguments_watch(struct qemu_plugin_insn *insn, const struct code *code)
{
	for (uintptr_t i = 0; i < arguments.count; i++) {
		const struct argument *one = &arguments.at[i];
		bool within = code->vaddr >= one->start && code->vaddr < one->end;

		if (one->how & 1 ? within && is_function_return(code) : code->vaddr == one->start)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_argument,
							       QEMU_PLUGIN_CB_R_REGS, (void *)i);
	}
}

void arguments_open(void)
{
	if (arguments.values)
		memset(arguments.value, 0, VALUE_ROOM * sizeof(*arguments.value));
	arguments.values = 0;
}

/* ARGUMENTS: rows of (probe, value, how often) */
void emit_arguments(void)
{
	uint64_t *words;
	size_t count = 0;

	if (!arguments.count)
		return;
	words = grown(NULL, 1 + 3 * arguments.values, sizeof(*words));
	for (size_t i = 0; i < VALUE_ROOM; i++) {
		if (!arguments.value[i].count)
			continue;
		words[count++] = arguments.value[i].argument;
		words[count++] = arguments.value[i].value;
		words[count++] = arguments.value[i].count;
	}
	emit(RECORD_ARGUMENTS, words, count);
	free(words);
}
