// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "calls.h"
#include "events.h"
#include "mappings.h"
#include "memory.h"
#include "options.h"
#include "pointed.h"
#include "sharing.h"
#include "stream.h"
#include "translations.h"
#include "windows.h"

/* What follows `name` in an argument, NULL for another argument. */
static const char *option(const char *argument, const char *name)
{
	size_t length = strlen(name);

	return strncmp(argument, name, length) ? NULL : argument + length;
}

int options_read(int argc, char **argv)
{
	const char *path = NULL, *text;
	bool events = false, whole = true, known = true;
	int error;

	for (int i = 0; i < argc; i++) {
		if ((text = option(argv[i], "out=")))
			path = text;
		else if ((text = option(argv[i], "events=")))
			events = events_read(text);
		else if ((text = option(argv[i], "windows=")))
			windows_expect(strtoull(text, NULL, 10));
		else if ((text = option(argv[i], "functions=")))
			whole &= calls_read(text);
		else if (!strcmp(argv[i], "calls=on"))
			calls_want();
		else if ((text = option(argv[i], "memory=")))
			whole &= memory_read_option(text);
		else if ((text = option(argv[i], "slabs=")))
			whole &= memory_read_slabs(text);
		else if (!strcmp(argv[i], "sharing=on"))
			sharing_want();
		else if ((text = option(argv[i], "arguments=")))
			whole &= arguments_read(text);
		else if ((text = option(argv[i], "pointed=")))
			whole &= pointed_read(text);
		else if ((text = option(argv[i], "flags=")))
			known = translations_read(text);
		else if ((text = option(argv[i], "image=")))
			mappings_image(strtoull(text, NULL, 10));
	}
	if (!path || !events) {
		fprintf(stderr, "kdelta plugin: needs out=FILE and events=FILE, a readable list\n");
		return -1;
	}
	if (!whole || ((calls_wanted() || memory_wanted()) && !calls_have_functions())) {
		fprintf(stderr, "kdelta plugin: functions=, memory=, arguments= or pointed= says nothing\n");
		return -1;
	}
	if (!known) {
		fprintf(stderr, "kdelta plugin: flags= is of another QEMU\n");
		return -1;
	}
	error = stream_open(path);
	if (error) {
		fprintf(stderr, "kdelta plugin: %s: %s\n", path, strerror(error));
		return -1;
	}
	return 0;
}
