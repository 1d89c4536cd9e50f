/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a program that nobody has looked at asks the kernel for outside its windows: all that its tasks do from its first mark on, but for what kdelta.h does on its way,
 * which marks of its own enclose.
 */
#ifndef KDELTA_OUTSIDE_H
#define KDELTA_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "insn_bytes.h"
#include "qemu_api.h"

void outside_begin(void);

bool outside_wanted(void);

/* A block of user space, of so many instructions, is about to be translated; this is its first. */
void outside_watch(struct qemu_plugin_insn *insn, const struct code *code, uint64_t insns);

/* Something is about to change on a vCPU: what it executed in user space until now is settled. */
void outside_settle(unsigned int vcpu);

/* Is what the vCPU's task does now to be recorded so? */
bool is_outside(unsigned int vcpu);

/* Instructions of user space so far. */
uint64_t outside_user(void);

#endif /* KDELTA_OUTSIDE_H */
