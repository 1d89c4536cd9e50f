/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lone.h - lets a program with an ordinary main() speak as a workload does.
 *
 * kdelta includes it before a C file outside its tree that does not call
 * kd_start().  Such a file needs kdelta.h and two marks:
 *
 *	#include "kdelta.h"
 *
 *	int main(void)
 *	{
 *		for (int i = 0; i < 10; i++) {
 *			KD_BEGIN(0);
 *			work();
 *			KD_END(0);
 *		}
 *		return 0;
 *	}
 *
 * Elsewhere the marks are no-ops and the file is what it looks like.
 */
#ifndef KDELTA_LONE_H
#define KDELTA_LONE_H

#include "kdelta.h"

#ifndef KD_LONE
#error "KD_LONE is the name of the program"
#endif

#define KD_LONE_WINDOWS	1000

static struct {
	pid_t owner;		/* children say nothing */
	int output;		/* standard output as kdelta reads it */
	int words;		/* what the program itself prints */
	const char *scenario;
	bool armed;
	uint64_t began;
	unsigned int windows[KD_MAX_PHASES];
	uint64_t ns[KD_MAX_PHASES][KD_LONE_WINDOWS];
} kd_lone;

/* What there is in memory of the process; wanted is nothing, whoever reads may compare. */
kd_api void kd_lone_state(enum kd_when when)
{
	static const char *const facts[][2] = {
		{ "process_rss_kb", "Rss" },
		{ "process_anon_kb", "Anonymous" },
		{ "process_anon_huge_kb", "AnonHugePages" },
		{ "process_swap_kb", "Swap" },
	};
	char *text = kd_read_file("/proc/self/smaps_rollup");

	for (size_t i = 0; i < ARRAY_SIZE(facts); i++)
		kd_state(when, facts[i][0], kd_keyed(text, facts[i][1]), KD_FREE);
	free(text);
}

/* The end: say why, as a workload says it. */
kd_api __attribute__((noreturn, format(printf, 2, 3)))
void kd_lone_exit(int status, const char *format, ...)
{
	va_list args;

	printf("note ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\nend %d\n", status);
	fflush(stdout);
	_exit(status);
}

/* The last line that the program printed, as far as it is plain text. */
kd_api void kd_lone_last_words(char *text, size_t size)
{
	char tail[512];
	off_t end = lseek(kd_lone.words, 0, SEEK_END), from = end < 511 ? 0 : end - 511;
	ssize_t got = pread(kd_lone.words, tail, sizeof(tail) - 1, from);
	char *line = tail, *newline;

	tail[got > 0 ? got : 0] = '\0';
	for (char *each = tail + strlen(tail); each > tail && each[-1] == '\n'; )
		*--each = '\0';
	while ((newline = strchr(line, '\n')))
		line = newline + 1;
	for (char *each = line; *each; each++)
		if (*each < ' ' || *each > '~')
			*each = '?';
	snprintf(text, size, "%s", *line ? line : "it printed nothing");
}

kd_api void kd_lone_facts(void)
{
	static const char *const words[] = { "before", "after", "during" };
	char text[24], wanted[24];

	for (const struct kd_fact *fact = kd.facts; fact->name[0]; fact++)
		for (enum kd_when when = KD_BEFORE; when <= KD_DURING; when++)
			if (fact->stated[when])
				printf("state %s %s %s %s\n", words[when], fact->name,
				       kd_text(text, fact->value[when]),
				       kd_text(wanted, fact->want));
}

kd_api void kd_lone_finish(int status, void *unused)
{
	unsigned int marked = 0;
	char words[400];

	(void)unused;
	if (getpid() != kd_lone.owner)
		return;
	if (!status)
		kd_lone_state(KD_AFTER);
	fflush(stdout);
	fflush(stderr);
	if (dup2(kd_lone.output, STDOUT_FILENO) < 0)
		_exit(1);
	kd.protocol = true;
	printf("kdelta-workload 1 %s %s\n", KD_LONE, kd_lone.scenario);
	kd_lone_last_words(words, sizeof(words));
	if (status)
		kd_lone_exit(status == 77 ? 77 : 1, "its main() ended with status %d: %s", status, words);
	for (unsigned int id = 0; id < KD_MAX_PHASES; id++)
		marked += !!kd_lone.windows[id];
	if (!marked)
		kd_lone_exit(1, "no window: write KD_BEGIN(0) and KD_END(0) around the work");
	for (unsigned int id = 0; id < KD_MAX_PHASES; id++) {
		struct kd_phase *phase = &kd.phases[id];
		char name[16];

		if (!kd_lone.windows[id])
			continue;
		snprintf(name, sizeof(name), marked > 1 ? "work%u" : "work", id);
		if (!phase->name)
			*phase = (struct kd_phase){ name, "window", 1 };
		kd_phase(id, phase->name, phase->operation, phase->operations);
		for (unsigned int i = 0; i < kd_lone.windows[id]; i++)
			printf("sample %s %u %" PRIu64 " %zu\n", phase->name, i, kd_lone.ns[id][i],
			       phase->operations);
	}
	kd_lone_facts();
	puts("end 0");
	fflush(stdout);
	_exit(0);
}

__attribute__((constructor))
static void kd_lone_start(int argc, char **argv)
{
	kd.name = KD_LONE;
	kd_lone.owner = getpid();
	kd_lone.scenario = argc > 1 ? argv[1] : "main";
	kd_lone.output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 100);
	kd_lone.words = memfd_create("words", MFD_CLOEXEC);
	if (kd_lone.output < 0 || kd_lone.words < 0 ||
	    fcntl(kd_lone.words, F_SETFL, O_APPEND) ||
	    dup2(kd_lone.words, STDOUT_FILENO) < 0 || dup2(kd_lone.words, STDERR_FILENO) < 0)
		_exit(1);
	if (on_exit(kd_lone_finish, NULL))
		_exit(1);
	kd_pin();
}

kd_api noinline void kd_lone_begin(unsigned int phase)
{
	if (phase >= KD_MAX_PHASES || kd_lone.windows[phase] >= KD_LONE_WINDOWS) {
		fprintf(stderr, "phases are 0 to %d, of %d windows each\n", KD_MAX_PHASES - 1,
			KD_LONE_WINDOWS);
		exit(2);
	}
	if (!kd_lone.armed) {
		kd_lone.armed = true;
		kd_lone_state(KD_BEFORE);
		KD_ARM();
		sched_yield();	/* arming takes effect when the emulator ends its block */
	}
	kd_lone.ns[phase][kd_lone.windows[phase]] = 0;	/* the page is there now */
	kd_lone.began = kd_now();
}

kd_api noinline void kd_lone_end(unsigned int phase)
{
	kd_lone.ns[phase][kd_lone.windows[phase]++] = kd_now() - kd_lone.began;
}

#undef KD_BEGIN
#undef KD_END
#define KD_BEGIN(phase)							\
	do {								\
		kd_lone_begin(phase);					\
		KD_MARK(1 << 8 | (phase));				\
	} while (0)
#define KD_END(phase)							\
	do {								\
		KD_MARK(2 << 8 | (phase));				\
		kd_lone_end(phase);					\
	} while (0)

#endif /* KDELTA_LONE_H */
