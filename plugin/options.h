/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Included by insns.c alone: what the plugin is told on QEMU's command line. */
#ifndef KDELTA_OPTIONS_H
#define KDELTA_OPTIONS_H

/* What follows `name` in an argument, NULL for another argument. */
static const char *option(const char *argument, const char *name)
{
	size_t length = strlen(name);

	return strncmp(argument, name, length) ? NULL : argument + length;
}

/* 0, or -1 and a reason on stderr. */
static int read_options(int argc, char **argv)
{
	const char *path = NULL, *text;
	bool events = false, whole = true;

	for (int i = 0; i < argc; i++) {
		if ((text = option(argv[i], "out=")))
			path = text;
		else if ((text = option(argv[i], "events=")))
			events = read_events(text);
		else if ((text = option(argv[i], "windows=")))
			state.windows_told = strtoull(text, NULL, 10);
		else if ((text = option(argv[i], "functions=")))
			whole &= calls_read(text);
		else if ((text = option(argv[i], "calls=")))
			calls.wanted = !strcmp(text, "on");
		else if ((text = option(argv[i], "memory=")))
			whole &= memory_read_option(text);
		else if ((text = option(argv[i], "arguments=")))
			whole &= arguments_read(text);
	}
	if (!path || !events) {
		fprintf(stderr, "kdelta plugin: needs out=FILE and events=FILE, a readable list\n");
		return -1;
	}
	if (!whole || ((calls.wanted || memory.wanted) && !calls.ranges)) {
		fprintf(stderr, "kdelta plugin: functions=, memory= or arguments= says nothing\n");
		return -1;
	}
	state.out = fopen(path, "we");
	if (!state.out) {
		fprintf(stderr, "kdelta plugin: %s: %s\n", path, strerror(errno));
		return -1;
	}
	return 0;
}

#endif /* KDELTA_OPTIONS_H */
