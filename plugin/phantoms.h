/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Included by insns.c alone, behind its chunks of slots.
 *
 * QEMU before 8.1 shows a plugin one instruction too many where an x86-64 instruction crosses into
 * the next page: it ends the block before that one, after it has announced it.  Such a phantom is
 * known by the block that begins with the same instruction.
 */
#ifndef KDELTA_PHANTOMS_H
#define KDELTA_PHANTOMS_H

#define PAGE_BYTES 4096u
#define MAX_X86_INSN 15u

/* An instruction at the end of a page: the last of a block there may be a phantom. */
struct page_end {
	uint64_t vaddr;
	uint32_t slot; /* of the block's last instruction; 0: it begins a block and does cross */
};

static struct {
	struct page_end *at;
	size_t count;
} page_ends;

static void page_end_add(uint64_t vaddr, uint32_t slot)
{
	const size_t step = 1024;

	if (page_ends.count % step == 0) {
		page_ends.at = realloc(page_ends.at,
				       (page_ends.count + step) * sizeof(*page_ends.at));
		if (!page_ends.at)
			die("out of memory");
	}
	page_ends.at[page_ends.count++] = (struct page_end){ vaddr, slot };
}

/* The block's last instruction never runs there: its predecessor is the last. */
static void phantom_mark(uint32_t slot)
{
	uint8_t *flags = state.chunks[slot / CHUNK_SLOTS]->flags + slot % CHUNK_SLOTS;

	flags[0] |= SLOT_UNUSED;
	flags[-1] |= SLOT_LAST;
}

/*
 * A block that only begins with a page-crossing instruction shows that others, which end with it,
 * end with a phantom.  It is translated when the first of them has run, so before a window is
 * added up.
 */
static void find_phantoms(const struct qemu_plugin_tb *tb, size_t insns, uint32_t slot)
{
	const struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(tb, 0);
	const struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, insns - 1);
	uint64_t begin = qemu_plugin_insn_vaddr(first), end = qemu_plugin_insn_vaddr(last);
	bool crosses = begin % PAGE_BYTES + qemu_plugin_insn_size(first) > PAGE_BYTES;
	bool candidate = insns > 1 && end % PAGE_BYTES > PAGE_BYTES - MAX_X86_INSN;
	size_t i, known = page_ends.count;

	for (i = 0; i < known; i++) {
		const struct page_end *at = &page_ends.at[i];

		if (crosses && at->vaddr == begin && at->slot)
			phantom_mark(at->slot);
		else if (candidate && at->vaddr == end && !at->slot)
			phantom_mark(slot + insns - 1);
	}
	if (crosses)
		page_end_add(begin, 0);
	if (candidate)
		page_end_add(end, slot + insns - 1);
}

#endif /* KDELTA_PHANTOMS_H */
