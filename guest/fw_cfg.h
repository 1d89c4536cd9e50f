/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads files of QEMU's fw_cfg device by its DMA interface (docs/specs/fw_cfg.rst of QEMU).
 *
 * The device is reached by I/O ports on a PC and by /dev/mem elsewhere.  A process that was given
 * ports keeps an I/O bitmap, which the kernel then updates on its way back to user space: so this
 * is for a child that ends afterwards, never for PID 1 or what it starts.
 */
#ifndef KDELTA_FW_CFG_H
#define KDELTA_FW_CFG_H

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <sys/io.h>
#endif

#define FW_CFG_DIRECTORY	0x19
#define FW_CFG_DMA_PORT		0x514
#define FW_CFG_DMA_OFFSET	16
#define FW_CFG_NODES		"/proc/device-tree/fw-cfg@*/reg"
#define FW_CFG_PAGE		4096

enum fw_cfg_control {
	FW_CFG_ERROR = 1,
	FW_CFG_READ = 2,
	FW_CFG_SELECT = 8,
};

/* An entry of the device's directory; numbers are big-endian. */
struct fw_cfg_file {
	uint32_t size;
	uint16_t select;
	uint16_t reserved;
	char name[56];
};

/* What the device is told; numbers are big-endian. */
struct fw_cfg_access {
	uint32_t control;
	uint32_t length;
	uint64_t address;
};

static struct {
	volatile struct fw_cfg_access *access; /* at the start of a page */
	unsigned char *data;		       /* the page behind it */
	uint64_t access_at, data_at;	       /* where the guest's memory has them */
	volatile uint64_t *start;	       /* the device's register, where it is no port */
} fw_cfg;

/* Physical address of a locked page, 0 when the kernel does not tell. */
static uint64_t fw_cfg_physical(const void *page)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (pagemap < 0)
		return 0;
	if (pread(pagemap, &entry, sizeof(entry), (uintptr_t)page / FW_CFG_PAGE * sizeof(entry)) !=
	    sizeof(entry))
		entry = 0;
	close(pagemap);
	return entry >> 63 ? (entry & ((1ULL << 55) - 1)) * FW_CFG_PAGE : 0;
}

#if defined(__x86_64__)
static const char *fw_cfg_reach(void)
{
	return ioperm(FW_CFG_DMA_PORT, 8, 1) ? "ioperm" : NULL;
}

static void fw_cfg_start(void)
{
	outl(htobe32(fw_cfg.access_at >> 32), FW_CFG_DMA_PORT);
	outl(htobe32((uint32_t)fw_cfg.access_at), FW_CFG_DMA_PORT + 4);
}
#else
static const char *fw_cfg_reach(void)
{
	unsigned char *registers;
	uint64_t base = 0;
	glob_t nodes;
	int file;

	if (glob(FW_CFG_NODES, 0, NULL, &nodes))
		return FW_CFG_NODES;
	file = open(nodes.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	globfree(&nodes);
	if (file < 0 || read(file, &base, sizeof(base)) != sizeof(base))
		return FW_CFG_NODES;
	close(file);
	base = be64toh(base);
	file = open("/dev/mem", O_RDWR | O_SYNC | O_CLOEXEC);
	if (file < 0)
		return "/dev/mem";
	registers = mmap(NULL, FW_CFG_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file,
			 base & ~(FW_CFG_PAGE - 1ULL));
	close(file);
	if (registers == MAP_FAILED)
		return "/dev/mem";
	registers += base % FW_CFG_PAGE + FW_CFG_DMA_OFFSET;
	fw_cfg.start = (volatile uint64_t *)registers;
	return NULL;
}

static void fw_cfg_start(void)
{
	__sync_synchronize();
	*fw_cfg.start = htobe64(fw_cfg.access_at);
	__sync_synchronize();
}
#endif

/* Makes the device usable for this process.  Returns what does not work, NULL when all does. */
static const char *fw_cfg_open(void)
{
	unsigned char *pages = mmap(NULL, 2 * FW_CFG_PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED || mlock(pages, 2 * FW_CFG_PAGE))
		return "mlock";
	memset(pages, 0, 2 * FW_CFG_PAGE);
	fw_cfg.access = (volatile struct fw_cfg_access *)pages;
	fw_cfg.data = pages + FW_CFG_PAGE;
	fw_cfg.access_at = fw_cfg_physical(pages);
	fw_cfg.data_at = fw_cfg_physical(fw_cfg.data);
	if (!fw_cfg.access_at || !fw_cfg.data_at)
		return "/proc/self/pagemap";
	return fw_cfg_reach();
}

/* Reads at most a page, from where the last read ended; control: a selector, or 0 to go on. */
static bool fw_cfg_read(uint32_t control, void *to, size_t size)
{
	fw_cfg.access->control = htobe32(control | FW_CFG_READ);
	fw_cfg.access->length = htobe32(size);
	fw_cfg.access->address = htobe64(fw_cfg.data_at);
	fw_cfg_start();
	if (fw_cfg.access->control)
		return false;
	memcpy(to, fw_cfg.data, size);
	return true;
}

static uint32_t fw_cfg_select(uint16_t selector)
{
	return (uint32_t)selector << 16 | FW_CFG_SELECT;
}

/* Finds a file that QEMU was started with. */
static bool fw_cfg_find(const char *name, struct fw_cfg_file *file)
{
	uint32_t count;

	if (!fw_cfg_read(fw_cfg_select(FW_CFG_DIRECTORY), &count, sizeof(count)))
		return false;
	for (count = be32toh(count); count; count--) {
		if (!fw_cfg_read(0, file, sizeof(*file)))
			return false;
		if (!strncmp(file->name, name, sizeof(file->name)))
			return true;
	}
	return false;
}

/* Copies such a file.  Returns what does not work, NULL when all does. */
static const char *fw_cfg_copy(const struct fw_cfg_file *file, int to)
{
	uint32_t control = fw_cfg_select(be16toh(file->select)), left = be32toh(file->size);
	unsigned char page[FW_CFG_PAGE];

	while (left) {
		size_t size = left < sizeof(page) ? left : sizeof(page);

		if (!fw_cfg_read(control, page, size))
			return "the device";
		if (write(to, page, size) != (ssize_t)size)
			return "a copy's write";
		left -= size;
		control = 0;
	}
	return NULL;
}

#endif
