// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does mseal() pay to find that all it is asked to seal is sealed
 * already?  A seal cannot be taken off, so this is what a window can repeat.
 */
#include "kdelta.h"

#include <sys/syscall.h>

#ifndef __NR_mseal
#define __NR_mseal	462	/* Linux 6.10, the same on all architectures */
#endif

enum { SEAL };			/* phases */

#define PIECE	(4 * KD_PAGE)	/* memory of one mapping */

static const struct kd_scenario scenarios[] = {
	{ "already_sealed_noop", "one sealed mapping, 1024 calls in a window", PIECE, 0, 1024 },
	{ "already_sealed_64_vmas", "64 sealed mappings side by side, 32 calls in a window",
	  64 * PIECE, 0, 32 },
};

static noinline void seal(char *start, size_t bytes, unsigned int calls)
{
	for (; calls; calls--)
		if (syscall(__NR_mseal, start, bytes, 0))
			kd_die("mseal");
}

/* errno of a call that a seal forbids; 0 when it is allowed. */
static long forbidden(int failed)
{
	return failed ? errno : 0;
}

static void audit(enum kd_when when, const struct kd_scenario *s, char *start)
{
	long vmas = s->bytes / PIECE;
	const struct kd_want want[] = {
		{ "present_pages", KD_PAGES(s->bytes) },
		{ "swapped_pages", 0 },
		{ "thp_pages", 0 },
		{ "vmas", vmas },
		{ "sealed_vmas", vmas },
	};

	kd_state(when, "mprotect_errno", forbidden(mprotect(start, s->bytes, PROT_NONE)), EPERM);
	kd_state(when, "munmap_errno", forbidden(munmap(start, s->bytes)), EPERM);
	kd_audit_state(when, start, s->bytes, want, ARRAY_SIZE(want));
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "mseal", scenarios,
					       ARRAY_SIZE(scenarios));
	char *start = kd_map(s->bytes, KD_RW, MAP_PRIVATE);

	kd_phase(SEAL, "seal", "call", s->calls);
	kd_no_thp(start, s->bytes);
	kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);
	/* Every other piece read-only: neighbours that differ stay mappings of their own. */
	for (size_t at = PIECE; at < s->bytes; at += 2 * PIECE)
		if (mprotect(start + at, PIECE, PROT_READ))
			kd_die("mprotect");
	if (syscall(__NR_mseal, start, s->bytes, 0)) {
		if (errno == ENOSYS)
			kd_skip("the kernel has no mseal(): it came with Linux 6.10");
		kd_die("mseal");
	}
	audit(KD_BEFORE, s, start);

	while (kd_next())
		KD_WINDOW(SEAL, seal(start, s->bytes, s->calls));

	audit(KD_AFTER, s, start);
	return kd_finish();
}
