// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

void die(const char *what)
{
	fprintf(stderr, "kdelta plugin: %s\n", what);
	abort();
}

void *grown(void *memory, size_t count, size_t size)
{
	memory = realloc(memory, count * size);
	if (!memory)
		die("out of memory");
	return memory;
}

void *allocate(size_t size)
{
	return memset(grown(NULL, 1, size), 0, size);
}
