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

static const char *kd_lone_proc(const char *name);
#define KD_PROC(name)	kd_lone_proc(name)

#include "kdelta.h"
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#ifndef KD_LONE
#error "KD_LONE is the name of the program"
#endif

#define KD_LONE_WINDOWS	1000

static struct {
	pid_t owner;		/* children say nothing */
	pid_t process;		/* whose facts are read: ours, of a child or of another program */
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

/* What is told of our process, and the same summed over its children and theirs. */
enum {
	KD_ANON, KD_HUGE_KB, KD_SHMEM_KB, KD_COMPOUND, KD_ZERO, KD_KSM, KD_SWAPPED, KD_ABSENT,
	KD_MAPPINGS, KD_SEND_BYTES, KD_RECEIVE_BYTES, KD_PIPE_BYTES,
	KD_LOST,		/* not told: something could not be read, so all of these are unknown */
	KD_LONE_TOLD,
};
static const char *const kd_lone_told[KD_LOST] = {
	"anon_pages", "anon_huge_kb", "shmem_pmd_kb", "compound_pages", "zero_pages", "ksm_pages",
	"swapped_pages", "absent_pages", "own_mappings",
	"send_buffers", "receive_buffers", "pipe_buffers",
};

static const char *kd_lone_proc(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", kd_lone.process, name);
	return path;
}

/* Add the pages of a mapping; anonymous: one whose pages were to come by faults. */
kd_api void kd_lone_mapping(long *told, char *start, size_t pages, bool anonymous)
{
	for (size_t n; pages; pages -= n, start += n * KD_PAGE) {
		struct kd_audit audit;

		n = pages < 512 ? pages : 512;
		memset(&audit, 0, sizeof(audit));
		audit.present = audit.kpf[KPF_ANON] = KD_UNKNOWN;
		kd_audit_pages(&audit, start, n);
		if (!audit.present)
			audit.kpf[KPF_ANON] = 0;
		if (audit.present < 0 || audit.kpf[KPF_ANON] < 0) {
			told[KD_LOST]++;
			return;
		}
		told[KD_ABSENT] += anonymous ? n - audit.present - audit.swapped : 0;
		told[KD_SWAPPED] += audit.swapped;
		told[KD_ZERO] += audit.kpf[KPF_ZERO_PAGE];
		told[KD_KSM] += audit.kpf[KPF_KSM];
		if (!audit.kpf[KPF_ANON])
			continue;
		told[KD_ANON] += audit.kpf[KPF_ANON];
		told[KD_COMPOUND] += audit.kpf[KPF_COMPOUND_HEAD] + audit.kpf[KPF_COMPOUND_TAIL];
	}
}

/*
 * Go through all memory that the program may write, and what lies at no file.  One line after the
 * other: text that grows with the mappings would take more pages of the heap, and be counted.
 */
kd_api void kd_lone_mappings(long *told)
{
	FILE *maps = fopen(KD_PROC("maps"), "re");
	char line[PATH_MAX + 128];

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long low, high, inode;
		char may[5], name[16] = "";

		if (sscanf(line, "%lx-%lx %4s %*s %*s %lu %15s", &low, &high, may, &inode, name) < 4)
			continue;
		if (strncmp(name, "[v", 2) == 0)	/* the kernel's */
			continue;
		told[KD_MAPPINGS]++;
		if (!inode || (may[0] == 'r' && may[1] == 'w'))
			kd_lone_mapping(told, (char *)low, KD_PAGES(high - low),
					may[1] == 'w' && !*name);
	}
	if (maps)
		fclose(maps);
	else
		told[KD_LOST]++;
}

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK	72	/* Linux 5.14 */
#endif

/* What a socket has whose program set it, and may have got less: limits differ by kernel. */
kd_api long kd_lone_buffer(int fd, int option, int set)
{
	socklen_t size = sizeof(int);
	int locked = 0, bytes = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, &size) || !(locked & set))
		return 0;
	return getsockopt(fd, SOL_SOCKET, option, &bytes, &size) ? 0 : bytes;
}

/* Add the buffers of a socket or a pipe, by the name of its file; a child's is looked at by a copy. */
kd_api void kd_lone_file(long *told, int process, const char *name)
{
	bool ours = kd_lone.process == getpid();
	char path[16], is[8] = "";
	int fd = atoi(name);

	snprintf(path, sizeof(path), "fd/%.10s", name);
	if (readlink(KD_PROC(path), is, sizeof(is) - 1) < 0 ||
	    (strncmp(is, "socket:", 7) && strncmp(is, "pipe:", 5)))
		return;
	if (!ours)
		fd = syscall(SYS_pidfd_getfd, process, fd, 0);
	if (fd < 0)
		return;
	if (*is == 'p')
		told[KD_PIPE_BYTES] += fcntl(fd, F_GETPIPE_SZ);
	told[KD_SEND_BYTES] += kd_lone_buffer(fd, SO_SNDBUF, 1);
	told[KD_RECEIVE_BYTES] += kd_lone_buffer(fd, SO_RCVBUF, 2);
	if (!ours)
		close(fd);
}

/* The same of all files that our process has open.  opendir() would take room of the heap. */
kd_api void kd_lone_buffers(long *told)
{
	static _Alignas(struct dirent64) char room[1024];
	int folder = open(KD_PROC("fd"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int process = syscall(SYS_pidfd_open, kd_lone.process, 0);

	for (ssize_t got; (got = getdents64(folder, room, sizeof(room))) > 0; )
		for (char *at = room; at < room + got; at += ((struct dirent64 *)at)->d_reclen)
			kd_lone_file(told, process, ((struct dirent64 *)at)->d_name);
	close(folder);
	close(process);
}

kd_api void kd_lone_process(long *told)
{
	char *text = kd_read_file(KD_PROC("smaps_rollup"));
	long huge = kd_keyed(text, "AnonHugePages"), shmem = kd_keyed(text, "ShmemPmdMapped");

	free(text);
	told[KD_HUGE_KB] = huge < 0 ? huge : told[KD_HUGE_KB] + huge;
	told[KD_SHMEM_KB] = shmem < 0 ? shmem : told[KD_SHMEM_KB] + shmem;
	kd_lone_mappings(told);
	kd_lone_buffers(told);
}

/* The parent of a process that lives, 0 of another one or of a task of the kernel's, once it rests. */
kd_api long kd_lone_parent(void)
{
	for (unsigned int looks = 0;; looks++) {
		char *text = kd_read_file(KD_PROC("status"));
		long parent = kd_keyed(text, "PPid");
		char state = text ? strstr(text, "State:")[7] : 'X';

		if (kd_keyed(text, "Tgid") != kd_lone.process || parent == 2 || strchr("XZ", state))
			parent = 0;
		free(text);
		if (parent <= 0 || state != 'R' || looks == 100)
			return parent;
		kd_sleep_us(1000);	/* one of SCHED_IDLE comes to nothing by sched_yield() */
	}
}

/* Sum up the children of our process, and theirs; one that lost its parent is PID 1's in a guest. */
kd_api bool kd_lone_children(long *told)
{
	char *load = kd_read_file("/proc/loadavg");	/* its last number is the last one given */
	long last = load ? strtol(strrchr(load, ' '), NULL, 10) : 0;
	pid_t family[64] = { kd_lone.process };
	size_t known = 1;

	free(load);
	while (++kd_lone.process <= last) {
		long parent = kd_lone_parent(), own[KD_LONE_TOLD] = { 0 };
		bool ours = parent == 1 && getppid() == 1;

		for (size_t i = 0; i < known; i++)
			ours |= parent == family[i];
		if (ours)
			kd_lone_process(own);
		if (!ours || kd_lone_parent() <= 0)	/* it may have ended in the midst of the look */
			continue;
		for (size_t i = 0; i < KD_LONE_TOLD; i++)
			told[i] = own[i] < 0 || told[i] < 0 ? KD_UNKNOWN : told[i] + own[i];
		if (known < ARRAY_SIZE(family))
			family[known++] = kd_lone.process;
	}
	kd_lone.process = family[0];
	return known > 1;
}

kd_api void kd_lone_tell(enum kd_when when, const char *whose, const long *told)
{
	for (size_t i = 0; i < KD_LOST; i++) {
		char name[sizeof(kd.facts->name)];

		snprintf(name, sizeof(name), "%s_%s", whose, kd_lone_told[i]);
		kd_state(when, name, told[KD_LOST] ? KD_UNKNOWN : told[i], KD_FREE);
	}
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

/* Large folios that files in memory were given since the boot: no mapping has to show them. */
kd_api void kd_lone_folios(void)
{
	for (unsigned int kb = 16; kb <= 2048; kb *= 2) {
		char path[100], name[sizeof(kd.facts->name)];

		snprintf(path, sizeof(path), "/sys/kernel/mm/transparent_hugepage/hugepages-%ukB/"
			 "stats/shmem_alloc", kb);
		snprintf(name, sizeof(name), "shmem_folios_%ukb", kb);
		kd_state(KD_AFTER, name, kd_file_number(path), KD_FREE);
	}
}

/*
 * What there is in memory of the process.  Nobody said what it was to be; what arms differ in makes
 * them no pair (kdelta compares these by their names).
 */
kd_api void kd_lone_state(enum kd_when when)
{
	KD_APART;
	long own[KD_LONE_TOLD] = { 0 }, children[KD_LONE_TOLD] = { 0 };
	char *text = kd_read_file(KD_PROC("smaps_rollup"));

	kd_state(when, "process_timers", kd_lone_timers(), KD_FREE);
	kd_state(when, "process_rss_kb", kd_keyed(text, "Rss"), KD_FREE);
	free(text);
	if (when == KD_BEFORE) {
		kd_state(when, "limit_of_send_buffers",
			 kd_file_number("/proc/sys/net/core/wmem_max"), KD_FREE);
		kd_state(when, "limit_of_receive_buffers",
			 kd_file_number("/proc/sys/net/core/rmem_max"), KD_FREE);
	}
	kd_lone_process(own);
	kd_lone_tell(when, "process", own);
	if (kd_lone_children(children))
		kd_lone_tell(when, "children", children);
	if (when == KD_AFTER)
		kd_lone_folios();
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
	kd_lone.owner = kd_lone.process = getpid();
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
	unsigned int before;

	if (phase >= KD_MAX_PHASES || kd_lone.windows[phase] >= KD_LONE_WINDOWS)
		kd_lone_unfit("phases are 0 to %d, of %d windows each\n", KD_MAX_PHASES - 1,
			      KD_LONE_WINDOWS);
	if (kd_lone.open)
		kd_lone_unfit("KD_BEGIN(%u) in an open window: KD_END(%u) is missing, or another "
			      "thread has not come to it\n", phase, kd_lone.phase);
	kd_lone.open = true;
	kd_lone.phase = phase;
	before = kd_lone.windows[phase];
	if (!before)
		kd_lone.operations[phase] = kd.phases[phase].operations;
	if (!kd_lone.armed) {
		kd_lone.armed = true;
		kd_lone_state(KD_BEFORE);
		kd_drain_batches();
		KD_ARM();
		sched_yield();	/* arming takes effect when the emulator ends its block */
	} else if (before && !(before & (before - 1))) {
		kd_lone_state(KD_DURING);	/* what its windows unmap is there; a few are looked at */
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

#ifdef KD_THEIRS
#pragma GCC poison KD_APART kd_leave kd_back
#endif

#endif /* KDELTA_LONE_H */
