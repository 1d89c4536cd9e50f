/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Included by insns.c alone, behind its chunks of slots.
 *
 * How often was each REP MOVS and REP STOS of x86-64 executed to its end?  A round of such an
 * instruction counts as an instruction in one QEMU and not in another, and its number of bytes
 * lies in a register; but whenever it has ended, the instruction behind it is next.  So that one
 * gets a callback: had the string instruction started since this one was last reached, then an
 * execution of it has ended.  Reached in another way, it finds no new start and counts nothing.
 *
 * A string instruction has a slot of its own for its ends, beside those of its starts, so that what
 * an interrupt added is taken off with everything else.
 */
#ifndef KDELTA_REP_STRINGS_H
#define KDELTA_REP_STRINGS_H

#define MAX_STRINGS 1024u

struct string_insn {
	uint64_t vaddr;
	uint64_t next;	/* address behind it */
	unsigned int kind;  /* see string_kind() */
	uint32_t ends;	/* slot */
	uint32_t *starts; /* slots, one in each block that has it */
	size_t start_count;
	uint64_t *seen; /* by vCPU: starts when the address behind it was last reached */
};

static struct {
	struct string_insn at[MAX_STRINGS];
	unsigned int count;
	bool translate_again;
} strings;

static void on_string_end(unsigned int vcpu, void *userdata)
{
	struct string_insn *string = userdata;
	uint64_t starts = 0;
	size_t i;

	if (vcpu >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	for (i = 0; i < string->start_count; i++)
		starts += *counter(string->starts[i], vcpu);
	if (starts != string->seen[vcpu])
		++*counter(string->ends, vcpu);
	string->seen[vcpu] = starts;
	pthread_mutex_unlock(&state.lock);
}

static struct string_insn *string_find(const struct qemu_plugin_insn *insn)
{
	uint64_t vaddr = qemu_plugin_insn_vaddr(insn);
	unsigned int i;

	for (i = 0; i < strings.count; i++)
		if (strings.at[i].vaddr == vaddr)
			return &strings.at[i];
	return NULL;
}

/* Is the instruction at `vaddr` in a block already, without a callback of ours? */
static bool is_translated(uint64_t vaddr)
{
	uint32_t i, slot;

	for (i = 0; i < state.chunk_count; i++)
		for (slot = 0; slot < state.chunks[i]->used; slot++)
			if (state.chunks[i]->vaddr[slot] == vaddr)
				return true;
	return false;
}

static struct string_insn *string_add(const struct qemu_plugin_insn *insn, unsigned int kind)
{
	struct string_insn *string;
	uint32_t ends = strings.count < MAX_STRINGS ? slots_reserve(1) : 0;

	if (!ends) {
		state.overflow = true;
		return NULL;
	}
	state.chunks[ends / CHUNK_SLOTS]->flags[ends % CHUNK_SLOTS] = SLOT_UNUSED;
	string = &strings.at[strings.count++];
	string->vaddr = qemu_plugin_insn_vaddr(insn);
	string->next = string->vaddr + qemu_plugin_insn_size(insn);
	string->kind = kind;
	string->ends = ends;
	string->seen = allocate(state.vcpus, sizeof(*string->seen));
	strings.translate_again |= is_translated(string->next);
	return string;
}

/* An instruction of a block that got slots. */
static void string_note(const struct qemu_plugin_insn *insn, uint32_t slot)
{
	unsigned int kind = state.x86 ? string_kind(insn) : 0;
	struct string_insn *string = kind ? string_find(insn) : NULL;
	size_t i;

	if (!kind || (!string && !(string = string_add(insn, kind))))
		return;
	for (i = 0; i < string->start_count; i++)
		if (string->starts[i] == slot)
			return; /* translated again */
	string->starts = realloc(string->starts, (i + 1) * sizeof(*string->starts));
	if (!string->starts)
		die("out of memory");
	string->starts[string->start_count++] = slot;
}

/* An instruction that may lie behind a string instruction; before any other callback of it. */
static void string_watch(struct qemu_plugin_insn *insn)
{
	uint64_t vaddr = qemu_plugin_insn_vaddr(insn);
	unsigned int i;

	for (i = 0; i < strings.count; i++)
		if (strings.at[i].next == vaddr)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_string_end,
							       QEMU_PLUGIN_CB_NO_REGS,
							       &strings.at[i]);
}

/* STRINGS, before its window: count, then count x (address, kind, executions that ended) */
static void emit_strings(unsigned int vcpu)
{
	const uint64_t *base = state.vcpu[vcpu].base.counts;
	uint64_t words[] = { RECORD_STRINGS, 0 };
	unsigned int i;

	for (i = 0; i < strings.count; i++)
		words[1] += *counter(strings.at[i].ends, vcpu) != base[strings.at[i].ends];
	emit(words, 2);
	for (i = 0; i < strings.count; i++) {
		const struct string_insn *string = &strings.at[i];
		const uint64_t ends = *counter(string->ends, vcpu) - base[string->ends];
		const uint64_t row[] = { string->vaddr, string->kind, ends };

		if (ends)
			emit(row, 3);
	}
}

#endif /* KDELTA_REP_STRINGS_H */
