/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tells QEMU's pvpanic-pci device (docs/specs/pvpanic.rst of QEMU) that this guest panicked.  It did
 * not: with -action panic=pause, QEMU stops the virtual CPU at the very instruction that says so,
 * which is where the guest is to be saved, whatever else the host does at that moment.
 */
#ifndef KDELTA_PVPANIC_H
#define KDELTA_PVPANIC_H

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PVPANIC_DEVICES	"/sys/bus/pci/devices/*"
#define PVPANIC_VENDOR	0x1b36
#define PVPANIC_DEVICE	0x0011
#define PVPANIC_PANICKED 1
#define PVPANIC_PAGE	4096UL

static unsigned long long pvpanic_number(const char *device, const char *file)
{
	unsigned long long number = 0;
	char path[512];
	FILE *stream;

	snprintf(path, sizeof(path), "%s/%s", device, file);
	stream = fopen(path, "re");
	if (!stream)
		return 0;
	if (fscanf(stream, "%llx", &number) != 1)
		number = 0;
	fclose(stream);
	return number;
}

/* Maps the device's register.  Returns what does not work, NULL when all does. */
static const char *pvpanic_map(const char *device, volatile uint8_t **found)
{
	uint64_t start = pvpanic_number(device, "resource"); /* the first number is BAR 0's start */
	char path[512];
	uint8_t *page;
	int file;

	snprintf(path, sizeof(path), "%s/enable", device);
	file = open(path, O_WRONLY | O_CLOEXEC);
	if (file < 0 || write(file, "1", 1) != 1)
		return "enable";
	close(file);
	snprintf(path, sizeof(path), "%s/resource0", device);
	file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0)
		return "resource0";
	page = mmap(NULL, PVPANIC_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (page == MAP_FAILED)
		return "mmap of resource0";
	*found = page + start % PVPANIC_PAGE;
	return NULL;
}

/* Finds the device.  Returns what does not work, NULL when all does. */
static const char *pvpanic_open(volatile uint8_t **found)
{
	const char *problem = "no such device on the PCI bus";
	glob_t devices;
	size_t i;

	if (glob(PVPANIC_DEVICES, 0, NULL, &devices))
		return problem;
	for (i = 0; i < devices.gl_pathc; i++)
		if (pvpanic_number(devices.gl_pathv[i], "vendor") == PVPANIC_VENDOR &&
		    pvpanic_number(devices.gl_pathv[i], "device") == PVPANIC_DEVICE) {
			problem = pvpanic_map(devices.gl_pathv[i], found);
			break;
		}
	globfree(&devices);
	return problem;
}

#endif
