/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A process that brings PID 1 what QEMU was started with: orders, programs, modules.
 *
 * It is started once, at boot, and so lies ready in every guest that is restored: what it takes to
 * start a process and to reach the device is not executed again for each trial.  It alone has the
 * device's I/O ports, see fw_cfg.h.  While there are no orders it is the one that waits: it stops
 * the virtual machine, to be saved there, and looks again in the one that goes on.
 *
 * It shares PID 1's memory; but for its start, one of the two always waits for the other.
 */
#ifndef KDELTA_COURIER_H
#define KDELTA_COURIER_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__riscv)
#include "alarm.h"
#endif
#include "fw_cfg.h"
#include "watchdog.h"

#define COURIER_FOLDER	"opt/org.kdelta/"
#define COURIER_ORDERS	"orders"
#define COURIER_PROGRAM "/run/workload"
#define COURIER_ROOM	(1 << 20) /* bytes of orders */
#define COURIER_STACK	(1 << 16)
#define WATCHDOG_US	4000 /* and as long again */

static struct {
	int ask, answer, asked, answered; /* two pipes; a byte for each errand */
	const char *name, *path;	  /* what is wanted, and where it goes; orders stay here */
	char problem[256];		  /* why it could not be had; "": it is there */
	size_t size;			  /* of the orders */
	char orders[COURIER_ROOM + 1];
	struct fw_cfg_place program;
} courier;

static void sleep_ms(long ms)
{
	struct timespec delay = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&delay, &delay) && errno == EINTR)
		;
}

/* Sleeps over the watchdog's end, which it was started for just now. */
static const char *courier_rest(void)
{
#if defined(__riscv)
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += 2 * WATCHDOG_US * 1000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	return alarm_sleep(&end);
#else
	sleep_ms(2 * WATCHDOG_US / 1000 + 1);
	return NULL;
#endif
}

/* Reads the orders; there may be none.  Returns what does not work, NULL when all does. */
static const char *courier_read(void)
{
	struct fw_cfg_file file;

	if (!fw_cfg_find(COURIER_FOLDER COURIER_ORDERS, &file))
		return "no such file";
	if (be32toh(file.size) > COURIER_ROOM)
		return "more than 1 MiB of orders";
	if (!fw_cfg_fetch(&file, courier.orders))
		return "the device";
	courier.size = be32toh(file.size);
	courier.orders[courier.size] = '\0';
	return NULL;
}

/* Returns when there are orders: at once, or in a guest that was restored. */
static const char *courier_await(void)
{
	const char *problem = courier_read();
	struct watchdog watchdog;

	if (problem || courier.size)
		return problem;
	problem = watchdog_open(&watchdog);
	while (!problem && !courier.size) {
		problem = watchdog_start(&watchdog, WATCHDOG_US) ? courier_rest() : "i6300esb";
		if (!problem)
			problem = courier_read();
	}
	return problem;
}

/* Brings a file to a path.  The program's is there already, and has room: the device fills it. */
static const char *courier_bring(void)
{
	char name[sizeof(((struct fw_cfg_file *)NULL)->name)] = COURIER_FOLDER;
	struct fw_cfg_file file;
	const char *problem;
	int to;

	strncat(name, courier.name, sizeof(name) - sizeof(COURIER_FOLDER));
	if (!fw_cfg_find(name, &file))
		return "no such file";
	if (!strcmp(courier.path, COURIER_PROGRAM) && fw_cfg_fits(&file, &courier.program))
		return fw_cfg_fill(&file, &courier.program) ? NULL : "the device";
	unlink(courier.path);
	to = open(courier.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	if (to < 0)
		return courier.path;
	problem = fw_cfg_copy(&file, to);
	close(to);
	return problem;
}

/* The courier's own life: an errand for each byte that it is asked by. */
static int courier_serve(void *unused)
{
	const char *problem = fw_cfg_open();
	char byte;

	(void)unused;
	if (!problem)
		problem = fw_cfg_prepare(COURIER_PROGRAM, &courier.program);
	while (read(courier.asked, &byte, 1) == 1) {
		if (!problem)
			problem = strcmp(courier.name, COURIER_ORDERS) ? courier_bring() : courier_await();
		courier.problem[0] = '\0';
		if (problem)
			snprintf(courier.problem, sizeof(courier.problem), "%s: %s", problem,
				 strerror(errno));
		if (write(courier.answer, &byte, 1) != 1)
			break;
	}
	_exit(1);
}

/*
 * Starts a process that shares this one's memory, and so costs no copies of its pages, neither in
 * it nor here.  Returns its number, below 0 when it cannot be had.
 */
static pid_t start_beside(int (*run)(void *), void *with)
{
	char *stack = mmap(NULL, COURIER_STACK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	return stack == MAP_FAILED ? -1 : clone(run, stack + COURIER_STACK, CLONE_VM | SIGCHLD, with);
}

/*
 * It makes system calls and nothing else while PID 1 is at work, too: the C library knows of one process
 * in this memory.  So what takes more is done before it starts.  Returns what does not work, NULL when
 * all does.
 */
static const char *courier_start(void)
{
	const char *problem = fw_cfg_map();
	int ask[2], answer[2];

	if (problem)
		return problem;
	if (pipe2(ask, O_CLOEXEC) || pipe2(answer, O_CLOEXEC))
		return "pipe";
	courier.ask = ask[1];
	courier.asked = ask[0];
	courier.answer = answer[1];
	courier.answered = answer[0];
	return start_beside(courier_serve, NULL) > 0 ? NULL : "clone";
}

/*
 * Has a file brought to a path, or the orders, when there are some, to courier.orders.  Returns why
 * it is not there, NULL when it is.
 */
static const char *courier_fetch(const char *name, const char *path)
{
	char byte = 0;

	courier.name = name;
	courier.path = path;
	if (write(courier.ask, &byte, 1) != 1 || read(courier.answered, &byte, 1) != 1)
		return "the courier has ended";
	return courier.problem[0] ? courier.problem : NULL;
}

#endif
