/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Of fault_fork.c: the child tells that it is ready, and not how many pages it has. */

static __attribute__((noreturn)) void live(const struct kd_scenario *s, char *start)
{
	char order = 0;

	if (s->flags & OWN)
		fill(s, start);
	_exit(write(child.told[1], &order, 1) != 1 || read(child.go[0], &order, 1) != 1);
}

/* Until the child is ready. */
static void child_present(void)
{
	char told;

	if (read(child.told[0], &told, 1) != 1)
		kd_die("read");
}
