/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Why user space was left without asking for it, and where it goes on: at the first instruction of an
 * exception's entry, and at the return from it.
 */
#ifndef KDELTA_EXCEPTIONS_H
#define KDELTA_EXCEPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define LONGEST_INSN 15u /* bytes */

/* Of x86-64 the one that begins at a symbol; 0 elsewhere. */
unsigned int vector_of(const char *symbol);

/* As the architecture counts them: a vector of x86-64, a class of arm64, a cause of riscv64. */
uint64_t exception_number(unsigned int vcpu, unsigned int vector);

/* Does the kernel only make memory available, if it can? */
bool is_page_fault(uint64_t exception);

/* Was the kernel asked? */
bool is_asked(uint64_t exception);

/* The address that the exception came from, or that the return goes to. */
uint64_t exception_origin(unsigned int vcpu);

#endif /* KDELTA_EXCEPTIONS_H */
