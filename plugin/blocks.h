/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Included by insns.c alone: events by address, and translated blocks cut into what counts together. */
#ifndef KDELTA_BLOCKS_H
#define KDELTA_BLOCKS_H

static int by_address(const void *a, const void *b)
{
	const struct event_range *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

/* The file events=: lines "BITS START END", the first decimal, addresses hexadecimal. */
static bool read_events(const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned long long start, end;
	unsigned int bits, i = 0;
	bool whole;

	if (!file)
		return false;
	while (i < MAX_EVENTS && fscanf(file, "%u %llx %llx", &bits, &start, &end) == 3) {
		state.event[i++] = (struct event_range){ start, end, bits };
		state.new_tasks |= !!(bits & EVENT_NEW_TASK);
	}
	state.event_count = i;
	whole = feof(file);
	fclose(file);
	qsort(state.event, i, sizeof(*state.event), by_address);
	return whole;
}

/*
 * The firmware below a kernel of riscv64 is no part of a path: it is entered where mtvec says, for a
 * call of the kernel as for what it hands on to it, and left by mret.  Its addresses are physical.
 */
static unsigned int firmware_event(const struct code *code)
{
	if (!state.firmware)
		return 0;
	return code->vaddr == state.firmware ? EVENT_INTERRUPT : is_mret(code) ? EVENT_RETURN : 0;
}

/* Events of an instruction, 0 for none: by its address, or as a return by its encoding. */
static unsigned int event_of(const struct code *code)
{
	uint32_t low = 0, high = state.event_count;

	if (!is_kernel(code->vaddr))
		return firmware_event(code);
	if (is_return(state.target, code))
		return state.armed ? EVENT_RETURN : 0;
	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (code->vaddr >= state.event[middle].end)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == state.event_count || code->vaddr < state.event[low].start)
		return 0;
	/* Tasks are watched from the beginning. */
	return state.armed ? state.event[low].bits :
			     state.event[low].bits & (EVENT_SWITCH | EVENT_NEW_TASK);
}

/* Reads the block, and cuts it where an instruction may not go on to the next, or means something. */
static void cut_block(struct cut *cut, const struct qemu_plugin_tb *tb)
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
		cut->watched[i] = state.armed && calls.wanted && calls_note(cut, i);
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

/* Slot of the block's first segment; a block translated again (after a flush) keeps its slots. */
static uint32_t block_slots(const struct cut *cut)
{
	uint64_t hash = cut_hash(cut);
	struct block **bucket = &state.blocks[hash % BLOCK_BUCKETS];
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

/* The first instruction of a segment counts for it, where there is something to report. */
static void count_starts(struct qemu_plugin_insn *insn, const struct cut *cut, size_t i, uint32_t slot)
{
	const struct chunk *chunk = state.chunks[slot / CHUNK_SLOTS];
	qemu_plugin_u64 entry = { chunk->score, slot % CHUNK_SLOTS * sizeof(uint64_t) };
	unsigned int insns = chunk->insns[slot % CHUNK_SLOTS];
	/* Of what another function goes on to, only the one in front of it retired already. */
	bool own = i && cut->watched[i] && i + 1 == cut->insns && !cut->string[i] && !cut->access;

	if (insns)
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			insn, QEMU_PLUGIN_INLINE_ADD_U64, entry, 1);
	if (i)
		calls_count(insn, insns - own);
	calls_watch(insn, cut, i);
	calls_count(insn, i ? own : insns);
}

/* The last instruction of a block retires when its access to memory is made. */
static void count_accesses(struct qemu_plugin_insn *insn, enum access access, uint32_t slot)
{
	const struct chunk *chunk = state.chunks[slot / CHUNK_SLOTS];
	qemu_plugin_u64 entry = { chunk->score, slot % CHUNK_SLOTS * sizeof(uint64_t) };
	qemu_plugin_u64 total = { calls.total, 0 };
	enum qemu_plugin_mem_rw rw = access == ACCESS_READ ? QEMU_PLUGIN_MEM_R : QEMU_PLUGIN_MEM_W;

	if (!chunk->insns[slot % CHUNK_SLOTS])
		return;
	qemu_plugin_register_vcpu_mem_inline_per_vcpu(insn, rw, QEMU_PLUGIN_INLINE_ADD_U64, entry, 1);
	if (calls.wanted)
		qemu_plugin_register_vcpu_mem_inline_per_vcpu(
			insn, rw, QEMU_PLUGIN_INLINE_ADD_U64, total, 1);
}

#endif /* KDELTA_BLOCKS_H */
