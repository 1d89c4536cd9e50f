/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What may differ between two guests of one kernel, and is the same in all restores of one.  A seed
 * decides each of four by a number:
 *
 *	ticks		where the timer's ticks fall
 *	memory		which memory is free.  Number 1 leaves it as the boot did; each other takes
 *			pages of both kinds that the kernel keeps apart (those that it can move and
 *			those that it cannot) and gives every second one back, so that free lists and
 *			batches stand elsewhere, and single pages lie free between used ones as on
 *			machines that have run for a while.  Where addresses have a number, up to 60
 *			tasks are there besides, and the program is a new process; and the chunks that
 *			memory of each CPU comes from are fuller
 *	random		the state of the kernel's random numbers, before the program draws any
 *	addresses	where mappings, stack and heap of the program lie
 *
 * 0 leaves each as it is.  Addresses are the same on every kernel for a number, and random for 0.
 */
#ifndef KDELTA_SEED_H
#define KDELTA_SEED_H

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/random.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Turns of two instructions, at most: 10 ms, more than a tick, where one takes 2 ns. */
#define SEED_TURNS   2500000ULL
#define SEED_MOVABLE 256 /* pages that can be moved: fewer */
#define SEED_PIPES   12 /* of 16 pages each that cannot: fewer */
#define SEED_PIPE    16
#define SEED_TASKS   61 /* fewer */
#define SEED_MAPS    48 /* of 2 KiB for each CPU: fewer; the first chunk has 28 KiB to give */

/* Fractions whose multiples are spread evenly, however many there are: one of the golden ratio,
 * two of the plastic number.
 */
#define SEED_GOLDEN  2654435769U
#define SEED_PLASTIC 3242174889U
#define SEED_SQUARED 2447445414U

/* From 0 up to, but without, a limit. */
static uint64_t seed_part(uint64_t number, uint32_t fraction, uint64_t limit)
{
	return (number * fraction & UINT32_MAX) * limit >> 32;
}

/*
 * Pages of a file in memory, which are not mapped; every second one goes again.  A kernel without
 * such files has only the others.
 */
static int seed_movable(uint64_t pages)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	long size = sysconf(_SC_PAGESIZE);
	int file;

	if (!pages)
		return 0;
	file = memfd_create("seed", MFD_CLOEXEC);
	if (file < 0)
		return errno == ENOSYS ? 0 : errno;
	if (fallocate(file, 0, 0, (off_t)pages * size))
		return errno == EOPNOTSUPP ? 0 : errno;
	for (uint64_t page = 0; page < pages; page += 2)
		if (fallocate(file, hole, (off_t)page * size, size))
			return errno;
	return 0;
}

/* Pipes whose writes are a page each; every second one is closed again. */
static int seed_unmovable(uint64_t pipes)
{
	int ends[SEED_PIPES][2];

	for (uint64_t pipe = 0; pipe < pipes; pipe++)
		if (pipe2(ends[pipe], O_DIRECT | O_NONBLOCK | O_CLOEXEC))
			return errno;
	for (int page = 0; page < SEED_PIPE; page++)
		for (uint64_t pipe = 0; pipe < pipes; pipe++)
			if (write(ends[pipe][1], "", 1) != 1)
				return errno;
	for (uint64_t pipe = 0; pipe < pipes; pipe += 2) {
		close(ends[pipe][0]);
		close(ends[pipe][1]);
	}
	return 0;
}

/*
 * Stir a text that only the number decides into the pool, and have the generator take its next key
 * from there.  What the kernel mixed in by itself stays, so two kernels never draw the same numbers.
 */
static int seed_random(uint64_t number)
{
	struct {
		struct rand_pool_info head;
		uint32_t words[8];
	} stirred = { .head = { .entropy_count = 256, .buf_size = sizeof(stirred.words) } };
	int pool, status = 0;

	if (!number)
		return 0;
	for (uint32_t at = 0; at < 8; at++)
		stirred.words[at] = (number * 8 + at) * SEED_GOLDEN;
	pool = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (pool < 0)
		return errno;
	if (ioctl(pool, RNDADDENTROPY, &stirred) || ioctl(pool, RNDRESEEDCRNG))
		status = errno;
	close(pool);
	return status;
}

/* The number of the program's addresses: seed_place() is called by the process that becomes it. */
static uint64_t seed_addresses;

/*
 * The kernel puts stack, mappings and heap where it always does, and kdelta.h moves them from there
 * by pages that KD_ADDRESSES says; the stack moves by the bytes of the environment, too.
 */
static int seed_place(void)
{
	char padding[256], text[32];

	if (!seed_addresses)
		return 0;
	memset(padding, 'x', sizeof(padding));
	padding[16 * seed_part(seed_addresses, SEED_PLASTIC, sizeof(padding) / 16)] = '\0';
	snprintf(text, sizeof(text), "%u", (unsigned int)seed_part(seed_addresses, SEED_GOLDEN, 512));
	if (personality(ADDR_NO_RANDOMIZE) < 0 || setenv("KD_PADDING", padding, 1) ||
	    setenv("KD_ADDRESSES", text, 1))
		return errno;
	return 0;
}

/*
 * Tasks that do nothing, so that the program has another number, and what the kernel keeps of it lies
 * elsewhere: a bucket of a table that is chosen by the address of such an object is another one.
 */
static int seed_tasks(uint64_t tasks)
{
	for (; tasks; tasks--) {
		pid_t task = fork();

		if (task < 0)
			return errno;
		while (!task)
			pause();
	}
	return 0;
}

/* Arrays with a value for each CPU, which PID 1 keeps.  A kernel without them has only the others. */
static int seed_percpu(uint64_t maps)
{
	union bpf_attr array = {
		.map_type = BPF_MAP_TYPE_PERCPU_ARRAY,
		.key_size = 4,
		.value_size = 512,
		.max_entries = 4,
	};

	for (; maps; maps--)
		if (syscall(SYS_bpf, BPF_MAP_CREATE, &array, sizeof(array)) < 0)
			return errno == ENOSYS || errno == EPERM ? 0 : errno;
	return 0;
}

/*
 * Turns of two instructions.  64 of them go round together: the emulator then executes a block in
 * place of 64, for the same time of the guest.
 */
static void seed_wait(uint64_t turns)
{
	for (uint64_t rounds = turns / 64; rounds; rounds--)
		asm volatile(".rept 126\n\tnop\n\t.endr" : "+r"(rounds));
	for (turns %= 64; turns; turns--)
		asm volatile("" : "+r"(turns));
}

/* An errno, 0 when all is as the seed has it. */
static int seed_sow(const char *text)
{
	uint64_t number[4], later;
	char *end;
	int status;

	for (size_t i = 0; i < 4; i++, text = end) {
		number[i] = strtoull(text, &end, 10);
		if (end == text)
			return EINVAL;
	}
	later = number[1] ? number[1] - 1 : 0;
	status = seed_movable(seed_part(later, SEED_PLASTIC, SEED_MOVABLE));
	if (!status)
		status = seed_unmovable(seed_part(later, SEED_SQUARED, SEED_PIPES));
	seed_addresses = number[3];
	if (!status && seed_addresses)
		status = seed_percpu(seed_part(later, SEED_GOLDEN, SEED_MAPS));
	if (!status && seed_addresses)
		status = seed_tasks(seed_part(number[1], SEED_PLASTIC, SEED_TASKS));
	if (!status) /* last: a task draws numbers, too */
		status = seed_random(number[2]);
	seed_wait(seed_part(number[0], SEED_GOLDEN, SEED_TURNS));
	return status;
}

#endif /* KDELTA_SEED_H */
