/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory, and the end of the process that has none. */
#ifndef KDELTA_ALLOC_H
#define KDELTA_ALLOC_H

#include <stddef.h>

__attribute__((noreturn)) void die(const char *what);

/* Room for `count` things of a size, with what the old room held. */
void *grown(void *memory, size_t count, size_t size);

/* Zeros. */
void *allocate(size_t size);

#endif /* KDELTA_ALLOC_H */
