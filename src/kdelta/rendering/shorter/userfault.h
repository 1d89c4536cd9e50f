/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Of userfault.c: one refusal for all that a kernel may not have. */

static void open_uffd(const struct kd_scenario *s, const char *start)
{
	bool wp = s->flags == WP, moves = s->flags == MOVE || s->flags == MOVE_RANGE;
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = moves ? UFFD_FEATURE_MOVE : wp ? UFFD_FEATURE_PAGEFAULT_FLAG_WP : 0,
	};
	struct uffdio_register range = {
		.range = { (uintptr_t)start, s->bytes },
		.mode = wp ? UFFDIO_REGISTER_MODE_WP : UFFDIO_REGISTER_MODE_MISSING,
	};

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		kd_skip("userfaultfd of this kernel cannot do it: %s", strerror(errno));
	if (ioctl(uffd, UFFDIO_REGISTER, &range))
		kd_die("ioctl(UFFDIO_REGISTER)");
}
