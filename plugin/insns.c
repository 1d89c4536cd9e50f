// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kdelta's QEMU TCG plugin: how often was each instruction executed between two marks?
 *
 * Marks are no-op instructions with a magic operand, seen when a block is translated, so the
 * same binary runs unmarked on hardware.  BEGIN opens a window on the vCPU that executes it, END
 * closes it; only that vCPU's instructions are counted.  ARM (executed once, after the set-up) makes
 * QEMU translate everything anew with counters; until then the guest runs at full TCG speed, and again
 * behind the last window, see translations.h.
 *
 * What is counted is instructions *retired*.  A counter counts starts, and an instruction that
 * faults is started twice and retires once.  The next instruction of the same translated block
 * starts only when this one has retired, so its starts are this one's retirements.  (Counting
 * blocks times their length would charge a whole block to a fault in its middle.)  The last of a
 * block has no successor: it is counted by its access to memory, which it makes last, or where it
 * makes none, or one that we do not know, by its starts.  Instructions that always go straight on,
 * see straight.h, start as often as their successor: a whole run of them shares one counter, a
 * slot, which is reported with the addresses that retired as often as it says.
 *
 * A REP string instruction counts once, see rep_strings.h.
 *
 * Interrupts are left out of a window: a timer tick belongs to the clock, not to the path.  The
 * addresses where the kernel enters interrupts and exceptions come in the file events=; from the
 * entry of an interrupt to the return that matches it, everything is taken off the window, and so
 * are the instructions of the vector's stub, where a kernel comes to that entry through one, and
 * firmware.  So is what runs while the vCPU is given to a task that is not the workload's, see
 * tasks.h.
 *
 * What comes out is described in stream.h.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arguments.h"
#include "behind.h"
#include "blocks.h"
#include "calls.h"
#include "events.h"
#include "memory.h"
#include "options.h"
#include "mappings.h"
#include "outside.h"
#include "pointed.h"
#include "qemu_api.h"
#include "registers.h"
#include "rep_strings.h"
#include "sharing.h"
#include "slots.h"
#include "state.h"
#include "stream.h"
#include "syscalls.h"
#include "tasks.h"
#include "touched.h"
#include "translations.h"
#include "windows.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = KDELTA_API;

#define FORMAT_MAGIC 0x3230544c45444b00ULL /* "\0KDELT02" as little-endian bytes */

enum mark_op {
	MARK_BEGIN = 1,
	MARK_END = 2,
	MARK_ARM = 3,
	MARK_MAIN = 4, /* the program starts; the first argument's register says where its vDSO is */
	MARK_LEAVE = 5, /* what follows, up to BACK, is none of its own: see outside.h */
	MARK_BACK = 6,
};

struct plugin state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
static void on_exit_qemu(qemu_plugin_id_t id, void *userdata);

/* A reset: all vCPUs are stopped, the translation cache is empty, and so is our registration. */
static void on_reset(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit_qemu, NULL);
}

/* ARMED: no words */
static void arm(void)
{
	state.armed = true;
	emit(RECORD_ARMED, NULL, 0);
	emit_flush();
}

static void on_armed(qemu_plugin_id_t id)
{
	arm();
	on_reset(id);
}

static void hush(unsigned int index, enum mark_op op)
{
	unsigned int *hushed = &calls_of_task(index)->hushed;

	if (op == MARK_MAIN) {
		mappings_begin(register_value(index, REGISTER_FIRST),
			       register_value(index, REGISTER_STACK));
		vector_begin(index, register_value(index, REGISTER_FIRST));
	}
	if (op == MARK_MAIN && state.vcpu[index].task)
		tasks_alone(state.vcpu[index].task);
	*hushed = op == MARK_MAIN ? 0 : op == MARK_LEAVE ? *hushed + 1 : *hushed - !!*hushed;
}

static void on_mark(unsigned int index, void *userdata)
{
	unsigned int code = (uintptr_t)userdata & 0xfff;
	uint32_t slot = (uintptr_t)userdata >> 12;
	unsigned int phase = code & 0xff;
	struct vcpu *vcpu = &state.vcpu[index];

	if (index >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	/* What is in front of it retires as often as it starts; it is never reported itself. */
	if (slot)
		count_once(slot, index);
	for (unsigned int i = 0; i < state.vcpus; i++)
		outside_settle(i);
	if (vcpu->task)
		tasks_own(vcpu->task);
	vcpu->owned = true;
	if (code >> 8 <= MARK_ARM)
		behind_mark(index, code >> 8 == MARK_BEGIN);
	else
		hush(index, code >> 8);
	if (code >> 8 == MARK_BEGIN)
		window_open(index, phase);
	else if (code >> 8 == MARK_END)
		window_close(index, phase);
	else if (code >> 8 == MARK_ARM && !state.armed && !windows_done()) {
		if (register_exists(REGISTER_FIRMWARE))
			events_firmware(register_value(index, REGISTER_FIRMWARE) & ~3ULL);
		if (translations_change())
			arm();
		else
			qemu_plugin_reset(state.id, on_armed);
	}
	pthread_mutex_unlock(&state.lock);
}

/* An entry of the kernel, at its first instruction. */
static void entered(struct vcpu *vcpu, bool interrupt)
{
	if (!vcpu->depth && !interrupt)
		return;
	vcpu->interrupts += !vcpu->depth && vcpu->open && !is_foreign(vcpu);
	vcpu->depth++;
}

static void returned(struct vcpu *vcpu)
{
	if (vcpu->depth)
		vcpu->depth--;
}

/* An instruction with a meaning counts itself. */
static void count_event(uint32_t slot, unsigned int index)
{
	if (!slot)
		return;
	calls_come_to(index, slot);
	count_once(slot, index);
}

/*
 * An instruction with a meaning is about to execute.  It counts itself here, so that an entry
 * belongs to what it enters, and a return to what it leaves.
 */
static void on_event(unsigned int index, void *userdata)
{
	unsigned int event = (uintptr_t)userdata & ((1u << EVENT_WORD_BITS) - 1);
	unsigned int vector = event >> EVENT_BITS;
	uint32_t slot = (uintptr_t)userdata >> EVENT_WORD_BITS;
	struct vcpu *vcpu = &state.vcpu[index];

	if (index >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	behind_settle(index);
	outside_settle(index);
	if (event & EVENT_TRAP)
		event = register_value(index, REGISTER_CAUSE) >> 63 ? EVENT_INTERRUPT :
								      EVENT_EXCEPTION;
	if (event & EVENT_EXCEPTION)
		syscalls_exception(index, vector);
	if (event & (EVENT_INTERRUPT | EVENT_EXCEPTION | EVENT_STUB))
		string_leave(index);
	if (event & EVENT_RETURN) {
		count_event(slot, index);
		slot = 0;
		if (vcpu->open && !vcpu->out)
			memory_leave();
		if (!vcpu->depth)
			syscalls_go_on(index);
		returned(vcpu);
	} else if (event & EVENT_SWITCH) {
		bool counted = !is_foreign(vcpu) && !vcpu->depth;

		calls_leave(index, register_value(index, REGISTER_FIRST));
		task_switch(vcpu, register_value(index, REGISTER_FIRST),
			    register_value(index, REGISTER_SECOND));
		vcpu->switched |= !tasks_are_told() || (counted && gave_way(vcpu));
	} else if (event & EVENT_NEW_TASK) {
		task_new(vcpu, register_value(index, REGISTER_FIRST));
	} else if (event & EVENT_WAKE) {
		if (vcpu->open && !vcpu->out)
			vcpu->wakes += task_is_others(register_value(index, REGISTER_FIRST));
	} else if (event & EVENT_ANSWER) {
		syscalls_answer(index, -(int32_t)register_value(index, REGISTER_FIRST + 2));
	} else if (state.armed && !(event & EVENT_STUB)) {
		entered(vcpu, event & EVENT_INTERRUPT);
	}
	vcpu->stub = event & EVENT_STUB && !vcpu->depth;
	window_update(index);
	count_event(slot, index);
	pthread_mutex_unlock(&state.lock);
}

static void watch_insn(struct qemu_plugin_insn *insn, const struct cut *cut, size_t i, uint32_t first)
{
	uintptr_t slot = first ? first + cut->segment[i] : 0;
	bool begins = !i || cut->segment[i] != cut->segment[i - 1];

	if (calls_wanted() && slot && cut->event[i])
		*slot_how(slot) = cut->how[i];
	if (cut->mark[i] && slot)
		calls_watch(insn, cut, i);
	if (cut->mark[i])
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_R_REGS,
						       (void *)(slot << 12 | cut->mark[i]));
	else if (cut->event[i])
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_event, QEMU_PLUGIN_CB_R_REGS,
						       (void *)(slot << EVENT_WORD_BITS |
								cut->event[i]));
	else if (slot && begins)
		count_starts(insn, cut, i, slot);
	if (slot && i + 1 == cut->insns && cut->access)
		count_accesses(insn, cut->access, first + cut->segments);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	static struct cut translated; /* the block being translated */
	struct cut *cut = &translated;
	uint32_t slot = 0;
	bool again;
	size_t i;

	pthread_mutex_lock(&state.lock);
	cut_block(cut, tb);
	for (i = 0; state.armed && i < cut->insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t vaddr = cut->code[i].vaddr;

		string_watch(insn, vaddr);
		cut->string[i] = string_note(insn, &cut->code[i]);
		seen_note(vaddr);
	}
	if (state.armed && cut->insns)
		slot = block_slots(cut);
	for (i = 0; i < cut->insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (state.armed)
			memory_watch(insn, &cut->code[i]);
		if (state.armed)
			arguments_watch(insn, &cut->code[i]);
		if (state.armed || outside_wanted())
			syscalls_watch(insn, &cut->code[i], !i);
		if (state.armed && !i)
			behind_watch(insn, &cut->code[i], cut->insns);
		if (!i)
			outside_watch(insn, &cut->code[i], cut->insns);
		touched_watch(insn, &cut->code[i],
			      !i || (cut->code[i].vaddr ^ cut->code[i - 1].vaddr) >> 12);
		watch_insn(insn, cut, i, slot);
	}
	again = strings_translate_again();
	pthread_mutex_unlock(&state.lock);
	if (again)
		qemu_plugin_reset(id, on_reset);
}

/* END: windows, slots */
static void on_exit_qemu(qemu_plugin_id_t id, void *userdata)
{
	const uint64_t words[] = { windows_count(), (uint64_t)chunks_count() * CHUNK_SLOTS };

	(void)id;
	(void)userdata;
	emit(RECORD_END, words, 2);
	emit_flush();
}

/* HEADER: magic, interface version built for, interface version of this QEMU, vCPUs */
static void emit_header(const qemu_info_t *info)
{
	const uint64_t words[] = { FORMAT_MAGIC, KDELTA_API, info->version.cur, state.vcpus };

	emit(RECORD_HEADER, words, 4);
	emit_flush();
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	state.vcpus = info->system.max_vcpus;
	if (target_find(info) || options_read(argc, argv) ||
	    (sharing_wanted() && state.vcpus > MAX_SHARING))
		return -1;
	state.id = id;
	strings_begin();
	syscalls_begin();
	behind_begin();
	outside_begin();
	pointed_begin();
	emit_header(info);
	qemu_plugin_register_vcpu_init_cb(id, registers_find);
	on_reset(id);
	return 0;
}
