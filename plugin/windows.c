// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "arguments.h"
#include "behind.h"
#include "calls.h"
#include "memory.h"
#include "rep_strings.h"
#include "slots.h"
#include "snapshots.h"
#include "state.h"
#include "stream.h"
#include "syscalls.h"
#include "tasks.h"
#include "touched.h"
#include "translations.h"
#include "windows.h"

#define MAX_WINDOWS 1000000u

static struct {
	uint64_t closed, expected;
	bool done;
} windows;

void windows_expect(uint64_t count)
{
	windows.expected = count;
}

uint64_t windows_count(void)
{
	return windows.closed;
}

bool windows_done(void)
{
	return windows.done;
}

void window_update(unsigned int index)
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

/*
 * Nothing behind the last window can be counted: QEMU goes back to what it translated before the
 * first, or else translates as it does without us.  A window that comes nevertheless is an error, see
 * window_open().
 */
static void finish(void)
{
	state.armed = false;
	windows.done = true;
	if (!translations_change())
		qemu_plugin_register_vcpu_tb_trans_cb(state.id, NULL);
}

void window_open(unsigned int index, unsigned int phase)
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
	vcpu->interrupts = vcpu->wakes = 0;
	vcpu->behind = behind_take();
	vcpu->phase = phase;
	calls_open(index);
	memory_open();
	arguments_open();
	syscalls_open(index);
	touched_open();
	emit_outside();
}

/*
 * WINDOW: vcpu, phase, user, kernel, interrupts left out, switched (0 or 1), then rows of (slot,
 * count).  user and kernel are instructions, over all rows.
 */
static void emit_window(unsigned int index)
{
	enum { USER = 2, KERNEL = 3, HEAD = 6 };
	const struct vcpu *vcpu = &state.vcpu[index];
	uint64_t *words = grown(NULL, HEAD + 2ul * CHUNK_SLOTS * chunks_count(), sizeof(*words));
	size_t count = HEAD;

	memcpy(words, (uint64_t[HEAD]){ index, vcpu->phase, 0, 0, vcpu->interrupts, vcpu->switched },
	       HEAD * sizeof(*words));
	for (uint32_t i = 0; i < chunks_count(); i++) {
		const struct chunk *chunk = chunk_at(i);
		const uint64_t *now = counters(chunk, index);
		const uint64_t *base = vcpu->base.counts + (size_t)i * CHUNK_SLOTS;

		for (uint32_t at = 0; at < chunk->used; at++) {
			if (now[at] == base[at] || !chunk->insns[at])
				continue;
			if (!chunk->told[at])
				emit_code(i * CHUNK_SLOTS + at);
			words[is_kernel(slot_place(chunk, at)->vaddr) ? KERNEL : USER] +=
				(now[at] - base[at]) * chunk->insns[at];
			words[count++] = i * CHUNK_SLOTS + at;
			words[count++] = now[at] - base[at];
		}
	}
	emit_strings(index);
	emit_calls();
	emit_memory();
	emit_arguments();
	emit_syscalls(index);
	emit_touched();
	emit_order();
	emit(RECORD_WAKES, &vcpu->wakes, 1); /* WAKES: of tasks that are not the workload's */
	if (tasks_are_told())
		emit(RECORD_BEHIND, &vcpu->behind, 1); /* BEHIND: of the window before, see behind.h */
	emit(RECORD_WINDOW, words, count);
	emit_flush();
	free(words);
}

/* Why the counts so far are not whole; 0: they are. */
static enum mark_error windows_error(void)
{
	const enum mark_error all[] = { slots_error(), strings_error(), calls_error(),
					memory_error(), arguments_error(),
					syscalls_error() };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i])
			return all[i];
	return 0;
}

void window_close(unsigned int index, unsigned int phase)
{
	struct vcpu *vcpu = &state.vcpu[index];
	enum mark_error error;

	if (!vcpu->open) {
		emit_error(ERROR_END_WITHOUT_BEGIN, index, phase);
		return;
	}
	calls_settle(index);
	vcpu->open = false;
	touched_close();
	if (vcpu->phase != phase) {
		emit_error(ERROR_PHASE, index, phase);
		return;
	}
	error = windows_error();
	if (error) {
		emit_error(error, index, phase);
		return;
	}
	if (windows.closed++ >= MAX_WINDOWS) {
		emit_error(ERROR_TOO_MANY_WINDOWS, index, phase);
		return;
	}
	snapshot_cover(&vcpu->base);
	emit_window(index);
	if (windows.closed == windows.expected)
		finish();
}
