/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Included by insns.c alone, behind its state: registers of the guest's vCPUs. */
#ifndef KDELTA_REGISTERS_H
#define KDELTA_REGISTERS_H

static const struct {
	const char *qemu; /* its name of the target */
	enum target target;
	const char *registers[REGISTERS];
} targets[] = {
	{ "x86_64",
	  TARGET_X86_64,
	  { "rdi", "rsi", "rdx", "rcx", "r8", "r9", "rcx", "rsp", "rax", NULL, NULL } },
	{ "aarch64",
	  TARGET_AARCH64,
	  { "x0", "x1", "x2", "x3", "x4", "x5", NULL, "sp", "x0", NULL, NULL } },
	{ "riscv64",
	  TARGET_RISCV64,
	  { "a0", "a1", "a2", "a3", "a4", "a5", NULL, "sp", "a0", "scause", "mtvec" } },
};

/* What a register of the executing vCPU holds; only in callbacks that read registers. */
static uint64_t register_value(unsigned int vcpu, unsigned int which)
{
	uint64_t value = 0;

	g_byte_array_set_size(state.value, 0);
	if (!state.vcpu[vcpu].registers[which] ||
	    qemu_plugin_read_register(state.vcpu[vcpu].registers[which], state.value) <= 0)
		die("a register cannot be read");
	memcpy(&value, state.value->data, state.value->len < 8 ? state.value->len : 8);
	return value;
}

/* The registers that we read, of a vCPU that has just begun. */
static void on_vcpu(qemu_plugin_id_t id, unsigned int index)
{
	GArray *all = qemu_plugin_get_registers();

	(void)id;
	if (!all || index >= state.vcpus)
		return;
	for (unsigned int i = 0; i < all->len; i++)
		for (unsigned int k = 0; k < REGISTERS; k++)
			if (state.register_names[k] && !strcmp(state.register_names[k], all->data[i].name))
				state.vcpu[index].registers[k] = all->data[i].handle;
}

/* 0, or -1 and a reason on stderr. */
static int find_target(const qemu_info_t *info)
{
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++)
		if (!strcmp(info->target_name, targets[i].qemu)) {
			state.target = targets[i].target;
			state.register_names = targets[i].registers;
		}
	if (state.register_names && info->system_emulation &&
	    info->system.max_vcpus <= (int)MAX_VCPUS)
		return 0;
	fprintf(stderr, "kdelta plugin: needs system emulation of a known CPU, with at most %u of them\n",
		MAX_VCPUS);
	return -1;
}

#endif /* KDELTA_REGISTERS_H */
