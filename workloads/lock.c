// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What do mlock() and munlock() pay per page, when the pages are resident and
 * when mlock() has to bring them?
 */
#include "kdelta.h"
#include <sys/syscall.h>

enum { LOCK, UNLOCK };					/* phases */
enum { THP = 1, EMPTY = 2 };				/* scenario flags */

static const struct kd_scenario scenarios[] = {
	{ "mlock", "resident private anonymous base pages", KD_BATCHES, 0, 1 },
	{ "mlock_thp", "resident private anonymous huge pages", KD_MIB(16), THP, 1 },
	{ "mlock_empty", "private anonymous memory without pages: mlock() faults them in",
	  KD_BATCHES, EMPTY, 1 },
};

/* By number: the run-time library of sanitizers leaves mlock() without effect. */
static noinline void lock(char *start, size_t bytes)
{
	if (!syscall(SYS_mlock, start, bytes))
		return;
	if (errno == ENOMEM || errno == EPERM)
		kd_skip("RLIMIT_MEMLOCK is too small for %zu bytes", bytes);
	kd_die("mlock");
}

static noinline void unlock(char *start, size_t bytes)
{
	if (syscall(SYS_munlock, start, bytes))
		kd_die("munlock");
}

static long locked_kb(const char *start, size_t bytes)
{
	char *smaps = kd_read_file("/proc/self/smaps");
	long kb = kd_mappings(smaps, start, start + bytes, KD_SUM, "Locked:", NULL);

	free(smaps);
	return kb;
}

static void audit(enum kd_when when, const struct kd_scenario *s, const char *start)
{
	kd_state(when, "locked_kb", locked_kb(start, s->bytes), 0);
	kd_audit_anon(when, start, s->bytes, s->flags & THP ? KD_HUGE : KD_PAGE, NULL, 0);
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "lock", scenarios,
					       ARRAY_SIZE(scenarios));
	long locked = KD_FREE, left = KD_FREE;
	char *start;

	kd_alone(4);
	start = kd_map(s->bytes, KD_RW, MAP_PRIVATE);
	kd_phase(LOCK, "lock", "page", KD_PAGES(s->bytes));
	kd_phase(UNLOCK, "unlock", "page", KD_PAGES(s->bytes));
	kd_fault_in(start, s->bytes, s->flags & THP);
	audit(KD_BEFORE, s, start);

	while (kd_next()) {
		if (s->flags & EMPTY)
			kd_drop(start, s->bytes);
		KD_WINDOW(LOCK, lock(start, s->bytes));
		kd_all(&locked, locked_kb(start, s->bytes));
		KD_WINDOW(UNLOCK, unlock(start, s->bytes));
		kd_all(&left, locked_kb(start, s->bytes));
	}

	kd_state(KD_DURING, "window_kb_locked", locked, s->bytes / 1024);
	kd_state(KD_DURING, "window_kb_unlocked", left, 0);
	audit(KD_AFTER, s, start);
	return kd_finish();
}
