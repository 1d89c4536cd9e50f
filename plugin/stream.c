// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <stdio.h>

#include "alloc.h"
#include "stream.h"

static FILE *out;

int stream_open(const char *path)
{
	out = fopen(path, "we");
	return out ? 0 : errno;
}

void emit_words(const uint64_t *words, size_t count)
{
	if (count && fwrite(words, sizeof(*words), count, out) != count)
		die("cannot write the counts: is the disk full?");
}

void emit(enum record kind, const uint64_t *words, size_t count)
{
	const uint64_t head[] = { kind, count };

	emit_words(head, 2);
	emit_words(words, count);
}

void emit_flush(void)
{
	if (fflush(out))
		die("cannot write the counts: is the disk full?");
}

void emit_error(enum mark_error error, unsigned int vcpu, unsigned int phase)
{
	const uint64_t words[] = { error, vcpu, phase };

	emit(RECORD_ERROR, words, 3);
	emit_flush();
}
