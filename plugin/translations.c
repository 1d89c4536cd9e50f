// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "state.h"
#include "translations.h"

#define OTHER_CLUSTER (1u << 24)

/* Functions of QEMU itself: include/hw/core/cpu.h */
static struct {
	size_t flags; /* offset; 0: it is not known */
	void *(*cpu)(int index);
	void (*leave)(void *cpu); /* its loop, at the next block */
} translations;

bool translations_read(const char *text)
{
	translations.flags = strtoul(text, NULL, 0);
	translations.cpu = dlsym(RTLD_DEFAULT, "qemu_get_cpu");
	translations.leave = dlsym(RTLD_DEFAULT, "cpu_exit");
	return translations.flags && translations.cpu && translations.leave;
}

bool translations_change(void)
{
	char *cpu = translations.flags && state.vcpus == 1 ? translations.cpu(0) : NULL;

	if (!cpu)
		return false;
	*(uint32_t *)(cpu + translations.flags) ^= OTHER_CLUSTER;
	translations.leave(cpu);
	return true;
}
