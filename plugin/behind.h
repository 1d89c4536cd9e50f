/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the workload leaves to tasks of its own: instructions of the kernel that they execute where
 * no window counts them.  Not those of the task that made the last mark, which sets the next window
 * up, nor of the parent that made it for this window; and none of interrupts.  Whole blocks are
 * counted, to within one at each event.
 */
#ifndef KDELTA_BEHIND_H
#define KDELTA_BEHIND_H

#include <stdbool.h>
#include <stdint.h>

#include "insn_bytes.h"
#include "qemu_api.h"

void behind_begin(void);

/* A block of so many instructions is about to be translated; this is its first. */
void behind_watch(struct qemu_plugin_insn *insn, const struct code *code, uint64_t insns);

/* Something is about to change on a vCPU: what it executed until now is settled. */
void behind_settle(unsigned int vcpu);

/* The vCPU's task makes a mark; opens: a window. */
void behind_mark(unsigned int vcpu, bool opens);

/* A window opens: how much since the last one opened. */
uint64_t behind_take(void);

#endif /* KDELTA_BEHIND_H */
