/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Windows: what each vCPU counts between two marks, and what is left out of it. */
#ifndef KDELTA_WINDOWS_H
#define KDELTA_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

/* How many there will be; 0: not known. */
void windows_expect(uint64_t count);

/* How many have closed. */
uint64_t windows_count(void);

/* All windows that were expected have closed. */
bool windows_done(void);

void window_open(unsigned int index, unsigned int phase);
void window_close(unsigned int index, unsigned int phase);

/* From now on what runs is counted, or left out, as the vCPU's state says. */
void window_update(unsigned int index);

#endif /* KDELTA_WINDOWS_H */
