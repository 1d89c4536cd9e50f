// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops that read and write a file in memory, under the names that robots
 * and suites have for them: written from what these do.
 */
#include "kdelta.h"
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum {							/* calls */
	READ_PAGE, PREAD_PAGE, PWRITE_PAGE, WRITE_PAGE, READ_SEQ, WRITE_SEQ, READ_RANDOM,
	WRITE_RANDOM, COPY, READV, WRITEV, WRITE_NEW, FALLOCATE, PUNCH, SEEK, AIO, TRUNCATE,
};

enum {							/* what is needed */
	CALL = 255,
	THREADS = 1 << 8,	/* a second thread, which sleeps */
	CONTEXT = 1 << 9,	/* of asynchronous calls */
};

enum { PAGES = 62, NEW = 15 * 4096 };

static const struct kd_scenario scenarios[] = {
	{ "read_page", "lseek() to the beginning and read() of a page", 0, READ_PAGE, 256 },
	{ "read_page_threads", "the same in a process of two threads",
	  0, READ_PAGE | THREADS, 256 },
	{ "pread_page", "pread() of a page", 0, PREAD_PAGE, 256 },
	{ "pwrite_page", "pwrite() of a page that is there", 0, PWRITE_PAGE, 256 },
	{ "write_page", "lseek() to the beginning and write() of a page that is there",
	  0, WRITE_PAGE, 256 },
	{ "read_seq", "62 pages read one after another, 1 KiB a call", 0, READ_SEQ, 8 },
	{ "write_seq", "62 pages written one after another, 1 KiB a call", 0, WRITE_SEQ, 8 },
	{ "read_random", "1 KiB read at a place that differs from call to call",
	  0, READ_RANDOM, 256 },
	{ "write_random", "1 KiB written at a place that differs from call to call",
	  0, WRITE_RANDOM, 256 },
	{ "copy", "1 KiB read from one file and written to another", 0, COPY, 256 },
	{ "readv", "readv() of two parts of a page", 0, READV, 256 },
	{ "writev", "writev() of two parts of a page", 0, WRITEV, 256 },
	{ "write_new", "15 new pages written, and cut off again", 0, WRITE_NEW, 31 },
	{ "fallocate", "15 pages given by fallocate(), and cut off again", 0, FALLOCATE, 31 },
	{ "punch_hole", "a page punched out of a file and written again", 0, PUNCH, 465 },
	{ "seek_hole", "lseek() to the next hole of a file of 62 pages", 0, SEEK, 62 },
	{ "aio", "a page read by io_submit() and io_getevents()", 0, AIO | CONTEXT, 62 },
	{ "truncate", "ftruncate() to another size, up and down", 0, TRUNCATE, 256 },
};

static int file;		/* of 62 pages */
static int copy;		/* without any at first */
static aio_context_t context;
static char buffer[NEW];

static void read_one(void)
{
	kd_must(!lseek(file, 0, SEEK_SET));
	kd_must(read(file, buffer, KD_PAGE) == KD_PAGE);
}

static void pread_one(void)
{
	kd_must(pread(file, buffer, KD_PAGE, 0) == KD_PAGE);
}

static void pwrite_one(void)
{
	kd_must(pwrite(file, buffer, KD_PAGE, 0) == KD_PAGE);
}

static void write_one(void)
{
	kd_must(!lseek(file, 0, SEEK_SET));
	kd_must(write(file, buffer, KD_PAGE) == KD_PAGE);
}

static void read_all(void)
{
	kd_must(!lseek(file, 0, SEEK_SET));
	for (unsigned int i = 0; i < PAGES * 4; i++)
		kd_must(read(file, buffer, 1024) == 1024);
}

static void write_all(void)
{
	kd_must(!lseek(file, 0, SEEK_SET));
	for (unsigned int i = 0; i < PAGES * 4; i++)
		kd_must(write(file, buffer, 1024) == 1024);
}

/* The same places in each window: whole rounds through the file. */
static off_t another_place(void)
{
	static unsigned int place;

	place = (place + 37) % 256;
	return place * 512;
}

static void read_somewhere(void)
{
	kd_must(lseek(file, another_place(), SEEK_SET) >= 0);
	kd_must(read(file, buffer, 1024) == 1024);
}

static void write_somewhere(void)
{
	kd_must(lseek(file, another_place(), SEEK_SET) >= 0);
	kd_must(write(file, buffer, 1024) == 1024);
}

static void copy_block(void)
{
	kd_must(pread(file, buffer, 1024, 0) == 1024);
	kd_must(pwrite(copy, buffer, 1024, 0) == 1024);
}

static void read_parts(void)
{
	const struct iovec parts[2] = { { buffer, 512 }, { buffer + 512, 512 } };

	kd_must(preadv(file, parts, 2, 0) == 1024);
}

static void write_parts(void)
{
	const struct iovec parts[2] = { { buffer, 512 }, { buffer + 512, 512 } };

	kd_must(pwritev(file, parts, 2, 0) == 1024);
}

static void write_and_cut(void)
{
	kd_must(pwrite(copy, buffer, NEW, 0) == NEW);
	kd_must(!ftruncate(copy, 0));
}

static void allocate_and_cut(void)
{
	kd_must(!fallocate(copy, 0, 0, NEW));
	kd_must(!ftruncate(copy, 0));
}

static void punch_page(void)
{
	kd_must(!fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, KD_PAGE, KD_PAGE));
	kd_must(pwrite(file, buffer, KD_PAGE, KD_PAGE) == KD_PAGE);
}

static void find_hole(void)
{
	kd_must(lseek(file, 0, SEEK_HOLE) == PAGES * (off_t)KD_PAGE);
}

static void submit_read(void)
{
	struct iocb block = {
		.aio_fildes = file, .aio_lio_opcode = IOCB_CMD_PREAD,
		.aio_buf = (uintptr_t)buffer, .aio_nbytes = KD_PAGE,
	};
	struct iocb *blocks[1] = { &block };
	struct io_event done;

	kd_must(syscall(SYS_io_submit, context, 1, blocks) == 1);
	kd_must(syscall(SYS_io_getevents, context, 1, 1, &done, NULL) == 1);
	kd_must(done.res == KD_PAGE);
}

static void resize(void)
{
	kd_must(!ftruncate(copy, KD_PAGE));
	kd_must(!ftruncate(copy, 0));
}

static int memory_file(void)
{
	int fd = kd_memfd();

	/* The time of access would change with each tick. */
	kd_must(!fcntl(fd, F_SETFL, O_NOATIME));
	return fd;
}

static void set_up(const struct kd_scenario *s)
{
	memset(buffer, 1, sizeof(buffer));
	file = memory_file();
	copy = memory_file();
	for (unsigned int page = 0; page < PAGES; page++)
		kd_must(write(file, buffer, KD_PAGE) == KD_PAGE);
	if (s->flags & CONTEXT && syscall(SYS_io_setup, 1, &context))
		kd_skip("the kernel has no asynchronous calls: %s", strerror(errno));
	if (s->flags & THREADS)
		kd_start_another();
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[READ_PAGE] = read_one, [PREAD_PAGE] = pread_one, [PWRITE_PAGE] = pwrite_one,
		[WRITE_PAGE] = write_one, [READ_SEQ] = read_all, [WRITE_SEQ] = write_all,
		[READ_RANDOM] = read_somewhere, [WRITE_RANDOM] = write_somewhere,
		[COPY] = copy_block, [READV] = read_parts, [WRITEV] = write_parts,
		[WRITE_NEW] = write_and_cut, [FALLOCATE] = allocate_and_cut, [PUNCH] = punch_page,
		[SEEK] = find_hole, [AIO] = submit_read, [TRUNCATE] = resize,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "loops_files", scenarios,
					       ARRAY_SIZE(scenarios));

	set_up(s);
	return kd_loop(once[s->flags & CALL], s->calls, s->flags & THREADS ? 2 : 1, 0, 0);
}
