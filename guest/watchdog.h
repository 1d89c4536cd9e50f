/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Lets QEMU stop this guest while it sleeps, by the watchdog i6300esb (Intel's 6300ESB data sheet,
 * document 300641, chapter 15) and -action watchdog=pause.
 *
 * Where a guest stops is then decided by its own clock alone.  One that stops in the midst of its
 * instructions (pvpanic) does so with its clock where it is, or with the next timer expired, as
 * two threads of QEMU have it.  While the CPU is idle only one of them does anything: it moves the
 * clock to the watchdog's end and stops the guest there.
 */
#ifndef KDELTA_WATCHDOG_H
#define KDELTA_WATCHDOG_H

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PCI_DEVICES	"/sys/bus/pci/devices/*"
#define WATCHDOG_VENDOR	0x8086
#define WATCHDOG_DEVICE	0x25ab
#define WATCHDOG_PAGE	4096UL

/* In PCI's configuration space. */
#define WATCHDOG_CONFIG		0x60
#define WATCHDOG_FAST		(1 << 2) /* 1 us a step, not 1 ms */
#define WATCHDOG_LOCK		0x68
#define WATCHDOG_ENABLE		(1 << 1)
/* In its memory. */
#define WATCHDOG_FIRST		0x00
#define WATCHDOG_SECOND		0x04
#define WATCHDOG_RELOAD		0x0c
#define WATCHDOG_UNLOCK_1	0x80
#define WATCHDOG_UNLOCK_2	0x86

struct watchdog {
	int config;
	volatile uint8_t *registers;
};

static unsigned long long pci_number(const char *device, const char *file)
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

static int pci_open(const char *device, const char *file, int flags)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", device, file);
	return open(path, flags | O_CLOEXEC);
}

/* Maps the device's registers.  Returns what does not work, NULL when all does. */
static const char *watchdog_map(const char *device, struct watchdog *watchdog)
{
	uint64_t start = pci_number(device, "resource"); /* the first number is BAR 0's start */
	int file = pci_open(device, "enable", O_WRONLY);
	uint8_t *page;

	if (file < 0 || write(file, "1", 1) != 1)
		return "enable";
	close(file);
	watchdog->config = pci_open(device, "config", O_RDWR);
	if (watchdog->config < 0)
		return "config";
	file = pci_open(device, "resource0", O_RDWR);
	if (file < 0)
		return "resource0";
	page = mmap(NULL, WATCHDOG_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (page == MAP_FAILED)
		return "mmap of resource0";
	watchdog->registers = page + start % WATCHDOG_PAGE;
	return NULL;
}

/* Finds the device.  Returns what does not work, NULL when all does. */
static const char *watchdog_open(struct watchdog *watchdog)
{
	const char *problem = "no such device on the PCI bus";
	glob_t devices;
	size_t i;

	if (glob(PCI_DEVICES, 0, NULL, &devices))
		return problem;
	for (i = 0; i < devices.gl_pathc; i++)
		if (pci_number(devices.gl_pathv[i], "vendor") == WATCHDOG_VENDOR &&
		    pci_number(devices.gl_pathv[i], "device") == WATCHDOG_DEVICE) {
			problem = watchdog_map(devices.gl_pathv[i], watchdog);
			break;
		}
	globfree(&devices);
	return problem;
}

static void watchdog_set(const struct watchdog *watchdog, unsigned int at, uint32_t value)
{
	*(volatile uint16_t *)(watchdog->registers + WATCHDOG_RELOAD) = WATCHDOG_UNLOCK_1;
	*(volatile uint16_t *)(watchdog->registers + WATCHDOG_RELOAD) = WATCHDOG_UNLOCK_2;
	*(volatile uint32_t *)(watchdog->registers + at) = value;
}

/* Starts it: it ends after twice so many microseconds, once.  False when that does not work. */
static bool watchdog_start(const struct watchdog *watchdog, uint32_t each_us)
{
	static const uint8_t enable = WATCHDOG_ENABLE;
	static const uint16_t config = WATCHDOG_FAST;

	watchdog_set(watchdog, WATCHDOG_FIRST, each_us);
	watchdog_set(watchdog, WATCHDOG_SECOND, each_us);
	return pwrite(watchdog->config, &config, sizeof(config), WATCHDOG_CONFIG) ==
		       sizeof(config) &&
	       pwrite(watchdog->config, &enable, sizeof(enable), WATCHDOG_LOCK) == sizeof(enable);
}

#endif
