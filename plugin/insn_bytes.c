// SPDX-License-Identifier: GPL-2.0-or-later
#include <string.h>

#include "insn_bytes.h"

static const uint8_t prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3 };

unsigned int mark_code(enum target target, const struct code *code)
{
	uint32_t word;

	if (target == TARGET_X86_64 && code->size == 7) { /* x86-64: nopl imm32(%rax) */
		if (code->bytes[0] != 0x0f || code->bytes[1] != 0x1f || code->bytes[2] != 0x80)
			return 0;
		word = word_of(code->bytes + 3);
		return word >> 12 == 0x6b640 ? word & 0xfff : 0;
	}
	if (code->size != 4)
		return 0;
	word = word_of(code->bytes);
	if (target == TARGET_AARCH64 && (word & 0xffe0001f) == 0xd280001f) /* arm64: movz xzr, #imm16 */
		return (word >> 5 & 0xf000) == 0xd000 ? word >> 5 & 0xfff : 0;
	if (target == TARGET_RISCV64 && (word & 0xfff) == 0x037) /* riscv64: lui x0, imm20 */
		return word >> 24 == 0x6b ? word >> 12 & 0xfff : 0;
	return 0;
}

static bool is_exactly(const struct code *code, const uint8_t *bytes, size_t size)
{
	return code->size == size && !memcmp(code->bytes, bytes, size);
}

bool is_return(enum target target, const struct code *code)
{
	static const uint8_t iretq[] = { 0x48, 0xcf };
	static const uint8_t eret[] = { 0xe0, 0x03, 0x9f, 0xd6 };
	static const uint8_t sret[] = { 0x73, 0x00, 0x20, 0x10 };

	if (target == TARGET_X86_64)
		return is_exactly(code, iretq, sizeof(iretq));
	return target == TARGET_AARCH64 ? is_exactly(code, eret, sizeof(eret)) :
					  is_exactly(code, sret, sizeof(sret));
}

/* An instruction of x86-64 without the prefixes in front, which say nothing where it has no operand. */
static struct code bare(const struct code *code)
{
	struct code own = { .vaddr = code->vaddr };
	size_t at = 0;

	while (at < code->size && (code->bytes[at] >> 4 == 0x4 ||
				   memchr(prefixes, code->bytes[at], sizeof(prefixes))))
		at++;
	own.size = code->size - at;
	memcpy(own.bytes, code->bytes + at, own.size);
	return own;
}

bool is_syscall(enum target target, const struct code *code)
{
	static const uint8_t syscall[] = { 0x0f, 0x05 };
	static const uint8_t svc[] = { 0x01, 0x00, 0x00, 0xd4 };
	static const uint8_t ecall[] = { 0x73, 0x00, 0x00, 0x00 };

	if (target == TARGET_X86_64) {
		struct code own = bare(code);

		return is_exactly(&own, syscall, sizeof(syscall));
	}
	return target == TARGET_AARCH64 ? is_exactly(code, svc, sizeof(svc)) :
					  is_exactly(code, ecall, sizeof(ecall));
}

bool is_old_syscall(enum target target, const struct code *code)
{
	static const uint8_t interrupt[] = { 0xcd, 0x80 };
	static const uint8_t sysenter[] = { 0x0f, 0x34 };

	struct code own = bare(code);

	return target == TARGET_X86_64 && (is_exactly(&own, interrupt, sizeof(interrupt)) ||
					   is_exactly(&own, sysenter, sizeof(sysenter)));
}

bool is_clock(enum target target, const struct code *code)
{
	uint32_t word = word_of(code->bytes);

	if (target == TARGET_X86_64) { /* rdtsc, rdpmc, rdtscp */
		struct code own = bare(code);

		word = word_of(own.bytes);
		return (own.size == 2 && ((word & 0xffff) == 0x310f || (word & 0xffff) == 0x330f)) ||
		       (own.size == 3 && (word & 0xffffff) == 0xf9010f);
	}
	if (target == TARGET_AARCH64) /* mrs of cntpct_el0, cntvct_el0, cntpctss_el0, cntvctss_el0 */
		return (word & 0xffffff00) == 0xd53be000 && ((word >> 5 & 3) == 1 || (word >> 5 & 3) == 2);
	/* rdcycle, rdtime, rdinstret */
	return (word & 0xffcff07f) == 0xc0002073 && (word >> 20 & 3) < 3;
}

bool is_mret(const struct code *code)
{
	static const uint8_t mret[] = { 0x73, 0x00, 0x20, 0x30 };

	return is_exactly(code, mret, sizeof(mret));
}

/* All that is in front of the opcode, its last byte, is prefixes. */
unsigned int string_kind(const struct code *code)
{
	static const struct {
		uint8_t opcode; /* of its form in bytes; the next one is that in words */
		char letter;
	} strings[] = { { 0xa4, 'm' }, { 0xaa, 's' }, { 0xac, 'l' }, { 0xa6, 'c' },
			{ 0xae, 'a' }, { 0x6c, 'i' }, { 0x6e, 'o' } };
	bool rep = false, word = false, quad = false;
	const uint8_t *bytes = code->bytes;
	size_t i;

	for (i = 0; i + 1 < code->size; i++) {
		bool last = i + 2 == code->size;

		if (!(last && bytes[i] >> 4 == 0x4) && !memchr(prefixes, bytes[i], sizeof(prefixes)))
			return 0;
		rep |= bytes[i] == 0xf2 || bytes[i] == 0xf3;
		word |= bytes[i] == 0x66;
		quad |= last && (bytes[i] & 0xf8) == 0x48;
	}
	if (!rep)
		return 0;
	for (size_t k = 0; k < sizeof(strings) / sizeof(strings[0]); k++)
		if ((bytes[i] & 0xfe) == strings[k].opcode)
			return strings[k].letter << 8 |
			       (!(bytes[i] & 1) ? 'b' : quad ? 'q' : word ? 'w' : 'l');
	return 0;
}

unsigned int string_width(unsigned int kind)
{
	switch (kind & 0xff) {
	case 'b': return 1;
	case 'w': return 2;
	case 'l': return 4;
	default: return 8;
	}
}
