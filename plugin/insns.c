// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kdelta's QEMU TCG plugin: how often was each instruction executed between two marks?
 *
 * Marks are no-op instructions with a magic operand, seen when a block is translated, so the
 * same binary runs unmarked on hardware.  BEGIN opens a window on the vCPU that executes it, END
 * closes it; only that vCPU's instructions are counted.  ARM (executed once, after the set-up) makes
 * QEMU translate everything anew with counters; until then the guest runs at full TCG speed.
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
 * Output: a stream of little-endian 64-bit words.  Each record is its kind, the number of words
 * behind that, and these, documented where they are emitted; kdelta.attribution.insns reads it.
 * Every window is flushed when it closes, so that nothing measured is lost when the guest dies.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "insn_bytes.h"
#include "qemu_api.h"
#include "straight.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = KDELTA_API;

#define FORMAT_MAGIC 0x3230544c45444b00ULL /* "\0KDELT02" as little-endian bytes */

#define CHUNK_SLOTS 16384u
#define MAX_CHUNKS 256u
#define MAX_VCPUS 256u
#define MAX_WINDOWS 1000000u
#define MAX_BLOCK 512u /* instructions */
#define BLOCK_BUCKETS 65536u
#define MAX_EVENTS 1024u
#define SEEN_BITS (1u << 22)

enum mark_op { MARK_BEGIN = 1, MARK_END = 2, MARK_ARM = 3 };

enum record {
	RECORD_HEADER = 1,
	RECORD_WINDOW = 2,
	RECORD_ERROR = 3,
	RECORD_ARMED = 4,
	RECORD_END = 5,
	RECORD_STRINGS = 6,
	RECORD_CODE = 7,
	RECORD_CONTEXTS = 8,
	RECORD_CALLS = 9,
	RECORD_BYTES = 10,
	RECORD_PAGES = 11,
	RECORD_LINES = 12,
	RECORD_ARGUMENTS = 13,
};

enum mark_error {
	ERROR_NESTED_BEGIN = 1,	  /* BEGIN while a window is open on this vCPU */
	ERROR_END_WITHOUT_BEGIN = 2,  /* END, but no window is open on this vCPU */
	ERROR_PHASE = 3,		  /* END of another phase than the open one */
	ERROR_NOT_ARMED = 4,	  /* BEGIN before ARM took effect, or behind the last window */
	ERROR_TOO_MANY_SLOTS = 5,	  /* more code than MAX_CHUNKS holds: counts would be short */
	ERROR_TOO_MANY_WINDOWS = 6,
	ERROR_LOST_STRING = 7, /* a string instruction was left where no entry is known */
	ERROR_TOO_MANY_PATHS = 8,
	ERROR_TOO_MUCH_MEMORY = 9,
	ERROR_TOO_MANY_VALUES = 10,
};

/* What the address of an instruction means beside its count; bits, in the file events= too. */
enum event {
	EVENT_INTERRUPT = 1, /* first instruction of an asynchronous entry */
	EVENT_EXCEPTION = 2, /* first instruction of a synchronous entry */
	EVENT_SWITCH = 4,    /* the vCPU goes from the task in its first argument to the next's */
	EVENT_RETURN = 8,    /* a return from interrupt or exception; found by its encoding */
	EVENT_STUB = 16,     /* of a few instructions that lead to an asynchronous entry */
	EVENT_NEW_TASK = 32, /* the task in its first argument is woken for the first time */
	EVENT_TRAP = 64, /* first instruction of an entry of both kinds, which a register tells apart */
};

/*
 * Registers that are read: arguments, rounds of a string instruction, the stack's, the result; why a
 * trap was taken, and where the firmware's begin.
 */
enum register_index {
	REGISTER_FIRST,
	REGISTER_SECOND,
	REGISTER_COUNT = 6,
	REGISTER_STACK,
	REGISTER_RESULT,
	REGISTER_CAUSE,
	REGISTER_FIRMWARE,
	REGISTERS,
};

/* An instruction that is counted: its address, its bytes and, in the last one, their number. */
struct place {
	uint64_t vaddr;
	uint8_t bytes[MAX_INSN_BYTES];
};

/* Counters, and the addresses of what retires as often as each says. */
struct chunk {
	struct qemu_plugin_scoreboard *score; /* CHUNK_SLOTS counters a vCPU */
	uint32_t used;
	uint32_t first[CHUNK_SLOTS]; /* of its instructions in state.place */
	uint16_t insns[CHUNK_SLOTS];
	bool told[CHUNK_SLOTS]; /* its CODE record is written */
	uint32_t how[CHUNK_SLOTS]; /* of an instruction with a meaning, see calls_come() */
};

struct block {
	uint64_t hash; /* of its addresses and its code */
	uint32_t slot; /* of its first group */
	struct block *next;
};

/*
 * A block cut up: segments of instructions that start together, and of each the group of those
 * that retire together, which lies one instruction earlier; see the top of the file.
 */
struct cut {
	size_t insns;
	struct code code[MAX_BLOCK];
	unsigned int mark[MAX_BLOCK]; /* code, 0: none */
	unsigned int event[MAX_BLOCK]; /* bits */
	bool string[MAX_BLOCK];
	enum access access; /* of the last one */
	uint16_t segment[MAX_BLOCK]; /* of an instruction */
	uint16_t segments;
	bool watched[MAX_BLOCK]; /* for calls, see calls_note() */
	uint32_t how[MAX_BLOCK];
};

/* All counters of one vCPU at one moment, chunks side by side. */
struct snapshot {
	uint64_t *counts;
	uint32_t chunks;
};

struct vcpu {
	struct qemu_plugin_register *registers[REGISTERS];
	bool open;
	bool switched; /* to another task: we do not know whose, or a tick made it; see gave_way() */
	bool stub; /* an interrupt has begun, and is on its way to the kernel's entry */
	bool out; /* what runs is left out of the window */
	bool owned; /* the task that runs is the workload's */
	unsigned int phase;
	unsigned int depth; /* of entries inside the interrupt that is being left out; 0: none */
	uint64_t interrupts;
	struct task *task; /* that runs, NULL: not known yet */
	struct task *idle; /* the one that ran when the guest was restored */
	struct snapshot base; /* when the window opened, plus what was left out since */
	struct snapshot left; /* when what is left out began */
};

static struct {
	qemu_plugin_id_t id;
	FILE *out;
	pthread_mutex_t lock;
	enum target target;
	const char *const *register_names;
	GByteArray *value; /* of a register */
	unsigned int vcpus;
	uint64_t firmware; /* where it is entered; 0: there is none, or it is not known yet */
	bool armed;
	bool done; /* all windows that were told have closed */
	bool overflow;
	bool lost_string;
	bool lost_tasks; /* there were too many */
	bool new_tasks; /* the kernel says where it makes them */
	uint64_t windows;
	uint64_t windows_told; /* how many there will be, 0: not known */
	struct chunk *chunks[MAX_CHUNKS];
	uint32_t chunk_count;
	struct place *place; /* of all groups */
	size_t place_count, place_room;
	struct block *blocks[BLOCK_BUCKETS];
	uint8_t seen[SEEN_BITS / 8]; /* hashed addresses of translated instructions */
	struct cut cut; /* the block being translated */
	struct vcpu vcpu[MAX_VCPUS];
	struct event_range {
		uint64_t start, end; /* addresses; the end is the first behind */
		unsigned int bits;
	} event[MAX_EVENTS]; /* by address */
	uint32_t event_count;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void die(const char *what)
{
	fprintf(stderr, "kdelta plugin: %s\n", what);
	abort();
}

static void *grown(void *memory, size_t count, size_t size)
{
	memory = realloc(memory, count * size);
	if (!memory)
		die("out of memory");
	return memory;
}

static void *allocate(size_t size)
{
	return memset(grown(NULL, 1, size), 0, size);
}

static void emit_words(const uint64_t *words, size_t count)
{
	if (count && fwrite(words, sizeof(*words), count, state.out) != count)
		die("cannot write the counts: is the disk full?");
}

static void emit(enum record kind, const uint64_t *words, size_t count)
{
	const uint64_t head[] = { kind, count };

	emit_words(head, 2);
	emit_words(words, count);
}

static void flush(void)
{
	if (fflush(state.out))
		die("cannot write the counts: is the disk full?");
}

/* ERROR: error, vcpu, phase */
static void emit_error(enum mark_error error, unsigned int vcpu, unsigned int phase)
{
	const uint64_t words[] = { error, vcpu, phase };

	emit(RECORD_ERROR, words, 3);
	flush();
}

static uint64_t *counters(const struct chunk *chunk, unsigned int vcpu)
{
	return qemu_plugin_scoreboard_find(chunk->score, vcpu);
}

static uint64_t *counter(uint32_t slot, unsigned int vcpu)
{
	return counters(state.chunks[slot / CHUNK_SLOTS], vcpu) + slot % CHUNK_SLOTS;
}

#include "registers.h"

static struct chunk *chunk_new(void)
{
	struct chunk *chunk;

	if (state.chunk_count == MAX_CHUNKS) {
		state.overflow = true;
		return NULL;
	}
	chunk = allocate(sizeof(*chunk));
	chunk->score = qemu_plugin_scoreboard_new(CHUNK_SLOTS * sizeof(uint64_t));
	chunk->used = !state.chunk_count; /* slot 0 stays unused: 0 means "no slot" */
	state.chunks[state.chunk_count++] = chunk;
	return chunk;
}

/* The first of some free slots side by side, 0 when there is no room. */
static uint32_t slots_reserve(size_t count)
{
	struct chunk *chunk = state.chunk_count ? state.chunks[state.chunk_count - 1] : NULL;
	uint32_t slot;

	if (!chunk || chunk->used + count > CHUNK_SLOTS)
		chunk = chunk_new();
	if (!chunk)
		return 0;
	slot = (state.chunk_count - 1) * CHUNK_SLOTS + chunk->used;
	chunk->used += count;
	return slot;
}

/* An instruction retires as often as the slot counts; all of a slot in a row. */
static void slot_report(uint32_t slot, const struct code *code)
{
	struct chunk *chunk = state.chunks[slot / CHUNK_SLOTS];
	struct place *place;

	if (state.place_count == state.place_room) {
		state.place_room = state.place_room * 2 + 4096;
		state.place = grown(state.place, state.place_room, sizeof(*state.place));
	}
	if (!chunk->insns[slot % CHUNK_SLOTS]++)
		chunk->first[slot % CHUNK_SLOTS] = state.place_count;
	place = &state.place[state.place_count++];
	place->vaddr = code->vaddr;
	memcpy(place->bytes, code->bytes, MAX_INSN_BYTES);
	place->bytes[MAX_INSN_BYTES - 1] = code->size;
}

static uint32_t seen_bit(uint64_t vaddr)
{
	return (vaddr * 0x9e3779b97f4a7c15ULL >> 40) % SEEN_BITS;
}

/* Was an instruction at this address translated?  Sometimes yes for one that was not. */
static bool seen_find(uint64_t vaddr)
{
	return state.seen[seen_bit(vaddr) / 8] >> seen_bit(vaddr) % 8 & 1;
}

/* What a slot stands for has begun once more. */
static void count_once(uint32_t slot, unsigned int vcpu);

#include "tasks.h"
#include "calls.h"
#include "memory.h"
#include "arguments.h"
#include "rep_strings.h"

static void count_once(uint32_t slot, unsigned int vcpu)
{
	++*counter(slot, vcpu);
	if (calls.wanted)
		*calls_total(vcpu) += state.chunks[slot / CHUNK_SLOTS]->insns[slot % CHUNK_SLOTS];
}

#include "snapshots.h"

/* From now on what runs is counted, or left out, as the vCPU's state says. */
static void window_update(unsigned int index)
{
	struct vcpu *vcpu = &state.vcpu[index];
	bool out = vcpu->depth || vcpu->stub || is_foreign(vcpu);

	if (!vcpu->open || vcpu->out == out)
		return;
	calls_settle(index);
	calls_lose(index);
	vcpu->out = out;
	if (out)
		snapshot_take(&vcpu->left, index);
	else
		snapshot_drop(index);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
static void on_exit_qemu(qemu_plugin_id_t id, void *userdata);

/*
 * Nothing that is translated behind the last window can be counted: QEMU then translates as it does
 * without us.  A window that comes nevertheless is an error, see window_open().
 */
static void finish(void)
{
	state.armed = false;
	state.done = true;
	qemu_plugin_register_vcpu_tb_trans_cb(state.id, NULL);
}

static void window_open(unsigned int index, unsigned int phase)
{
	struct vcpu *vcpu = &state.vcpu[index];

	if (vcpu->open)
		emit_error(ERROR_NESTED_BEGIN, index, phase);
	if (!state.armed)
		emit_error(ERROR_NOT_ARMED, index, phase);
	snapshot_take(&vcpu->base, index);
	vcpu->open = true;
	vcpu->switched = vcpu->stub = vcpu->out = false;
	vcpu->depth = 0; /* a mark is no part of an interrupt */
	vcpu->interrupts = 0;
	vcpu->phase = phase;
	calls_open(index);
	memory_open();
	arguments_open();
}

/*
 * Before the first window that counts it, CODE: slot, addresses of what retires as often as it says;
 * BYTES: slot, then of each of these two words of bytes, of which the last one is their number.
 */
static void emit_code(uint32_t slot)
{
	struct chunk *chunk = state.chunks[slot / CHUNK_SLOTS];
	uint32_t at = slot % CHUNK_SLOTS;
	const struct place *place = state.place + chunk->first[at];
	const uint64_t code[] = { RECORD_CODE, 1 + chunk->insns[at], slot };
	const uint64_t bytes[] = { RECORD_BYTES, 1 + 2ul * chunk->insns[at], slot };

	chunk->told[at] = true;
	emit_words(code, 3);
	for (unsigned int i = 0; i < chunk->insns[at]; i++)
		emit_words(&place[i].vaddr, 1);
	emit_words(bytes, 3);
	for (unsigned int i = 0; i < chunk->insns[at]; i++) {
		uint64_t words[2];

		memcpy(words, place[i].bytes, sizeof(words));
		emit_words(words, 2);
	}
}

/*
 * WINDOW: vcpu, phase, user, kernel, interrupts left out, switched (0 or 1), then rows of (slot,
 * count).  user and kernel are instructions, over all rows.
 */
static void emit_window(unsigned int index)
{
	enum { USER = 2, KERNEL = 3, HEAD = 6 };
	const struct vcpu *vcpu = &state.vcpu[index];
	uint64_t *words = grown(NULL, HEAD + 2ul * CHUNK_SLOTS * state.chunk_count, sizeof(*words));
	size_t count = HEAD;

	memcpy(words, (uint64_t[HEAD]){ index, vcpu->phase, 0, 0, vcpu->interrupts, vcpu->switched },
	       HEAD * sizeof(*words));
	for (uint32_t i = 0; i < state.chunk_count; i++) {
		const struct chunk *chunk = state.chunks[i];
		const uint64_t *now = counters(chunk, index);
		const uint64_t *base = vcpu->base.counts + (size_t)i * CHUNK_SLOTS;

		for (uint32_t at = 0; at < chunk->used; at++) {
			if (now[at] == base[at] || !chunk->insns[at])
				continue;
			if (!chunk->told[at])
				emit_code(i * CHUNK_SLOTS + at);
			words[is_kernel(state.place[chunk->first[at]].vaddr) ? KERNEL : USER] +=
				(now[at] - base[at]) * chunk->insns[at];
			words[count++] = i * CHUNK_SLOTS + at;
			words[count++] = now[at] - base[at];
		}
	}
	emit_strings(index);
	emit_calls();
	emit_memory();
	emit_arguments();
	emit(RECORD_WINDOW, words, count);
	flush();
	free(words);
}

static void window_close(unsigned int index, unsigned int phase)
{
	struct vcpu *vcpu = &state.vcpu[index];

	if (!vcpu->open) {
		emit_error(ERROR_END_WITHOUT_BEGIN, index, phase);
		return;
	}
	calls_settle(index);
	vcpu->open = false;
	if (vcpu->phase != phase) {
		emit_error(ERROR_PHASE, index, phase);
		return;
	}
	if (state.overflow || state.lost_string) {
		emit_error(state.overflow ? ERROR_TOO_MANY_SLOTS : ERROR_LOST_STRING, index, phase);
		return;
	}
	if (calls.overflow) {
		emit_error(ERROR_TOO_MANY_PATHS, index, phase);
		return;
	}
	if (memory.overflow || arguments.overflow) {
		emit_error(memory.overflow ? ERROR_TOO_MUCH_MEMORY : ERROR_TOO_MANY_VALUES, index,
			   phase);
		return;
	}
	if (state.windows++ >= MAX_WINDOWS) {
		emit_error(ERROR_TOO_MANY_WINDOWS, index, phase);
		return;
	}
	snapshot_cover(&vcpu->base);
	emit_window(index);
	if (state.windows == state.windows_told)
		finish();
}

/* A reset: all vCPUs are stopped, the translation cache is empty, and so is our registration. */
static void on_reset(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit_qemu, NULL);
}

/* ARMED: no words */
static void on_armed(qemu_plugin_id_t id)
{
	state.armed = true;
	emit(RECORD_ARMED, NULL, 0);
	flush();
	on_reset(id);
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
	if (vcpu->task)
		tasks_own(vcpu->task);
	vcpu->owned = true;
	if (code >> 8 == MARK_BEGIN)
		window_open(index, phase);
	else if (code >> 8 == MARK_END)
		window_close(index, phase);
	else if (code >> 8 == MARK_ARM && !state.armed && !state.done) {
		if (state.register_names[REGISTER_FIRMWARE])
			state.firmware = register_value(index, REGISTER_FIRMWARE) & ~3ULL;
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

/*
 * An instruction with a meaning is about to execute.  It counts itself here, so that an entry
 * belongs to what it enters, and a return to what it leaves.
 */
static void on_event(unsigned int index, void *userdata)
{
	unsigned int event = (uintptr_t)userdata & 0xff;
	uint32_t slot = (uintptr_t)userdata >> 8;
	struct vcpu *vcpu = &state.vcpu[index];

	if (index >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	if (event & EVENT_TRAP)
		event = register_value(index, REGISTER_CAUSE) >> 63 ? EVENT_INTERRUPT :
								      EVENT_EXCEPTION;
	if (event & (EVENT_INTERRUPT | EVENT_EXCEPTION | EVENT_STUB))
		string_leave(index);
	if (event & EVENT_RETURN) {
		if (slot && calls.wanted)
			calls_come(index, state.chunks[slot / CHUNK_SLOTS]->how[slot % CHUNK_SLOTS]);
		if (slot)
			count_once(slot, index);
		slot = 0;
		if (vcpu->open && !vcpu->out)
			memory_leave();
		returned(vcpu);
	} else if (event & EVENT_SWITCH) {
		bool counted = !is_foreign(vcpu) && !vcpu->depth;

		calls_leave(index, register_value(index, REGISTER_FIRST));
		task_switch(vcpu, register_value(index, REGISTER_FIRST),
			    register_value(index, REGISTER_SECOND));
		vcpu->switched |= !tasks_are_told() || (counted && gave_way(vcpu));
	} else if (event & EVENT_NEW_TASK) {
		task_new(vcpu, register_value(index, REGISTER_FIRST));
	} else if (!(event & EVENT_STUB)) {
		entered(vcpu, event & EVENT_INTERRUPT);
	}
	vcpu->stub = event & EVENT_STUB && !vcpu->depth;
	window_update(index);
	if (slot && calls.wanted)
		calls_come(index, state.chunks[slot / CHUNK_SLOTS]->how[slot % CHUNK_SLOTS]);
	if (slot)
		count_once(slot, index);
	pthread_mutex_unlock(&state.lock);
}

#include "blocks.h"

static void watch_insn(struct qemu_plugin_insn *insn, const struct cut *cut, size_t i, uint32_t first)
{
	uintptr_t slot = first ? first + cut->segment[i] : 0;
	bool begins = !i || cut->segment[i] != cut->segment[i - 1];

	if (calls.wanted && slot && cut->event[i])
		state.chunks[slot / CHUNK_SLOTS]->how[slot % CHUNK_SLOTS] = cut->how[i];
	if (cut->mark[i] && slot)
		calls_watch(insn, cut, i);
	if (cut->mark[i])
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_R_REGS,
						       (void *)(slot << 12 | cut->mark[i]));
	else if (cut->event[i])
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_event, QEMU_PLUGIN_CB_R_REGS,
						       (void *)(slot << 8 | cut->event[i]));
	else if (slot && begins)
		count_starts(insn, cut, i, slot);
	if (slot && i + 1 == cut->insns && cut->access)
		count_accesses(insn, cut->access, first + cut->segments);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	struct cut *cut = &state.cut;
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
		state.seen[seen_bit(vaddr) / 8] |= 1 << seen_bit(vaddr) % 8;
	}
	if (state.armed && cut->insns)
		slot = block_slots(cut);
	for (i = 0; i < cut->insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (state.armed)
			memory_watch(insn, &cut->code[i]);
		if (state.armed)
			arguments_watch(insn, &cut->code[i]);
		watch_insn(insn, cut, i, slot);
	}
	again = strings.translate_again;
	strings.translate_again = false;
	pthread_mutex_unlock(&state.lock);
	if (again)
		qemu_plugin_reset(id, on_reset);
}

/* END: windows, slots */
static void on_exit_qemu(qemu_plugin_id_t id, void *userdata)
{
	const uint64_t words[] = { state.windows, (uint64_t)state.chunk_count * CHUNK_SLOTS };

	(void)id;
	(void)userdata;
	emit(RECORD_END, words, 2);
	flush();
}

/* HEADER: magic, interface version built for, interface version of this QEMU, vCPUs */
static void emit_header(const qemu_info_t *info)
{
	const uint64_t words[] = { FORMAT_MAGIC, KDELTA_API, info->version.cur, state.vcpus };

	emit(RECORD_HEADER, words, 4);
	flush();
}

#include "options.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	if (find_target(info) || read_options(argc, argv))
		return -1;
	state.id = id;
	state.vcpus = info->system.max_vcpus;
	state.value = g_byte_array_new();
	strings.score = qemu_plugin_scoreboard_new(MAX_STRINGS * sizeof(uint64_t));
	emit_header(info);
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu);
	on_reset(id);
	return 0;
}
