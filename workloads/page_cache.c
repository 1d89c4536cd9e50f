// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does read() of a file cost whose pages are in the page cache, in small and in large pieces,
 * and write() that brings new pages into it?  A file of tmpfs has a path of its own; that of most
 * others is here: filemap_read(), generic_perform_write().
 */
#include "kdelta.h"
#include <sys/mount.h>
#include <sys/stat.h>

enum { READ, WRITE };					/* phases */
enum { IN_ORDER = 1, NEW = 2 };				/* scenario flags: read() moves on */
enum { CACHED = 240 * KD_PAGE, SETTLED = 8 };

/* `bytes` a call; so many `calls` that no window goes beyond the end. */
static const struct kd_scenario scenarios[] = {
	{ "read_64_bytes", "pread() of 64 bytes a call, of another page each", 64, 0, KD_PAGES(CACHED) },
	{ "read_page", "pread() of 4 KiB a call", KD_PAGE, 0, KD_PAGES(CACHED) },
	{ "read_16_pages", "pread() of 64 KiB a call", 16 * KD_PAGE, 0, KD_PAGES(CACHED) / 16 },
	{ "read_in_order", "read() of 1 KiB a call, from the beginning to the end",
	  1024, IN_ORDER, CACHED / 1024 },
	{ "write_new", "write() of 4 KiB a call to an empty file", KD_PAGE, NEW, KD_PAGES(KD_BATCHES) },
};

static char folder[64], file[80], buffer[16 * KD_PAGE];

static void leave(void)
{
	unlink(file);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
}

/* A file of ramfs: its pages are nowhere else, so nothing writes them back or drops them. */
static int empty_file(void)
{
	int fd;

	snprintf(folder, sizeof(folder), "%s/kdelta-%d", access("/dev/shm", W_OK) ? "" : "/dev/shm",
		 (int)getpid());
	snprintf(file, sizeof(file), "%s/file", folder);
	if (mkdir(folder, 0700))
		kd_skip("there is no place for files at %s: %s", folder, strerror(errno));
	kd_at_end(leave);
	if (mount("none", folder, "ramfs", 0, NULL))
		kd_skip("ramfs cannot be mounted: %s", strerror(errno));
	/* The time of access would change with each tick. */
	fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_NOATIME, 0600);
	if (fd < 0)
		kd_die("open");
	return fd;
}

static noinline void write_new(int fd, size_t bytes)
{
	for (; bytes; bytes -= KD_PAGE)
		if (write(fd, buffer, KD_PAGE) != KD_PAGE)
			kd_die("write");
}

static void empty(int fd)
{
	if (ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET))
		kd_die("ftruncate");
}

static noinline void read_at(int fd, size_t bytes, unsigned int calls)
{
	off_t step = bytes < KD_PAGE ? KD_PAGE : bytes;

	for (off_t at = 0; calls; calls--, at += step)
		if (pread(fd, buffer, bytes, at) != (ssize_t)bytes)
			kd_die("pread");
}

static noinline void read_on(int fd, size_t bytes, unsigned int calls)
{
	for (; calls; calls--)
		if (read(fd, buffer, bytes) != (ssize_t)bytes)
			kd_die("read");
}

static long file_pages(int fd)
{
	struct stat found;

	if (fstat(fd, &found))
		kd_die("fstat");
	return found.st_blocks / (KD_PAGE / 512);
}

/* The pages of the file, seen through a mapping that exists only here. */
static void audit(enum kd_when when, int fd, size_t bytes)
{
	char *start = kd_reserve(bytes, KD_HUGE);
	const struct kd_want want[] = {
		{ "present_pages", KD_PAGES(bytes) },
		{ "swapped_pages", 0 },
		{ "anon_pages", 0 },
		{ "compound_heads", 0 },
		{ "compound_tails", 0 },
		{ "vmas", 1 },
		{ "pswpout", 0 },
	};

	kd_map_at(start, bytes, PROT_READ, MAP_SHARED, fd);
	for (size_t at = 0; at < bytes; at += KD_PAGE)
		(void)*(volatile char *)(start + at);
	kd_state(when, "file_pages", file_pages(fd), KD_PAGES(bytes));
	kd_audit_state(when, start, bytes, want, ARRAY_SIZE(want));
	if (munmap(start, bytes))
		kd_die("munmap");
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "page_cache", scenarios,
					       ARRAY_SIZE(scenarios));
	size_t bytes = s->flags & NEW ? s->calls * s->bytes : CACHED;
	int fd = empty_file();

	kd_alone(4);
	if (s->flags & NEW)
		kd_phase(WRITE, "write", "call", s->calls);
	else
		kd_phase(READ, "read", "call", s->calls);
	write_new(fd, bytes);
	audit(KD_BEFORE, fd, bytes);
	/* Reclaim notes how often a page was used, up to a bound: that is reached here. */
	for (int i = 0; i < SETTLED; i++)
		read_at(fd, KD_PAGE, KD_PAGES(bytes));

	while (kd_next()) {
		if (s->flags & NEW)
			empty(fd);
		else if (lseek(fd, 0, SEEK_SET))
			kd_die("lseek");
		if (s->flags & NEW)
			KD_WINDOW(WRITE, write_new(fd, bytes));
		else if (s->flags & IN_ORDER)
			KD_WINDOW(READ, read_on(fd, s->bytes, s->calls));
		else
			KD_WINDOW(READ, read_at(fd, s->bytes, s->calls));
	}
	audit(KD_AFTER, fd, bytes);
	return kd_finish();
}
