/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Values that functions are given and give back, when arguments= names a file.
 *
 * The file has, as little-endian 64-bit words, rows of first address, first one behind, and
 * register << 1 | whether it is read where the function returns; the row's number is the probe's.
 * A register is a number of enum register_index.  An argument is read before the function's first
 * instruction, a result before one of its returns: a function that ends by a jump into another, or
 * into a thunk, returns there and not here.
 */
#ifndef KDELTA_ARGUMENTS_H
#define KDELTA_ARGUMENTS_H

#include <stdbool.h>

#include "insn_bytes.h"
#include "qemu_api.h"
#include "stream.h"

/* The file arguments=; false when it cannot be read or says what there is not. */
bool arguments_read(const char *path);

/* An instruction is about to be translated: is a value read before it? */
void arguments_watch(struct qemu_plugin_insn *insn, const struct code *code);

/* A window opens: it has seen no value. */
void arguments_open(void);

/* Before their window. */
void emit_arguments(void);

/* ERROR_TOO_MANY_VALUES when there was no room for all; else 0. */
enum mark_error arguments_error(void);

#endif /* KDELTA_ARGUMENTS_H */
