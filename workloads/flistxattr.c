// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does flistxattr() pay per call and per name to list the extended
 * attributes of a tmpfs file?
 */
#include "kdelta.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

enum { LIST };			/* phases */

enum { NAME_SIZE = sizeof("user.kdelta_00") };	/* with the NUL that ends it in a list */

/* `flags` is the number of names. */
static const struct kd_scenario scenarios[] = {
	{ "tmpfs_1_name", "1 user.* name, 1024 calls in a window", KD_PAGE, 1, 1024 },
	{ "tmpfs_4_names", "4 user.* names, 512 calls in a window", KD_PAGE, 4, 512 },
	{ "tmpfs_16_names", "16 user.* names, 256 calls in a window", KD_PAGE, 16, 256 },
	{ "tmpfs_64_names", "64 user.* names, 128 calls in a window", KD_PAGE, 64, 128 },
};

static noinline void list(int fd, char *names, size_t size, ssize_t length, unsigned int calls)
{
	ssize_t got;

	for (; calls; calls--) {
		got = flistxattr(fd, names, size);
		if (got != length)
			kd_exit(1, "flistxattr returns %zd instead of %zd: %s", got, length,
				got < 0 ? strerror(errno) : "other names are there");
	}
}

static void name_of(char *name, unsigned int i)
{
	snprintf(name, NAME_SIZE, "user.kdelta_%02u", i % 100);
}

static int file_with(unsigned int names)
{
	char name[NAME_SIZE];
	int fd = kd_memfd();

	for (unsigned int i = 0; i < names; i++) {
		name_of(name, i);
		if (!fsetxattr(fd, name, "value", 5, XATTR_CREATE))
			continue;
		if (errno == EOPNOTSUPP)
			kd_skip("tmpfs of this kernel has no user.* attributes: they need Linux 6.6 "
				"and CONFIG_TMPFS_XATTR");
		kd_die("fsetxattr");
	}
	return fd;
}

/* How many of our names a list holds, each of them once; no other way fills its length. */
static long listed(const char *list, ssize_t length, unsigned int names)
{
	long found = 0;

	for (unsigned int i = 0; i < names; i++) {
		char name[NAME_SIZE];
		long times = 0;

		name_of(name, i);
		for (ssize_t at = 0; at + NAME_SIZE <= length; at += NAME_SIZE)
			times += !memcmp(list + at, name, NAME_SIZE);
		found += times == 1;
	}
	return found;
}

static void audit(enum kd_when when, const struct kd_scenario *s, int fd, char *names)
{
	const struct kd_want want[] = {
		{ "present_pages", 1 },
		{ "swapped_pages", 0 },
		{ "vmas", 1 },
	};
	ssize_t length = flistxattr(fd, names, s->bytes);
	struct statfs fs;

	if (fstatfs(fd, &fs))
		kd_die("fstatfs");
	kd_state(when, "on_tmpfs", fs.f_type == TMPFS_MAGIC, 1);
	kd_state(when, "list_bytes", length, s->flags * NAME_SIZE);
	kd_state(when, "names_listed", listed(names, length, s->flags), s->flags);
	kd_audit_state(when, names, s->bytes, want, ARRAY_SIZE(want));
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "flistxattr", scenarios,
					       ARRAY_SIZE(scenarios));
	char *names = kd_map(s->bytes, KD_RW, MAP_PRIVATE);
	int fd = file_with(s->flags);
	ssize_t length = s->flags * NAME_SIZE;

	kd_phase(LIST, "list", "call", s->calls);
	kd_touch(names, KD_PAGES(s->bytes), KD_PAGE);
	audit(KD_BEFORE, s, fd, names);

	while (kd_next())
		KD_WINDOW(LIST, list(fd, names, s->bytes, length, s->calls));

	audit(KD_AFTER, s, fd, names);
	return kd_finish();
}
