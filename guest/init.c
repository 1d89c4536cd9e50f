// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PID 1 of a kdelta guest.  It mounts what workloads read, waits until boot's background work
 * has died down, says on the order port what machine it sees, and then takes orders:
 *
 *	identity			what the guest sees of itself, again
 *	kallsyms			the kernel's symbols
 *	write PATH VALUE		set a file of /sys or /proc
 *	read PATH			the first line of such a file
 *	module NAME BYTES PARAMETERS	load the kernel module of BYTES bytes that follows the line
 *	modules				the symbols of loaded modules, as kallsyms has them
 *	swapon DEVICE			make all of a block device swap, and use it
 *	run BYTES ARGUMENTS ...		run the static program of BYTES bytes that follows the line
 *	poweroff
 *
 * Every answer ends in a line "kdelta-done STATUS"; that of write, module and swapon is an errno.
 * The order port is the virtio-serial port named kdelta.0, or, where the kernel has no virtio
 * console built in, the second serial port of a PC.  Such a line is slow and loses what is not
 * read in time: then a program or module does not follow its order but lies in QEMU's fw_cfg
 * device.  The kernel's console carries only what the kernel says and, from here, reasons for
 * giving up.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <sys/io.h>
#endif
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cpu.h"

#define PROTOCOL 1
#define PORT_NAME "kdelta.0"
#define SERIAL_PORT "/dev/ttyS1"
#define FW_CFG_FOLDER "opt/org.kdelta/"
#define PROGRAM "/run/workload"
#define MAX_PROGRAM (64L << 20)
#define MAX_ARGUMENTS 32

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

static void mount_one(const char *type, const char *target, bool needed)
{
	mkdir(target, 0755);
	if (mount(type, target, type, 0, NULL) && errno != EBUSY && needed)
		give_up("cannot mount %s on %s: %s", type, target, strerror(errno));
}

static void mount_all(void)
{
	mount_one("devtmpfs", "/dev", true);
	mount_one("proc", "/proc", true);
	mount_one("sysfs", "/sys", true);
	mount_one("tmpfs", "/run", true);
	mount_one("tmpfs", "/tmp", false);
	mount_one("debugfs", "/sys/kernel/debug", false);
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

static void sleep_ms(long ms)
{
	struct timespec delay = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&delay, &delay) && errno == EINTR)
		;
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
	fprintf(out, "kdelta-done 0\n");
}

static void tell_kallsyms(FILE *out)
{
	static char block[1 << 16];
	FILE *symbols = fopen("/proc/kallsyms", "re");
	size_t size;

	if (!symbols) {
		fprintf(out, "kdelta-done %d\n", errno);
		return;
	}
	while ((size = fread(block, 1, sizeof(block), symbols)))
		fwrite(block, 1, size, out);
	fclose(symbols);
	fprintf(out, "kdelta-done 0\n");
}

static void tell_module_symbols(FILE *out)
{
	FILE *symbols = fopen("/proc/kallsyms", "re");
	char line[1024];
	int status = symbols ? 0 : errno;

	while (symbols && fgets(line, sizeof(line), symbols))
		if (strchr(line, '['))
			fputs(line, out);
	if (symbols)
		fclose(symbols);
	fprintf(out, "kdelta-done %d\n", status);
}

static void receive(FILE *in, FILE *to, long bytes)
{
	static char block[1 << 16];

	while (bytes > 0) {
		size_t size = bytes < (long)sizeof(block) ? (size_t)bytes : sizeof(block);

		size = fread(block, 1, size, in);
		if (!size)
			give_up("the order port closed in the middle of a program");
		if (fwrite(block, 1, size, to) != size)
			give_up("no room for %ld bytes: %s", bytes, strerror(errno));
		bytes -= size;
	}
}

#if defined(__x86_64__)
#define FW_CFG_SELECTOR 0x510
#define FW_CFG_DATA 0x511
#define FW_CFG_DIRECTORY 0x19

/* An entry of the device's directory, docs/specs/fw_cfg.rst of QEMU; numbers are big-endian. */
struct fw_cfg_file {
	uint32_t size;
	uint16_t select;
	uint16_t reserved;
	char name[56];
};

static void fw_cfg_read(void *buffer, size_t size)
{
	asm volatile("rep insb" : "+D"(buffer), "+c"(size) : "d"(FW_CFG_DATA) : "memory");
}

/* Selects a file of ours; false when QEMU was started without it. */
static bool fw_cfg_select(const char *name, long bytes)
{
	struct fw_cfg_file file;
	uint32_t count;

	outw(FW_CFG_DIRECTORY, FW_CFG_SELECTOR);
	fw_cfg_read(&count, sizeof(count));
	for (count = be32toh(count); count; count--) {
		fw_cfg_read(&file, sizeof(file));
		if (strncmp(file.name, name, sizeof(file.name)) ||
		    be32toh(file.size) != (uint32_t)bytes)
			continue;
		outw(be16toh(file.select), FW_CFG_SELECTOR);
		return true;
	}
	return false;
}

static void fetch(const char *name, FILE *to, long bytes)
{
	static char block[1 << 16];

	if (ioperm(FW_CFG_SELECTOR, 2, 1))
		give_up("ioperm: %s", strerror(errno));
	if (!fw_cfg_select(name, bytes))
		give_up("QEMU's fw_cfg device has no %s of %ld bytes", name, bytes);
	while (bytes > 0) {
		size_t size = bytes < (long)sizeof(block) ? (size_t)bytes : sizeof(block);

		fw_cfg_read(block, size);
		if (fwrite(block, 1, size, to) != size)
			give_up("no room for %ld bytes: %s", bytes, strerror(errno));
		bytes -= size;
	}
}
#else
static void fetch(const char *name, FILE *to, long bytes)
{
	(void)name;
	(void)to;
	(void)bytes;
	give_up("this machine has no fw_cfg ports");
}
#endif

static void load_program(FILE *in, bool serial, long bytes)
{
	FILE *program;

	unlink(PROGRAM);
	program = fopen(PROGRAM, "we");
	if (!program)
		give_up("%s: %s", PROGRAM, strerror(errno));
	if (serial)
		fetch(FW_CFG_FOLDER "program", program, bytes);
	else
		receive(in, program, bytes);
	if (fclose(program) || chmod(PROGRAM, 0755))
		give_up("%s: %s", PROGRAM, strerror(errno));
}

/* The program runs on one CPU, the last, so that its marks open and close windows there. */
static void become_program(int port, char **arguments)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		_exit(126);
	if (dup2(port, STDOUT_FILENO) < 0 || dup2(port, STDERR_FILENO) < 0)
		_exit(126);
	execv(PROGRAM, arguments);
	_exit(127);
}

static void run_program(FILE *in, FILE *out, bool serial, char *line)
{
	char *arguments[MAX_ARGUMENTS + 2] = { PROGRAM };
	char *word = strtok(line, " ");
	long bytes = word ? strtol(word, NULL, 10) : 0;
	int count = 1, status;
	pid_t child;

	while ((word = strtok(NULL, " "))) {
		if (count > MAX_ARGUMENTS)
			give_up("an order has more than %d arguments", MAX_ARGUMENTS);
		arguments[count++] = word;
	}
	if (bytes <= 0 || bytes > MAX_PROGRAM)
		give_up("an order wants a program of %ld bytes", bytes);
	load_program(in, serial, bytes);
	child = fork();
	if (child < 0)
		give_up("fork: %s", strerror(errno));
	if (!child)
		become_program(fileno(out), arguments);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			give_up("waitpid: %s", strerror(errno));
	/* The line stands alone even when the program did not end its last one. */
	fprintf(out, "\nkdelta-done %d\n",
		WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void load_module(FILE *in, FILE *out, bool serial, char *line)
{
	char *name = strtok(line, " "), *size = strtok(NULL, " "), *parameters = strtok(NULL, "");
	long bytes = size ? strtol(size, NULL, 10) : 0;
	char *image = NULL, file[64];
	size_t length;
	FILE *memory;
	int status = 0;

	if (bytes <= 0 || bytes > MAX_PROGRAM)
		give_up("an order wants a module of %ld bytes", bytes);
	snprintf(file, sizeof(file), FW_CFG_FOLDER "%s", name);
	memory = open_memstream(&image, &length);
	if (!memory)
		give_up("open_memstream: %s", strerror(errno));
	if (serial)
		fetch(file, memory, bytes);
	else
		receive(in, memory, bytes);
	if (fclose(memory))
		give_up("no room for a module: %s", strerror(errno));
	if (syscall(SYS_init_module, image, length, parameters ? parameters : ""))
		status = errno;
	free(image);
	fprintf(out, "kdelta-done %d\n", status);
}

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

static bool is_setting(const char *path)
{
	return (!strncmp(path, "/sys/", 5) || !strncmp(path, "/proc/", 6)) && !strstr(path, "..");
}

static int write_file(const char *path, const char *value)
{
	int fd, status = 0;

	if (!is_setting(path))
		return EPERM;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (write(fd, value, strlen(value)) != (ssize_t)strlen(value))
		status = errno ? errno : EIO;
	close(fd);
	return status;
}

static void set_file(FILE *out, char *line)
{
	char *value = strchr(line, ' ');

	if (value)
		*value++ = '\0';
	fprintf(out, "kdelta-done %d\n", value ? write_file(line, value) : EINVAL);
}

static void tell_setting(FILE *out, const char *path)
{
	char line[4096] = "";

	if (is_setting(path))
		read_line(path, line, sizeof(line));
	fprintf(out, "%s\nkdelta-done 0\n", line);
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

static void take_orders(FILE *in, FILE *out, bool serial)
{
	char line[4096];

	while (fgets(line, sizeof(line), in)) {
		if (!strchr(line, '\n'))
			give_up("an order has %zu bytes or more", sizeof(line) - 1);
		line[strcspn(line, "\n")] = '\0';
		if (!line[0])
			continue; /* see Guest._order() in kdelta's session.py */
		if (!strcmp(line, "identity"))
			tell_identity(out, serial);
		else if (!strcmp(line, "kallsyms"))
			tell_kallsyms(out);
		else if (!strcmp(line, "modules"))
			tell_module_symbols(out);
		else if (!strncmp(line, "write ", 6))
			set_file(out, line + 6);
		else if (!strncmp(line, "read ", 5))
			tell_setting(out, line + 5);
		else if (!strncmp(line, "module ", 7))
			load_module(in, out, serial, line + 7);
		else if (!strncmp(line, "swapon ", 7))
			fprintf(out, "kdelta-done %d\n", swap_on(line + 7));
		else if (!strncmp(line, "run ", 4))
			run_program(in, out, serial, line + 4);
		else if (!strcmp(line, "poweroff"))
			power_off();
		else
			give_up("unknown order '%.60s'", line);
		fflush(out);
	}
}

int main(void)
{
	FILE *in, *out;
	struct port port;
	bool quiet;

	if (getpid() != 1) {
		fprintf(stderr, "kdelta-init is PID 1 of a kdelta guest; it does nothing here\n");
		return 2;
	}
	mount_all();
	port = open_port();
	/* Two streams: one stdio stream cannot turn from reading to writing on a port. */
	in = fdopen(port.fd, "r");
	out = fdopen(dup(port.fd), "w");
	if (!in || !out)
		give_up("the order port: %s", strerror(errno));
	calm();
	quiet = settle();
	fprintf(out, "kdelta-ready %d settled=%d\n", PROTOCOL, quiet);
	fflush(out);
	take_orders(in, out, port.serial);
	give_up("the order port closed");
	return 0;
}
