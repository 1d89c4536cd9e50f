// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops over files by their names and by their descriptors, on tmpfs, under
 * the names that robots and suites have for them: written from what these
 * do, with one task that is measured.
 */
#include "kdelta.h"
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

enum {							/* calls */
	OPEN, OPEN_CREATE, OPEN_ABSENT, OPEN_DEEP, UNLINK_HELD, O_TMPFILE_CLOSE, STAT, FSTAT,
	STATX, FSTATFS, ACCESS, CHMOD, FCHMOD, CHOWN, UTIME, LINK, SYMLINK, READLINK,
	OPEN_SYMLINK, RENAME, RENAME_OVER, MKDIR, MKNOD, GETDENTS, CHDIR, FCHDIR, GETCWD,
	HANDLE, SETXATTR, GETXATTR, INOTIFY, INOTIFY_EVENT, DUP, FCNTL, POSIX_LOCK, OFD_LOCK,
	FLOCK, LEASE, FSYNC, FADVISE, READAHEAD, MEMFD, PIDFD, CLOSE_RANGE, PROC_STAT,
	PROC_MAPS,
};

enum {							/* what is needed */
	CALL = 255,
	THREADS = 1 << 8,	/* a second thread, which sleeps */
	ENTRIES = 1 << 9,	/* 64 files in the folder */
	ATTRIBUTE = 1 << 10,	/* an extended attribute of the file */
	WATCHED = 1 << 11,	/* the file is watched all the time */
};

static const struct kd_scenario scenarios[] = {
	{ "open", "open() of a file by its name, and close()", 0, OPEN, 256 },
	{ "open_threads", "the same in a process of two threads", 0, OPEN | THREADS, 256 },
	{ "open_create", "open() with O_CREAT of a file that is there, and close()",
	  0, OPEN_CREATE, 256 },
	{ "open_absent", "open() of a name that does not exist", 0, OPEN_ABSENT, 256 },
	{ "open_deep", "open() of a folder at the end of a path of seven, and close()",
	  0, OPEN_DEEP, 256 },
	{ "unlink_held", "a file created, removed while it is open, and closed",
	  0, UNLINK_HELD, 62 },
	{ "o_tmpfile", "a file without a name (O_TMPFILE), closed", 0, O_TMPFILE_CLOSE, 62 },
	{ "stat", "stat() of a file by its name", 0, STAT, 256 },
	{ "fstat", "fstat() of an open file", 0, FSTAT, 256 },
	{ "statx", "statx() of an open file, without a name", 0, STATX, 256 },
	{ "fstatfs", "fstatfs() of an open file", 0, FSTATFS, 256 },
	{ "access", "access() of a file by its name", 0, ACCESS, 256 },
	{ "chmod", "chmod() of a file by its name", 0, CHMOD, 256 },
	{ "fchmod", "fchmod() of an open file", 0, FCHMOD, 256 },
	{ "chown", "chown() of a file by its name to its owner", 0, CHOWN, 256 },
	{ "utime", "utimensat() of an open file to a given time", 0, UTIME, 256 },
	{ "link", "a second name for a file, and its removal", 0, LINK, 62 },
	{ "symlink", "a symbolic link, and its removal", 0, SYMLINK, 62 },
	{ "readlink", "readlink() of a symbolic link", 0, READLINK, 256 },
	{ "open_symlink", "open() of a file by a symbolic link, and close()",
	  0, OPEN_SYMLINK, 256 },
	{ "rename", "rename() of a file, and back", 0, RENAME, 62 },
	{ "rename_over", "a file created, closed and renamed over another", 0, RENAME_OVER, 62 },
	{ "mkdir", "mkdir() and rmdir()", 0, MKDIR, 62 },
	{ "mknod", "a FIFO made by mknod(), and its removal", 0, MKNOD, 62 },
	{ "getdents_64", "getdents64() of a folder of 64 files", 0, GETDENTS | ENTRIES, 62 },
	{ "chdir", "chdir() into a folder, and back", 0, CHDIR, 256 },
	{ "fchdir", "fchdir() to an open folder", 0, FCHDIR, 256 },
	{ "getcwd", "getcwd()", 0, GETCWD, 256 },
	{ "handle", "name_to_handle_at() of a file", 0, HANDLE, 256 },
	{ "setxattr", "an extended attribute set to another value", 0, SETXATTR | ATTRIBUTE, 62 },
	{ "getxattr", "an extended attribute read", 0, GETXATTR | ATTRIBUTE, 256 },
	{ "inotify", "a watch of a file added and removed", 0, INOTIFY, 62 },
	{ "inotify_event", "a byte written to a watched file, and the event read",
	  0, INOTIFY_EVENT | WATCHED, 62 },
	{ "dup", "dup() and close()", 0, DUP, 256 },
	{ "dup_threads", "the same in a process of two threads", 0, DUP | THREADS, 256 },
	{ "fcntl", "fcntl(F_GETFL) of an open file", 0, FCNTL, 256 },
	{ "fcntl_threads", "the same in a process of two threads", 0, FCNTL | THREADS, 256 },
	{ "posix_lock", "a lock of fcntl() taken and given back", 0, POSIX_LOCK, 256 },
	{ "ofd_lock", "a lock of an open file description taken and given back", 0, OFD_LOCK, 256 },
	{ "flock", "a lock of flock() taken and given back", 0, FLOCK, 256 },
	{ "lease", "a lease of a file taken and given back", 0, LEASE, 62 },
	{ "fsync", "fsync() of a file in memory", 0, FSYNC, 256 },
	{ "fadvise", "posix_fadvise() of a file in memory", 0, FADVISE, 256 },
	{ "readahead", "readahead() of a page that is there", 0, READAHEAD, 256 },
	{ "memfd", "memfd_create() and close()", 0, MEMFD, 62 },
	{ "pidfd", "pidfd_open() of oneself, and close()", 0, PIDFD, 62 },
	{ "close_range", "close_range() of a range without a descriptor", 0, CLOSE_RANGE, 256 },
	{ "proc_stat", "/proc/self/stat opened, read and closed", 0, PROC_STAT, 62 },
	{ "proc_maps", "/proc/self/maps opened, read and closed", 0, PROC_MAPS, 62 },
};

#define NAME		"file"
#define ATTRIBUTE_NAME	"trusted.kdelta"

static int file;
static int folder;
static int notify;

static int open_file(void)
{
	int fd = open(NAME, O_RDWR);

	kd_must(fd >= 0);
	return fd;
}

static void set_attribute(void)
{
	static uint64_t value;

	value++;
	if (!fsetxattr(file, ATTRIBUTE_NAME, &value, sizeof(value), 0))
		return;
	if (errno == EPERM || errno == EOPNOTSUPP)
		kd_skip("no extended attributes on tmpfs: %s", strerror(errno));
	kd_die("fsetxattr");
}

static void open_close(void)
{
	kd_must(!close(open_file()));
}

static void open_create(void)
{
	int fd = open(NAME, O_RDWR | O_CREAT, 0600);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void open_absent(void)
{
	kd_must(open("absent", O_RDONLY) < 0 && errno == ENOENT);
}

static void open_deep(void)
{
	int fd = open("d/../d/../d/../d", O_RDONLY | O_DIRECTORY);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void unlink_held(void)
{
	int fd = open("new", O_RDWR | O_CREAT | O_EXCL, 0600);

	kd_must(fd >= 0);
	kd_must(!unlink("new"));
	kd_must(!close(fd));
}

static void unnamed(void)
{
	int fd = open(".", O_RDWR | O_TMPFILE, 0600);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void stat_name(void)
{
	struct stat found;

	kd_must(!stat(NAME, &found));
}

static void stat_open(void)
{
	struct stat found;

	kd_must(!fstat(file, &found));
}

static void statx_open(void)
{
	struct statx found;

	kd_must(!statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &found));
}

static void fs_of_open(void)
{
	struct statfs found;

	kd_must(!fstatfs(file, &found));
}

static void may_read(void)
{
	kd_must(!access(NAME, R_OK));
}

static void chmod_name(void)
{
	kd_must(!chmod(NAME, 0600));
}

static void chmod_open(void)
{
	kd_must(!fchmod(file, 0600));
}

static void chown_name(void)
{
	kd_must(!chown(NAME, getuid(), getgid()));
}

static void set_times(void)
{
	static const struct timespec then[2] = { { 1, 0 }, { 1, 0 } };

	kd_must(!futimens(file, then));
}

static void link_unlink(void)
{
	kd_must(!link(NAME, "new"));
	kd_must(!unlink("new"));
}

static void symlink_unlink(void)
{
	kd_must(!symlink(NAME, "new"));
	kd_must(!unlink("new"));
}

static void read_link(void)
{
	char target[16];

	kd_must(readlink("link", target, sizeof(target)) == 4);
}

static void open_symlink(void)
{
	int fd = open("link", O_RDONLY);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void rename_twice(void)
{
	kd_must(!rename(NAME, "new"));
	kd_must(!rename("new", NAME));
}

static void rename_over(void)
{
	int fd = open("new", O_RDWR | O_CREAT | O_EXCL, 0600);

	kd_must(fd >= 0);
	kd_must(!close(fd));
	kd_must(!rename("new", "other"));
}

static void mkdir_rmdir(void)
{
	kd_must(!mkdir("new", 0700));
	kd_must(!rmdir("new"));
}

static void mknod_unlink(void)
{
	kd_must(!mknod("new", S_IFIFO | 0600, 0));
	kd_must(!unlink("new"));
}

/* Bytes of entries that there were. */
static size_t listed(void *entries, size_t size)
{
	long got = syscall(SYS_getdents64, folder, entries, size);

	kd_must(got >= 0);
	return got;
}

static void list_folder(void)
{
	static char entries[8192];

	kd_must(!lseek(folder, 0, SEEK_SET));
	while (listed(entries, sizeof(entries)))
		;
}

static void chdir_twice(void)
{
	kd_must(!chdir("d"));
	kd_must(!chdir(".."));
}

static void chdir_open(void)
{
	kd_must(!fchdir(folder));
}

static void working_directory(void)
{
	char path[128];

	kd_must(syscall(SYS_getcwd, path, sizeof(path)) > 0);
}

static void handle_of(void)
{
	struct {
		struct file_handle head;
		char data[MAX_HANDLE_SZ];
	} found = { .head.handle_bytes = MAX_HANDLE_SZ };
	int mount;

	kd_must(!name_to_handle_at(AT_FDCWD, NAME, &found.head, &mount, 0));
}

static void set_another(void)
{
	set_attribute();
}

static void get_attribute(void)
{
	char value[16];

	kd_must(fgetxattr(file, ATTRIBUTE_NAME, value, sizeof(value)) == 8);
}

static void watch_file(void)
{
	int watch = inotify_add_watch(notify, NAME, IN_MODIFY);

	kd_must(watch >= 0);
	kd_must(!inotify_rm_watch(notify, watch));
}

static void watched_write(void)
{
	char event[256];

	kd_must(pwrite(file, "", 1, 0) == 1);
	kd_must(read(notify, event, sizeof(event)) > 0);
}

static void dup_close(void)
{
	int fd = dup(file);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void get_flags(void)
{
	kd_must(fcntl(file, F_GETFL) >= 0);
}

static void posix_lock(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	kd_must(!fcntl(file, F_SETLK, &lock));
	lock.l_type = F_UNLCK;
	kd_must(!fcntl(file, F_SETLK, &lock));
}

static void ofd_lock(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	kd_must(!fcntl(file, F_OFD_SETLK, &lock));
	lock.l_type = F_UNLCK;
	kd_must(!fcntl(file, F_OFD_SETLK, &lock));
}

static void flock_twice(void)
{
	kd_must(!flock(file, LOCK_EX | LOCK_NB));
	kd_must(!flock(file, LOCK_UN));
}

static void lease_twice(void)
{
	kd_must(!fcntl(file, F_SETLEASE, F_WRLCK));
	kd_must(!fcntl(file, F_SETLEASE, F_UNLCK));
}

static void sync_file(void)
{
	kd_must(!fsync(file));
}

static void advise_file(void)
{
	kd_must(!posix_fadvise(file, 0, KD_PAGE, POSIX_FADV_NORMAL));
}

static void read_ahead(void)
{
	kd_must(!readahead(file, 0, KD_PAGE));
}

static void memfd_close(void)
{
	kd_must(!close(kd_memfd()));
}

static void pidfd_close(void)
{
	int fd = syscall(SYS_pidfd_open, getpid(), 0);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void close_none(void)
{
	kd_must(!syscall(SYS_close_range, 500, 600, 0));
}

static void proc_stat(void)
{
	char text[1024];
	int fd = open("/proc/self/stat", O_RDONLY);

	kd_must(fd >= 0);
	kd_must(read(fd, text, sizeof(text)) > 0);
	kd_must(!close(fd));
}

static void proc_maps(void)
{
	static char text[16384];
	int fd = open("/proc/self/maps", O_RDONLY);

	kd_must(fd >= 0);
	while (read(fd, text, sizeof(text)) > 0)
		;
	kd_must(!close(fd));
}

static void fill_folder(void)
{
	char name[16];

	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "entry-%02d", i);
		kd_must(!link(NAME, name));
	}
}

static void set_up(const struct kd_scenario *s)
{
	kd_enter_tmpfs();
	kd_must(kd_write_file(NAME, "one"));
	kd_must(!mkdir("d", 0700));
	kd_must(!symlink(NAME, "link"));
	file = open_file();
	folder = open(".", O_RDONLY | O_DIRECTORY);
	kd_must(folder >= 0);
	notify = inotify_init();	/* a small kernel may have none, and most need none */
	if (notify < 0 && ((s->flags & CALL) == INOTIFY || s->flags & WATCHED))
		kd_skip("the kernel has no inotify: %s", strerror(errno));
	if (s->flags & ENTRIES)
		fill_folder();
	if (s->flags & ATTRIBUTE)
		set_attribute();
	if (s->flags & WATCHED)
		kd_must(inotify_add_watch(notify, NAME, IN_MODIFY) >= 0);
	if (s->flags & THREADS)
		kd_start_another();
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[OPEN] = open_close, [OPEN_CREATE] = open_create, [OPEN_ABSENT] = open_absent,
		[OPEN_DEEP] = open_deep, [UNLINK_HELD] = unlink_held, [O_TMPFILE_CLOSE] = unnamed,
		[STAT] = stat_name, [FSTAT] = stat_open, [STATX] = statx_open,
		[FSTATFS] = fs_of_open, [ACCESS] = may_read, [CHMOD] = chmod_name,
		[FCHMOD] = chmod_open, [CHOWN] = chown_name, [UTIME] = set_times,
		[LINK] = link_unlink, [SYMLINK] = symlink_unlink, [READLINK] = read_link,
		[OPEN_SYMLINK] = open_symlink, [RENAME] = rename_twice,
		[RENAME_OVER] = rename_over, [MKDIR] = mkdir_rmdir, [MKNOD] = mknod_unlink,
		[GETDENTS] = list_folder, [CHDIR] = chdir_twice, [FCHDIR] = chdir_open,
		[GETCWD] = working_directory, [HANDLE] = handle_of, [SETXATTR] = set_another,
		[GETXATTR] = get_attribute, [INOTIFY] = watch_file,
		[INOTIFY_EVENT] = watched_write, [DUP] = dup_close, [FCNTL] = get_flags,
		[POSIX_LOCK] = posix_lock, [OFD_LOCK] = ofd_lock, [FLOCK] = flock_twice,
		[LEASE] = lease_twice, [FSYNC] = sync_file, [FADVISE] = advise_file,
		[READAHEAD] = read_ahead, [MEMFD] = memfd_close, [PIDFD] = pidfd_close,
		[CLOSE_RANGE] = close_none, [PROC_STAT] = proc_stat, [PROC_MAPS] = proc_maps,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "loops_names", scenarios,
					       ARRAY_SIZE(scenarios));

	set_up(s);
	return kd_loop(once[s->flags & CALL], s->calls, s->flags & THREADS ? 2 : 1, 0, 0);
}
