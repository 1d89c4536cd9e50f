// SPDX-License-Identifier: GPL-2.0-or-later
/* peek ADDRESS...: the eight bytes that the running kernel has at each address, alternatives in. */
#include "kdelta.h"

#include <elf.h>

static void peek(int kcore, const Elf64_Phdr *segments, size_t n, unsigned long address)
{
	unsigned char bytes[8];

	for (size_t i = 0; i < n; i++) {
		const Elf64_Phdr *s = &segments[i];

		if (s->p_type != PT_LOAD || address < s->p_vaddr || address >= s->p_vaddr + s->p_memsz)
			continue;
		if (pread(kcore, bytes, 8, s->p_offset + (address - s->p_vaddr)) != 8)
			kd_die("/proc/kcore");
		printf("%lx ", address);
		for (size_t at = 0; at < 8; at++)
			printf("%02x", bytes[at]);
		printf("\n");
		return;
	}
	kd_exit(1, "%lx is no kernel address", address);
}

int main(int argc, char **argv)
{
	static Elf64_Phdr segments[256];
	int kcore = open("/proc/kcore", O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr head;
	size_t size;

	KD_ARM(); /* or the plugin takes it for a program that it did not see */
	if (kcore < 0 || pread(kcore, &head, sizeof(head), 0) != sizeof(head))
		kd_die("/proc/kcore");
	size = head.e_phnum * sizeof(*segments);
	if (size > sizeof(segments) || pread(kcore, segments, size, head.e_phoff) != (ssize_t)size)
		kd_die("/proc/kcore");
	for (int i = 1; i < argc; i++)
		peek(kcore, segments, head.e_phnum, strtoul(argv[i], NULL, 16));
	return 0;
}
