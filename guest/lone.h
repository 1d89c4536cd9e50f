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
#include <sys/time.h>

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
	bool open;		/* a window is, of this phase */
	unsigned int phase;
	unsigned int windows[KD_MAX_PHASES];
	size_t operations[KD_MAX_PHASES];	/* of a window, when the first began */
	uint64_t ns[KD_MAX_PHASES][KD_LONE_WINDOWS];
	char ended[64];		/* how another program did, see program.h */
	void (*looked)(void);	/* the facts are that program's; tells what it has where */
} kd_lone;

static struct {
	long present, absent, anon, compound, zero, ksm, swapped;	/* pages */
	long mappings;
} kd_lone_pages;

/* Add the pages of a mapping; anonymous: one whose pages were to come by faults. */
kd_api void kd_lone_mapping(char *start, size_t pages, bool anonymous)
{
	for (size_t n; pages; pages -= n, start += n * KD_PAGE) {
		struct kd_audit audit;

		n = pages < 512 ? pages : 512;
		memset(&audit, 0, sizeof(audit));
		kd_audit_pages(&audit, start, n);
		kd_lone_pages.present += audit.present;
		kd_lone_pages.absent += anonymous ? n - audit.present - audit.swapped : 0;
		kd_lone_pages.swapped += audit.swapped;
		kd_lone_pages.zero += audit.kpf[KPF_ZERO_PAGE];
		kd_lone_pages.ksm += audit.kpf[KPF_KSM];
		if (!audit.kpf[KPF_ANON])
			continue;
		kd_lone_pages.anon += audit.kpf[KPF_ANON];
		kd_lone_pages.compound += audit.kpf[KPF_COMPOUND_HEAD] + audit.kpf[KPF_COMPOUND_TAIL];
	}
}

/* Go through all memory that the program may write, and what lies at no file. */
kd_api void kd_lone_mappings(void)
{
	char *text = kd_read_file(KD_PROC "maps"), *next = text, *line;

	memset(&kd_lone_pages, 0, sizeof(kd_lone_pages));
	while ((line = strsep(&next, "\n"))) {
		unsigned long low, high, inode;
		char may[5], name[16] = "";

		if (sscanf(line, "%lx-%lx %4s %*s %*s %lu %15s", &low, &high, may, &inode, name) < 4)
			continue;
		if (strncmp(name, "[v", 2) == 0)	/* the kernel's */
			continue;
		kd_lone_pages.mappings++;
		if (may[0] == 'r' && (!inode || may[1] == 'w'))
			kd_lone_mapping((char *)low, KD_PAGES(high - low), may[1] == 'w' && !*name);
	}
	free(text);
}

/* Timers that are set, and may end a window by a signal. */
kd_api long kd_lone_timers(void)
{
	long timers = 0;

	for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++) {
		struct itimerval set;

		timers += !getitimer(which, &set) && (set.it_value.tv_sec || set.it_value.tv_usec);
	}
	return timers;
}

/*
 * What there is in memory of the process.  Nobody said what it was to be; what arms differ in makes
 * them no pair (kdelta compares these by their names).
 */
kd_api void kd_lone_state(enum kd_when when)
{
	KD_APART;
	char *text = kd_read_file(KD_PROC "smaps_rollup");
	long huge = kd_keyed(text, "AnonHugePages"), shmem = kd_keyed(text, "ShmemPmdMapped");

	kd_state(when, "process_timers", kd_lone_timers(), KD_FREE);
	kd_state(when, "process_rss_kb", kd_keyed(text, "Rss"), KD_FREE);
	free(text);
	kd_lone_mappings();
	kd_state(when, "process_anon_pages", kd_lone_pages.anon, KD_FREE);
	kd_state(when, "process_anon_huge_kb", huge, KD_FREE);
	kd_state(when, "process_shmem_pmd_kb", shmem, KD_FREE);
	kd_state(when, "process_compound_pages", kd_lone_pages.compound, KD_FREE);
	kd_state(when, "process_zero_pages", kd_lone_pages.zero, KD_FREE);
	kd_state(when, "process_ksm_pages", kd_lone_pages.ksm, KD_FREE);
	kd_state(when, "process_swapped_pages", kd_lone_pages.swapped, KD_FREE);
	kd_state(when, "process_absent_pages", kd_lone_pages.absent, KD_FREE);
	kd_state(when, "process_own_mappings", kd_lone_pages.mappings, KD_FREE);
	kd_state_machine(when);
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
	const char *fault = "";
	char words[400];

	(void)unused;
	if (getpid() != kd_lone.owner)
		return;
	if (!status && !kd_lone.looked) {
		kd_lone_state(KD_AFTER);
		kd_state_done();
	}
	fflush(stdout);
	fflush(stderr);
	if (dup2(kd_lone.output, STDOUT_FILENO) < 0)
		_exit(1);
	kd.protocol = true;
	printf("kdelta-workload 1 %s %s\n", KD_LONE, kd_lone.scenario);
	kd_lone_last_words(words, sizeof(words));
	if (*kd_lone.ended)
		kd_lone_exit(1, "%s: %s", kd_lone.ended, words);
	if (status)
		kd_lone_exit(status == 77 ? 77 : 1, "its main() ended with status %d: %s", status, words);
	for (unsigned int id = 0; id < KD_MAX_PHASES; id++)
		marked += !!kd_lone.windows[id];
	if (kd_lone.open)
		kd_lone_exit(1, "a window was opened and not closed: KD_END(%u) is missing", kd_lone.phase);
	if (!marked)
		kd_lone_exit(1, "no window: write KD_BEGIN(0) and KD_END(0) around the work, in this "
			     "process and not in its children");
	for (unsigned int id = 0; id < KD_MAX_PHASES; id++) {
		struct kd_phase *phase = &kd.phases[id];
		char name[16];

		if (!kd_lone.windows[id])
			continue;
		if (!*fault)
			fault = kd_ops_fault(id, kd_lone.windows[id]);
		if (phase->operations != kd_lone.operations[id])
			kd_lone_exit(1, "kd_phase(%u, ...) came behind the first window of its phase", id);
		snprintf(name, sizeof(name), marked > 1 ? "work%u" : "work", id);
		if (!phase->name)
			*phase = kd.ops[id].each ?
				(struct kd_phase){ name, "operation", kd.ops[id].each } :
				(struct kd_phase){ name, "window", 1 };
		kd_phase(id, phase->name, phase->operation, phase->operations);
		for (unsigned int i = 0; i < kd_lone.windows[id]; i++)
			printf("sample %s %u %" PRIu64 " %zu\n", phase->name, i, kd_lone.ns[id][i],
			       phase->operations);
	}
	(kd_lone.looked ? kd_lone.looked : kd_tell_vdso)();
	kd_lone_facts();
	if (*fault)
		kd_lone_exit(1, "%s", fault);
	if (kd.wrong)
		kd_lone_exit(1, "%u facts of the page state are not as wanted", kd.wrong);
	puts("end 0");
	fflush(stdout);
	_exit(0);
}

__attribute__((constructor))
static void kd_lone_start(int argc, char **argv)
{
	KD_APART;
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

/* Marks that do not fit end the program. */
kd_api __attribute__((noreturn, format(printf, 1, 2)))
void kd_lone_unfit(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	exit(2);
}

kd_api noinline void kd_lone_begin(unsigned int phase)
{
	KD_APART;
	if (phase >= KD_MAX_PHASES || kd_lone.windows[phase] >= KD_LONE_WINDOWS)
		kd_lone_unfit("phases are 0 to %d, of %d windows each\n", KD_MAX_PHASES - 1,
			      KD_LONE_WINDOWS);
	if (kd_lone.open)
		kd_lone_unfit("KD_BEGIN(%u) in an open window: KD_END(%u) is missing, or another "
			      "thread has not come to it\n", phase, kd_lone.phase);
	kd_lone.open = true;
	kd_lone.phase = phase;
	if (!kd_lone.windows[phase])
		kd_lone.operations[phase] = kd.phases[phase].operations;
	if (!kd_lone.armed) {
		kd_lone.armed = true;
		kd_lone_state(KD_BEFORE);
		kd_drain_batches();
		KD_ARM();
		sched_yield();	/* arming takes effect when the emulator ends its block */
	} else if (kd_lone.windows[phase] == 1) {
		kd_lone_state(KD_DURING);	/* what its windows unmap is there */
	}
	kd_lone.ns[phase][kd_lone.windows[phase]] = 0;	/* the page is there now */
	kd_lone.began = kd_now();
}

kd_api noinline void kd_lone_end(unsigned int phase)
{
	KD_APART;
	uint64_t ended = kd_now();

	if (!kd_lone.open || kd_lone.phase != phase)
		kd_lone_unfit("KD_END(%u), and no window of phase %u is open\n", phase, phase);
	kd_lone.open = false;
	kd.last = phase;
	kd_lone.ns[phase][kd_lone.windows[phase]++] = ended - kd_lone.began;
	/* What it maps may be gone at its end; the second window is like those that follow. */
	if (kd_lone.windows[phase] <= 2)
		kd_lone_state(KD_DURING);
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
