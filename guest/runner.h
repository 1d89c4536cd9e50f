/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process that becomes a program.  One lies ready in every guest that is saved, as the courier
 * does; where a guest runs several programs, each further one is started when it is its turn.
 */
#ifndef KDELTA_RUNNER_H
#define KDELTA_RUNNER_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "courier.h"
#include "seed.h"

#define OUTPUT		     "/output/printed"
#define RUNNER_LINE	     PIPE_BUF /* bytes of arguments, with their end */
#define RUNNER_ARGUMENTS     32
#define RUNNER_NOT_PREPARED  126
#define RUNNER_NOT_A_PROGRAM 127
#define RUNNER_DONE	     "\nend 0\n" /* what a program prints last that did all it should */

static struct {
	pid_t process; /* 0: there is none */
	int told, tell; /* a pipe for the arguments */
	bool last; /* of the guest's programs */
} runner;

/* Why a line is no program's arguments, NULL when it is. */
static const char *runner_check(const char *line)
{
	int count = 0;

	if (strlen(line) >= RUNNER_LINE)
		return "an order has 4095 bytes or more";
	for (line += strspn(line, " "); *line; line += strspn(line, " "), count++)
		line += strcspn(line, " ");
	return count > RUNNER_ARGUMENTS ? "an order has more than 32 arguments" : NULL;
}

static int runner_become(char *line)
{
	char *arguments[RUNNER_ARGUMENTS + 2] = { COURIER_PROGRAM };
	int count = 1;
	char *word;

	for (word = strtok(line, " "); word && count <= RUNNER_ARGUMENTS; word = strtok(NULL, " "))
		arguments[count++] = word;
	execv(COURIER_PROGRAM, arguments);
	return RUNNER_NOT_A_PROGRAM;
}

/*
 * The program runs on one CPU, the last, so that its marks open and close windows there.  It prints
 * into memory: no device is at work while it is counted.  Until its line is there this makes system
 * calls and nothing else, for PID 1 is at work in the same memory.
 */
static int runner_live(void *unused)
{
	int output = open(OUTPUT, O_WRONLY | O_APPEND | O_CREAT | O_TRUNC, 0600);
	char line[RUNNER_LINE];
	cpu_set_t cpus;
	ssize_t size;

	(void)unused;
	CPU_ZERO(&cpus);
	CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) || dup2(output, STDOUT_FILENO) < 0 ||
	    dup2(output, STDERR_FILENO) < 0 || close(output))
		return RUNNER_NOT_PREPARED;
	size = read(runner.told, line, sizeof(line));
	if (size <= 0 || line[size - 1])
		return RUNNER_NOT_PREPARED;
	if (runner.last)
		setenv("KD_LAST", "1", true);
	if (seed_place())
		return RUNNER_NOT_PREPARED;
	return runner_become(line);
}

/* False when it cannot be had. */
static bool runner_start(void)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return false;
	runner.told = ends[0];
	runner.tell = ends[1];
	runner.process = start_beside(runner_live, NULL);
	return runner.process > 0;
}

/* True when the program has printed that it did all it should. */
static bool runner_done(void)
{
	const off_t size = sizeof(RUNNER_DONE) - 1;
	int output = open(OUTPUT, O_RDONLY | O_CLOEXEC);
	char end[sizeof(RUNNER_DONE)] = "";
	bool done = lseek(output, -size, SEEK_END) >= 0 && read(output, end, size) == size &&
		    !strcmp(end, RUNNER_DONE);

	close(output);
	return done;
}

/*
 * The status that the program ends with, below 0 when there is none.  The last one of a guest may
 * stop when it is done: what it has is not given back then, to a guest that ends.
 */
static int runner_wait(void)
{
	int status = 0;

	do {
		while (waitpid(runner.process, &status, WUNTRACED) < 0)
			if (errno != EINTR)
				return -1;
		if (WIFSTOPPED(status) && runner_done())
			return 0;
	} while (WIFSTOPPED(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs the program with a line of arguments, of which there may be none; returns what it waits for. */
static int runner_run(const char *line)
{
	ssize_t size = strlen(line) + 1;
	int status;

	if (seed_addresses && runner.process) { /* it has lain at one place since the guest was saved */
		kill(runner.process, SIGKILL);
		runner_wait();
		close(runner.told);
		close(runner.tell);
		runner.process = 0;
	}
	if (!runner.process && !runner_start())
		return -1;
	if (write(runner.tell, line, size) != size)
		return -1;
	status = runner_wait();
	if (runner.last)
		return status;
	close(runner.told);
	close(runner.tell);
	runner.process = 0;
	return status;
}

#endif
