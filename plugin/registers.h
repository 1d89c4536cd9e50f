/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which registers of the guest are read, and what they hold. */
#ifndef KDELTA_REGISTERS_H
#define KDELTA_REGISTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "qemu_api.h"

/*
 * Registers that are read: arguments, rounds of a string instruction, the stack's, the result; why a
 * trap was taken, the address that it came from, and where the firmware's begin; the number of a
 * system call, and its fourth argument: the others are those of a function.
 */
enum register_index {
	REGISTER_FIRST,
	REGISTER_SECOND,
	REGISTER_COUNT = 6,
	REGISTER_STACK,
	REGISTER_RESULT,
	REGISTER_CAUSE,
	REGISTER_ORIGIN,
	REGISTER_FIRMWARE,
	REGISTER_CALL,
	REGISTER_CALL_FOURTH,
	REGISTERS,
};

/* 0, or -1 and a reason on stderr: the target that QEMU emulates is none that we know. */
int target_find(const qemu_info_t *info);

/* The registers that we read, of a vCPU that has just begun. */
void registers_find(qemu_plugin_id_t id, unsigned int index);

/* False for one that the target does not have. */
bool register_exists(enum register_index which);

/* What a register of the executing vCPU holds; only in callbacks that read registers. */
uint64_t register_value(unsigned int vcpu, unsigned int which);

#endif /* KDELTA_REGISTERS_H */
