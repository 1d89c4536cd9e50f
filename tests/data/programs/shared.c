// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lines of user memory that two tasks hand to each other, as many as is written here.
 */
#include "kdelta.h"

enum { ONE_LINE, TWO_LINES, REFCOUNT, RWSEM, SEQLOCK, BATCH, LOCK };

static const struct kd_scenario scenarios[] = {
	{ "one_line", "a counter of each in one line", 0, ONE_LINE | KD_TURNS(2), 1 },
	{ "two_lines", "a counter of each in a line of its own", 0, TWO_LINES | KD_TURNS(2), 1 },
	{ "refcount", "a reference is taken and dropped", 0, REFCOUNT | KD_TURNS(2), 1 },
	{ "rwsem", "data that nobody writes is read under a lock for reading",
	  0, RWSEM | KD_TURNS(2), 1 },
	{ "seqlock", "one writes a line of data by a sequence count in another, one reads both",
	  0, SEQLOCK | KD_TURNS(2), 1 },
	{ "batch", "each counts for itself, and adds 32 at once to what all have",
	  0, BATCH | KD_TURNS(2), 1 },
	{ "lock", "a counter that nobody else has is counted under a lock", 0, LOCK | KD_TURNS(2), 1 },
};

static struct { volatile unsigned int word[16]; } __attribute__((aligned(64))) line[2], all;

static void count_in(volatile unsigned int *word)
{
	*word = *word + 1;
}

static void one_line(void)
{
	count_in(&all.word[kd_task]);
}

static void two_lines(void)
{
	count_in(&line[kd_task].word[0]);
}

static void refcount(void)
{
	__atomic_fetch_add(&all.word[0], 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&all.word[0], 1, __ATOMIC_SEQ_CST);
}

static void rwsem(void)
{
	__atomic_fetch_add(&all.word[0], 1, __ATOMIC_SEQ_CST);
	(void)line[0].word[0];
	__atomic_fetch_sub(&all.word[0], 1, __ATOMIC_SEQ_CST);
}

static void seqlock(void)
{
	if (!kd_task) {
		count_in(&all.word[0]);
		count_in(&line[0].word[0]);
		count_in(&all.word[0]);
		return;
	}
	(void)all.word[0];
	(void)line[0].word[0];
	(void)all.word[0];
}

static void batch(void)
{
	count_in(&line[kd_task].word[0]);
	if (line[kd_task].word[0] % 32 == 16)
		all.word[0] += 32;
}

/* Functions of locks are known by their names. */
static noinline void _raw_spin_lock(volatile unsigned int *word)
{
	while (__atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE))
		KD_RELAX();
}

static void locked(void)
{
	_raw_spin_lock(&all.word[0]);
	count_in(&line[kd_task].word[0]);
	__atomic_store_n(&all.word[0], 0, __ATOMIC_RELEASE);
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[ONE_LINE] = one_line, [TWO_LINES] = two_lines, [REFCOUNT] = refcount,
		[RWSEM] = rwsem, [SEQLOCK] = seqlock, [BATCH] = batch, [LOCK] = locked,
	};
	const struct kd_scenario *s = kd_start(argc, argv, "shared", scenarios,
					       ARRAY_SIZE(scenarios));

	return kd_loop_in_turns(once[s->flags & 255], false);
}
