// SPDX-License-Identifier: GPL-2.0-or-later
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "calls.h"
#include "memory.h"
#include "sharing.h"
#include "state.h"
#include "straight.h"
#include "table.h"
#include "tasks.h"

#define LINE_BITS 6
#define LINE (1u << LINE_BITS)
#define PAGE_BITS 12
#define STRUCT_PAGE 64u /* bytes */
#define MOST_OF_A_FOLIO (512u * STRUCT_PAGE)
#define MAX_LAYOUTS 4u
#define RECENT 4096u
#define MAX_TOUCHED (1u << 23)
#define PAGE_WORDS WORDS(struct touched_page)

enum { TOUCH_READ = 1, TOUCH_WRITE = 2, VIA_STACK = 1, VIA_PER_CPU = 2 };

struct touch {
	uint64_t line; /* its number; 0: free, as nothing lies at address 0 */
	uint64_t function;
	struct moved moved;
};

struct touched_page {
	uint64_t number; /* 0: free */
	uint32_t via;
	uint64_t flags, mapping, type; /* words of its struct page */
	uint64_t first, cache; /* of a slab: its address, and that of its struct kmem_cache */
};

static struct {
	bool wanted, overflow;
	struct layout {
		uint64_t direct, direct_end, pages;
	} layout[MAX_LAYOUTS];
	unsigned int layouts;
	struct table touches, pages; /* of struct touch, struct touched_page */
	struct touch recent[RECENT]; /* what needs no look into the tables */
	uint64_t *fresh; /* numbers of pages that were touched first since the kernel was left */
	size_t fresh_count, fresh_room;
	GByteArray *bytes; /* of the guest's memory */
	bool slabs;
	uint64_t of_cache, of_name, of_size, of_uses; /* offsets: in a struct page, a struct kmem_cache */
	uint64_t areas; /* where the kernel has the offsets of its per-CPU areas */
} memory;

bool memory_wanted(void)
{
	return memory.wanted;
}

enum mark_error memory_error(void)
{
	return memory.overflow ? ERROR_TOO_MUCH_MEMORY : sharing_error();
}

bool memory_read_option(const char *text)
{
	while (text && memory.layouts < MAX_LAYOUTS) {
		struct layout *one = &memory.layout[memory.layouts++];

		if (sscanf(text, "%" SCNx64 ":%" SCNx64 ":%" SCNx64, &one->direct,
			   &one->direct_end, &one->pages) != 3)
			return false;
		text = strchr(text, '+');
		text += !!text;
	}
	memory.bytes = g_byte_array_new();
	memory.wanted = !text;
	return memory.wanted;
}

bool memory_read_slabs(const char *text)
{
	memory.slabs = sscanf(text, "%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64,
			      &memory.of_cache, &memory.of_name, &memory.of_size, &memory.of_uses,
			      &memory.areas) == 5 &&
		       memory.of_cache <= STRUCT_PAGE - 8;
	return memory.slabs;
}

static bool guest_read(uint64_t address, void *copy, size_t size)
{
	g_byte_array_set_size(memory.bytes, 0);
	if (!qemu_plugin_read_memory_vaddr(address, memory.bytes, size) || memory.bytes->len < size)
		return false;
	memcpy(copy, memory.bytes->data, size);
	return true;
}

static bool struct_page_read(uint64_t address, uint64_t words[STRUCT_PAGE / 8])
{
	return guest_read(address, words, STRUCT_PAGE);
}

/* Takes what a page of the direct map is; of a part of a larger one, what that is. */
static void page_learn(struct touched_page *page)
{
	uint64_t vaddr = page->number << PAGE_BITS, words[STRUCT_PAGE / 8], own, head, first;
	const struct layout *one = memory.layout, *end = one + memory.layouts;

	while (one < end && (vaddr < one->direct || vaddr >= one->direct_end))
		one++;
	if (one == end || page->mapping || (uint32_t)page->type != UINT32_MAX)
		return;
	own = head = one->pages + ((vaddr - one->direct) >> PAGE_BITS) * STRUCT_PAGE;
	if (!struct_page_read(own, words))
		return;
	if (words[1] & 1) {
		/* It has the address of the first one, or, in newer kernels, a mask that gives it. */
		head = words[1] - 1;
		if (head > own || own - head > MOST_OF_A_FOLIO)
			head = own & (words[1] - 1);
		if (head < one->pages || head > own || !struct_page_read(head, words))
			return;
	}
	first = one->direct + ((head - one->pages) / STRUCT_PAGE << PAGE_BITS);
	page->first = first;
	page->cache = words[memory.of_cache / 8];
	page->flags = words[0];
	page->mapping = words[3];
	page->type = words[6];
}

static void page_is_fresh(uint64_t number)
{
	if (state.target != TARGET_RISCV64)
		return;
	if (memory.fresh_count == memory.fresh_room) {
		memory.fresh_room = memory.fresh_room * 2 + 4096;
		memory.fresh = grown(memory.fresh, memory.fresh_room, sizeof(*memory.fresh));
	}
	memory.fresh[memory.fresh_count++] = number;
}

void memory_leave(void)
{
	for (size_t i = 0; i < memory.fresh_count; i++)
		page_learn((void *)table_slot(&memory.pages, &memory.fresh[i], 1, PAGE_WORDS));
	memory.fresh_count = 0;
}

static void page_touch(uint64_t line, unsigned int via)
{
	uint64_t number = line >> (PAGE_BITS - LINE_BITS);
	size_t before = memory.pages.count;
	struct touched_page *page = table_row(&memory.pages, &number, 1, PAGE_WORDS, SIZE_MAX);

	if (memory.pages.count > before) {
		page->type = UINT32_MAX;
		page_is_fresh(number);
	}
	page->via |= via;
	page_learn(page);
}

static void line_touch(uint64_t line, uint32_t function, unsigned int via, const struct moved *moved)
{
	const uint64_t key[] = { line, function };
	struct touch *recent = &memory.recent[table_hash(key, 2) % RECENT], *touch;

	if (recent->line == line && recent->function == function &&
	    !(moved->how & ~recent->moved.how) && !(moved->bytes & ~recent->moved.bytes) &&
	    !(moved->same & ~recent->moved.same))
		return;
	touch = table_row(&memory.touches, key, 2, WORDS(struct touch), MAX_TOUCHED);
	if (!touch) {
		memory.overflow = true;
		return;
	}
	if (!touch->moved.how && is_kernel(line << LINE_BITS))
		page_touch(line, via);
	if (moved->how & (SHARED_FETCHED | SHARED_TAKEN))
		touch->moved.by = moved->by;
	touch->moved.how |= moved->how;
	touch->moved.bytes |= moved->bytes;
	touch->moved.same |= moved->same;
	touch->moved.theirs |= moved->theirs;
	*recent = *touch;
}

/* Does the workload run, between two windows? */
static bool is_between(const struct vcpu *vcpu)
{
	return sharing_wanted() && !vcpu->open && vcpu->task && vcpu->task->ours && !vcpu->depth &&
	       !vcpu->stub;
}

/* What an access of bytes from first to last, that are in a line, does to it. */
static struct moved shared(unsigned int index, uint32_t function, qemu_plugin_meminfo_t info,
			   uint64_t first, uint64_t last, bool write, bool locked)
{
	const struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(info, first);
	uint64_t from = first & (LINE - 1), bytes = last - first + 1;

	if (!where || qemu_plugin_hwaddr_is_io(where))
		return (struct moved){ 0 };
	return sharing_touch(index, function, qemu_plugin_hwaddr_phys_addr(where) >> LINE_BITS,
			     (bytes == LINE ? UINT64_MAX : (1ULL << bytes) - 1) << from, write,
			     locked);
}

/* userdata: function << 3 | is locked << 2 | via */
static void on_memory(unsigned int index, qemu_plugin_meminfo_t info, uint64_t vaddr, void *userdata)
{
	uint32_t function = (uintptr_t)userdata >> 3, via = (uintptr_t)userdata & 3;
	bool locked = (uintptr_t)userdata & 4, write = qemu_plugin_mem_is_store(info), counted;
	unsigned int how = locked ? TOUCH_READ | TOUCH_WRITE : write ? TOUCH_WRITE : TOUCH_READ;
	uint64_t end = vaddr + (1u << qemu_plugin_mem_size_shift(info)), next;

	if (index >= state.vcpus)
		return;
	counted = state.vcpu[index].open && !state.vcpu[index].out;
	if (!counted && !is_between(&state.vcpu[index]))
		return;
	pthread_mutex_lock(&state.lock);
	for (uint64_t at = vaddr; at < end; at = next) {
		struct moved moved = { 0 };

		next = (at | (LINE - 1)) + 1;
		if (sharing_wanted())
			moved = shared(index, function, info, at, (next < end ? next : end) - 1,
				       write, locked);
		moved.how |= how;
		if (counted && at >> LINE_BITS)
			line_touch(at >> LINE_BITS, function, via, &moved);
	}
	pthread_mutex_unlock(&state.lock);
}

/* Loads and stores by sp, which is x2; the short ones are c.lwsp, c.ldsp, c.swsp, c.sdsp and like. */
static bool riscv64_by_stack(const struct code *code)
{
	uint32_t word = word_of(code->bytes);

	return code->size == 2 ? (word & 3) == 2 : (word >> 15 & 31) == 2;
}

/* By what an instruction that accesses memory finds it; more than that is not asked. */
static unsigned int via_of(const struct code *code, bool *locked)
{
	struct x86 insn;
	const uint8_t *modrm;
	uint8_t op;

	*locked = false;
	if (state.target == TARGET_AARCH64)
		return (word_of(code->bytes) >> 5 & 31) == 31 ? VIA_STACK : 0;
	if (state.target == TARGET_RISCV64)
		return riscv64_by_stack(code) ? VIA_STACK : 0;
	if (state.target != TARGET_X86_64)
		return 0;
	(void)x86_read(code, &insn);
	op = insn.opcode[0];
	*locked = insn.lock || op == 0x86 || op == 0x87; /* xchg */
	if (insn.gs)
		return VIA_PER_CPU;
	if ((op >= 0x50 && op <= 0x5f) || op == 0xe8 || op == 0xc3 || op == 0xc2 || op == 0xc9 ||
	    op == 0x68 || op == 0x6a)
		return VIA_STACK;
	if (op >= 0xa0 && op <= 0xaf) /* at a given address; strings */
		return 0;
	modrm = insn.opcode + 1 + (op == 0x0f);
	return *modrm >> 6 != 3 && (*modrm & 7) == 4 && (modrm[1] & 7) == 4 && !(insn.rex & 1) ?
		       VIA_STACK :
		       0;
}

void memory_watch(struct qemu_plugin_insn *insn, const struct code *code)
{
	enum come come;
	uint64_t function;
	unsigned int via;
	bool locked;

	if (!memory.wanted || is_return(state.target, code))
		return;
	function = function_of(code->vaddr, &come);
	via = via_of(code, &locked);
	qemu_plugin_register_vcpu_mem_cb(insn, on_memory, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
					 (void *)(uintptr_t)(function << 3 | locked << 2 | via));
}

void memory_open(void)
{
	if (!memory.wanted)
		return;
	memset(memory.recent, 0, sizeof(memory.recent));
	table_clear(&memory.touches, WORDS(struct touch));
	table_clear(&memory.pages, PAGE_WORDS);
	memory.fresh_count = 0;
}

static const struct touched_page *pages_end(void)
{
	return (const struct touched_page *)memory.pages.words + memory.pages.room;
}

/*
 * SLABS: rows of (page's address, that of its slab's first page, size of an object | how many caches
 * it is << 32, its cache's name in three words), of all that may be in one: PAGES say which are.
 */
static void emit_slabs(void)
{
	enum { ROW = 6 };
	uint64_t *words = grown(NULL, 1 + ROW * memory.pages.count, sizeof(*words));
	size_t count = 0;

	for (const struct touched_page *page = (void *)memory.pages.words;
	     memory.slabs && page < pages_end(); page++) {
		uint64_t row[ROW] = { page->number << PAGE_BITS, page->first }, name;
		uint32_t size, uses;

		if (!page->number || !page->first || !is_kernel(page->cache) ||
		    !guest_read(page->cache + memory.of_name, &name, sizeof(name)) ||
		    !guest_read(page->cache + memory.of_size, &size, sizeof(size)) ||
		    !guest_read(page->cache + memory.of_uses, &uses, sizeof(uses)) ||
		    !is_kernel(name) || !guest_read(name, row + 3, (ROW - 3) * sizeof(*row)))
			continue;
		row[2] = size | (uint64_t)uses << 32;
		memcpy(words + count, row, sizeof(row));
		count += ROW;
	}
	emit(RECORD_SLABS, words, count);
	free(words);
}

/* SHARED: rows of (function, line's address | how), and of sharing.h's bytes, same, theirs and by. */
static void emit_shared(const struct touch *touch, size_t room)
{
	uint64_t *words = grown(NULL, 1 + 6 * memory.touches.count, sizeof(*words));
	size_t count = 0;

	for (const struct touch *end = touch + room; touch < end; touch++) {
		const struct moved *moved = &touch->moved;

		if (!moved->same && !(moved->how & (SHARED_FETCHED | SHARED_TAKEN)))
			continue;
		words[count++] = touch->function;
		words[count++] = touch->line << LINE_BITS | moved->how;
		words[count++] = moved->bytes;
		words[count++] = moved->same;
		words[count++] = moved->theirs;
		words[count++] = moved->by;
	}
	emit(RECORD_SHARED, words, count);
	free(words);
}

/* AREAS: where each CPU's own data is, from where its symbols are */
static void emit_areas(void)
{
	uint64_t offsets[MAX_SHARING];
	size_t count = state.vcpus < MAX_SHARING ? state.vcpus : MAX_SHARING;

	if (memory.slabs && guest_read(memory.areas, offsets, count * sizeof(*offsets)))
		emit(RECORD_AREAS, offsets, count);
}

/* PAGES: rows of (page's address | via, flags, mapping, type); LINES: of (function, line's | how). */
void emit_memory(void)
{
	const struct touch *touch = (void *)memory.touches.words;
	uint64_t *words;
	size_t count = 0;

	if (!memory.wanted)
		return;
	words = grown(NULL, 1 + 4 * memory.pages.count + 2 * memory.touches.count, sizeof(*words));
	for (struct touched_page *page = (void *)memory.pages.words; page < pages_end(); page++) {
		if (!page->number)
			continue;
		page_learn(page);
		words[count++] = page->number << PAGE_BITS | page->via;
		words[count++] = page->flags;
		words[count++] = page->mapping;
		words[count++] = page->type;
	}
	emit(RECORD_PAGES, words, count);
	count = 0;
	for (size_t i = 0; i < memory.touches.room; i++) {
		if (!touch[i].line)
			continue;
		words[count++] = touch[i].function;
		words[count++] = touch[i].line << LINE_BITS |
				 (touch[i].moved.how & (TOUCH_READ | TOUCH_WRITE));
	}
	emit(RECORD_LINES, words, count);
	free(words);
	if (!sharing_wanted())
		return;
	emit_areas();
	emit_slabs();
	emit_shared(touch, memory.touches.room);
}
