/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the arguments of system calls point at: which calls have what is a table that the reader of
 * the counts writes (kdelta.probes.system_calls).  Contents become one number, in which an address
 * is what stands for it (see mappings.h).
 */
#ifndef KDELTA_POINTED_H
#define KDELTA_POINTED_H

#include <stdbool.h>
#include <stdint.h>

#define CALL_ARGUMENTS 6u
#define PLACES_OF_BYTES 128u

/* In the order of the table's letters. */
enum kind {
	KIND_STRING,
	KIND_ADDRESS, /* what it points at does not matter; base: where in the heap does */
	KIND_BYTES, /* base + each * the argument `count`; mask: words of each that are addresses */
	KIND_BITS, /* so many bits as the argument `count` says */
	KIND_STRINGS, /* pointers to them, up to a NULL */
	KIND_VECTORS, /* struct iovec, so many as the argument `count` says */
	KIND_DATA_VECTORS, /* the same, and their data */
	KIND_DATA, /* so many bytes as the argument `count` says */
	KIND_MESSAGES, /* each: the bytes of one; `count`: the argument that says how many, or 0 */
	KIND_SENT_MESSAGES,
	KIND_SOCKET_ADDRESS,
	KIND_FILTER, /* struct sock_fprog, where the first argument is `each` */
	KIND_OPTION, /* of setsockopt() */
	KIND_LOCK, /* what fcntl() has third */
	KIND_REQUEST, /* what ioctl() has third */
	KIND_PROGRAM, /* what bpf() has second */
	KIND_ROBUST, /* the list of locks that a task may die with */
	KIND_HINT, /* where the program wants a mapping */
	KIND_HEARD, /* the kernel writes there as many bytes as it returns */
	/* of the call itself, at argument 0 */
	KIND_ENDS, /* the task may leave its list of locks */
	KIND_EXEC, /* makes the task start over: left out until its first mark */
	KIND_PRINTS, /* to the file of the first argument */
	KIND_MAPS,
	KIND_UNMAPS,
	KIND_REMAPS,
	KIND_OPENS, /* the file whose path the argument is */
	KIND_NUMBERS, /* mask: its arguments that are numbers; base: those that are open files */
	KIND_BREAKS, /* sets where the heap ends */
	KIND_BY_TIME, /* how often it is made, and when, depends on who comes first */
	KIND_ELSEWHERE, /* the task goes on elsewhere than behind it */
	KIND_MOVES, /* contents of the file that the argument is go where nobody looks */
	KIND_CLOSES, /* the file that is its first argument; of the call itself */
	KIND_LEADS, /* other paths may lead to the one that the argument is, or to that file system */
	KIND_MAKES, /* a task, whose number it returns */
	KIND_TASKS, /* mask: its arguments that are numbers of tasks */
	KINDS,
};

struct pointer {
	uint64_t number; /* of the call */
	uint64_t argument; /* from 1 */
	uint64_t kind;
	uint64_t each, count, base, mask;
};

void pointed_begin(void);

/* "NUMBER.ARGUMENT.KIND.EACH.COUNT.BASE.MASK:...", all decimal; false when it is something else. */
bool pointed_read(const char *text);

bool pointed_wanted(void);

/* The pointers of a call, `*count` of them. */
const struct pointer *pointers_of(uint64_t number, unsigned int *count);

/* Is a call of that kind? */
bool call_is(uint64_t number, enum kind kind);

/*
 * What a call has at one.  hash: of all of it.  place: of the bytes at n, n + 64, ... for n below 64,
 * and of the n-th 64 bytes behind; 0: none is there.  So chance in some bytes leaves the others as
 * they are.  unseen: it has a pointer in it, and what that leads to is no part of it.
 */
struct pointed_at {
	uint64_t hash; /* FNV-1a */
	uint64_t size;
	uint32_t place[PLACES_OF_BYTES];
	bool whole, unseen;
};

/* robust: the list of the call's task.  False when memory that it points at is not there yet. */
bool pointed_value(const struct pointer *pointer, const uint64_t arguments[CALL_ARGUMENTS],
		   uint64_t robust, struct pointed_at *found);

/* Is the third argument of an fcntl() a number? */
bool is_lock_number(uint64_t command);

/*
 * Is the path that a call has there one of /proc or /sys, or the name of that file system?  What has
 * ".." in it may be.
 */
bool is_kernel_file(const struct pointer *pointer, const uint64_t arguments[CALL_ARGUMENTS]);

/*
 * What the kernel told a program when it started lies above its stack: pairs of words, of which the
 * first is where the vDSO is.  Up to `most` of them; 0 where there are none.
 */
unsigned int vector_find(uint64_t vdso, uint64_t stack, uint64_t (*pairs)[2], unsigned int most,
			 uint64_t *address);

/* The same of bytes that the kernel has written. */
bool heard_value(uint64_t address, uint64_t size, uint64_t *value);

#endif /* KDELTA_POINTED_H */
