// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A QEMU plugin that counts as plugin/insns.c does, and in no way as it does: one call for each
 * instruction that starts, in the order in which they start, and no block, no counter and no
 * register is looked at.  For guests of x86-64 with one CPU; slow.
 *
 * Whether an instruction retired shows in what starts next.  The first instruction of an
 * exception's entry: one of the kernel's did not, unless it went to user space, where then the
 * next one was not there; one of user space did not if it starts again behind the exception.  A
 * string instruction that starts again, at once or behind an interrupt: it has not yet.  Else it
 * did.  Bytes by string instructions are what they stored.
 *
 * Output, text: for each window "window PHASE SWITCHED BYTES", then "ADDRESS COUNT" lines.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../plugin/qemu_api.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = KDELTA_API;

typedef void (*qemu_plugin_vcpu_mem_cb_t)(unsigned int vcpu, uint32_t info, uint64_t vaddr,
					  void *userdata);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_mem_cb_t cb,
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw rw,
				      void *userdata);
unsigned int qemu_plugin_mem_size_shift(uint32_t info);

#define BUCKETS (1u << 18)
#define MAX_DEPTH 64u

enum kind { PLAIN, STRING, RETURN, SYSRET, INTERRUPT, FAULT, STUB, SWITCH, BEGIN, END };

/* An instruction by its address; a list of them in each bucket, none is ever freed. */
struct insn {
	uint64_t vaddr;
	enum kind kind;
	unsigned int phase;
	uint64_t count;
	struct insn *next;
};

static struct {
	uint64_t start, end;
	unsigned int bits;
} events[1024];
static size_t event_count;

static struct insn *buckets[BUCKETS];
static FILE *out;
static bool open_window, switched, stub;
static struct insn *last; /* started, and perhaps not retired */
static uint64_t bytes;
/* What the kernel was entered from, entries within entries. */
static struct {
	struct insn *goes_on; /* behind the return, unless it had retired */
	bool out; /* an interrupt, or within one */
} stack[MAX_DEPTH];
static unsigned int depth;

static bool is_left_out(void)
{
	return depth && stack[depth - 1].out;
}

static void retire(struct insn *insn)
{
	if (insn && open_window && !is_left_out() && insn->kind != BEGIN)
		insn->count++;
}

static void enter(struct insn *goes_on, bool interrupt)
{
	bool out = interrupt || is_left_out();

	if (depth == MAX_DEPTH) { /* long ago, what never returned */
		memmove(stack, stack + 1, sizeof(stack) - sizeof(stack[0]));
		depth--;
	}
	stack[depth].goes_on = goes_on;
	stack[depth++].out = out;
}

static void finish(const struct insn *mark)
{
	fprintf(out, "window %u %d %" PRIu64 "\n", mark->phase, switched, bytes);
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct insn *insn = buckets[i]; insn; insn = insn->next) {
			if (insn->count)
				fprintf(out, "%" PRIx64 " %" PRIu64 "\n", insn->vaddr, insn->count);
			insn->count = 0;
		}
	fflush(out);
}

/* What started before this one, and is no part of an entry's way, did it retire? */
static void settle(struct insn *insn)
{
	bool returned = last && last->kind == RETURN && depth;

	if (insn->kind == FAULT) {
		bool user = last && !(last->vaddr >> 63);

		if (last && (last->kind == RETURN || last->kind == SYSRET))
			retire(last);
		enter(user ? last : NULL, false);
	} else if (insn->kind == STUB || insn->kind == INTERRUPT) {
		bool string = last && last->kind == STRING;

		if (!string)
			retire(last);
		enter(string ? last : NULL, true);
	} else {
		retire(last);
		if (returned) {
			struct insn *goes_on = stack[--depth].goes_on;

			if (goes_on != insn)
				retire(goes_on);
		}
	}
}

static void on_start(unsigned int vcpu, void *userdata)
{
	struct insn *insn = userdata;

	(void)vcpu;
	if (insn == last && insn->kind == STRING)
		return;
	if (!stub)
		settle(insn);
	stub = insn->kind == STUB || (stub && insn->kind != INTERRUPT);
	switched |= insn->kind == SWITCH;
	if (insn->kind == BEGIN) {
		open_window = true;
		switched = false;
		bytes = depth = 0;
	} else if (insn->kind == END && open_window) {
		finish(insn);
		open_window = false;
	}
	last = insn;
}

static void on_store(unsigned int vcpu, uint32_t info, uint64_t vaddr, void *userdata)
{
	(void)vcpu;
	(void)vaddr;
	(void)userdata;
	if (open_window && !is_left_out())
		bytes += 1u << qemu_plugin_mem_size_shift(info);
}

static enum kind kind_of(uint64_t vaddr, const uint8_t *code, size_t size, unsigned int *phase)
{
	uint32_t operand;
	size_t i;

	if (size == 7 && !memcmp(code, "\x0f\x1f\x80", 3)) {
		memcpy(&operand, code + 3, 4);
		*phase = operand & 0xff;
		if (operand >> 8 == 0x6b6401)
			return BEGIN;
		if (operand >> 8 == 0x6b6402)
			return END;
	}
	if (size == 2 && !memcmp(code, "\x48\xcf", 2))
		return RETURN;
	if (size == 3 && !memcmp(code, "\x48\x0f\x07", 3))
		return SYSRET;
	for (i = 0; i < event_count; i++)
		if (vaddr >= events[i].start && vaddr < events[i].end)
			switch (events[i].bits) {
			case 1: return INTERRUPT;
			case 2: return FAULT;
			case 4: return SWITCH;
			case 16: return STUB;
			}
	/* rep, with or without REX.W or a prefix of 16 bits, movs or stos */
	if (size >= 2 && size <= 4 && (code[0] == 0xf3 || code[0] == 0x66) &&
	    ((code[size - 1] & 0xfe) == 0xa4 || (code[size - 1] & 0xfe) == 0xaa) &&
	    memchr(code, 0xf3, size))
		return STRING;
	return PLAIN;
}

static struct insn *insn_at(uint64_t vaddr, enum kind kind, unsigned int phase)
{
	struct insn **bucket = &buckets[(vaddr ^ vaddr >> 18) % BUCKETS], *insn;

	for (insn = *bucket; insn; insn = insn->next)
		if (insn->vaddr == vaddr && insn->kind == kind && insn->phase == phase)
			return insn;
	insn = calloc(1, sizeof(*insn));
	if (!insn)
		abort();
	*insn = (struct insn){ vaddr, kind, phase, 0, *bucket };
	return *bucket = insn;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t vaddr = qemu_plugin_insn_vaddr(insn);
		uint8_t code[16] = { 0 };
		unsigned int phase = 0;
		size_t size = qemu_plugin_insn_data(insn, code, sizeof(code));
		enum kind kind = kind_of(vaddr, code, size, &phase);

		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_start, QEMU_PLUGIN_CB_NO_REGS,
						       insn_at(vaddr, kind, phase));
		if (kind == STRING)
			qemu_plugin_register_vcpu_mem_cb(insn, on_store, QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_W, NULL);
	}
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	unsigned long long start, end;
	unsigned int bits;
	FILE *file;

	if (argc != 2 || strncmp(argv[0], "out=", 4) || strncmp(argv[1], "events=", 7) ||
	    info->system.max_vcpus != 1)
		return -1;
	out = fopen(argv[0] + 4, "we");
	file = fopen(argv[1] + 7, "re");
	if (!out || !file)
		return -1;
	while (event_count < sizeof(events) / sizeof(events[0]) &&
	       fscanf(file, "%u %llx %llx %*s", &bits, &start, &end) == 3) {
		events[event_count].start = start;
		events[event_count].end = end;
		events[event_count++].bits = bits;
	}
	fclose(file);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	return 0;
}
