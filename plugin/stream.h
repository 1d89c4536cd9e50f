/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Output: a stream of little-endian 64-bit words.  Each record is its kind, the number of words
 * behind that, and these, documented where they are emitted; kdelta.attribution.insns reads it.
 * Every window is flushed when it closes, so that nothing measured is lost when the guest dies.
 */
#ifndef KDELTA_STREAM_H
#define KDELTA_STREAM_H

#include <stddef.h>
#include <stdint.h>

enum record {
	RECORD_HEADER = 1,
	RECORD_WINDOW = 2,
	RECORD_ERROR = 3,
	RECORD_ARMED = 4,
	RECORD_END = 5,
	RECORD_STRINGS = 6,
	RECORD_CODE = 7,
	RECORD_CONTEXTS = 8,
	RECORD_CALLS = 9,
	RECORD_BYTES = 10,
	RECORD_PAGES = 11,
	RECORD_LINES = 12,
	RECORD_ARGUMENTS = 13,
	RECORD_SYSCALLS = 14,
	RECORD_WAKES = 15,
	RECORD_SCALARS = 16,
	RECORD_BEHIND = 17,
	RECORD_OUTSIDE = 18,
	RECORD_OUTSIDE_SCALARS = 19,
	RECORD_SPENT = 20,
	RECORD_TOUCHED = 21,
	RECORD_ORDER = 22,
	RECORD_SLABS = 23,
	RECORD_SHARED = 24,
	RECORD_AREAS = 25,
};

enum mark_error {
	ERROR_NESTED_BEGIN = 1,	  /* BEGIN while a window is open on this vCPU */
	ERROR_END_WITHOUT_BEGIN = 2,  /* END, but no window is open on this vCPU */
	ERROR_PHASE = 3,		  /* END of another phase than the open one */
	ERROR_NOT_ARMED = 4,	  /* BEGIN before ARM took effect, or behind the last window */
	ERROR_TOO_MANY_SLOTS = 5,	  /* more code than MAX_CHUNKS holds: counts would be short */
	ERROR_TOO_MANY_WINDOWS = 6,
	ERROR_LOST_STRING = 7, /* a string instruction was left where no entry is known */
	ERROR_TOO_MANY_PATHS = 8,
	ERROR_TOO_MUCH_MEMORY = 9,
	ERROR_TOO_MANY_VALUES = 10,
	ERROR_TOO_MANY_CALLS = 11,
};

/* Opens the file; 0 or an errno. */
int stream_open(const char *path);

void emit_words(const uint64_t *words, size_t count);
void emit(enum record kind, const uint64_t *words, size_t count);
void emit_flush(void);

/* ERROR: error, vcpu, phase */
void emit_error(enum mark_error error, unsigned int vcpu, unsigned int phase);

#endif /* KDELTA_STREAM_H */
