/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two sets of translated code, of which QEMU executes one.  QEMU finds a block by the flags that it
 * was translated for.  They lie in the CPU, and the highest eight are the CPU's cluster, which no
 * translation looks at.  So code that counts and code that does not lie side by side, and what the
 * guest does before its windows need not be translated again behind them.
 *
 * The plugin interface has no such thing: where the flags lie is known of the programs that kdelta
 * patches, for guests of one CPU.  Elsewhere QEMU flushes what it translated.
 *
 * Source: QEMU 10.0.2, CF_CLUSTER_MASK of include/exec/translation-block.h, curr_cflags() and
 * tb_lookup() of accel/tcg/cpu-exec.c.
 */
#ifndef KDELTA_TRANSLATIONS_H
#define KDELTA_TRANSLATIONS_H

#include <stdbool.h>

/* Takes where the flags lie in QEMU's CPUState; false when this QEMU has no such thing. */
bool translations_read(const char *text);

/* The other set from the next block on; false where there is one set. */
bool translations_change(void);

#endif /* KDELTA_TRANSLATIONS_H */
