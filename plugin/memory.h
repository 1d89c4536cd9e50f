/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which memory a window touches, when memory= is given.
 *
 * For every line of 64 bytes and every function that accesses it, whether it reads, writes or both;
 * with each page that the kernel touches, what it is.  That is decided by who reads our output:
 * here are taken the words of its struct page that tell it, when it is touched first and as long as
 * they tell nothing (a page of page tables is cleared before it becomes one), and whether it was
 * accessed by the stack pointer or by the segment of per-CPU data.
 *
 * memory= has, in hexadecimal with colons, the first address of the direct map, the first behind
 * it, and that of its first struct page; of each layout that the kernel may have, with a + between
 * them.  An access is seen when it has been made.  What the
 * hardware does itself (walks of page tables, the frame of an exception) is none, and a return from
 * an exception, which takes such a frame off, is not watched.
 */
#ifndef KDELTA_MEMORY_H
#define KDELTA_MEMORY_H

#include <stdbool.h>

#include "insn_bytes.h"
#include "qemu_api.h"
#include "stream.h"

/* False when what memory= says cannot be read. */
bool memory_read_option(const char *text);
bool memory_wanted(void);

/*
 * The same of slabs=: where in a struct page its cache is, and in that one its name, size and refcount;
 * then where the kernel has the offsets of its per-CPU areas.
 */
bool memory_read_slabs(const char *text);

/* An instruction that may access memory is about to be translated. */
void memory_watch(struct qemu_plugin_insn *insn, const struct code *code);

/* A window opens: it has touched nothing. */
void memory_open(void);

/*
 * The kernel is about to be left.  A page that it cleared has become by now what it is to be; at the
 * window's end, in user space, QEMU shows us no memory of the kernel on riscv64.
 */
void memory_leave(void);

/* Before their window: pages and lines. */
void emit_memory(void);

/* ERROR_TOO_MUCH_MEMORY when there was no room for all; else 0. */
enum mark_error memory_error(void);

#endif /* KDELTA_MEMORY_H */
