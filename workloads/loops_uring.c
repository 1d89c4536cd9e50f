// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops over one ring of io_uring, without its library: each request is
 * submitted and waited for in one call, by one task.
 */
#include "kdelta.h"
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum {							/* calls */
	NOP, NOP_8, PIPE, PIPE_FIXED, PIPE_TABLE, REGISTER_BUFFERS, REGISTER_FILES,
	UPDATE_FILES, POLL, SETUP,
};

enum {							/* what is needed */
	CALL = 255,
	BUFFERS = 1 << 8,	/* a registered buffer */
	FILES = 1 << 9,		/* registered files */
	WAITS = 1 << 10,	/* a worker of the kernel may do it */
};

static const struct kd_scenario scenarios[] = {
	{ "nop", "a request that does nothing, submitted and completed", 0, NOP, 256 },
	{ "nop_8", "eight requests that do nothing in one call", 0, NOP_8, 62 },
	{ "pipe", "a page written to a pipe and read, a request each", 0, PIPE, 62 },
	{ "pipe_fixed", "the same with a registered buffer", 0, PIPE_FIXED | BUFFERS, 62 },
	{ "pipe_file_table", "the same with registered files", 0, PIPE_TABLE | FILES, 62 },
	{ "register_buffers", "a buffer of 15 pages registered and given back",
	  0, REGISTER_BUFFERS, 62 },
	{ "register_files", "eight files registered and given back", 0, REGISTER_FILES, 62 },
	{ "update_files", "a registered file put in the place of another",
	  0, UPDATE_FILES | FILES, 62 },
	{ "poll", "the end of a pipe that can be written polled", 0, POLL, 62 },
	{ "setup", "a ring made and closed", 0, SETUP | WAITS, 31 },
};

#define SPAN	(15 * KD_PAGE)

static int ring;
static int ends[2];
static struct io_uring_sqe *requests;
static unsigned int *tail;		/* of what is submitted */
static unsigned int *places;
static unsigned int *head;		/* of what is completed */
static struct io_uring_cqe *results;
static unsigned int mask;
static unsigned int result_mask;
static char *buffer;

static int in_ring(unsigned int what, void *argument, unsigned int count)
{
	return syscall(SYS_io_uring_register, ring, what, argument, count);
}

static struct io_uring_sqe *prepare(unsigned int operation, int fd, void *memory, size_t bytes)
{
	unsigned int place = *tail & mask;
	struct io_uring_sqe *request = &requests[place];

	*request = (struct io_uring_sqe){
		.opcode = operation, .fd = fd, .addr = (uintptr_t)memory, .len = bytes,
	};
	if (operation == IORING_OP_POLL_ADD)
		request->poll_events = POLLOUT;
	places[place] = place;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	return request;
}

static void complete(unsigned int requests_made)
{
	kd_must(syscall(SYS_io_uring_enter, ring, requests_made, requests_made,
			IORING_ENTER_GETEVENTS, NULL, 0) == (long)requests_made);
	for (; requests_made; requests_made--) {
		kd_must(results[*head & result_mask].res >= 0);
		__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	}
}

static void submit(unsigned int operation, int fd, void *memory, size_t bytes)
{
	prepare(operation, fd, memory, bytes);
	complete(1);
}

static void register_buffers(void)
{
	struct iovec whole = { buffer, SPAN };

	kd_must(!in_ring(IORING_REGISTER_BUFFERS, &whole, 1));
}

static void register_files(void)
{
	int files[8] = { ends[0], ends[1], ends[0], ends[1], ends[0], ends[1], ends[0], ends[1] };

	kd_must(!in_ring(IORING_REGISTER_FILES, files, 8));
}

static void do_nothing(void)
{
	submit(IORING_OP_NOP, -1, NULL, 0);
}

static void do_nothing_8(void)
{
	for (unsigned int i = 0; i < 8; i++)
		prepare(IORING_OP_NOP, -1, NULL, 0);
	complete(8);
}

static void through_pipe(void)
{
	submit(IORING_OP_WRITE, ends[1], buffer, KD_PAGE);
	submit(IORING_OP_READ, ends[0], buffer, KD_PAGE);
}

static void with_buffer(void)
{
	submit(IORING_OP_WRITE_FIXED, ends[1], buffer, KD_PAGE);
	submit(IORING_OP_READ_FIXED, ends[0], buffer, KD_PAGE);
}

static void from_table(void)
{
	prepare(IORING_OP_WRITE, 1, buffer, KD_PAGE)->flags = IOSQE_FIXED_FILE;
	complete(1);
	prepare(IORING_OP_READ, 0, buffer, KD_PAGE)->flags = IOSQE_FIXED_FILE;
	complete(1);
}

static void register_twice(void)
{
	register_buffers();
	kd_must(!in_ring(IORING_UNREGISTER_BUFFERS, NULL, 0));
}

static void register_table(void)
{
	register_files();
	kd_must(!in_ring(IORING_UNREGISTER_FILES, NULL, 0));
}

static void update_table(void)
{
	struct io_uring_files_update update = { .offset = 1, .fds = (uintptr_t)&ends[1] };

	kd_must(in_ring(IORING_REGISTER_FILES_UPDATE, &update, 1) == 1);
}

static void poll_pipe(void)
{
	submit(IORING_OP_POLL_ADD, ends[1], NULL, 0);
}

static void make_ring(void)
{
	struct io_uring_params made = { 0 };
	int fd = syscall(SYS_io_uring_setup, 8, &made);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static char *map_ring(size_t bytes, off_t what)
{
	char *memory = mmap(NULL, bytes, KD_RW, MAP_SHARED | MAP_POPULATE, ring, what);

	kd_must(memory != MAP_FAILED);
	return memory;
}

static void set_up_ring(void)
{
	struct io_uring_params made = { 0 };
	char *submitted, *completed;

	ring = syscall(SYS_io_uring_setup, 8, &made);
	if (ring < 0)
		kd_skip("io_uring cannot be used: %s", strerror(errno));
	submitted = map_ring(made.sq_off.array + made.sq_entries * 4, IORING_OFF_SQ_RING);
	completed = map_ring(made.cq_off.cqes + made.cq_entries * sizeof(*results),
			     IORING_OFF_CQ_RING);
	requests = (void *)map_ring(made.sq_entries * sizeof(*requests), IORING_OFF_SQES);
	tail = (void *)(submitted + made.sq_off.tail);
	places = (void *)(submitted + made.sq_off.array);
	mask = made.sq_entries - 1;
	head = (void *)(completed + made.cq_off.head);
	results = (void *)(completed + made.cq_off.cqes);
	result_mask = made.cq_entries - 1;
}

static void set_up(const struct kd_scenario *s)
{
	set_up_ring();
	buffer = kd_map(SPAN, KD_RW, MAP_PRIVATE);
	memset(buffer, 1, SPAN);
	kd_must(!pipe(ends));
	if (s->flags & BUFFERS)
		register_buffers();
	if (s->flags & FILES)
		register_files();
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[NOP] = do_nothing, [NOP_8] = do_nothing_8, [PIPE] = through_pipe,
		[PIPE_FIXED] = with_buffer, [PIPE_TABLE] = from_table,
		[REGISTER_BUFFERS] = register_twice, [REGISTER_FILES] = register_table,
		[UPDATE_FILES] = update_table, [POLL] = poll_pipe, [SETUP] = make_ring,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "loops_uring", scenarios,
					       ARRAY_SIZE(scenarios));

	set_up(s);
	return kd_loop(once[s->flags & CALL], s->calls, 1, 0, s->flags & WAITS ? KD_FREE : 0);
}
