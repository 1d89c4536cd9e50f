// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What does @NAME@() cost?  Here: mprotect() of 4 MiB in base pages, read-only
 * and back.  Put your own loop in its place.
 */
#include "kdelta.h"

enum { WORK };			/* phases */

static const struct kd_scenario scenarios[] = {
	{ "base_4m", "4 MiB in base pages", KD_MIB(4), 0, 1 },
};

/* What a window holds: a function of its own, so that each executes the same instructions. */
static noinline void work(char *start, size_t bytes)
{
	if (mprotect(start, bytes, PROT_READ))
		kd_die("mprotect(PROT_READ)");
	if (mprotect(start, bytes, KD_RW))
		kd_die("mprotect(PROT_READ | PROT_WRITE)");
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "@NAME@", scenarios,
					       ARRAY_SIZE(scenarios));
	size_t pages = KD_PAGES(s->bytes);
	char *start = kd_map(s->bytes, KD_RW, MAP_PRIVATE);

	kd_phase(WORK, "work", "page", pages);
	kd_no_thp(start, s->bytes);
	kd_touch(start, pages, KD_PAGE);
	/* What is wanted of the pages stands here and in the TOML: one without the other is refused. */
	kd_audit_anon(KD_BEFORE, start, s->bytes, KD_PAGE, NULL, 0);
	while (kd_next())
		KD_WINDOW(WORK, work(start, s->bytes));
	kd_audit_anon(KD_AFTER, start, s->bytes, KD_PAGE, NULL, 0);
	return kd_finish();
}
