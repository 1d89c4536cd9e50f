// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops under which reports of the kernel test robot are known, written from
 * their description: creating and removing a file, looking a descriptor up
 * in a process of two threads, writing one byte, moving a page into a pipe.
 */
#include "kdelta.h"
#include <linux/magic.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { CALL };							/* phases */
enum { CREAT_UNLINK, LSEEK, LSEEK_THREADS, WRITE, VMSPLICE };	/* scenario flags */

#define SHM	"/dev/shm"
#define OWN	"/kdelta-tmpfs"

static const struct kd_scenario scenarios[] = {
	{ "creat_unlink_tmpfs", "a file created on tmpfs, closed and removed", 0, CREAT_UNLINK, 64 },
	{ "lseek", "lseek() to where one is, in a process of one thread", 0, LSEEK, 256 },
	{ "lseek_threads", "lseek() to where one is, in a process of two threads", 0,
	  LSEEK_THREADS, 256 },
	{ "write_1_byte", "lseek() to the beginning and write() of one byte, cached, on tmpfs", 0,
	  WRITE, 256 },
	{ "vmsplice", "vmsplice() of a page into a pipe, and read() of it", 0, VMSPLICE, 64 },
};

static int file;
static int ends[2];
static char *page, *out;
static char path[64];

static noinline void creat_unlink(unsigned int calls)
{
	for (; calls; calls--) {
		int fd = creat(path, 0600);

		if (fd < 0 || close(fd) || unlink(path))
			kd_die("a file on tmpfs");
	}
}

static noinline void seek(unsigned int calls)
{
	for (; calls; calls--)
		if (lseek(file, 0, SEEK_CUR) < 0)
			kd_die("lseek");
}

static noinline void write_byte(unsigned int calls)
{
	for (; calls; calls--)
		if (lseek(file, 0, SEEK_SET) || write(file, "", 1) != 1)
			kd_die("write");
}

static noinline void splice_page(unsigned int calls)
{
	struct iovec vector = { page, KD_PAGE };

	for (; calls; calls--)
		if (vmsplice(ends[1], &vector, 1, 0) != (ssize_t)KD_PAGE ||
		    read(ends[0], out, KD_PAGE) != (ssize_t)KD_PAGE)
			kd_die("vmsplice");
}

static void *rest(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static bool is_tmpfs(const char *folder)
{
	struct statfs found;

	return !statfs(folder, &found) && found.f_type == TMPFS_MAGIC && !access(folder, W_OK);
}

static void detach(void)
{
	umount2(OWN, MNT_DETACH);
	rmdir(OWN);
}

/* A file's path on tmpfs, where there is one or one may be mounted. */
static void find_tmpfs(void)
{
	const char *folder = SHM;

	if (!is_tmpfs(SHM)) {
		folder = OWN;
		mkdir(OWN, 0700);
		if (mount("none", OWN, "tmpfs", 0, NULL))
			kd_skip("there is no tmpfs at %s, and none may be mounted: %s", SHM,
				strerror(errno));
		kd_at_end(detach);
	}
	snprintf(path, sizeof(path), "%s/kdelta-%d", folder, (int)getpid());
}

static void audit(enum kd_when when, long threads)
{
	char *status = kd_read_file("/proc/self/status");
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		kd_die("sched_getaffinity");
	kd_state(when, "cpus_allowed", CPU_COUNT(&set), 1);
	kd_state(when, "threads", kd_keyed(status, "Threads"), threads);
	kd_state(when, "tracer", kd_keyed(status, "TracerPid"), 0);
	free(status);
}

static void set_up_splice(void)
{
	if (pipe2(ends, O_CLOEXEC))
		kd_die("pipe");
	page = kd_map(KD_PAGE, KD_RW, MAP_PRIVATE);
	out = kd_map(KD_PAGE, KD_RW, MAP_PRIVATE);
	kd_touch(page, 1, KD_PAGE);
	kd_touch(out, 1, KD_PAGE);
}

static void set_up_file(void)
{
	file = kd_memfd();
	if (write(file, "", 1) != 1)
		kd_die("write");
}

static void start_another(void)
{
	pthread_t other;

	if (pthread_create(&other, NULL, rest, NULL))
		kd_die("pthread_create");
}

static void set_up(const struct kd_scenario *s)
{
	if (s->flags == CREAT_UNLINK)
		find_tmpfs();
	else if (s->flags == VMSPLICE)
		set_up_splice();
	else
		set_up_file();
	if (s->flags == LSEEK_THREADS)
		start_another();
}

int main(int argc, char **argv)
{
	static void (*const calls[])(unsigned int calls) = {
		[CREAT_UNLINK] = creat_unlink,	[LSEEK] = seek,	[LSEEK_THREADS] = seek,
		[WRITE] = write_byte,		[VMSPLICE] = splice_page,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "loops", scenarios,
					       ARRAY_SIZE(scenarios));
	long threads = s->flags == LSEEK_THREADS ? 2 : 1;

	kd_phase(CALL, "call", "call", s->calls);
	set_up(s);
	kd_alone(4);
	audit(KD_BEFORE, threads);
	while (kd_next())
		KD_WINDOW(CALL, calls[s->flags](s->calls));
	audit(KD_AFTER, threads);
	return kd_finish();
}
