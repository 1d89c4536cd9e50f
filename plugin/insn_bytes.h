/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a guest's instruction is by its bytes: a mark, a return from an interrupt, a REP string one? */
#ifndef KDELTA_INSN_BYTES_H
#define KDELTA_INSN_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_INSN_BYTES 16u

enum target { TARGET_OTHER, TARGET_X86_64, TARGET_AARCH64, TARGET_RISCV64 };

/* An instruction as QEMU is about to translate it. */
struct code {
	uint64_t vaddr;
	uint8_t size;
	uint8_t bytes[MAX_INSN_BYTES]; /* zeros behind its size */
};

static inline bool is_kernel(uint64_t vaddr)
{
	/* x86-64, arm64 and riscv64 Linux: kernel addresses are the upper half. */
	return vaddr >> 63;
}

static inline uint32_t word_of(const uint8_t *bytes)
{
	return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Mark code (op << 8 | phase) of an instruction, 0 when it is none. */
unsigned int mark_code(enum target target, const struct code *code);

/*
 * A return from interrupt or exception: iretq of x86-64, eret of arm64, sret of riscv64.  The bytes
 * of one are another instruction elsewhere: iretq's store a word on riscv64.
 */
bool is_return(enum target target, const struct code *code);

/* A system call: syscall of x86-64, svc of arm64, ecall of riscv64. */
bool is_syscall(enum target target, const struct code *code);

/* Is it one of the ways of 32-bit programs, which others may go, too? */
bool is_old_syscall(enum target target, const struct code *code);

/* What tells the time, or a count that grows with it, to user space. */
bool is_clock(enum target target, const struct code *code);

/* A return from the firmware of a riscv64. */
bool is_mret(const struct code *code);

/*
 * A REP string instruction of x86-64: its letter << 8 | the letter of its width, 'b', 'w', 'l',
 * 'q'; else 0.  Letters: 'm'ovs, 's'tos, 'l'ods, 'c'mps, sc'a's, 'i'ns, 'o'uts.
 */
unsigned int string_kind(const struct code *code);

/* How many bytes one round of it handles. */
unsigned int string_width(unsigned int kind);

#endif /* KDELTA_INSN_BYTES_H */
