/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What QEMU's command line says to the plugin. */
#ifndef KDELTA_OPTIONS_H
#define KDELTA_OPTIONS_H

/* 0, or -1 and a reason on stderr. */
int options_read(int argc, char **argv);

#endif /* KDELTA_OPTIONS_H */
