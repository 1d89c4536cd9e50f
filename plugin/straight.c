// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>

#include "straight.h"

/* Operand in a register, or in memory that is always there. */
static bool x86_operand_is_there(const struct x86 *insn, const uint8_t *modrm)
{
	unsigned int mod = *modrm >> 6, rm = *modrm & 7;
	bool indexed, fixed, stack;

	if (mod == 3)
		return true;
	if (!insn->kernel || insn->other_segment || insn->short_address)
		return false;
	indexed = rm == 4 && ((modrm[1] >> 3 & 7) != 4 || insn->rex & 2);
	fixed = mod == 0 && (rm == 5 || (rm == 4 && (modrm[1] & 7) == 5 && !indexed));
	stack = rm == 4 && (modrm[1] & 7) == 4 && !indexed && !(insn->rex & 1);
	if (insn->gs)
		return fixed;
	return stack || (fixed && rm == 5); /* rm 5: relative to the instruction */
}

static bool x86_long_opcode_is_straight(const struct x86 *insn)
{
	const uint8_t op = insn->opcode[1], *modrm = insn->opcode + 2;
	bool in_register = *modrm >> 6 == 3;

	if (insn->rep || insn->repne) /* endbr; popcnt, tzcnt, lzcnt */
		return in_register && insn->rep &&
		       (op == 0x1e || op == 0xb8 || op == 0xbc || op == 0xbd);
	if (op == 0x1f) /* nop, whatever its operand says */
		return true;
	if ((op & 0xf0) == 0x40 || (op & 0xf0) == 0x90) /* cmov, set */
		return x86_operand_is_there(insn, modrm);
	if (op >= 0xc8 && op <= 0xcf) /* bswap */
		return true;
	switch (op) {
	case 0xaf: case 0xb6: case 0xb7: case 0xbe: case 0xbf: /* imul, movzx, movsx */
	case 0xba: case 0xa4: case 0xac: /* bt and shifts by a constant */
		return x86_operand_is_there(insn, modrm);
	case 0xa3: case 0xab: case 0xb3: case 0xbb: /* bt by a register goes beyond its operand */
	case 0xa5: case 0xad: case 0xb0: case 0xb1: case 0xbc: case 0xbd: case 0xc0: case 0xc1:
		return in_register;
	case 0xae: /* lfence, mfence, sfence */
		return in_register && (*modrm >> 3 & 7) >= 5;
	default:
		return false;
	}
}

static bool x86_opcode_is_straight(const struct x86 *insn)
{
	const uint8_t op = insn->opcode[0], *modrm = insn->opcode + 1;
	unsigned int reg = *modrm >> 3 & 7;

	if (op == 0x0f)
		return x86_long_opcode_is_straight(insn);
	if (insn->rep || insn->repne)
		return false;
	if (op < 0x40) /* add, or, adc, sbb, and, sub, xor, cmp */
		return (op & 7) < 4 ? x86_operand_is_there(insn, modrm) : (op & 7) < 6;
	if (op >= 0x50 && op <= 0x5f) /* push, pop */
		return insn->kernel;
	if (op >= 0xb0 && op <= 0xbf) /* mov to a register */
		return true;
	switch (op) {
	case 0x63: case 0x69: case 0x6b: /* movsxd, imul */
	case 0x80: case 0x81: case 0x83: case 0x84: case 0x85: /* add ... cmp, test */
	case 0x88: case 0x89: case 0x8a: case 0x8b: /* mov */
	case 0xc0: case 0xc1: case 0xd0: case 0xd1: case 0xd2: case 0xd3: /* shifts */
		return x86_operand_is_there(insn, modrm);
	case 0xc6: case 0xc7: /* mov of a constant; others are of transactions */
		return reg == 0 && x86_operand_is_there(insn, modrm);
	case 0x86: case 0x87: /* xchg */
		return *modrm >> 6 == 3;
	case 0x8d: /* lea */
		return *modrm >> 6 != 3;
	case 0x68: case 0x6a: /* push of a constant */
	case 0xc9: /* leave */
		return insn->kernel;
	case 0x90: case 0x91: case 0x92: case 0x93: case 0x94: case 0x95: case 0x96: case 0x97:
	case 0x98: case 0x99: case 0xa8: case 0xa9: /* nop, xchg, extensions, test */
	case 0xf5: case 0xf8: case 0xf9: case 0xfc: case 0xfd: /* of the carry, of the direction */
		return true;
	case 0xf6: case 0xf7: /* test, not, neg, mul, imul; 6 and 7 divide */
		return reg < 6 && x86_operand_is_there(insn, modrm);
	case 0xfe: case 0xff: /* inc, dec */
		return reg < 2 && x86_operand_is_there(insn, modrm);
	default:
		return false;
	}
}

bool x86_read(const struct code *code, struct x86 *insn)
{
	size_t i;

	*insn = (struct x86){ .kernel = is_kernel(code->vaddr) };
	for (i = 0; i < code->size; i++) {
		uint8_t byte = code->bytes[i];

		if (byte == 0xf0)
			insn->lock = true;
		else if (byte == 0xf2)
			insn->repne = true;
		else if (byte == 0xf3)
			insn->rep = true;
		else if (byte == 0x65)
			insn->gs = true;
		else if (byte == 0x64)
			insn->other_segment = true;
		else if (byte == 0x67)
			insn->short_address = true;
		else if (byte != 0x66 && byte != 0x2e && byte != 0x36 && byte != 0x3e && byte != 0x26)
			break;
	}
	if (i < code->size && code->bytes[i] >> 4 == 0x4)
		insn->rex = code->bytes[i++];
	insn->opcode = code->bytes + i;
	/* An opcode and its operand are at most four bytes: they lie within, or are zeros. */
	return i < code->size && i + 4 <= MAX_INSN_BYTES && !insn->lock;
}

static enum access x86_access(const struct code *code)
{
	struct x86 insn;
	const uint8_t *modrm;
	unsigned int reg;
	uint8_t op;

	if (!x86_read(code, &insn) || insn.rep)
		return ACCESS_UNKNOWN;
	op = insn.opcode[0];
	modrm = insn.opcode + 1 + (op == 0x0f);
	reg = *modrm >> 3 & 7;
	if (op == 0xe8 || (op >= 0x50 && op <= 0x57)) /* call, push */
		return ACCESS_WRITTEN;
	if (op == 0xc3 || op == 0xc2 || (op >= 0x58 && op <= 0x5f)) /* ret, pop */
		return ACCESS_READ;
	if (*modrm >> 6 == 3) { /* call of a register; else it has no operand in memory */
		return op == 0xff && reg == 2 ? ACCESS_WRITTEN : ACCESS_UNKNOWN;
	}
	if (op == 0xff) /* inc, dec, call, jmp; not push */
		return reg == 4 ? ACCESS_READ : reg < 3 ? ACCESS_WRITTEN : ACCESS_UNKNOWN;
	if (op < 0x40 && (op & 7) < 4 && op != 0x0f) /* the direction; cmp never writes */
		return op & 2 || op >= 0x38 ? ACCESS_READ : ACCESS_WRITTEN;
	switch (op) {
	case 0x0f: /* movzx, movsx; set */
		op = insn.opcode[1];
		return (op & 0xf6) == 0xb6 ? ACCESS_READ :
		       (op & 0xf0) == 0x90 ? ACCESS_WRITTEN : ACCESS_UNKNOWN;
	case 0x80: case 0x81: case 0x83: /* with a constant; 7: cmp */
		return reg == 7 ? ACCESS_READ : ACCESS_WRITTEN;
	case 0x63: case 0x84: case 0x85: case 0x8a: case 0x8b: /* movsxd, test, mov */
		return ACCESS_READ;
	case 0x88: case 0x89: case 0xc6: case 0xc7: /* mov */
		return ACCESS_WRITTEN;
	default:
		return ACCESS_UNKNOWN;
	}
}

static bool x86_is_straight(const struct code *code)
{
	struct x86 insn;

	return x86_read(code, &insn) && x86_opcode_is_straight(&insn);
}

/*
 * Loads and stores of riscv64, of integers and floating point; not atomics, and of the short ones
 * those of the first extensions.
 */
static enum access riscv64_access(const struct code *code)
{
	uint32_t word = word_of(code->bytes);
	unsigned int funct = word >> 13 & 7;

	if (code->size == 4) {
		word &= 0x7f;
		return word == 0x03 || word == 0x07 ? ACCESS_READ :
		       word == 0x23 || word == 0x27 ? ACCESS_WRITTEN : ACCESS_UNKNOWN;
	}
	if (word & 1 || !(funct & 3)) /* not of memory; of it are 0 and 2 */
		return ACCESS_UNKNOWN;
	return funct < 4 ? ACCESS_READ : ACCESS_WRITTEN;
}

static bool aarch64_is_straight(const struct code *code)
{
	uint32_t word = word_of(code->bytes);
	bool stack = is_kernel(code->vaddr) && (word >> 5 & 31) == 31;

	if ((word & 0x1c000000) == 0x10000000) /* data processing with a constant */
		return true;
	if ((word & 0x0e000000) == 0x0a000000) { /* ... with registers, but pointer authentication */
		return (word & 0x5fff0000) != 0x5ac10000;
	}
	if (word == 0xd503201f || word == 0xd503233f || (word & 0xffffff3f) == 0xd503241f)
		return true; /* nop, paciasp, bti */
	/* Loads and stores at the stack pointer: pairs, and one register at an unsigned offset. */
	return stack && ((word & 0x3e000000) == 0x28000000 || (word & 0x3f000000) == 0x39000000);
}

static bool riscv64_is_straight(const struct code *code)
{
	uint32_t word = word_of(code->bytes);
	unsigned int funct = word >> 13 & 7;

	if (code->size == 4) { /* of constants and of registers, with multiplication; lui, auipc */
		switch (word & 0x7f) {
		case 0x13: case 0x1b: case 0x33: case 0x3b: case 0x37: case 0x17:
			return true;
		default:
			return false;
		}
	}
	switch (word & 3) {
	case 0:
		return funct == 0 && (word & 0xffff);
	case 1:
		return funct < 5;
	default: /* slli; mv and add, not their siblings that jump */
		return funct == 0 || (funct == 4 && (word >> 2 & 31));
	}
}

bool is_straight(enum target target, const struct code *code)
{
	switch (target) {
	case TARGET_X86_64:
		return x86_is_straight(code);
	case TARGET_AARCH64:
		return code->size == 4 && aarch64_is_straight(code);
	case TARGET_RISCV64:
		return riscv64_is_straight(code);
	default:
		return false;
	}
}

enum access last_access(enum target target, const struct code *code)
{
	uint8_t op = code->bytes[0];

	if (target == TARGET_RISCV64)
		return riscv64_access(code);
	if (target != TARGET_X86_64 || mark_code(target, code) || is_straight(target, code))
		return ACCESS_UNKNOWN;
	/* The kernel's own stack is there: calls and returns go on. */
	if (is_kernel(code->vaddr) && (op == 0xe8 || op == 0xc3))
		return ACCESS_UNKNOWN;
	return x86_access(code);
}
