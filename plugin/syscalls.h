/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * System calls that the workload's tasks make in a window, by number, the errors that they return,
 * the values of their arguments and results, and what is asked together, in which order.
 *
 * A call is seen at the instruction that makes it in user space: syscall of x86-64, svc of arm64,
 * ecall of riscv64.  Of int 0x80 and sysenter only that they are made.  Its result is read where user space goes on
 * behind that instruction, in the same task and with the same stack: a signal handler may run
 * before, and make calls itself.  A call that the kernel restarts is made again, and counts again.
 * Netlink answers within the call that asks: an error there counts as one that this call returns.
 *
 * Exceptions of user space that are no page fault stand beside the calls.  One whose instruction is
 * tried again was, as a page fault, about what had not been made available yet, and does not count.
 */
#ifndef KDELTA_SYSCALLS_H
#define KDELTA_SYSCALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "insn_bytes.h"
#include "pointed.h"
#include "qemu_api.h"
#include "stream.h"

#define MAX_NESTED_CALLS 4u /* handlers of signals within a call */

/* Calls that a task has begun, the last one behind. */
struct nested_calls {
	unsigned int count;
	uint64_t exception, origin; /* that is being handled, 0: none; see exceptions.h */
	unsigned int hushed; /* marks that enclose what kdelta.h does, see outside.h */
	struct begun_call {
		uint64_t next; /* address behind its instruction */
		uint64_t stack;
		uint64_t number;
		uint64_t window; /* in which it began, or behind which */
		uint64_t place; /* among the calls of its task; 0: its order does not matter */
		uint64_t argument[CALL_ARGUMENTS];
		unsigned int late; /* bits of what its arguments point at that could not be read yet */
		bool outside;
	} at[MAX_NESTED_CALLS];
};

void syscalls_begin(void);

/* An instruction is about to be translated; first: of its block. */
void syscalls_watch(struct qemu_plugin_insn *insn, const struct code *code, bool first);

/* An exception is about to be entered; vector: of x86-64. */
void syscalls_exception(unsigned int vcpu, unsigned int vector);

/* A return from an exception, or from within, is about to be made. */
void syscalls_go_on(unsigned int vcpu);

/* Netlink answers the call that the vCPU's task made with an errno, or with 0. */
void syscalls_answer(unsigned int vcpu, uint64_t error);

/* The kernel executed so many instructions in a window, for the call that the vCPU's task made. */
void syscalls_spent(unsigned int vcpu, uint64_t insns);

/* What stands in place of a call's number where the program reads a clock without one, */
#define CLOCK_READ (2ull << 32) /* by an instruction */
#define CLOCK_PAGE (3ull << 32) /* in memory, as the vDSO does */
#define VDSO_READ (4ull << 32) /* and where it reads the vDSO's own bytes, */
#define POINTER_UNSEEN (5ull << 32) /* hands over a pointer that nobody follows */
#define VECTOR_READ (6ull << 32) /* or reads what the kernel told it when it started */
#define ORDER (7ull << 32) /* of no call: digests of the order of all */
#define EMULATED (8ull << 32) /* outside windows an instruction that the kernel executes instead */
#define EXCEPTION (9ull << 32) /* with its number: see exceptions.h */
#define FILE_UNSEEN (10ull << 32) /* takes contents of a file of the kernel where nobody looks */

/* The vCPU's task does so: it is recorded outside windows, what runs in these is told anyway. */
void clock_read(unsigned int vcpu, uint64_t how);

/* A program's first task does so, in windows or outside. */
void vdso_read(unsigned int vcpu);

/* It begins: what the kernel told it is to be known. */
void vector_begin(unsigned int vcpu, uint64_t vdso);

/* Does it lie there?  And the program's first task reads it. */
bool is_vector(uint64_t address);
void vector_read(unsigned int vcpu, uint64_t address);

/* A window opens: it has seen no call. */
void syscalls_open(unsigned int vcpu);

/* Before their window. */
void emit_syscalls(unsigned int vcpu);

/* Digests of the order of the calls, in the window and outside. */
void emit_order(void);

/* What was made outside, when a window opens. */
void emit_outside(void);

/* The calls of the task that a vCPU runs. */
struct nested_calls *calls_of_task(unsigned int vcpu);

/* ERROR_TOO_MANY_CALLS when there was no room for all; else 0. */
enum mark_error syscalls_error(void);

#endif /* KDELTA_SYSCALLS_H */
