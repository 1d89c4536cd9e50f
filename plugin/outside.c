// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "outside.h"
#include "registers.h"
#include "state.h"
#include "syscalls.h"

#define MAX_NAMED 128u
#define MAX_STRING 256u
#define MAX_WRITTEN 64u
#define GUEST_PAGE 4096u

static struct {
	struct {
		uint64_t number;
		unsigned int bits;
	} call[MAX_NAMED];
	unsigned int calls;
	struct qemu_plugin_scoreboard *score; /* instructions of user space, of each vCPU */
	uint64_t settled[MAX_VCPUS];
	uint64_t user;
	GByteArray *bytes;
} outside;

void outside_begin(void)
{
	outside.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	outside.bytes = g_byte_array_new();
}

bool outside_read(const char *text)
{
	char *end;

	for (;; text = end + 1) {
		if (outside.calls == MAX_NAMED)
			return false;
		outside.call[outside.calls].number = strtoull(text, &end, 10);
		if (end == text || *end != '.')
			return false;
		outside.call[outside.calls++].bits = strtoul(end + 1, &end, 10);
		if (*end != ':')
			return !*end;
	}
}

bool outside_wanted(void)
{
	return outside.calls;
}

unsigned int call_bits(uint64_t number)
{
	for (unsigned int i = 0; i < outside.calls; i++)
		if (outside.call[i].number == number)
			return outside.call[i].bits;
	return 0;
}

void outside_watch(struct qemu_plugin_insn *insn, const struct code *code, uint64_t insns)
{
	qemu_plugin_u64 entry = { outside.score, 0 };

	if (outside_wanted() && !is_kernel(code->vaddr))
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			insn, QEMU_PLUGIN_INLINE_ADD_U64, entry, insns);
}

bool is_outside(unsigned int index)
{
	const struct vcpu *vcpu = &state.vcpu[index];

	return outside_wanted() && vcpu->owned && !vcpu->open && !calls_of_task(index)->hushed;
}

void outside_settle(unsigned int index)
{
	const uint64_t *now = qemu_plugin_scoreboard_find(outside.score, index);

	if (is_outside(index))
		outside.user += *now - outside.settled[index];
	outside.settled[index] = *now;
}

uint64_t outside_user(void)
{
	return outside.user;
}

/* FNV-1a of so many bytes at an address, or up to a 0. */
static bool bytes_hash(uint64_t address, size_t size, bool string, uint64_t *hash)
{
	size_t done = 0;

	*hash = 0xcbf29ce484222325ULL;
	while (done < size) {
		size_t part = GUEST_PAGE - (address + done) % GUEST_PAGE;

		part = part < size - done ? part : size - done;
		if (!qemu_plugin_read_memory_vaddr(address + done, outside.bytes, part))
			break;
		for (size_t i = 0; i < part; i++) {
			if (string && !outside.bytes->data[i])
				return true;
			*hash = (*hash ^ outside.bytes->data[i]) * 0x100000001b3ULL;
		}
		done += part;
	}
	return done;
}

bool outside_string(unsigned int index, unsigned int argument, unsigned int bits, uint64_t *hash)
{
	uint64_t size, request;

	if (argument < CALL_ARGUMENTS && bits >> argument & 1)
		return bytes_hash(call_argument(index, argument), MAX_STRING, true, hash);
	if (argument == 1 && bits & CALL_WRITES) {
		size = call_argument(index, 2);
		return bytes_hash(call_argument(index, 1), size < MAX_WRITTEN ? size : MAX_WRITTEN,
				  false, hash);
	}
	if (argument == 2 && bits & CALL_IOCTL) {
		request = call_argument(index, 1);
		size = request >> 16 & 0x3fff;
		/* The kernel reads what user space wrote. */
		return request >> 30 & 1 &&
		       bytes_hash(call_argument(index, 2), size < MAX_STRING ? size : MAX_STRING,
				  false, hash);
	}
	return false;
}
