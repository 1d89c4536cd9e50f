/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Makes a block device swap and uses it. */
#ifndef KDELTA_SWAP_H
#define KDELTA_SWAP_H

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/swap.h>
#include <unistd.h>

/* What mkswap(8) writes: version 1 of union swap_header in include/linux/swap.h. */
static int write_swap_header(int fd)
{
	static const char magic[10] = "SWAPSPACE2";
	long page = sysconf(_SC_PAGESIZE);
	uint32_t header[3] = { 1 };	/* version, last page, number of bad pages */
	uint64_t bytes;

	if (ioctl(fd, BLKGETSIZE64, &bytes))
		return errno;
	if (bytes < 10 * (uint64_t)page)
		return ENOSPC;
	header[1] = bytes / page - 1;
	if (pwrite(fd, header, sizeof(header), 1024) != sizeof(header) ||
	    pwrite(fd, magic, sizeof(magic), page - sizeof(magic)) != sizeof(magic))
		return errno ? errno : EIO;
	return fsync(fd) ? errno : 0;
}

static int swap_on(const char *device)
{
	int fd, status;

	if (strncmp(device, "/dev/", 5) || strstr(device, ".."))
		return EPERM;
	fd = open(device, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	status = write_swap_header(fd);
	close(fd);
	if (!status && swapon(device, 0))
		status = errno;
	return status;
}

#endif
