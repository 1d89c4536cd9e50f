/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What all of the plugin knows of the guest, of its vCPUs, and of what is counted. */
#ifndef KDELTA_STATE_H
#define KDELTA_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "insn_bytes.h"
#include "qemu_api.h"
#include "registers.h"
#include "snapshots.h"

#define MAX_VCPUS 256u

struct task;

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
	uint64_t wakes; /* of tasks that are not the workload's */
	uint64_t behind; /* see behind.h; since the window before opened */
	struct task *task; /* that runs, NULL: not known yet */
	struct task *idle; /* the one that ran when the guest was restored */
	struct snapshot base; /* when the window opened, plus what was left out since */
	struct snapshot left; /* when what is left out began */
};

struct plugin {
	qemu_plugin_id_t id;
	pthread_mutex_t lock; /* held by callbacks of what is translated and executed */
	enum target target;
	unsigned int vcpus;
	bool armed; /* what is translated is counted */
	struct vcpu vcpu[MAX_VCPUS];
};

extern struct plugin state;

#endif /* KDELTA_STATE_H */
