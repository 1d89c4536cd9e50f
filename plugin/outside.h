/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a program that nobody has looked at asks the kernel for outside its windows, and with which
 * strings: all that its tasks do from its first mark on, but for what kdelta.h does on its way,
 * which marks of its own enclose.
 */
#ifndef KDELTA_OUTSIDE_H
#define KDELTA_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "insn_bytes.h"
#include "qemu_api.h"

/* Bits of a call: its arguments from 0 that are strings, and what else is read at pointers. */
#define CALL_ARGUMENTS 6u
#define CALL_WRITES (1u << 6) /* the third argument's bytes at the second, to the file of the first */
#define CALL_IOCTL (1u << 7)  /* at the third argument, so many as the second says */
#define CALL_EXEC (1u << 8)   /* makes the task start over: left out until its first mark */

void outside_begin(void);

/* "NUMBER.BITS:NUMBER.BITS...", both decimal; false when it is something else. */
bool outside_read(const char *text);

bool outside_wanted(void);

/* What is known of a system call by its number: see CALL_... */
unsigned int call_bits(uint64_t number);

/* A block of user space, of so many instructions, is about to be translated; this is its first. */
void outside_watch(struct qemu_plugin_insn *insn, const struct code *code, uint64_t insns);

/* Something is about to change on a vCPU: what it executed in user space until now is settled. */
void outside_settle(unsigned int vcpu);

/* Is what the vCPU's task does now to be recorded so? */
bool is_outside(unsigned int vcpu);

/* Instructions of user space so far. */
uint64_t outside_user(void);

/*
 * A number for the string that a call has at an argument, or for its bytes of CALL_WRITES (1) and
 * CALL_IOCTL (2).  False where there is none, or its page cannot be read.
 */
bool outside_string(unsigned int vcpu, unsigned int argument, unsigned int bits, uint64_t *hash);

#endif /* KDELTA_OUTSIDE_H */
