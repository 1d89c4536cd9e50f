// SPDX-License-Identifier: GPL-2.0-or-later
#include <stddef.h>
#include <string.h>

#include "exceptions.h"
#include "mappings.h"
#include "qemu_api.h"
#include "registers.h"
#include "state.h"

#define CLASS_SHIFT 26 /* of arm64, in what the register says */
#define BIT(n) (1ull << (n))
#define UNKNOWN_VECTOR 31u

/* By architecture, a bit for each. */
static const struct {
	uint64_t page_faults, calls;
} kinds[] = {
	[TARGET_X86_64] = { BIT(14), 0 },
	[TARGET_AARCH64] = { BIT(0x20) | BIT(0x24), BIT(0x11) | BIT(0x15) },
	[TARGET_RISCV64] = { BIT(12) | BIT(13) | BIT(15), BIT(8) },
};

/* arch/x86/include/asm/trapnr.h */
static const char *const vectors[] = {
	"divide_error", "debug", "nmi", "int3",
	"overflow", "bounds", "invalid_op", "device_not_available",
	"double_fault", "coproc_segment_overrun", "invalid_tss", "segment_not_present",
	"stack_segment", "general_protection", "page_fault", "spurious_interrupt_bug",
	"coprocessor_error", "alignment_check", "machine_check", "simd_coprocessor_error",
	"virtualization", "control_protection",
};

unsigned int vector_of(const char *symbol)
{
	static const char before[] = "asm_exc_";
	unsigned int count = sizeof(vectors) / sizeof(vectors[0]), i = 0;

	if (strncmp(symbol, before, sizeof(before) - 1))
		return 0;
	while (i < count && strcmp(symbol + sizeof(before) - 1, vectors[i]))
		i++;
	return i < count ? i : UNKNOWN_VECTOR;
}

uint64_t exception_number(unsigned int index, unsigned int vector)
{
	if (!register_exists(REGISTER_CAUSE))
		return vector;
	return register_value(index, REGISTER_CAUSE) >>
		       (state.target == TARGET_AARCH64 ? CLASS_SHIFT : 0) & 63;
}

bool is_page_fault(uint64_t exception)
{
	return kinds[state.target].page_faults >> exception & 1;
}

bool is_asked(uint64_t exception)
{
	return kinds[state.target].calls >> exception & 1;
}

/* On the stack of x86-64 lie the address and the code segment, behind an error of some. */
uint64_t exception_origin(unsigned int index)
{
	static GByteArray *bytes;
	uint64_t frame[2];

	if (register_exists(REGISTER_ORIGIN))
		return register_value(index, REGISTER_ORIGIN);
	if (!bytes)
		bytes = g_byte_array_new();
	if (!qemu_plugin_read_memory_vaddr(register_value(index, REGISTER_STACK), bytes,
					   sizeof(frame)))
		return UINT64_MAX;
	memcpy(frame, bytes->data, sizeof(frame));
	return frame[1] < LEAST_ADDRESS ? frame[0] : frame[1];
}
