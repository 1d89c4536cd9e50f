// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kdelta's QEMU TCG plugin: how often was each instruction executed between two marks?
 *
 * Marks are no-op instructions with a magic operand, seen when a block is translated, so the
 * same binary runs unmarked on hardware.  BEGIN opens a window on the vCPU that executes it, END
 * closes it; only that vCPU's instructions are counted.  ARM (executed once, after the set-up) makes
 * QEMU translate everything anew with counters; until then the guest runs at full TCG speed.
 *
 * What is counted is instructions *retired*.  The counter of an instruction counts starts: one
 * that faults is started twice and retires once.  The next instruction of the same translated
 * block starts only when this one has retired, so its counter is this one's retirements; only
 * the last of a block has no successor and is reported as started.  (Counting blocks times their
 * length would charge a whole block to a fault in its middle.)
 *
 * What QEMU before 8.1 announces and never runs is left out, see phantoms.h.  QEMUs differ in how
 * they count the rounds of REP instructions; how often one was executed to its end is told apart
 * from the counts, see rep_strings.h.
 *
 * Interrupts are left out of a window: a timer tick belongs to the clock, not to the path.  The
 * addresses where the kernel enters interrupts and exceptions come in the file events=; from the
 * entry of an interrupt to the return that matches it, everything is taken off the window, and so
 * are the instructions of the vector's stub, where a kernel comes to that entry through one.  A
 * window in which the vCPU switched to another task is flagged.
 *
 * Output: a stream of little-endian 64-bit words, documented at emit_*() below, read by
 * kdelta.attribution.insns.  Every window is flushed when it closes, so that nothing measured is
 * lost when the guest dies later.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "insn_bytes.h"
#include "qemu_api.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = KDELTA_API;

#define FORMAT_MAGIC 0x31574154454c444bULL /* "KDLETAW1" as little-endian bytes */

#define CHUNK_SLOTS 16384u
#define MAX_CHUNKS 1024u
#define MAX_VCPUS 256u
#define MAX_WINDOWS 1000000u
#define BLOCK_BUCKETS 65536u
#define MAX_EVENTS 1024u

enum mark_op { MARK_BEGIN = 1, MARK_END = 2, MARK_ARM = 3 };

enum record {
	RECORD_HEADER = 1,
	RECORD_WINDOW = 2,
	RECORD_ERROR = 3,
	RECORD_ARMED = 4,
	RECORD_END = 5,
	RECORD_STRINGS = 6,
};

enum mark_error {
	ERROR_NESTED_BEGIN = 1,	  /* BEGIN while a window is open on this vCPU */
	ERROR_END_WITHOUT_BEGIN = 2,  /* END, but no window is open on this vCPU */
	ERROR_PHASE = 3,		  /* END of another phase than the open one */
	ERROR_NOT_ARMED = 4,	  /* BEGIN before ARM took effect */
	ERROR_TOO_MANY_SLOTS = 5,	  /* more code than MAX_CHUNKS holds: counts would be short */
	ERROR_TOO_MANY_WINDOWS = 6,
};

/* What the address of an instruction means beside its count; bits, in the file events= too. */
enum event {
	EVENT_INTERRUPT = 1, /* first instruction of an asynchronous entry */
	EVENT_EXCEPTION = 2, /* first instruction of a synchronous entry */
	EVENT_SWITCH = 4,    /* the vCPU goes to another task */
	EVENT_RETURN = 8,    /* a return from interrupt or exception; found by its encoding */
	EVENT_STUB = 16,     /* of a few instructions that lead to an asynchronous entry */
};

enum slot_flag { SLOT_LAST = 1, SLOT_MARK = 2, SLOT_UNUSED = 4 };

/* One slot per instruction of a translated block; a block's slots lie side by side in a chunk. */
struct chunk {
	uint64_t vaddr[CHUNK_SLOTS];
	uint8_t flags[CHUNK_SLOTS];
	uint32_t used;
#if KDELTA_API >= 2
	struct qemu_plugin_scoreboard *score; /* CHUNK_SLOTS counters a vCPU */
#else
	uint64_t *starts[MAX_VCPUS];
#endif
};

struct block {
	uint64_t vaddr;
	size_t insns;
	uint64_t hash; /* of the instruction addresses: the same entry can be cut differently */
	uint32_t slot; /* of its first instruction, counted over all chunks */
	struct block *next;
};

/* All counters of one vCPU at one moment, chunks side by side. */
struct snapshot {
	uint64_t *counts;
	uint32_t chunks;
};

struct vcpu {
	bool open;
	bool switched;
	bool stub; /* an interrupt has begun, and is on its way to the kernel's entry */
	unsigned int phase;
	unsigned int depth; /* of entries inside the interrupt that is being left out; 0: none */
	uint64_t interrupts;
	struct snapshot base;	   /* when the window opened, plus what was left out since */
	struct snapshot interrupt; /* when the interrupt began */
};

static struct {
	qemu_plugin_id_t id;
	FILE *out;
	pthread_mutex_t lock;
	unsigned int vcpus;
	bool armed;
	bool overflow;
	bool x86;
	uint64_t windows;
	struct chunk *chunks[MAX_CHUNKS];
	uint32_t chunk_count;
	struct block *blocks[BLOCK_BUCKETS];
	struct vcpu vcpu[MAX_VCPUS];
	struct {
		uint64_t start, end; /* addresses; the end is the first behind */
		uint8_t bits;
	} event[MAX_EVENTS];
	uint32_t event_count;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void die(const char *what)
{
	fprintf(stderr, "kdelta plugin: %s\n", what);
	abort();
}

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		die("out of memory");
	return memory;
}

static void emit(const uint64_t *words, size_t count)
{
	if (fwrite(words, sizeof(*words), count, state.out) != count)
		die("cannot write the counts: is the disk full?");
}

static void flush(void)
{
	if (fflush(state.out))
		die("cannot write the counts: is the disk full?");
}

/* ERROR: error, vcpu, phase */
static void emit_error(enum mark_error error, unsigned int vcpu, unsigned int phase)
{
	const uint64_t words[] = { RECORD_ERROR, error, vcpu, phase };

	emit(words, 4);
	flush();
}

static uint64_t *counters(const struct chunk *chunk, unsigned int vcpu)
{
#if KDELTA_API >= 2
	return qemu_plugin_scoreboard_find(chunk->score, vcpu);
#else
	return chunk->starts[vcpu];
#endif
}

static uint64_t *counter(uint32_t slot, unsigned int vcpu)
{
	return counters(state.chunks[slot / CHUNK_SLOTS], vcpu) + slot % CHUNK_SLOTS;
}

static bool is_kernel(uint64_t vaddr)
{
	/* x86-64, arm64 and riscv64 Linux: kernel addresses are the upper half. */
	return vaddr >> 63;
}

/* Retirements of one slot inside the window: see the top of the file. */
static uint64_t retired(const struct chunk *chunk, const uint64_t *now, const uint64_t *base,
			uint32_t slot)
{
	uint32_t counter = chunk->flags[slot] & SLOT_LAST ? slot : slot + 1;

	if (chunk->flags[slot] & (SLOT_MARK | SLOT_UNUSED))
		return 0;
	return now[counter] - base[counter];
}

/* Makes the snapshot cover all chunks; chunks that came since are zero, as they were then. */
static void snapshot_cover(struct snapshot *snapshot)
{
	size_t old = (size_t)snapshot->chunks * CHUNK_SLOTS;
	size_t new = (size_t)state.chunk_count * CHUNK_SLOTS;

	if (snapshot->chunks == state.chunk_count)
		return;
	snapshot->counts = realloc(snapshot->counts, new * sizeof(uint64_t));
	if (!snapshot->counts)
		die("out of memory");
	memset(snapshot->counts + old, 0, (new - old) * sizeof(uint64_t));
	snapshot->chunks = state.chunk_count;
}

static void snapshot_take(struct snapshot *snapshot, unsigned int index)
{
	uint32_t i;

	snapshot_cover(snapshot);
	for (i = 0; i < state.chunk_count; i++)
		memcpy(snapshot->counts + (size_t)i * CHUNK_SLOTS, counters(state.chunks[i], index),
		       CHUNK_SLOTS * sizeof(uint64_t));
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
	vcpu->switched = false;
	vcpu->stub = false;
	vcpu->depth = 0;
	vcpu->interrupts = 0;
	vcpu->phase = phase;
}

/* Moves what ran since the interrupt began into the window's base: it is left out. */
static void interrupt_end(unsigned int index)
{
	struct vcpu *vcpu = &state.vcpu[index];
	uint32_t i, slot;

	snapshot_cover(&vcpu->base);
	snapshot_cover(&vcpu->interrupt);
	for (i = 0; i < state.chunk_count; i++) {
		const uint64_t *now = counters(state.chunks[i], index);
		uint64_t *base = vcpu->base.counts + (size_t)i * CHUNK_SLOTS;
		const uint64_t *begin = vcpu->interrupt.counts + (size_t)i * CHUNK_SLOTS;

		for (slot = 0; slot < state.chunks[i]->used; slot++)
			base[slot] += now[slot] - begin[slot];
	}
	vcpu->interrupts++;
}

/* Remembers the counters as they are when an interrupt begins. */
static void interrupt_begin(unsigned int index)
{
	struct vcpu *vcpu = &state.vcpu[index];

	if (!vcpu->stub)
		snapshot_take(&vcpu->interrupt, index);
	vcpu->stub = false;
}

/* An instruction with a meaning is about to execute.  It counts itself here: an entry after the
 * snapshot and a return before the sum, so that both belong to the interrupt. */
static void on_event(unsigned int index, void *userdata)
{
	unsigned int event = (uintptr_t)userdata & 0xff;
	uint32_t slot = (uintptr_t)userdata >> 8;
	struct vcpu *vcpu;
	uint64_t *count;

	if (index >= state.vcpus)
		return;
	pthread_mutex_lock(&state.lock);
	vcpu = &state.vcpu[index];
	count = counter(slot, index);
	if (!vcpu->open) {
		++*count;
	} else if (event & EVENT_RETURN) {
		++*count;
		if (vcpu->depth && !--vcpu->depth)
			interrupt_end(index);
	} else if (event & EVENT_SWITCH) {
		++*count;
		vcpu->switched = true;
		vcpu->depth = 0;
	} else if (event & EVENT_STUB) {
		if (!vcpu->depth && !vcpu->switched) {
			interrupt_begin(index);
			vcpu->stub = true;
		}
		++*count;
	} else if (vcpu->depth) {
		++*count;
		vcpu->depth++;
	} else {
		if (event & EVENT_INTERRUPT && !vcpu->switched) {
			interrupt_begin(index);
			vcpu->depth = 1;
		}
		++*count;
	}
	pthread_mutex_unlock(&state.lock);
}

struct window {
	uint64_t user;
	uint64_t kernel;
	uint64_t pairs;
};

/* Adds up the window; with emit_pairs also writes its (address, count) pairs. */
static struct window window_scan(unsigned int index, bool emit_pairs)
{
	const struct vcpu *vcpu = &state.vcpu[index];
	struct window window = { 0 };
	uint32_t i, slot;

	for (i = 0; i < state.chunk_count; i++) {
		const struct chunk *chunk = state.chunks[i];
		const uint64_t *now = counters(chunk, index);
		const uint64_t *base = vcpu->base.counts + (size_t)i * CHUNK_SLOTS;

		for (slot = 0; slot < chunk->used; slot++) {
			uint64_t count = retired(chunk, now, base, slot);
			const uint64_t pair[] = { chunk->vaddr[slot], count };

			if (!count)
				continue;
			window.pairs++;
			if (is_kernel(chunk->vaddr[slot]))
				window.kernel += count;
			else
				window.user += count;
			if (emit_pairs)
				emit(pair, 2);
		}
	}
	return window;
}

static void emit_strings(unsigned int vcpu);

/* WINDOW: vcpu, phase, user, kernel, interrupts left out, switched (0 or 1), pairs, then
 * pairs x (address, count) */
static void emit_window(unsigned int index, const struct window *window)
{
	const struct vcpu *vcpu = &state.vcpu[index];
	const uint64_t words[] = { RECORD_WINDOW, index, vcpu->phase, window->user, window->kernel,
				   vcpu->interrupts, vcpu->switched, window->pairs };

	emit(words, 8);
}

static void window_close(unsigned int index, unsigned int phase)
{
	struct vcpu *vcpu = &state.vcpu[index];
	struct window window;

	if (!vcpu->open) {
		emit_error(ERROR_END_WITHOUT_BEGIN, index, phase);
		return;
	}
	vcpu->open = false;
	if (vcpu->phase != phase) {
		emit_error(ERROR_PHASE, index, phase);
		return;
	}
	if (state.overflow) {
		emit_error(ERROR_TOO_MANY_SLOTS, index, phase);
		return;
	}
	if (state.windows++ >= MAX_WINDOWS) {
		emit_error(ERROR_TOO_MANY_WINDOWS, index, phase);
		return;
	}
	snapshot_cover(&vcpu->base);
	window = window_scan(index, false);
	emit_strings(index);
	emit_window(index, &window);
	window_scan(index, true);
	flush();
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
static void on_exit_qemu(qemu_plugin_id_t id, void *userdata);

/* A reset: all vCPUs are stopped, the translation cache is empty, and so is our registration. */
static void on_reset(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit_qemu, NULL);
}

/* ARMED: no words */
static void on_armed(qemu_plugin_id_t id)
{
	const uint64_t word = RECORD_ARMED;

	state.armed = true;
	emit(&word, 1);
	flush();
	on_reset(id);
}

static void on_mark(unsigned int vcpu, void *userdata)
{
	unsigned int code = (uintptr_t)userdata & 0xfff;
	uint32_t slot = (uintptr_t)userdata >> 12;
	unsigned int phase = code & 0xff;

	pthread_mutex_lock(&state.lock);
	/*
	 * A mark has a slot so that its predecessor has a successor; it counts itself here, at a
	 * moment that we know relative to the snapshot, and is never reported.
	 */
	if (slot && vcpu < state.vcpus)
		++*counter(slot, vcpu);
	if (vcpu >= state.vcpus)
		;
	else if (code >> 8 == MARK_BEGIN)
		window_open(vcpu, phase);
	else if (code >> 8 == MARK_END)
		window_close(vcpu, phase);
	else if (code >> 8 == MARK_ARM && !state.armed)
		qemu_plugin_reset(state.id, on_armed);
	pthread_mutex_unlock(&state.lock);
}

#if KDELTA_API < 2
static void on_start(unsigned int vcpu, void *userdata)
{
	uint32_t slot = (uintptr_t)userdata;

	if (vcpu < state.vcpus)
		state.chunks[slot / CHUNK_SLOTS]->starts[vcpu][slot % CHUNK_SLOTS]++;
}
#endif

/* Events of an instruction, 0 for none: by its address, or as a return by its encoding. */
static unsigned int event_of(const struct qemu_plugin_insn *insn)
{
	uint64_t vaddr = qemu_plugin_insn_vaddr(insn);
	uint32_t i;

	if (!is_kernel(vaddr))
		return 0;
	if (is_return(insn))
		return EVENT_RETURN;
	for (i = 0; i < state.event_count; i++)
		if (vaddr >= state.event[i].start && vaddr < state.event[i].end)
			return state.event[i].bits;
	return 0;
}

static struct chunk *chunk_new(void)
{
	struct chunk *chunk;

	if (state.chunk_count == MAX_CHUNKS) {
		state.overflow = true;
		return NULL;
	}
	chunk = allocate(1, sizeof(*chunk));
#if KDELTA_API >= 2
	chunk->score = qemu_plugin_scoreboard_new(CHUNK_SLOTS * sizeof(uint64_t));
#else
	for (unsigned int i = 0; i < state.vcpus; i++)
		chunk->starts[i] = allocate(CHUNK_SLOTS, sizeof(uint64_t));
#endif
	if (!state.chunk_count) {
		/* Slot 0 stays unused: 0 means "no slot" to on_mark(). */
		chunk->flags[0] = SLOT_UNUSED;
		chunk->used = 1;
	}
	state.chunks[state.chunk_count++] = chunk;
	return chunk;
}

/* Slot of the first of `insns` free slots side by side, 0 when there is no room. */
static uint32_t slots_reserve(size_t insns)
{
	struct chunk *chunk = state.chunk_count ? state.chunks[state.chunk_count - 1] : NULL;
	uint32_t slot;

	if (insns >= CHUNK_SLOTS)
		return 0;
	if (!chunk || chunk->used + insns > CHUNK_SLOTS)
		chunk = chunk_new();
	if (!chunk)
		return 0;
	slot = (state.chunk_count - 1) * CHUNK_SLOTS + chunk->used;
	chunk->used += insns;
	return slot;
}

static uint64_t block_hash(const struct qemu_plugin_tb *tb, size_t insns)
{
	uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a over the addresses */
	size_t i;

	for (i = 0; i < insns; i++)
		hash = (hash ^ qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, i))) * 0x100000001b3ULL;
	return hash;
}

#include "phantoms.h"
#include "rep_strings.h"

/* The block's first slot; a block translated again (after a flush) keeps its slots. */
static uint32_t block_slots(const struct qemu_plugin_tb *tb, size_t insns)
{
	uint64_t hash = block_hash(tb, insns);
	struct block **bucket = &state.blocks[hash % BLOCK_BUCKETS];
	struct block *block;
	struct chunk *chunk;
	uint32_t slot;
	size_t i;

	for (block = *bucket; block; block = block->next)
		if (block->hash == hash && block->insns == insns &&
		    block->vaddr == qemu_plugin_tb_vaddr(tb))
			return block->slot;
	slot = slots_reserve(insns);
	if (!slot)
		return 0;
	chunk = state.chunks[slot / CHUNK_SLOTS];
	for (i = 0; i < insns; i++) {
		const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		chunk->vaddr[slot % CHUNK_SLOTS + i] = qemu_plugin_insn_vaddr(insn);
		if (mark_code(insn))
			chunk->flags[slot % CHUNK_SLOTS + i] |= SLOT_MARK;
		string_note(insn, slot + i);
	}
	chunk->flags[slot % CHUNK_SLOTS + insns - 1] |= SLOT_LAST;
	block = allocate(1, sizeof(*block));
	block->vaddr = qemu_plugin_tb_vaddr(tb);
	block->insns = insns;
	block->hash = hash;
	block->slot = slot;
	block->next = *bucket;
	*bucket = block;
	if (KDELTA_API < 2)
		find_phantoms(tb, insns, slot);
	return slot;
}

static void count_starts(struct qemu_plugin_insn *insn, uint32_t slot)
{
	struct chunk *chunk = state.chunks[slot / CHUNK_SLOTS];
#if KDELTA_API >= 2
	qemu_plugin_u64 entry = { chunk->score, slot % CHUNK_SLOTS * sizeof(uint64_t) };

	qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64, entry, 1);
#else
	/* Interface 1 has no counter a vCPU: exact with several vCPUs needs a call. */
	if (state.vcpus == 1)
		qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64,
							   &chunk->starts[0][slot % CHUNK_SLOTS], 1);
	else
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_start, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)slot);
#endif
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t insns = qemu_plugin_tb_n_insns(tb);
	uint32_t slot = 0;
	bool again;
	size_t i;

	pthread_mutex_lock(&state.lock);
	if (state.armed && insns)
		slot = block_slots(tb, insns);
	for (i = 0; i < insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		unsigned int code = mark_code(insn);
		uintptr_t own_slot = slot ? slot + i : 0;
		unsigned int event = slot ? event_of(insn) : 0;

		if (slot)
			string_watch(insn);
		if (code)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_NO_REGS,
							       (void *)(own_slot << 12 | code));
		else if (event)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_event, QEMU_PLUGIN_CB_NO_REGS,
							       (void *)(own_slot << 8 | event));
		else if (slot)
			count_starts(insn, slot + i);
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
	const uint64_t words[] = { RECORD_END, state.windows,
				   (uint64_t)state.chunk_count * CHUNK_SLOTS };

	(void)id;
	(void)userdata;
	emit(words, 3);
	flush();
}

/* HEADER: magic, interface version built for, interface version of this QEMU, vCPUs */
static void emit_header(const qemu_info_t *info)
{
	const uint64_t words[] = { RECORD_HEADER, FORMAT_MAGIC, KDELTA_API,
				   info->version.cur, state.vcpus };

	emit(words, 5);
	flush();
}

/* The file events=: lines "BITS START END", the first decimal, addresses hexadecimal. */
static bool read_events(const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned long long start, end;
	bool whole;
	unsigned int bits, i = 0;

	if (!file)
		return false;
	while (i < MAX_EVENTS && fscanf(file, "%u %llx %llx", &bits, &start, &end) == 3) {
		state.event[i].bits = bits;
		state.event[i].start = start;
		state.event[i++].end = end;
	}
	state.event_count = i;
	whole = feof(file);
	fclose(file);
	return whole;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	const char *path = NULL, *events = NULL;
	int i;

	for (i = 0; i < argc; i++)
		if (!strncmp(argv[i], "out=", 4))
			path = argv[i] + 4;
		else if (!strncmp(argv[i], "events=", 7))
			events = argv[i] + 7;
	if (!path || !events || !read_events(events)) {
		fprintf(stderr, "kdelta plugin: needs out=FILE and events=FILE, a readable list\n");
		return -1;
	}
	if (!info->system_emulation || info->system.max_vcpus > (int)MAX_VCPUS) {
		fprintf(stderr, "kdelta plugin: needs system emulation with at most %u vCPUs\n",
			MAX_VCPUS);
		return -1;
	}
	state.out = fopen(path, "we");
	if (!state.out) {
		fprintf(stderr, "kdelta plugin: %s: %s\n", path, strerror(errno));
		return -1;
	}
	state.id = id;
	state.x86 = !strcmp(info->target_name, "x86_64");
	state.vcpus = info->system.max_vcpus;
	emit_header(info);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit_qemu, NULL);
	return 0;
}
