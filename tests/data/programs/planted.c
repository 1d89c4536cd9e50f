// SPDX-License-Identifier: GPL-2.0-or-later
/* A loop, and the same loop with more turns: the slowdowns that timing has to find. */
#include "kdelta.h"

enum { LOOP };

static const struct kd_scenario scenarios[] = {
	{ "plain", "1000 turns", KD_PAGE, 1000, 1 },
	{ "slower", "1100 turns, called 1000", KD_PAGE, 1100, 1 },
	{ "double", "2000 turns, called 1000", KD_PAGE, 2000, 1 },
};

static noinline void loop(unsigned int turns)
{
	for (unsigned int i = 0; i < turns; i++)
		for (volatile unsigned int j = 0; j < 500; j++)
			;
}

int main(int argc, char **argv)
{
	const struct kd_scenario *s = kd_start(argc, argv, "planted", scenarios,
					       ARRAY_SIZE(scenarios));

	kd_phase(LOOP, "loop", "turn", 1000);
	kd_state(KD_BEFORE, "fine", 1, 1);
	while (kd_next())
		KD_WINDOW(LOOP, loop(s->flags));
	kd_state(KD_AFTER, "fine", 1, 1);
	return kd_finish();
}
