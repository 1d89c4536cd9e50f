// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops over pipes, sockets, queues, semaphores and futexes, and over what
 * waits for them, under the names that robots and suites have for them:
 * written from what these do.  Nothing waits but where it is said.
 */
#include "kdelta.h"
#include <arpa/inet.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <net/if.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum {							/* calls */
	PIPE_PAGE, PIPE_CREATE, POLL_1, POLL_128, SELECT_10, SELECT_100, EPOLL_CTL, EPOLL_WAIT,
	EVENTFD, UNIX_STREAM, UNIX_DATAGRAM, SOCKETPAIR, PASS_DESCRIPTOR, UDP_LOOPBACK,
	TCP_LOOPBACK, UNIX_SWITCH, MQ, SYSV_MSG, SYSV_SEM, SYSV_SEM_UNDO, POSIX_SEM,
	PTHREAD_MUTEX, TEE, SPLICE_PIPE, SPLICE_FILE, SENDFILE, COPY_FILE_RANGE, HASH_WORDS,
	SHARED_WORD, REQUEUE, WAKE_OP, LOCK_PI, WAIT_EIGHT,
};

enum {							/* what is needed */
	CALL = 255,
	THREADS = 1 << 8,	/* a second thread, which sleeps */
	ECHO = 1 << 9,		/* a second task, which answers */
	NETWORK = 1 << 10,	/* 127.0.0.1 */
	SYSV = 1 << 11,
	QUEUE = 1 << 12,
	CROWD = 1 << 13,	/* many descriptors */
	FILES = 1 << 14,	/* two, one with a page */
	SOCKETS = 1 << 15,	/* pairs of them, which a small kernel may not have */
};

enum { MANY = 128, WORDS = 1024, FIRST = 40 };

static const struct kd_scenario scenarios[] = {
	{ "pipe_page", "a page written to a pipe and read back", 0, PIPE_PAGE, 62 },
	{ "pipe_create", "pipe() and the close() of both ends", 0, PIPE_CREATE, 62 },
	{ "poll_1", "poll() of one pipe that can be written", 0, POLL_1, 256 },
	{ "poll_128", "poll() of 128 descriptors, none of them ready", 0, POLL_128 | CROWD, 62 },
	{ "poll_128_threads", "the same in a process of two threads",
	  0, POLL_128 | THREADS | CROWD, 62 },
	{ "select_10", "select() of 10 descriptors, none of them ready",
	  0, SELECT_10 | CROWD, 256 },
	{ "select_100", "select() of 100 descriptors, none of them ready",
	  0, SELECT_100 | CROWD, 62 },
	{ "epoll_ctl", "a descriptor put into an epoll set and taken out",
	  0, EPOLL_CTL | SOCKETS, 62 },
	{ "epoll_wait", "epoll_wait() of a set with one descriptor that is ready",
	  0, EPOLL_WAIT, 256 },
	{ "eventfd", "eight bytes written to an eventfd and read back", 0, EVENTFD, 256 },
	{ "unix_stream", "a byte through a stream socket of this machine",
	  0, UNIX_STREAM | SOCKETS, 256 },
	{ "unix_datagram", "a byte through a datagram socket of this machine",
	  0, UNIX_DATAGRAM | SOCKETS, 256 },
	{ "socketpair", "socketpair() and the close() of both ends", 0, SOCKETPAIR | SOCKETS, 62 },
	{ "pass_descriptor", "a descriptor sent through a socket and received",
	  0, PASS_DESCRIPTOR | SOCKETS, 62 },
	{ "udp_loopback", "a datagram to 127.0.0.1, and its receipt",
	  0, UDP_LOOPBACK | NETWORK, 62 },
	{ "tcp_loopback", "a byte over a TCP connection to 127.0.0.1",
	  0, TCP_LOOPBACK | NETWORK, 62 },
	{ "unix_switch", "a byte to another task by a socket, and one back",
	  0, UNIX_SWITCH | ECHO | SOCKETS, 32 },
	{ "mq", "a message put into a POSIX queue and taken out", 0, MQ | QUEUE, 62 },
	{ "sysv_msg", "a message put into a System V queue and taken out", 0, SYSV_MSG | SYSV, 62 },
	{ "sysv_sem", "a System V semaphore raised and lowered", 0, SYSV_SEM | SYSV, 62 },
	{ "sysv_sem_undo", "the same, with SEM_UNDO", 0, SYSV_SEM_UNDO | SYSV, 62 },
	{ "posix_sem", "an unnamed semaphore raised and lowered: the kernel is not called",
	  0, POSIX_SEM, 1024 },
	{ "pthread_mutex", "a mutex locked and unlocked: the kernel is not called",
	  0, PTHREAD_MUTEX, 1024 },
	{ "tee", "a page of one pipe seen in another by tee(), read from both", 0, TEE, 62 },
	{ "splice_pipe", "a page moved from one pipe to another by splice(), and read",
	  0, SPLICE_PIPE, 62 },
	{ "splice_file", "a page of a file spliced into a pipe, and read",
	  0, SPLICE_FILE | FILES, 62 },
	{ "sendfile", "a page of a file sent into a pipe by sendfile(), and read",
	  0, SENDFILE | FILES, 62 },
	{ "copy_file_range", "a page of a file copied to another by copy_file_range()",
	  0, COPY_FILE_RANGE | FILES, 62 },
	{ "futex_hash", "FUTEX_WAIT of one after another of 1024 words, none as said",
	  0, HASH_WORDS, 1024 },
	{ "futex_shared", "FUTEX_WAIT of a shared word that has changed already",
	  0, SHARED_WORD, 256 },
	{ "futex_requeue", "FUTEX_CMP_REQUEUE where nobody waits", 0, REQUEUE, 256 },
	{ "futex_wake_op", "FUTEX_WAKE_OP where nobody waits", 0, WAKE_OP, 256 },
	{ "futex_lock_pi", "FUTEX_TRYLOCK_PI and FUTEX_UNLOCK_PI", 0, LOCK_PI, 256 },
	{ "futex_waitv", "futex_waitv() of 8 words, the last of which has changed",
	  0, WAIT_EIGHT, 62 },
};

static int ends[2], more[2];
static int pair[2], back[2], datagrams[2];
static int udp[2];
static int tcp[2];
static int event, set;
static int file;
static int copy;
static int messages, semaphores;
static uint32_t words[WORDS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t semaphore;			/* at 0 */
static mqd_t queue;
static char buffer[8192];

static void pass_on(int in, int out, ssize_t bytes)
{
	kd_must(write(in, buffer, bytes) == bytes);
	kd_must(read(out, buffer, bytes) == bytes);
}

static void close_both(const int fds[2])
{
	kd_must(!close(fds[0]));
	kd_must(!close(fds[1]));
}

static void pipe_page(void)
{
	pass_on(ends[1], ends[0], KD_PAGE);
}

static void pipe_create(void)
{
	int made[2];

	kd_must(!pipe(made));
	close_both(made);
}

static void poll_1(void)
{
	struct pollfd one = { ends[1], POLLOUT, 0 };

	kd_must(poll(&one, 1, 0) == 1);
}

/* The same descriptor again and again: the kernel does not see that. */
static struct pollfd many[MANY];

static void poll_128(void)
{
	kd_must(!poll(many, MANY, 0));
}

/* Reading ends of one pipe are at 40 to 139. */
static void select_first(int n)
{
	struct timeval now = { 0, 0 };
	fd_set wanted;

	FD_ZERO(&wanted);
	for (int fd = FIRST; fd < FIRST + n; fd++)
		FD_SET(fd, &wanted);
	kd_must(!select(FIRST + n, &wanted, NULL, NULL, &now));
}

static void select_10(void)
{
	select_first(10);
}

static void select_100(void)
{
	select_first(100);
}

static void change_set(void)
{
	struct epoll_event event = { .events = EPOLLIN };

	kd_must(!epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event));
	kd_must(!epoll_ctl(set, EPOLL_CTL_DEL, pair[0], &event));
}

static void ask_set(void)
{
	struct epoll_event event;

	kd_must(epoll_wait(set, &event, 1, 0) == 1);
}

static void count_event(void)
{
	pass_on(event, event, sizeof(uint64_t));
}

static void unix_stream(void)
{
	pass_on(pair[1], pair[0], 1);
}

static void unix_datagram(void)
{
	pass_on(datagrams[1], datagrams[0], 1);
}

static void make_pair(void)
{
	int made[2];

	kd_must(!socketpair(AF_UNIX, SOCK_STREAM, 0, made));
	close_both(made);
}

static void pass_descriptor(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec byte = { buffer, 1 };
	struct msghdr message = {
		.msg_iov = &byte, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	int fd;

	memcpy(CMSG_DATA(&control.head), &event, sizeof(event));
	kd_must(sendmsg(pair[1], &message, 0) == 1);
	kd_must(recvmsg(pair[0], &message, 0) == 1);
	memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	kd_must(!close(fd));
}

static void udp_loopback(void)
{
	pass_on(udp[1], udp[0], 1);
}

static void tcp_loopback(void)
{
	pass_on(tcp[1], tcp[0], 1);
}

static void send_byte(int fd)
{
	kd_must(write(fd, buffer, 1) == 1);
}

static void receive_byte(int fd)
{
	kd_must(read(fd, buffer, 1) == 1);
}

static void switch_by_socket(void)
{
	send_byte(pair[1]);
	receive_byte(back[0]);
}

static void queue_message(void)
{
	kd_must(!mq_send(queue, buffer, 1, 0));
	kd_must(mq_receive(queue, buffer, sizeof(buffer), NULL) == 1);
}

static void send_message(void)
{
	struct {
		long type;
		char text[1];
	} message = { 1, { 0 } };

	kd_must(!msgsnd(messages, &message, 1, IPC_NOWAIT));
	kd_must(msgrcv(messages, &message, 1, 1, IPC_NOWAIT) == 1);
}

static void raise_semaphore(void)
{
	struct sembuf up = { 0, 1, 0 }, down = { 0, -1, IPC_NOWAIT };

	kd_must(!semop(semaphores, &up, 1));
	kd_must(!semop(semaphores, &down, 1));
}

static void raise_with_undo(void)
{
	struct sembuf up = { 0, 1, SEM_UNDO }, down = { 0, -1, IPC_NOWAIT | SEM_UNDO };

	kd_must(!semop(semaphores, &up, 1));
	kd_must(!semop(semaphores, &down, 1));
}

static void post_semaphore(void)
{
	kd_must(!sem_post(&semaphore));
	kd_must(!sem_trywait(&semaphore));
}

static void lock_mutex(void)
{
	kd_must(!pthread_mutex_lock(&mutex));
	kd_must(!pthread_mutex_unlock(&mutex));
}

static void tee_page(void)
{
	kd_must(write(ends[1], buffer, KD_PAGE) == KD_PAGE);
	kd_must(tee(ends[0], more[1], KD_PAGE, 0) == KD_PAGE);
	kd_must(read(ends[0], buffer, KD_PAGE) == KD_PAGE);
	kd_must(read(more[0], buffer, KD_PAGE) == KD_PAGE);
}

static void splice_pipe(void)
{
	kd_must(write(ends[1], buffer, KD_PAGE) == KD_PAGE);
	kd_must(splice(ends[0], NULL, more[1], NULL, KD_PAGE, 0) == KD_PAGE);
	kd_must(read(more[0], buffer, KD_PAGE) == KD_PAGE);
}

static void splice_file(void)
{
	off_t at = 0;

	kd_must(splice(file, &at, ends[1], NULL, KD_PAGE, 0) == KD_PAGE);
	kd_must(read(ends[0], buffer, KD_PAGE) == KD_PAGE);
}

static void send_file(void)
{
	off_t at = 0;

	kd_must(sendfile(ends[1], file, &at, KD_PAGE) == KD_PAGE);
	kd_must(read(ends[0], buffer, KD_PAGE) == KD_PAGE);
}

static void copy_page(void)
{
	off_t from = 0, to = 0;

	kd_must(copy_file_range(file, &from, copy, &to, KD_PAGE, 0) == KD_PAGE);
}

static void not_waiting(int operation, uint32_t *word)
{
	kd_must(syscall(SYS_futex, word, operation, 1, NULL, NULL, 0) && errno == EAGAIN);
}

static void hash_words(void)
{
	static unsigned int next;

	not_waiting(FUTEX_WAIT_PRIVATE, &words[next++ % WORDS]);
}

static void shared_word(void)
{
	not_waiting(FUTEX_WAIT, words);
}

static void requeue_none(void)
{
	kd_must(!syscall(SYS_futex, words, FUTEX_CMP_REQUEUE_PRIVATE, 1, 1, words + 1, 0));
}

static void wake_none(void)
{
	kd_must(!syscall(SYS_futex, words, FUTEX_WAKE_OP_PRIVATE, 1, 1, words + 1,
					FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 1)));
}

#ifndef FUTEX_TRYLOCK_PI_PRIVATE
#define FUTEX_TRYLOCK_PI_PRIVATE (FUTEX_TRYLOCK_PI | FUTEX_PRIVATE_FLAG)
#endif

static void lock_pi(void)
{
	kd_must(!syscall(SYS_futex, words + 2, FUTEX_TRYLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	kd_must(!syscall(SYS_futex, words + 2, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
}

static void wait_for_eight(void)
{
	struct futex_waitv wanted[8];

	for (unsigned int i = 0; i < ARRAY_SIZE(wanted); i++)
		wanted[i] = (struct futex_waitv){
			.val = i == 7, .uaddr = (uintptr_t)&words[i], .flags = FUTEX_32,
		};
	kd_must(syscall(SYS_futex_waitv, wanted, 8, 0, NULL, 0) && errno == EAGAIN);
}

/* The other task: sends each byte back, and ends with its parent. */
static void start_echo(void)
{
	pid_t pid = fork();
	char byte;

	kd_must(pid >= 0);
	if (pid)
		return;
	close(pair[1]);
	while (read(pair[0], &byte, 1) == 1)
		if (write(back[1], &byte, 1) != 1)
			break;
	_exit(0);
}

/* Bound to 127.0.0.1, whose device may have to be taken up before it has that address. */
static int bound(int type, struct sockaddr_in *address)
{
	struct ifreq device = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, type, 0);
	socklen_t size = sizeof(*address);

	if (fd < 0)
		kd_skip("the kernel has no IPv4: %s", strerror(errno));
	if (ioctl(fd, SIOCSIFFLAGS, &device))
		kd_note("the loopback device stays as it is: %s", strerror(errno));
	if (bind(fd, (struct sockaddr *)address, size))
		kd_skip("127.0.0.1 cannot be used: %s", strerror(errno));
	kd_must(!getsockname(fd, (struct sockaddr *)address, &size));
	return fd;
}

/* Both ends of a connection to 127.0.0.1. */
static void connect_loopback(int fds[2], int type)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int listening;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listening = bound(type, &address);
	if (type == SOCK_STREAM)
		kd_must(!listen(listening, 1));
	fds[1] = socket(AF_INET, type, 0);
	if (connect(fds[1], (struct sockaddr *)&address, sizeof(address)))
		kd_skip("127.0.0.1 cannot be reached: %s", strerror(errno));
	fds[0] = type == SOCK_STREAM ? accept(listening, NULL, NULL) : listening;
	kd_must(fds[0] >= 0);
}

static void remove_sysv(void)
{
	msgctl(messages, IPC_RMID, NULL);
	semctl(semaphores, 0, IPC_RMID);
}

static void make_sysv(void)
{
	messages = msgget(IPC_PRIVATE, 0600);
	semaphores = semget(IPC_PRIVATE, 1, 0600);
	if (messages < 0 || semaphores < 0)
		kd_skip("the kernel has no System V IPC: %s", strerror(errno));
	kd_at_end(remove_sysv);
}

static void make_queue(void)
{
	struct mq_attr attributes = { .mq_maxmsg = 4, .mq_msgsize = 16 };
	char name[32];

	snprintf(name, sizeof(name), "/kdelta-%d", (int)getpid());
	queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &attributes);
	if (queue < 0)
		kd_skip("the kernel has no POSIX queues: %s", strerror(errno));
	kd_must(!mq_unlink(name));
}

static void make_sockets(void)
{
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		kd_skip("the kernel has no sockets: %s", strerror(errno));
	kd_must(!socketpair(AF_UNIX, SOCK_STREAM, 0, back));
	kd_must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
}

/* Descriptors of pipes and sockets that are empty, and of a set in which one is ready. */
static void make_ends(const struct kd_scenario *s)
{
	struct epoll_event ready = { .events = EPOLLOUT };

	kd_must(!pipe(ends) && !pipe(more));
	if (s->flags & SOCKETS)
		make_sockets();
	event = eventfd(0, 0);
	set = epoll_create1(0);
	kd_must(event >= 0 && set >= 0 && !epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &ready));
}

static void make_many(void)
{
	for (int fd = 0; fd < MANY; fd++)
		many[fd] = (struct pollfd){ ends[0], POLLIN, 0 };
	for (int fd = FIRST; fd < FIRST + 100; fd++)
		kd_must(dup2(ends[0], fd) == fd);
}

static void make_files(void)
{
	file = kd_memfd();
	copy = kd_memfd();
	kd_must(write(file, buffer, KD_PAGE) == KD_PAGE);
}

static void set_up(const struct kd_scenario *s)
{
	buffer[0] = 1;			/* an eventfd counts it */
	make_ends(s);
	if (s->flags & CROWD)
		make_many();
	if (s->flags & FILES)
		make_files();
	if (s->flags & NETWORK) {
		connect_loopback(udp, SOCK_DGRAM);
		connect_loopback(tcp, SOCK_STREAM);
	}
	if (s->flags & SYSV)
		make_sysv();
	if (s->flags & QUEUE)
		make_queue();
	if (s->flags & ECHO)
		start_echo();
	if (s->flags & THREADS)
		kd_start_another();
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[PIPE_PAGE] = pipe_page, [PIPE_CREATE] = pipe_create, [POLL_1] = poll_1,
		[POLL_128] = poll_128, [SELECT_10] = select_10, [SELECT_100] = select_100,
		[EPOLL_CTL] = change_set, [EPOLL_WAIT] = ask_set, [EVENTFD] = count_event,
		[UNIX_STREAM] = unix_stream, [UNIX_DATAGRAM] = unix_datagram,
		[SOCKETPAIR] = make_pair, [PASS_DESCRIPTOR] = pass_descriptor,
		[UDP_LOOPBACK] = udp_loopback, [TCP_LOOPBACK] = tcp_loopback,
		[UNIX_SWITCH] = switch_by_socket, [MQ] = queue_message, [SYSV_MSG] = send_message,
		[SYSV_SEM] = raise_semaphore, [SYSV_SEM_UNDO] = raise_with_undo,
		[POSIX_SEM] = post_semaphore, [PTHREAD_MUTEX] = lock_mutex, [TEE] = tee_page,
		[SPLICE_PIPE] = splice_pipe, [SPLICE_FILE] = splice_file, [SENDFILE] = send_file,
		[COPY_FILE_RANGE] = copy_page, [HASH_WORDS] = hash_words,
		[SHARED_WORD] = shared_word, [REQUEUE] = requeue_none, [WAKE_OP] = wake_none,
		[LOCK_PI] = lock_pi, [WAIT_EIGHT] = wait_for_eight,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "loops_ipc", scenarios,
					       ARRAY_SIZE(scenarios));

	set_up(s);
	return kd_loop(once[s->flags & CALL], s->calls, s->flags & THREADS ? 2 : 1, 0,
		       s->flags & ECHO ? KD_FREE : 0);
}
