// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <stddef.h>

#include "mappings.h"
#include "outside.h"
#include "state.h"
#include "stream.h"
#include "syscalls.h"
#include "tasks.h"
#include "touched.h"

#define ROOM (1u << 18) /* a power of two */
#define MAX_PAGES (ROOM / 2) /* in a window; further ones are no part of the number */
#define RECENT 16u

enum way { READ, WRITTEN, EXECUTED };

struct seen {
	uint64_t key, epoch;
};

static struct {
	uint64_t epoch; /* grows with each window that opens or closes, and each call; 0: free */
	uint64_t place; /* of the call before, 0 outside and of several tasks */
	unsigned int count; /* in this epoch */
	struct seen at[ROOM];
	struct seen recent[MAX_VCPUS][RECENT]; /* what needs no look */
	struct digests {
		uint64_t pages, digest, order;
	} inside, outside;
} touched = { .epoch = 1 };

static uint64_t mixed(uint64_t page)
{
	page *= 0xbf58476d1ce4e5b9ULL;
	page = (page ^ page >> 31) * 0x94d049bb133111ebULL;
	return page ^ page >> 29;
}

static bool is_new(uint64_t key)
{
	size_t i = key * 0x9e3779b97f4a7c15ULL >> 46;

	for (; touched.at[i].epoch == touched.epoch; i = (i + 1) & (ROOM - 1))
		if (touched.at[i].key == key)
			return false;
	if (touched.count == MAX_PAGES)
		return false;
	touched.count++;
	touched.at[i] = (struct seen){ key, touched.epoch };
	return true;
}

static void touch(unsigned int index, uint64_t vaddr, enum way way)
{
	uint64_t page = page_of(vaddr), key = page << 2 | way;
	bool inside = index < state.vcpus && state.vcpu[index].open && !state.vcpu[index].out;
	struct seen *recent;
	struct digests *sum = inside ? &touched.inside : &touched.outside;

	if (index >= state.vcpus || !(inside || is_outside(index)))
		return;
	if (way != EXECUTED && is_vector(vaddr)) {
		pthread_mutex_lock(&state.lock);
		vector_read(index, vaddr);
		pthread_mutex_unlock(&state.lock);
	}
	recent = &touched.recent[index][(key ^ key >> 4) % RECENT];
	if (recent->key == key && recent->epoch == touched.epoch)
		return;
	pthread_mutex_lock(&state.lock);
	*recent = (struct seen){ key, touched.epoch };
	if (way != EXECUTED && is_clock_page(vaddr))
		clock_read(index, CLOCK_PAGE);
	if (way != EXECUTED && is_vdso(vaddr))
		vdso_read(index);
	page = page_value(page);
	if (page != LEAST_ADDRESS && is_new(key)) {
		page ^= touched.place * 0x9e3779b97f4a7c15ULL;
		page = mixed(page ^ way);
		sum->pages++;
		sum->digest += page;
		if (tasks_are_alone()) /* which of several comes first is chance */
			sum->order += mixed(page ^ touched.count);
	}
	pthread_mutex_unlock(&state.lock);
}

static void on_touch(unsigned int index, qemu_plugin_meminfo_t info, uint64_t vaddr, void *userdata)
{
	(void)userdata;
	touch(index, vaddr, qemu_plugin_mem_is_store(info) ? WRITTEN : READ);
}

static void on_execute(unsigned int index, void *vaddr)
{
	touch(index, (uintptr_t)vaddr, EXECUTED);
}

void touched_watch(struct qemu_plugin_insn *insn, const struct code *code, bool first)
{
	if (!outside_wanted() || is_kernel(code->vaddr))
		return;
	qemu_plugin_register_vcpu_mem_cb(insn, on_touch, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
					 NULL);
	if (first)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_execute, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)code->vaddr);
}

static void next_epoch(void)
{
	touched.epoch++;
	touched.count = 0;
}

void touched_between_calls(uint64_t place)
{
	next_epoch();
	touched.place = place;
}

void touched_open(void)
{
	touched_between_calls(0);
	touched.inside = (struct digests){ 0 };
}

void touched_close(void)
{
	touched_between_calls(0);
}

/*
 * TOUCHED: pages and their digest, in the window; the same outside, summed up so far; of both a
 * digest of their order
 */
void emit_touched(void)
{
	const struct digests *in = &touched.inside, *out = &touched.outside;
	const uint64_t words[] = { in->pages,	in->digest, out->pages,
				   out->digest, in->order,  out->order };

	if (outside_wanted())
		emit(RECORD_TOUCHED, words, sizeof(words) / sizeof(words[0]));
}
