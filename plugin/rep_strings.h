/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A REP string instruction of x86-64 is one instruction, however many rounds it has and however
 * often QEMU, a page fault or an interrupt has it start anew; the bytes that it handles are told
 * beside.  It is counted when it has ended: whenever it has, the instruction behind it is next, and
 * that one gets a callback.  Reached in another way, it finds nothing that was begun.
 *
 * Rounds are what RCX lost.  It is read when the instruction starts, when the kernel is entered
 * from its midst (RCX then says how far it came), when it goes on, and when it has ended.  One that
 * is given up for good, as when a copy meets an address that is not there, has handled its bytes
 * and is not counted.  What is begun is known by the stack pointer too: on the way through a fault the same
 * instruction may be executed by others.
 *
 * Executions and bytes have slots, so that what is left out of a window is taken off with the rest.
 */
#ifndef KDELTA_REP_STRINGS_H
#define KDELTA_REP_STRINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "insn_bytes.h"
#include "qemu_api.h"
#include "stream.h"

/* Call it once, before anything is translated. */
void strings_begin(void);

/* An instruction that is about to be translated: a REP string one?  Then it has its own counter. */
bool string_note(struct qemu_plugin_insn *insn, const struct code *code);

/* An instruction that may lie behind a string instruction; before any other callback of it. */
void string_watch(struct qemu_plugin_insn *insn, uint64_t vaddr);

/* Was code behind a new string instruction translated before?  Asked once, it is forgotten. */
bool strings_translate_again(void);

/* The kernel is entered: what runs was left in its midst, or has just ended. */
void string_leave(unsigned int index);

/* Before its window. */
void emit_strings(unsigned int vcpu);

/*
 * ERROR_TOO_MANY_SLOTS when there was no room for all, ERROR_LOST_STRING when one was left where no
 * entry is known; else 0.
 */
enum mark_error strings_error(void);

#endif /* KDELTA_REP_STRINGS_H */
