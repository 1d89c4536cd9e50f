/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads files of QEMU's fw_cfg device by its DMA interface (docs/specs/fw_cfg.rst of QEMU).
 *
 * The device is reached by I/O ports on a PC and by /dev/mem elsewhere.  A process that was given
 * ports keeps an I/O bitmap, which the kernel then updates on its way back to user space: so this
 * is for a process of its own, never for PID 1 or what it starts.
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
#include <sys/uio.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <sys/io.h>
#endif

#define FW_CFG_DIRECTORY	0x19
#define FW_CFG_DMA_PORT		0x514
#define FW_CFG_DMA_OFFSET	16
#define FW_CFG_NODES		"/proc/device-tree/fw-cfg@*/reg"
#define FW_CFG_PAGE		4096
#define FW_CFG_PLACE		(1 << 20) /* bytes of a place, see below */
#define FW_CFG_PLACE_PAGES	(FW_CFG_PLACE / FW_CFG_PAGE)

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

/* The memory of a file that waits to be filled. */
struct fw_cfg_place {
	size_t size; /* of what fills it, 0: nothing does */
	int pipe[2]; /* that holds its pages until then */
	uint64_t at[FW_CFG_PLACE_PAGES];
};

/* What the device reads; numbers are big-endian. */
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

/*
 * Where the guest's memory has pages, which stay there as long as a pipe is open that nobody reads
 * and that holds them.  Locked pages alone may be moved, to make room or to be nearer.  Returns what
 * does not work, NULL when all does.
 */
static const char *fw_cfg_hold(void *pages, size_t count, uint64_t *at, int ends[2])
{
	const uint64_t there = 1ULL << 63, frame = (1ULL << 55) - 1;
	struct iovec held = { pages, count * FW_CFG_PAGE };
	int pagemap;
	ssize_t size = count * sizeof(*at);

	if (mlock(pages, held.iov_len))
		return "mlock";
	if (pipe2(ends, O_CLOEXEC) || fcntl(ends[1], F_SETPIPE_SZ, held.iov_len) < 0 ||
	    vmsplice(ends[1], &held, 1, 0) != (ssize_t)held.iov_len)
		return "vmsplice";
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (pagemap < 0 ||
	    pread(pagemap, at, size, (uintptr_t)pages / FW_CFG_PAGE * sizeof(*at)) != size)
		return "/proc/self/pagemap";
	close(pagemap);
	for (; count; count--, at++) {
		if (!(*at & there) || !(*at & frame))
			return "/proc/self/pagemap";
		*at = (*at & frame) * FW_CFG_PAGE;
	}
	return NULL;
}

#if defined(__x86_64__)
static const char *fw_cfg_map(void)
{
	return NULL;
}

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
/* Maps the device's registers, for all who share this memory.  Returns what does not work. */
static const char *fw_cfg_map(void)
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

static const char *fw_cfg_reach(void)
{
	return fw_cfg.start ? NULL : FW_CFG_NODES;
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
	const char *problem;
	uint64_t at[2];
	int ends[2];

	if (pages == MAP_FAILED)
		return "mmap";
	/* The device writes where they lie now: no child may make them be copied. */
	if (madvise(pages, 2 * FW_CFG_PAGE, MADV_DONTFORK))
		return "madvise";
	memset(pages, 0, 2 * FW_CFG_PAGE);
	problem = fw_cfg_hold(pages, 2, at, ends);
	if (problem)
		return problem;
	fw_cfg.access = (volatile struct fw_cfg_access *)pages;
	fw_cfg.data = pages + FW_CFG_PAGE;
	fw_cfg.access_at = at[0];
	fw_cfg.data_at = at[1];
	return fw_cfg_reach();
}

/* Has the device write at most a page to an address of memory, from where the last read ended. */
static bool fw_cfg_write_to(uint64_t at, uint32_t control, size_t size)
{
	fw_cfg.access->control = htobe32(control | FW_CFG_READ);
	fw_cfg.access->length = htobe32(size);
	fw_cfg.access->address = htobe64(at);
	fw_cfg_start();
	return !fw_cfg.access->control;
}

/* Reads at most a page, from where the last read ended; control: a selector, or 0 to go on. */
static bool fw_cfg_read(uint32_t control, void *to, size_t size)
{
	if (!fw_cfg_write_to(fw_cfg.data_at, control, size))
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

/* Reads such a file whole, into room for all of it. */
static bool fw_cfg_fetch(const struct fw_cfg_file *file, char *to)
{
	uint32_t control = fw_cfg_select(be16toh(file->select)), left = be32toh(file->size);

	while (left) {
		size_t size = left < FW_CFG_PAGE ? left : FW_CFG_PAGE;

		if (!fw_cfg_read(control, to, size))
			return false;
		to += size;
		left -= size;
		control = 0;
	}
	return true;
}

/*
 * Makes a file of zeros, of FW_CFG_PLACE bytes, whose pages the device can write.  Nobody has it open
 * for writing afterwards, so that it can be executed.  Returns what does not work, NULL when all does.
 */
static const char *fw_cfg_prepare(const char *path, struct fw_cfg_place *place)
{
	static const char zeros[FW_CFG_PAGE];
	int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	const char *problem;
	unsigned char *pages;
	size_t i;

	for (i = 0; i < FW_CFG_PLACE_PAGES; i++)
		if (write(file, zeros, sizeof(zeros)) != sizeof(zeros))
			return path;
	close(file);
	file = open(path, O_RDONLY | O_CLOEXEC);
	pages = mmap(NULL, FW_CFG_PLACE, PROT_READ, MAP_SHARED, file, 0);
	if (file < 0 || pages == MAP_FAILED)
		return path;
	close(file);
	place->size = 0;
	problem = fw_cfg_hold(pages, FW_CFG_PLACE_PAGES, place->at, place->pipe);
	/* The program's pages are its alone, or a kernel does not move them with it. */
	munmap(pages, FW_CFG_PLACE);
	return problem;
}

static bool fw_cfg_fits(const struct fw_cfg_file *file, const struct fw_cfg_place *place)
{
	return !place->size && be32toh(file->size) <= FW_CFG_PLACE;
}

/* Has the device write such a file to a place that it fits, once. */
static bool fw_cfg_fill(const struct fw_cfg_file *file, struct fw_cfg_place *place)
{
	uint32_t control = fw_cfg_select(be16toh(file->select)), size = be32toh(file->size), at;

	place->size = size;
	for (at = 0; at < size; at += FW_CFG_PAGE, control = 0)
		if (!fw_cfg_write_to(place->at[at / FW_CFG_PAGE], control,
				     size - at < FW_CFG_PAGE ? size - at : FW_CFG_PAGE))
			return false;
	return !close(place->pipe[0]) && !close(place->pipe[1]);
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
