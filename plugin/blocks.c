// SPDX-License-Identifier: GPL-2.0-or-later
#include <string.h>

#include "alloc.h"
#include "blocks.h"
#include "calls.h"
#include "events.h"
#include "slots.h"
#include "state.h"

#define BLOCK_BUCKETS 65536u
#define SEEN_BITS (1u << 22)

struct block {
	uint64_t hash; /* of its addresses and its code */
	uint32_t slot; /* of its first group */
	struct block *next;
};

static struct block *blocks[BLOCK_BUCKETS];
static uint8_t seen[SEEN_BITS / 8]; /* hashed addresses of translated instructions */

static uint32_t seen_bit(uint64_t vaddr)
{
	return (vaddr * 0x9e3779b97f4a7c15ULL >> 40) % SEEN_BITS;
}

void seen_note(uint64_t vaddr)
{
	seen[seen_bit(vaddr) / 8] |= 1 << seen_bit(vaddr) % 8;
}

bool seen_find(uint64_t vaddr)
{
	return seen[seen_bit(vaddr) / 8] >> seen_bit(vaddr) % 8 & 1;
}

void cut_block(struct cut *cut, const struct qemu_plugin_tb *tb)
{
	bool straight = true;

	cut->insns = qemu_plugin_tb_n_insns(tb);
	cut->segments = 0;
	if (cut->insns > MAX_BLOCK)
		die("a block of more than 512 instructions");
	for (size_t i = 0; i < cut->insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		struct code *code = &cut->code[i];
		bool own;

		memset(code, 0, sizeof(*code));
		code->vaddr = qemu_plugin_insn_vaddr(insn);
		code->size = qemu_plugin_insn_data(insn, code->bytes, sizeof(code->bytes));
		cut->mark[i] = mark_code(state.target, code);
		cut->event[i] = event_of(code);
		cut->watched[i] = state.armed && calls_wanted() && calls_note(cut, i);
		own = cut->mark[i] || cut->event[i] || (i && cut->watched[i]);
		cut->segments += !i || own || !straight;
		cut->segment[i] = cut->segments - 1;
		/* A window's first instruction starts behind the mark. */
		straight = !cut->mark[i] && !(i && cut->watched[i]) && is_straight(state.target, code);
	}
	if (cut->insns)
		cut->access = last_access(state.target, &cut->code[cut->insns - 1]);
}

/* Of a block and of how it is cut: where calls are watched comes to be known as code is translated. */
static uint64_t cut_hash(const struct cut *cut)
{
	uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a */

	for (size_t i = 0; i < cut->insns; i++) {
		const struct code *code = &cut->code[i];

		hash = (hash ^ code->vaddr) * 0x100000001b3ULL;
		hash = (hash ^ cut->segment[i]) * 0x100000001b3ULL;
		for (size_t k = 0; k < code->size; k++)
			hash = (hash ^ code->bytes[k]) * 0x100000001b3ULL;
	}
	return hash;
}

/* In which group an instruction is; the one behind those of segments is that of accesses. */
static unsigned int group_of(const struct cut *cut, size_t i)
{
	if (i + 1 < cut->insns)
		return cut->segment[i + 1];
	return cut->access && !cut->event[i] ? cut->segments : cut->segment[i];
}

uint32_t block_slots(const struct cut *cut)
{
	uint64_t hash = cut_hash(cut);
	struct block **bucket = &blocks[hash % BLOCK_BUCKETS];
	struct block *block;
	uint32_t slot;

	for (block = *bucket; block; block = block->next)
		if (block->hash == hash)
			return block->slot;
	slot = slots_reserve(cut->segments + 1);
	if (!slot)
		return 0;
	for (size_t i = 0; i < cut->insns; i++)
		if (!cut->mark[i] && !cut->string[i])
			slot_report(slot + group_of(cut, i), &cut->code[i]);
	block = allocate(sizeof(*block));
	*block = (struct block){ hash, slot, *bucket };
	*bucket = block;
	return slot;
}

void count_starts(struct qemu_plugin_insn *insn, const struct cut *cut, size_t i, uint32_t slot)
{
	unsigned int insns = slot_insns(slot);
	/* Of what another function goes on to, only the one in front of it retired already. */
	bool own = i && cut->watched[i] && i + 1 == cut->insns && !cut->string[i] && !cut->access;

	if (insns)
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			insn, QEMU_PLUGIN_INLINE_ADD_U64, slot_entry(slot), 1);
	if (i)
		calls_count(insn, insns - own);
	calls_watch(insn, cut, i);
	calls_count(insn, i ? own : insns);
}

void count_accesses(struct qemu_plugin_insn *insn, enum access access, uint32_t slot)
{
	enum qemu_plugin_mem_rw rw = access == ACCESS_READ ? QEMU_PLUGIN_MEM_R : QEMU_PLUGIN_MEM_W;

	if (!slot_insns(slot))
		return;
	qemu_plugin_register_vcpu_mem_inline_per_vcpu(insn, rw, QEMU_PLUGIN_INLINE_ADD_U64,
						      slot_entry(slot), 1);
	calls_count_access(insn, rw);
}
