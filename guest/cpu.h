/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What CPU a guest has, in words that no kernel chooses: x86-64 by CPUID, arm64 by its main ID
 * register, riscv64 by the device tree that the machine has.  The kernel's own list of flags differs from release to release on one CPU.
 */
#ifndef KDELTA_CPU_H
#define KDELTA_CPU_H

#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>

#define CPUID_OSXSAVE (1u << 27) /* leaf 1, ECX: set by the kernel, not by the CPU */
#define CPUID_OSPKE (1u << 4)	 /* leaf 7, ECX: likewise */
#define CPUID_HTT (1u << 28)	 /* leaf 1, EDX: there are several CPUs, which is another axis */
#define CPUID_CMP_LEGACY (1u << 1) /* leaf 0x80000001, ECX: likewise, AMD's */

struct cpuid_leaf {
	uint32_t a, b, c, d;
};

static struct cpuid_leaf cpuid_read(uint32_t leaf, uint32_t subleaf)
{
	struct cpuid_leaf read = { 0 };
	uint32_t most = leaf & 0x80000000u;

	if (__get_cpuid_max(most, NULL) >= leaf)
		__cpuid_count(leaf, subleaf, read.a, read.b, read.c, read.d);
	return read;
}

/* Vendor, signature (family, model, stepping), then the feature words in the order below. */
static void tell_cpu(FILE *out)
{
	struct cpuid_leaf vendor = cpuid_read(0, 0), basic = cpuid_read(1, 0);
	struct cpuid_leaf more = cpuid_read(7, 0), later = cpuid_read(7, 1);
	struct cpuid_leaf xsave = cpuid_read(0xd, 1), extended = cpuid_read(0x80000001u, 0);
	struct cpuid_leaf sizes = cpuid_read(0x80000008u, 0);

	fprintf(out, "cpu %.4s%.4s%.4s %x", (const char *)&vendor.b, (const char *)&vendor.d,
		(const char *)&vendor.c, basic.a);
	fprintf(out, " %x %x", basic.c & ~CPUID_OSXSAVE, basic.d & ~CPUID_HTT);
	fprintf(out, " %x %x %x %x", more.b, more.c & ~CPUID_OSPKE, more.d, later.a);
	fprintf(out, " %x %x %x %x\n", xsave.a, extended.c & ~CPUID_CMP_LEGACY, extended.d,
		sizes.b);
}

#elif defined(__aarch64__)

/* MIDR_EL1: implementer, variant, architecture, part and revision. */
static void tell_cpu(FILE *out)
{
	FILE *file = fopen("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "re");
	unsigned long long midr = 0;

	if (file) {
		if (fscanf(file, "%llx", &midr) != 1)
			midr = 0;
		fclose(file);
	}
	if (midr)
		fprintf(out, "cpu midr %llx\n", midr);
	else
		fprintf(out, "cpu\n");
}

#elif defined(__riscv)

/* One string of the first CPU's node; "" when it cannot be read. */
static const char *cpu_property(const char *name, char *text, size_t size)
{
	char path[128];
	size_t length = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/device-tree/cpus/cpu@0/%s", name);
	file = fopen(path, "re");
	if (file) {
		length = fread(text, 1, size - 1, file);
		fclose(file);
	}
	text[length] = '\0';
	return text;
}

/* Its extensions and the depth of its page tables: "rv64imafdc_zicbom_... riscv,sv39". */
static void tell_cpu(FILE *out)
{
	char isa[2048], mmu[64];

	fprintf(out, "cpu %s %s\n", cpu_property("riscv,isa", isa, sizeof(isa)),
		cpu_property("mmu-type", mmu, sizeof(mmu)));
}

#else

static void tell_cpu(FILE *out)
{
	fprintf(out, "cpu\n");
}

#endif
#endif
