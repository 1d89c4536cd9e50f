// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "arguments.h"
#include "registers.h"
#include "state.h"
#include "straight.h"
#include "table.h"

#define MAX_ARGUMENTS 64u
#define MAX_VALUES (1u << 16)

struct argument {
	uint64_t start, end, how;
};

struct value {
	uint64_t argument, value, count; /* argument: plus one */
};

static struct {
	struct argument at[MAX_ARGUMENTS];
	size_t count;
	bool overflow;
	struct table values;
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
	return whole && arguments.count;
}

static void value_add(uint32_t argument, uint64_t value)
{
	const uint64_t key[] = { argument + 1, value };
	struct value *row = table_row(&arguments.values, key, 2, WORDS(*row), MAX_VALUES);

	arguments.overflow |= !row;
	if (row)
		row->count++;
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
	table_clear(&arguments.values, WORDS(struct value));
}

/* ARGUMENTS: rows of (probe, value, how often) */
void emit_arguments(void)
{
	const struct value *row = (void *)arguments.values.words, *end = row + arguments.values.room;
	uint64_t *words;
	size_t count = 0;

	if (!arguments.count)
		return;
	words = grown(NULL, 1 + 3 * arguments.values.count, sizeof(*words));
	for (; row < end; row++) {
		if (!row->argument)
			continue;
		words[count++] = row->argument - 1;
		words[count++] = row->value;
		words[count++] = row->count;
	}
	emit(RECORD_ARGUMENTS, words, count);
	free(words);
}
