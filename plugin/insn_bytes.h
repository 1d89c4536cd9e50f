/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a guest's instruction is by its bytes: a mark, a return from an interrupt, a REP string one? */
#ifndef KDELTA_INSN_BYTES_H
#define KDELTA_INSN_BYTES_H

#include <string.h>

#include "qemu_api.h"

static void read_bytes(const struct qemu_plugin_insn *insn, uint8_t *bytes, size_t size)
{
#if KDELTA_API >= 3
	qemu_plugin_insn_data(insn, bytes, size);
#else
	memcpy(bytes, qemu_plugin_insn_data(insn), size);
#endif
}

static bool has_bytes(const struct qemu_plugin_insn *insn, const uint8_t *bytes, size_t size)
{
	uint8_t copy[8] = { 0 };

	read_bytes(insn, copy, size);
	return !memcmp(copy, bytes, size);
}

/* Mark code (op << 8 | phase) of an instruction, 0 when it is none. */
static unsigned int mark_code(const struct qemu_plugin_insn *insn)
{
	uint8_t bytes[8] = { 0 };
	size_t size = qemu_plugin_insn_size(insn);
	uint32_t word;

	if (size != 7 && size != 4)
		return 0;
	read_bytes(insn, bytes, size);
	if (size == 7) { /* x86-64: nopl imm32(%rax) */
		if (bytes[0] != 0x0f || bytes[1] != 0x1f || bytes[2] != 0x80)
			return 0;
		memcpy(&word, bytes + 3, sizeof(word));
		return word >> 12 == 0x6b640 ? word & 0xfff : 0;
	}
	memcpy(&word, bytes, sizeof(word));
	if ((word & 0xffe0001f) == 0xd280001f) /* arm64: movz xzr, #imm16 */
		return (word >> 5 & 0xf000) == 0xd000 ? word >> 5 & 0xfff : 0;
	if ((word & 0xfff) == 0x037) /* riscv64: lui x0, imm20 */
		return word >> 24 == 0x6b ? word >> 12 & 0xfff : 0;
	return 0;
}

/* A return from interrupt or exception: iretq of x86-64, eret of arm64. */
static bool is_return(const struct qemu_plugin_insn *insn)
{
	static const uint8_t iretq[] = { 0x48, 0xcf };
	static const uint8_t eret[] = { 0xe0, 0x03, 0x9f, 0xd6 };
	size_t size = qemu_plugin_insn_size(insn);

	return (size == sizeof(iretq) && has_bytes(insn, iretq, size)) ||
	       (size == sizeof(eret) && has_bytes(insn, eret, size));
}

/*
 * A REP MOVS or REP STOS of x86-64: 'm' or 's' << 8 | the letter of its width, 'b', 'w', 'l', 'q';
 * else 0.  All that is in front of the opcode, its last byte, is prefixes.
 */
static unsigned int string_kind(const struct qemu_plugin_insn *insn)
{
	static const uint8_t prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3 };
	size_t i, size = qemu_plugin_insn_size(insn);
	bool rep = false, word = false, quad = false;
	uint8_t bytes[15] = { 0 };

	if (size < 2 || size > sizeof(bytes))
		return 0;
	read_bytes(insn, bytes, size);
	for (i = 0; i < size - 1; i++) {
		bool last = i == size - 2;

		if (!(last && bytes[i] >> 4 == 0x4) && !memchr(prefixes, bytes[i], sizeof(prefixes)))
			return 0;
		rep |= bytes[i] == 0xf2 || bytes[i] == 0xf3;
		word |= bytes[i] == 0x66;
		quad |= last && (bytes[i] & 0xf8) == 0x48;
	}
	if (!rep || ((bytes[i] & 0xfe) != 0xa4 && (bytes[i] & 0xfe) != 0xaa))
		return 0;
	return ((bytes[i] & 0xfe) == 0xa4 ? 'm' : 's') << 8 |
	       (!(bytes[i] & 1) ? 'b' : quad ? 'q' : word ? 'w' : 'l');
}

#endif /* KDELTA_INSN_BYTES_H */
