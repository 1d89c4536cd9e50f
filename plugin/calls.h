/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The functions of the file functions=, and call paths, with calls=on.
 *
 * The file has, as little-endian 64-bit words and by address, rows of first address, first one
 * behind, function << 1 | whether the first is where the function is entered.  0 is the function of
 * all that is in none.
 *
 * Every instruction that is counted adds to one running total, so that nothing has to be done
 * while a function goes on; where another one begins, what came since belongs to the path so far.
 * That is seen in two ways: a function's first instruction always has a callback, since it is
 * entered; any other begin of a block has one that is made only when another function ran before,
 * since then somebody returned.  Returns find their frame by function and stack pointer, so that
 * no call is needed to be matched by a return: tail calls, retpolines, return thunks, a longjmp and
 * an exception that is given up leave frames behind, and the next return drops them.  A tail call
 * is a call by the function that made it, as Callgrind has it.
 *
 * Each task has its own frames.  The path of a window begins with the function that opened it.
 */
#ifndef KDELTA_CALLS_H
#define KDELTA_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "blocks.h"
#include "insn_bytes.h"
#include "qemu_api.h"
#include "stream.h"

/* How a function comes to run, see the top of the file. */
enum come { COME_BACK, COME_ENTERED, COME_POINT };

/* The file functions=; false when it cannot be read or its rows do not ascend. */
bool calls_read(const char *path);

/* Are there functions?  Call paths and memory are recorded by them. */
bool calls_have_functions(void);

/* Call paths are wanted. */
void calls_want(void);
bool calls_wanted(void);

/* The function of an address and, with `come`, whether it is entered there. */
uint32_t function_of(uint64_t vaddr, enum come *come);

/* What a slot stands for has begun once more. */
void count_once(uint32_t slot, unsigned int vcpu);

/* What was counted since the last time belongs to the path so far; outside windows to none. */
void calls_settle(unsigned int index);

/* Something else may run now than what was noted. */
void calls_lose(unsigned int index);

/* The instruction of a slot, which has a meaning, is next, before it counts. */
void calls_come_to(unsigned int index, uint32_t slot);

/* A window opens: its paths begin here. */
void calls_open(unsigned int index);

/* The vCPU goes to another task: what is known of the one that goes on is its own. */
void calls_leave(unsigned int index, uint64_t from);

/*
 * Is an instruction of a block one where calls are watched?  Its function << 2 | enum come is noted.
 * One that another function goes on to without a jump stands alone between its neighbours: so all
 * that retired in front of it has been counted when its callback is made, and nothing else has.
 */
bool calls_note(struct cut *cut, size_t i);

/* Adds so many instructions to the total when this one starts. */
void calls_count(struct qemu_plugin_insn *insn, unsigned int insns);

/* Adds one to the total with each access to memory of this one. */
void calls_count_access(struct qemu_plugin_insn *insn, enum qemu_plugin_mem_rw rw);

/* Gives the instruction the callback that calls_note() said it needs. */
void calls_watch(struct qemu_plugin_insn *insn, const struct cut *cut, size_t i);

/* Before their window: the paths, and what came of each. */
void emit_calls(void);

/* ERROR_TOO_MANY_PATHS when there was no room for all; else 0. */
enum mark_error calls_error(void);

#endif /* KDELTA_CALLS_H */
