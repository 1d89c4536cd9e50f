// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PID 1 of a kdelta guest.  It mounts what workloads read, waits until boot's background work
 * has died down, says on its port what machine it sees, and then does what its orders say:
 *
 *	identity			what the guest sees of itself: what it said at boot, where
 *					no order set anything since
 *	kallsyms			the kernel's symbols
 *	write PATH VALUE		set a file of /sys or /proc
 *	read PATH			the first line of such a file
 *	module NAME PARAMETERS		load a kernel module
 *	modules				the symbols of loaded modules, as kallsyms has them
 *	swapon DEVICE			make all of a block device swap, and use it
 *	seed TICKS MEMORY RANDOM ADDRESSES
 *					what four numbers decide, see seed.h
 *	run ARGUMENTS ...		run the static program
 *	tracefs				mount the kernel's tracing
 *	whole PATH			all of a file of /sys or /proc
 *	try ORDER			do that, and tell its status on a line of its own behind
 *					what it answers, where another order would fail
 *
 * Orders are lines of a file of QEMU's fw_cfg device, beside the program and the modules, all of
 * which its courier brings, see courier.h.  While that file is empty there is nothing to do: the
 * virtual machine is stopped, to be saved there; one that is restored finds its orders when it goes on.
 * So nothing enters a guest while it runs, and nothing leaves it: what it answers is held until all is
 * done, then written in one piece, and the guest ends.  An order that fails is the last one; its status is an errno, that of run the program's.
 *
 * The port is the virtio-serial port named kdelta.0, or, where the kernel has no virtio console
 * built in, the second serial port of a PC.  It carries "kdelta-ready PROTOCOL SETTLED BYTES" and
 * what identity says, at boot, then for each order "kdelta-answer STATUS BYTES" and as many bytes.
 * The kernel's console carries only what the kernel says and, from here, reasons for giving up.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/module.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "courier.h"
#include "cpu.h"
#include "runner.h"
#include "seed.h"
#include "swap.h"

#define PROTOCOL "2"
#define PORT_NAME "kdelta.0"
#define SERIAL_PORT "/dev/ttyS1"
#define MODULE "/run/module"
#define TRANSPLANT "/transplant.ko"
#define OUTPUT_ROOM "size=65m" /* of its file system */
#define MAX_OUTPUT (64L << 20)
#define TRACEFS "/sys/kernel/tracing"
#define MAX_HELD (1 << 20)

static void power_off(void)
{
	sync();
	/* Without ACPI power-off only halts; with QEMU's -no-reboot a restart ends the guest. */
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

__attribute__((format(printf, 1, 2))) static void give_up(const char *format, ...)
{
	va_list arguments;

	printf("kdelta-init: ");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
	power_off();
}

static void mount_one(const char *type, const char *target, bool needed, const char *options)
{
	mkdir(target, 0755);
	if (mount(type, target, type, 0, options) && errno != EBUSY && needed)
		give_up("cannot mount %s on %s: %s", type, target, strerror(errno));
}

static void mount_all(void)
{
	mount_one("devtmpfs", "/dev", true, NULL);
	mount_one("proc", "/proc", true, NULL);
	mount_one("sysfs", "/sys", true, NULL);
	mount_one("tmpfs", "/run", true, NULL);
	mount_one("tmpfs", "/output", true, OUTPUT_ROOM);
	mount_one("tmpfs", "/tmp", false, NULL);
	mount_one("debugfs", "/sys/kernel/debug", false, NULL);
}

/* First line of a small file without its newline; "" when it cannot be read. */
static const char *read_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");

	line[0] = '\0';
	if (!file)
		return line;
	if (!fgets(line, size, file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return line;
}

/* Opens the order port, -1 when the kernel shows none under our name. */
static int try_port(void)
{
	const char *directory = "/sys/class/virtio-ports";
	DIR *ports = opendir(directory);
	struct dirent *entry;
	char path[512], name[64];
	int fd = -1;

	if (!ports)
		return -1;
	while (fd < 0 && (entry = readdir(ports))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/name", directory, entry->d_name);
		if (strcmp(read_line(path, name, sizeof(name)), PORT_NAME))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	closedir(ports);
	return fd;
}

struct port {
	int fd;
	bool serial;
};

static struct port open_serial(void)
{
	struct port port = { open(SERIAL_PORT, O_RDWR | O_NOCTTY | O_CLOEXEC), true };
	struct termios line;

	if (port.fd < 0 || tcgetattr(port.fd, &line))
		give_up("no virtio-serial port %s (CONFIG_VIRTIO_PCI=y, CONFIG_VIRTIO_CONSOLE=y) and no %s",
			PORT_NAME, SERIAL_PORT);
	cfmakeraw(&line);
	cfsetspeed(&line, B115200);
	if (tcsetattr(port.fd, TCSAFLUSH, &line))
		give_up("%s: %s", SERIAL_PORT, strerror(errno));
	return port;
}

static struct port open_port(void)
{
	int tries, fd;

	/* A kernel with the driver built in has probed the port before it started us. */
	for (tries = 0; tries < 50; tries++) {
		fd = try_port();
		if (fd >= 0)
			return (struct port){ fd, false };
		sleep_ms(10);
	}
	return open_serial();
}

static bool idle_ticks(uint64_t *idle, uint64_t *all)
{
	unsigned long long field[8] = { 0 };
	char line[512];
	int i;

	read_line("/proc/stat", line, sizeof(line));
	if (sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &field[0], &field[1], &field[2],
		   &field[3], &field[4], &field[5], &field[6], &field[7]) < 5)
		return false;
	*idle = field[3] + field[4];
	for (*all = 0, i = 0; i < 8; i++)
		*all += field[i];
	return true;
}

/*
 * Background work of boot (self tests, RCU, DAMON) would pollute the first windows: wait for
 * three quiet quarters of a second (at least 90 % idle), at most 15 s.
 */
static bool settle(void)
{
	uint64_t idle, all, idle_before, all_before;
	int quiet = 0, tries;

	if (!idle_ticks(&idle_before, &all_before))
		return false;
	for (tries = 0; tries < 60 && quiet < 3; tries++) {
		sleep_ms(250);
		idle_ticks(&idle, &all);
		quiet = (idle - idle_before) * 10 >= (all - all_before) * 9 ? quiet + 1 : 0;
		idle_before = idle;
		all_before = all;
	}
	return quiet == 3;
}

static void tell_file(FILE *out, const char *key, const char *path)
{
	char line[4096];

	fprintf(out, "%s %s\n", key, read_line(path, line, sizeof(line)));
}

/* GNU build id of the running kernel, from its ELF notes. */
static void tell_build_id(FILE *out)
{
	unsigned char notes[4096];
	size_t size, at = 0, i;
	FILE *file = fopen("/sys/kernel/notes", "re");

	size = file ? fread(notes, 1, sizeof(notes), file) : 0;
	if (file)
		fclose(file);
	fprintf(out, "build-id ");
	while (at + 12 <= size) {
		uint32_t name, length, type;
		size_t body;

		memcpy(&name, notes + at, 4);
		memcpy(&length, notes + at + 4, 4);
		memcpy(&type, notes + at + 8, 4);
		body = at + 12 + ((name + 3) & ~3u);
		if (name > size || length > size || body + length > size)
			break;
		if (type == 3 && name == 4 && !memcmp(notes + at + 12, "GNU", 4)) {
			for (i = 0; i < length; i++)
				fprintf(out, "%02x", notes[body + i]);
			break;
		}
		at = body + ((length + 3) & ~3u);
	}
	fprintf(out, "\n");
}

static void tell_mitigations(FILE *out)
{
	const char *directory = "/sys/devices/system/cpu/vulnerabilities";
	struct dirent **entries;
	int count = scandir(directory, &entries, NULL, alphasort), i;

	for (i = 0; i < count; i++) {
		char path[512], line[512];

		snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.')
			fprintf(out, "mitigation %s %s\n", entries[i]->d_name,
				read_line(path, line, sizeof(line)));
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

static int count_nodes(void)
{
	DIR *nodes = opendir("/sys/devices/system/node");
	struct dirent *entry;
	int count = 0;

	if (!nodes)
		return 1;
	while ((entry = readdir(nodes)))
		count += !strncmp(entry->d_name, "node", 4) && entry->d_name[4] >= '0' &&
			 entry->d_name[4] <= '9';
	closedir(nodes);
	return count ? count : 1;
}

/* What is swapped to: device and KiB, of each. */
static void tell_swap(FILE *out)
{
	FILE *swaps = fopen("/proc/swaps", "re");
	char line[512], name[256];
	long kb;

	fprintf(out, "swap");
	while (swaps && fgets(line, sizeof(line), swaps))
		if (sscanf(line, "%255s %*s %ld", name, &kb) == 2)
			fprintf(out, " %s %ld", name, kb);
	fprintf(out, "\n");
	if (swaps)
		fclose(swaps);
}

static void tell_identity(FILE *out, bool serial)
{
	struct utsname name;
	struct sysinfo memory;

	if (uname(&name) || sysinfo(&memory))
		give_up("uname or sysinfo: %s", strerror(errno));
	fprintf(out, "port %s\n", serial ? "serial" : "virtio");
	fprintf(out, "release %s\n", name.release);
	fprintf(out, "machine %s\n", name.machine);
	fprintf(out, "build %s\n", name.version);
	tell_file(out, "version", "/proc/version");
	tell_build_id(out);
	tell_file(out, "cmdline", "/proc/cmdline");
	fprintf(out, "cpus %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
	fprintf(out, "memory-mib %llu\n",
		(unsigned long long)memory.totalram * memory.mem_unit >> 20);
	fprintf(out, "nodes %d\n", count_nodes());
	tell_file(out, "thp", "/sys/kernel/mm/transparent_hugepage/enabled");
	tell_file(out, "thp-shmem", "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
	tell_file(out, "preempt", "/sys/kernel/debug/sched/preempt");
	tell_swap(out);
	tell_file(out, "clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource");
	tell_cpu(out);
	tell_mitigations(out);
}

/* Changed functions of the kernel, where its image brings some. */
static void load_transplant(void)
{
	int file = open(TRANSPLANT, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return;
	if (syscall(SYS_finit_module, file, "",
		    MODULE_INIT_IGNORE_MODVERSIONS | MODULE_INIT_IGNORE_VERMAGIC))
		give_up("the changed functions are not loaded: %s", strerror(errno));
	close(file);
	unlink(TRANSPLANT);
}

/* What the guest said of itself at boot: told again for as long as nothing was set since. */
static struct {
	char *text;
	size_t size;
	bool stale;
} greeted;

static void tell_again(FILE *out, bool serial)
{
	if (greeted.stale)
		tell_identity(out, serial);
	else
		fwrite(greeted.text, 1, greeted.size, out);
}

static int tell_whole(FILE *out, const char *path)
{
	static char block[1 << 16];
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size;

	if (file < 0)
		return errno;
	while ((size = read(file, block, sizeof(block))) > 0)
		fwrite(block, 1, size, out);
	close(file);
	return 0;
}

static int tell_module_symbols(FILE *out)
{
	FILE *symbols = fopen("/proc/kallsyms", "re");
	char line[1024];
	int status = symbols ? 0 : errno;

	while (symbols && fgets(line, sizeof(line), symbols))
		if (strchr(line, '['))
			fputs(line, out);
	if (symbols)
		fclose(symbols);
	return status;
}

/* Has a file brought that QEMU was started with; COURIER_ORDERS: waits until there are some. */
static void fetch(const char *name, const char *path)
{
	const char *problem = courier_fetch(name, path);

	if (problem)
		give_up("%s: %s", name, problem);
}

static int run_program(FILE *out, const char *line)
{
	const char *problem = runner_check(line);
	struct stat printed;
	int status;

	if (problem)
		give_up("%s", problem);
	greeted.stale = true;
	fetch("program", COURIER_PROGRAM);
	status = runner_run(line);
	if (status < 0)
		give_up("the program: %s", strerror(errno));
	if (!stat(OUTPUT, &printed) && printed.st_size > MAX_OUTPUT)
		give_up("the program printed more than %ld MiB", MAX_OUTPUT >> 20);
	tell_whole(out, OUTPUT);
	return status;
}

static int load_module(char *line)
{
	char *name = strtok(line, " "), *parameters = strtok(NULL, "");
	int file, status = 0;

	greeted.stale = true;
	fetch(name ? name : "", MODULE);
	file = open(MODULE, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return errno;
	if (syscall(SYS_finit_module, file, parameters ? parameters : "", 0))
		status = errno;
	close(file);
	return status;
}

static int swap(const char *device)
{
	greeted.stale = true;
	return swap_on(device);
}

static bool is_setting(const char *path)
{
	return (!strncmp(path, "/sys/", 5) || !strncmp(path, "/proc/", 6)) && !strstr(path, "..");
}

static int write_file(const char *path, const char *value)
{
	int fd, status = 0;

	if (!is_setting(path))
		return EPERM;
	greeted.stale = true;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (write(fd, value, strlen(value)) != (ssize_t)strlen(value))
		status = errno ? errno : EIO;
	close(fd);
	return status;
}

static int set_file(char *line)
{
	char *value = strchr(line, ' ');

	if (!value)
		return EINVAL;
	*value++ = '\0';
	return write_file(line, value);
}

static int tell_setting(FILE *out, const char *path)
{
	char line[4096] = "";

	if (is_setting(path))
		read_line(path, line, sizeof(line));
	fprintf(out, "%s\n", line);
	return 0;
}

/*
 * DAMON's statistics hold references to pages, which then cannot be split or reclaimed, and mark
 * what they saw as accessed.  They stay as they are where the command line speaks of them.
 */
static void calm(void)
{
	char line[4096];

	if (!strstr(read_line("/proc/cmdline", line, sizeof(line)), "damon_stat."))
		write_file("/sys/module/damon_stat/parameters/enabled", "N");
}

static int obey(FILE *out, char *line, bool serial)
{
	int status = 0;

	if (!strcmp(line, "identity"))
		tell_again(out, serial);
	else if (!strcmp(line, "kallsyms"))
		status = tell_whole(out, "/proc/kallsyms");
	else if (!strcmp(line, "modules"))
		status = tell_module_symbols(out);
	else if (!strncmp(line, "write ", 6))
		status = set_file(line + 6);
	else if (!strncmp(line, "read ", 5))
		status = tell_setting(out, line + 5);
	else if (!strncmp(line, "module ", 7))
		status = load_module(line + 7);
	else if (!strncmp(line, "swapon ", 7))
		status = swap(line + 7);
	else if (!strcmp(line, "tracefs"))
		status = mount("tracefs", TRACEFS, "tracefs", 0, NULL) ? errno : 0;
	else if (!strncmp(line, "whole ", 6))
		status = is_setting(line + 6) ? tell_whole(out, line + 6) : EPERM;
	else if (!strncmp(line, "try ", 4))
		fprintf(out, "\n%d\n", obey(out, line + 4, serial));
	else if (!strncmp(line, "seed ", 5))
		status = seed_sow(line + 5);
	else if (!strcmp(line, "run") || !strncmp(line, "run ", 4))
		status = run_program(out, line + 3);
	else
		give_up("unknown order '%.60s'", line);
	return status;
}

/* Not by printf(), which is the most code of all that a restored guest would execute here. */
static void put_number(FILE *to, char before, size_t number)
{
	char text[24], *at = text + sizeof(text);

	do
		*--at = '0' + number % 10;
	while (number /= 10);
	*--at = before;
	fwrite(at, 1, text + sizeof(text) - at, to);
}

/* A text behind its head. */
static void put(FILE *to, const char *head, unsigned int number, const char *text, size_t size)
{
	fputs(head, to);
	put_number(to, ' ', number);
	put_number(to, ' ', size);
	fputs("\n", to);
	fwrite(text, 1, size, to);
}

/* Obeys the orders, up to one that fails. */
static void obey_all(FILE *held, bool serial)
{
	char *rest = courier.orders, *line;
	int status = 0;

	while (!status && (line = strsep(&rest, "\n")) && *line) {
		size_t size;
		char *text;
		FILE *out = open_memstream(&text, &size);

		runner.last = !rest || !*rest;
		status = obey(out, line, serial);
		if (fclose(out))
			give_up("no room for an answer: %s", strerror(errno));
		put(held, "kdelta-answer", status, text, size);
		free(text);
	}
}

static void greet(FILE *port, bool serial, bool quiet)
{
	FILE *out = open_memstream(&greeted.text, &greeted.size);

	tell_identity(out, serial);
	if (fclose(out))
		give_up("no room for an identity: %s", strerror(errno));
	greeted.stale = false;
	put(port, "kdelta-ready " PROTOCOL, quiet, greeted.text, greeted.size);
}

static void send_all(FILE *port, bool serial)
{
	fflush(port);
	if (serial)
		tcdrain(fileno(port));
}

int main(void)
{
	const char *problem;
	struct port port;
	FILE *out;
	bool quiet;

	if (getpid() != 1) {
		fprintf(stderr, "kdelta-init is PID 1 of a kdelta guest; it does nothing here\n");
		return 2;
	}
	mount_all();
	load_transplant();
	port = open_port();
	out = fdopen(port.fd, "w");
	if (!out || setvbuf(out, NULL, _IOFBF, MAX_HELD))
		give_up("the port: %s", strerror(errno));
	problem = courier_start();
	if (problem)
		give_up("the courier: %s: %s", problem, strerror(errno));
	if (!runner_start())
		give_up("the runner: %s", strerror(errno));
	calm();
	quiet = settle();
	greet(out, port.serial, quiet);
	send_all(out, port.serial);
	fetch(COURIER_ORDERS, "");
	obey_all(out, port.serial);
	send_all(out, port.serial);
	power_off();
	return 0;
}
