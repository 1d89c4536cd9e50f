// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin for QEMU that says what a guest translates and executes from one system call or mark to
 * the next.  amd64.  A line for each of these:
 *
 *	microseconds of CPU, blocks and instructions translated, blocks and instructions executed,
 *	all so far; then "sys NUMBER FIRST-ARGUMENT PATH" or "mark OPERAND"
 *
 * bench/phases.py reads them.  Rounds of a string instruction are not counted.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "qemu_api.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = KDELTA_API;

enum { NUMBER, FIRST, SECOND, REGISTERS };
enum { SYS_OPENAT = 257, SYS_EXECVE = 59 };

static struct {
	FILE *out;
	struct qemu_plugin_scoreboard *executed; /* blocks, instructions */
	struct qemu_plugin_register *at[REGISTERS];
	uint64_t blocks, insns; /* translated */
} phases;

static uint64_t value(int which)
{
	GByteArray *bytes = g_byte_array_new();
	uint64_t word = 0;

	if (phases.at[which] && qemu_plugin_read_register(phases.at[which], bytes) == sizeof(word))
		memcpy(&word, bytes->data, sizeof(word));
	return word;
}

static void tell(const char *what)
{
	const uint64_t *executed = qemu_plugin_scoreboard_find(phases.executed, 0);
	struct timespec cpu;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	fprintf(phases.out, "%lu %lu %lu %lu %lu %s\n", cpu.tv_sec * 1000000ul + cpu.tv_nsec / 1000,
		phases.blocks, phases.insns, executed[0], executed[1], what);
}

static void on_syscall(unsigned int vcpu, void *unused)
{
	const uint64_t number = value(NUMBER);
	const uint64_t path = number == SYS_OPENAT ? value(SECOND) :
			      number == SYS_EXECVE ? value(FIRST) : 0;
	const size_t most = 4096 - path % 4096 < 60 ? 4096 - path % 4096 : 60;
	GByteArray *bytes = g_byte_array_new();
	char text[128], name[64] = "";

	(void)vcpu;
	(void)unused;
	if (path && qemu_plugin_read_memory_vaddr(path, bytes, most))
		memcpy(name, bytes->data, most);
	snprintf(text, sizeof(text), "sys %lu %lx %s", number, value(FIRST), name);
	tell(text);
}

static void on_mark(unsigned int vcpu, void *operand)
{
	char text[32];

	(void)vcpu;
	snprintf(text, sizeof(text), "mark %lx", (uintptr_t)operand);
	tell(text);
}

static void watch(struct qemu_plugin_insn *insn)
{
	uint8_t code[16];
	size_t size = qemu_plugin_insn_data(insn, code, sizeof(code));

	if (size == 2 && code[0] == 0x0f && code[1] == 0x05)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_syscall, QEMU_PLUGIN_CB_R_REGS, NULL);
	/* KD_MARK() of guest/kdelta.h */
	if (size == 7 && !memcmp(code, "\x0f\x1f\x80", 3) && code[5] == 0x64 && code[6] == 0x6b)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)(code[3] | code[4] << 8));
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	const size_t insns = qemu_plugin_tb_n_insns(tb);
	const bool kernel = qemu_plugin_tb_vaddr(tb) >> 63;

	(void)id;
	phases.blocks++;
	phases.insns += insns;
	for (int i = 0; i < 2; i++)
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			qemu_plugin_tb_get_insn(tb, 0), QEMU_PLUGIN_INLINE_ADD_U64,
			(qemu_plugin_u64){ phases.executed, i * sizeof(uint64_t) }, i ? insns : 1);
	for (size_t i = 0; !kernel && i < insns; i++)
		watch(qemu_plugin_tb_get_insn(tb, i));
}

static void on_vcpu(qemu_plugin_id_t id, unsigned int vcpu)
{
	static const char *const names[REGISTERS] = { "rax", "rdi", "rsi" };
	const GArray *all = qemu_plugin_get_registers();

	(void)id;
	(void)vcpu;
	for (unsigned int i = 0; i < all->len; i++)
		for (int k = 0; k < REGISTERS; k++)
			if (!strcmp(all->data[i].name, names[k]))
				phases.at[k] = all->data[i].handle;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	(void)info;
	phases.out = argc == 1 && !strncmp(argv[0], "out=", 4) ? fopen(argv[0] + 4, "we") : NULL;
	if (!phases.out)
		return -1;
	setvbuf(phases.out, NULL, _IOLBF, 0);
	phases.executed = qemu_plugin_scoreboard_new(2 * sizeof(uint64_t));
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	return 0;
}
