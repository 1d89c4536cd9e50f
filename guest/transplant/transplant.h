/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef KDELTA_TRANSPLANT_H
#define KDELTA_TRANSPLANT_H

#define NOP_BYTES 5

/* A function of the image whose NOP for the tracer, or mark, becomes a jump into its successor. */
struct transplant_jump {
	unsigned long nop;	/* where the NOP is; 0: the mark is at from */
	unsigned long from;	/* where the jump goes: the same, or the mark before it */
	const char *to;
	unsigned char code[2][NOP_BYTES]; /* what was there, the jump */
};

/* A constant that the image's code was given at boot, and the module's is given now. */
struct transplant_constant {
	char *where;
	unsigned long value;	/* address of the variable */
	unsigned int size;	/* bytes */
};

extern struct transplant_jump transplant_jumps[];
extern const unsigned int transplant_jump_count;
extern const struct transplant_constant transplant_constants[];
extern const unsigned int transplant_constant_count;

#endif
