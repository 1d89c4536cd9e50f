// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does userfaultfd cost a page: to be filled, moved or write-protected
 * by the program, and to wait for the handler of a fault?
 */
#include "kdelta.h"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef UFFD_FEATURE_MOVE				/* Linux 6.8 */
#define UFFD_FEATURE_MOVE	(1 << 16)
struct uffdio_move {
	__u64 dst, src, len, mode;
	__s64 move;
};
#define UFFDIO_MOVE		_IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY	1
#endif

enum { FILL, PROTECT, UNPROTECT, FAULT };		/* phases */
enum { COPY, ZERO, MOVE, MOVE_RANGE, WP, MISSING };	/* scenario flags */

static const struct kd_scenario scenarios[] = {
	{ "copy", "UFFDIO_COPY, one call a page", KD_BATCHES, COPY, 1 },
	{ "zeropage", "UFFDIO_ZEROPAGE, one call a page", KD_BATCHES, ZERO, 1 },
	{ "move", "UFFDIO_MOVE, one call a page", KD_BATCHES, MOVE, 1 },
	{ "move_range", "UFFDIO_MOVE of a range of pages, one call", KD_BATCHES, MOVE_RANGE, 1 },
	{ "wp", "UFFDIO_WRITEPROTECT of all of a range, and its removal", KD_MIB(4), WP, 1 },
	{ "missing", "first write to a page that another thread then fills by UFFDIO_COPY",
	  62 * KD_PAGE, MISSING, 1 },
};

static int uffd;
static char *from;		/* pages to copy or to move from */

static bool supported(__u64 features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (uffd < 0)
		kd_skip("userfaultfd(): %s", strerror(errno));
	if (!ioctl(uffd, UFFDIO_API, &api))
		return true;
	if (errno != EINVAL)
		kd_die("ioctl(UFFDIO_API)");
	return false;
}

static void open_uffd(const struct kd_scenario *s, const char *start)
{
	bool wp = s->flags == WP, moves = s->flags == MOVE || s->flags == MOVE_RANGE;
	struct uffdio_register range = {
		.range = { (uintptr_t)start, s->bytes },
		.mode = wp ? UFFDIO_REGISTER_MODE_WP : UFFDIO_REGISTER_MODE_MISSING,
	};

	if (!supported(moves ? UFFD_FEATURE_MOVE : wp ? UFFD_FEATURE_PAGEFAULT_FLAG_WP : 0))
		kd_skip("userfaultfd of this kernel cannot do it: UFFD_FEATURE_%s",
			wp ? "PAGEFAULT_FLAG_WP" : "MOVE");
	if (ioctl(uffd, UFFDIO_REGISTER, &range))
		kd_die("ioctl(UFFDIO_REGISTER)");
}

static void copy_one(char *page)
{
	struct uffdio_copy copy = {
		.dst = (uintptr_t)page, .src = (uintptr_t)from, .len = KD_PAGE,
	};

	if (ioctl(uffd, UFFDIO_COPY, &copy))
		kd_die("ioctl(UFFDIO_COPY)");
}

static noinline void copy(char *start, size_t pages)
{
	for (; pages; pages--, start += KD_PAGE)
		copy_one(start);
}

static noinline void zeropage(char *start, size_t pages)
{
	for (; pages; pages--, start += KD_PAGE) {
		struct uffdio_zeropage zero = { .range = { (uintptr_t)start, KD_PAGE } };

		if (ioctl(uffd, UFFDIO_ZEROPAGE, &zero))
			kd_die("ioctl(UFFDIO_ZEROPAGE)");
	}
}

static noinline void move(char *start, size_t bytes, size_t step)
{
	for (size_t at = 0; at < bytes; at += step) {
		struct uffdio_move some = {
			.dst = (uintptr_t)start + at, .src = (uintptr_t)from + at, .len = step,
		};

		if (ioctl(uffd, UFFDIO_MOVE, &some))
			kd_die("ioctl(UFFDIO_MOVE)");
	}
}

static noinline void protect(char *start, size_t bytes, __u64 mode)
{
	struct uffdio_writeprotect range = {
		.range = { (uintptr_t)start, bytes }, .mode = mode,
	};

	if (ioctl(uffd, UFFDIO_WRITEPROTECT, &range))
		kd_die("ioctl(UFFDIO_WRITEPROTECT)");
}

static void *handle(void *unused)
{
	struct uffd_msg message;

	while (read(uffd, &message, sizeof(message)) == sizeof(message)) {
		if (message.event != UFFD_EVENT_PAGEFAULT)
			kd_exit(1, "userfaultfd sent event %d", message.event);
		copy_one((char *)(uintptr_t)(message.arg.pagefault.address & ~(KD_PAGE - 1)));
	}
	kd_die("read from userfaultfd");
	return unused;
}

static void start_handler(void)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, handle, NULL);
	if (errno)
		kd_die("pthread_create");
}

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start)
{
	bool zero = s->flags == ZERO;
	long pages = KD_PAGES(s->bytes);
	const struct kd_want want[] = {
		{ "anon_pages", zero ? 0 : pages },
		{ "zero_pages", zero ? pages : 0 },
		{ "shared_vmas", 0 },
	};

	kd_audit_anon(when, start, s->bytes, KD_PAGE, want, ARRAY_SIZE(want));
}

/* One window that brings all pages. */
static void fill(const struct kd_scenario *s, char *start)
{
	size_t pages = KD_PAGES(s->bytes);

	if (s->flags == COPY)
		KD_WINDOW(FILL, copy(start, pages));
	else if (s->flags == ZERO)
		KD_WINDOW(FILL, zeropage(start, pages));
	else if (s->flags == MOVE)
		KD_WINDOW(FILL, move(start, s->bytes, KD_PAGE));
	else if (s->flags == MOVE_RANGE)
		KD_WINDOW(FILL, move(start, s->bytes, s->bytes));
	else
		KD_WINDOW(FAULT, kd_touch(start, pages, KD_PAGE));
}

static void run_wp(const struct kd_scenario *s, char *start)
{
	long set = KD_FREE, cleared = KD_FREE;

	kd_phase(PROTECT, "protect", "page", KD_PAGES(s->bytes));
	kd_phase(UNPROTECT, "unprotect", "page", KD_PAGES(s->bytes));
	kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
	audit(KD_BEFORE, s, start);
	while (kd_next()) {
		KD_WINDOW(PROTECT, protect(start, s->bytes, UFFDIO_WRITEPROTECT_MODE_WP));
		kd_all(&set, kd_pagemap_count(start, s->bytes, KD_PM_UFFD_WP));
		KD_WINDOW(UNPROTECT, protect(start, s->bytes, 0));
		kd_all(&cleared, kd_pagemap_count(start, s->bytes, KD_PM_UFFD_WP));
	}
	kd_state(KD_DURING, "window_protected", set, KD_PAGES(s->bytes));
	kd_state(KD_DURING, "window_unprotected", cleared, 0);
	audit(KD_AFTER, s, start);
}

static void run_fill(const struct kd_scenario *s, char *start)
{
	long empty = KD_FREE, present = KD_FREE;
	size_t pages = KD_PAGES(s->bytes);

	if (s->flags == MISSING) {
		kd_phase(FAULT, "fault", "page", pages);
		start_handler();
		kd_touch(start, pages, KD_PAGE);
	} else {
		kd_phase(FILL, "fill", "page", pages);
		if (s->flags == ZERO)
			zeropage(start, pages);
		else
			copy(start, pages);
	}
	audit(KD_BEFORE, s, start);
	while (kd_next()) {
		kd_drop(start, s->bytes);
		kd_all(&empty, kd_present(start, s->bytes));
		kd_touch(from, pages, KD_PAGE);
		fill(s, start);
		kd_all(&present, kd_present(start, s->bytes));
	}
	kd_state(KD_DURING, "window_present_before", empty, 0);
	kd_state(KD_DURING, "window_present_after", present, pages);
	audit(KD_AFTER, s, start);
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "userfault", scenarios,
					       ARRAY_SIZE(scenarios));
	char *start;

	kd_alone(4);
	from = kd_map(s->bytes, KD_RW, MAP_PRIVATE);
	start = kd_map(s->bytes, KD_RW, MAP_PRIVATE);
	kd_no_thp(from, s->bytes);
	kd_no_thp(start, s->bytes);
	kd_touch(from, KD_PAGES(s->bytes), KD_PAGE);
	open_uffd(s, start);
	if (s->flags == WP)
		run_wp(s, start);
	else
		run_fill(s, start);
	return kd_finish();
}
