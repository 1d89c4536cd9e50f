/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which pages of its own a program touches itself, in a window and between two: those of its
 * mappings, its image and its stack, by what stands for their addresses (mappings.h), read, written
 * and executed apart.
 * Each counts once between two calls of a window, and where that is is part of its digest; of
 * several tasks, and outside, once in all.  Of one task a second digest has their order.
 */
#ifndef KDELTA_TOUCHED_H
#define KDELTA_TOUCHED_H

#include <stdbool.h>

#include "insn_bytes.h"
#include "qemu_api.h"

/* first: of a block, or of a page in it. */
void touched_watch(struct qemu_plugin_insn *insn, const struct code *code, bool first);

/* The program, one task, makes its call of that number in a window. */
void touched_between_calls(uint64_t place);

/* A window opens or closes: what was touched before it is touched anew. */
void touched_open(void);
void touched_close(void);

/* Before their window. */
void emit_touched(void);

#endif /* KDELTA_TOUCHED_H */
