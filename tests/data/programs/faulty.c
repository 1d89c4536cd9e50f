// SPDX-License-Identifier: GPL-2.0-or-later
/* Ways in which a workload and its guest can fail.  The last argument, the scenario, says which. */
#include "kdelta.h"

#include <signal.h>
#include <sys/reboot.h>

static void panic(void)
{
	int trigger = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);

	if (trigger < 0 || write(trigger, "c", 1) != 1)
		kd_die("/proc/sysrq-trigger");
}

static void flood(void)
{
	static char block[1 << 16];

	memset(block, 'x', sizeof(block));
	for (;;)
		if (write(STDOUT_FILENO, block, sizeof(block)) < 0)
			kd_die("write");
}

static int hide_garbage(void)
{
	static const char bytes[] = "kdelta-workload 1 \033[2J\0\xff\xfe garbage\n\n\nkdelta-done\n";

	if (write(STDOUT_FILENO, bytes, sizeof(bytes) - 1) < 0)
		kd_die("write");
	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argv[argc - 1];

	KD_ARM();
	sched_yield();
	if (!strcmp(how, "panic"))
		panic();
	else if (!strcmp(how, "hang"))
		for (;;)
			pause();
	else if (!strcmp(how, "spin"))
		for (volatile unsigned long turns = 0;; turns++)
			;
	else if (!strcmp(how, "flood"))
		flood();
	else if (!strcmp(how, "garbage"))
		return hide_garbage();
	else if (!strcmp(how, "partial"))
		printf("no newline at the end");
	else if (!strcmp(how, "reboot"))
		reboot(RB_AUTOBOOT);
	else if (!strcmp(how, "crash"))
		raise(SIGSEGV);
	else if (!strcmp(how, "memory"))
		for (;;)
			kd_touch(kd_map(KD_MIB(16), KD_RW, MAP_PRIVATE), KD_PAGES(KD_MIB(16)), KD_PAGE);
	else if (!strcmp(how, "unclosed"))
		KD_BEGIN(0);
	else if (!strcmp(how, "silent"))
		return 0;
	fflush(stdout);
	return 3;
}
