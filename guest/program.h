/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * program.h - runs a program as it is, from execve() to its end, in each window.
 *
 * `kdelta run -- PROGRAM ARGUMENTS` writes a C file that defines what to run, and includes this:
 *
 *	KD_PROGRAM	its path
 *	KD_ARGUMENTS	its arguments, with the name that it is called by
 *	KD_FILES	the SHA-256 of its files
 *	KD_OTHERS	how many of them are folders of the user's machine that it does not find
 *	KD_FOLDER	where it runs, and may write: /start for the user's folder
 *	files.cpio	beside the C file: all files that it finds, in the kernel's newc format
 *
 * The files are unpacked before anything is counted.  The program runs as an ordinary user, on one
 * CPU, with little in its environment, and prints into memory.  Nobody reads a clock of it: what is
 * marked begins in the new task in front of its execve(), and ends in the one that waits for it.
 */
#ifndef KDELTA_PROGRAM_H
#define KDELTA_PROGRAM_H

#include <elf.h>
#include <grp.h>
#include <libgen.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define KD_RUNS		16
#define KD_USER		1000
#define KD_HEAD		110	/* bytes of a member's head */
#define KD_NOT_RUN	127
#define KD_TOP		(1UL << 47)	/* of user space */

asm(".pushsection .rodata\n"
    "kd_files:\n"
    ".incbin \"files.cpio\"\n"
    ".popsection\n");
extern const char kd_files[];
kd_api const char kd_digest[] = KD_FILES;	/* other files are another program */

static struct {
	uint64_t loader[2], vdso[2];	/* where the program has them */
} kd_program;

/* A failure of ours, not the program's. */
kd_api __attribute__((noreturn)) void kd_program_lost(const char *what)
{
	snprintf(kd_lone.ended, sizeof(kd_lone.ended), "the program was not run");
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* ------------------------------------------------------------- files --- */

static size_t kd_hex(const char *head, int field)
{
	char text[9] = "";

	memcpy(text, head + 6 + 8 * field, 8);
	return strtoul(text, NULL, 16);
}

static size_t kd_even(size_t size)
{
	return (size + 3) & ~(size_t)3;
}

static void kd_folders(const char *path)
{
	char text[PATH_MAX];

	snprintf(text, sizeof(text), "%s", path);
	for (char *at = text + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = '\0';
		if (mkdir(text, 0755) && errno != EEXIST)
			kd_program_lost(text);
	}
}

static void kd_unpack(void)
{
	for (const char *at = kd_files;;) {
		size_t mode = kd_hex(at, 1), size = kd_hex(at, 6), named = kd_hex(at, 11);
		const char *path = at + KD_HEAD, *content = at + kd_even(KD_HEAD + named);
		int file;

		if (!strcmp(path, "TRAILER!!!"))
			return;
		kd_folders(path);
		file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (file < 0 || write(file, content, size) != (ssize_t)size ||
		    fchown(file, KD_USER, KD_USER) || fchmod(file, mode & 0777) || close(file))
			kd_program_lost(path);
		at = content + kd_even(size);
	}
}

/* ------------------------------------------------------------- tasks --- */

/* Until the parent sleeps: so it does nothing in the window but wake up at its end. */
static void kd_await(pid_t parent)
{
	char path[32], text[128], state = 0;
	int file;

	snprintf(path, sizeof(path), "/proc/%d/stat", parent);
	while (state != 'S') {
		ssize_t size;

		sched_yield();
		file = open(path, O_RDONLY | O_CLOEXEC);
		size = read(file, text, sizeof(text) - 1);
		if (size < 0)
			_exit(KD_NOT_RUN);
		close(file);
		text[size] = '\0';
		state = strrchr(text, ')')[2];
	}
}

static struct kd_start {
	pid_t parent;
	bool counted;	/* in a window; else its parent traces it */
} kd_start_of;

/* The task that becomes the program. */
static int kd_become(void *unused)
{
	static char *const arguments[] = { KD_ARGUMENTS, NULL };
	char padding[300] = "PADDING=";
	char *environment[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" KD_FOLDER, "LANG=C",
				padding, NULL };
	const char *given = getenv("KD_PADDING");

	(void)unused;
	KD_MARK(5 << 8);
	if (kd_start_of.counted)
		KD_ARM();	/* from here on it is this task that windows are about */
	else if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return KD_NOT_RUN;
	if (given) /* the stack begins elsewhere for each seed */
		strncat(padding, given, sizeof(padding) - sizeof("PADDING="));
	if (setgroups(0, NULL) || setresgid(KD_USER, KD_USER, KD_USER) ||
	    setresuid(KD_USER, KD_USER, KD_USER) || chdir(KD_FOLDER))
		return KD_NOT_RUN;
	if (kd_start_of.counted) {
		kd_await(kd_start_of.parent);
		KD_STARTS(0);	/* its loader looks at its vDSO */
		KD_MARK(1 << 8);
	}
	syscall(SYS_execve, KD_PROGRAM, arguments, environment);
	return KD_NOT_RUN;
}

/* It shares this memory: what its execve() gives back is nothing of ours. */
static pid_t kd_begin(bool counted)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pid_t pid;

	kd_start_of = (struct kd_start){ getpid(), counted };
	if (ftruncate(kd_lone.words, 0))
		kd_program_lost("ftruncate");
	pid = clone(kd_become, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	if (pid < 0)
		kd_program_lost("clone");
	return pid;
}

/* The program must end well: a failure would be another path on another kernel. */
static void kd_ended_well(int status)
{
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return;
	if (WIFSIGNALED(status))
		snprintf(kd_lone.ended, sizeof(kd_lone.ended), "the program was ended by signal %d",
			 WTERMSIG(status));
	else
		snprintf(kd_lone.ended, sizeof(kd_lone.ended), "the program ended with status %d",
			 WEXITSTATUS(status));
	exit(1);
}

static void kd_window(unsigned int number)
{
	uint64_t began = kd_now();
	int status = 0;
	pid_t pid, found;

	kd_drain_batches();
	pid = kd_begin(true);
	KD_MARK(6 << 8);	/* so that what wakes up is known as this call */
	found = syscall(SYS_wait4, pid, &status, 0, NULL);
	KD_MARK(2 << 8);
	KD_MARK(5 << 8);
	if (found != pid)
		kd_program_lost("wait4");
	kd_ended_well(status);
	kd_lone.ns[0][number] = kd_now() - began;
	kd_lone.windows[0]++;
}

/* -------------------------------------------------------------- look --- */

/* Where the program's loader and its vDSO lie; both lie there in each run of a seed. */
static void kd_find(void)
{
	char *text = kd_read_file(KD_PROC("maps")), *next = text, *line;
	uint64_t base = 0, stack = 0;
	char loader[PATH_MAX] = "";
	Elf64_auxv_t pair;
	int file = open(KD_PROC("auxv"), O_RDONLY | O_CLOEXEC);

	while (read(file, &pair, sizeof(pair)) == sizeof(pair))
		if (pair.a_type == AT_BASE)
			base = pair.a_un.a_val;
	close(file);
	while ((line = strsep(&next, "\n"))) {
		char name[PATH_MAX] = "";
		uint64_t low, high;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %4095[^\n]", &low, &high,
			   name) < 2)
			continue;
		if (base && low == base) {
			kd_program.loader[0] = low;
			snprintf(loader, sizeof(loader), "%s", name);
		}
		if (*loader && !strcmp(name, loader))
			kd_program.loader[1] = high;
		if (!strcmp(name, "[stack]"))
			stack = high;
		if (!strcmp(name, "[vdso]")) {
			kd_program.vdso[0] = low;
			kd_program.vdso[1] = high;
		}
	}
	/* Above the stack it lies at random; nothing else of user space does. */
	if (stack && kd_program.vdso[0] >= stack) {
		kd_program.vdso[0] = stack;
		kd_program.vdso[1] = KD_TOP;
	}
	free(text);
}

/* A run that is not counted: state the pages that the program has when it ends. */
static void kd_look(enum kd_when when)
{
	pid_t pid = kd_begin(false);
	bool started = false;
	int status;

	kd_lone.process = pid;
	for (;;) {
		long number;

		if (waitpid(pid, &status, 0) != pid)
			kd_program_lost("waitpid");
		if (!WIFSTOPPED(status))
			break;
		number = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		if (!started && ptrace(PTRACE_SETOPTIONS, pid, NULL,
				       (void *)(PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL)))
			kd_program_lost("ptrace");
		if (!started)
			kd_find();
		started = true;
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
			kd_lone_state(when);
		if (ptrace(PTRACE_CONT, pid, NULL, (void *)number))
			kd_program_lost("ptrace");
	}
	if (!started)
		kd_program_lost(KD_PROGRAM);
	kd_ended_well(status);
}

static void kd_tell_places(void)
{
	printf("vdso %" PRIu64 " %" PRIu64 "\n", kd_program.vdso[0], kd_program.vdso[1]);
	printf("loader %" PRIu64 " %" PRIu64 "\n", kd_program.loader[0], kd_program.loader[1]);
}

int main(void)
{
	KD_APART;
	int input = open("/dev/null", O_RDONLY);

	kd_lone.looked = kd_tell_places;
	kd_lone.operations[0] = 1;
	kd_phase(0, "run", "run", 1);
	if (input < 0 || dup2(input, STDIN_FILENO) < 0 || (input && close(input)))
		kd_program_lost("/dev/null");
	kd_folders(KD_FOLDER "/");
	if (strcmp(KD_FOLDER, "/") && chown(KD_FOLDER, KD_USER, KD_USER))
		kd_program_lost(KD_FOLDER);
	kd_unpack();
	for (enum kd_when when = KD_BEFORE; when <= KD_AFTER; when++)
		kd_state(when, "program_other_folders", KD_OTHERS, KD_FREE);
	kd_look(KD_BEFORE);
	for (unsigned int number = 0; number < KD_RUNS; number++)
		kd_window(number);
	kd_look(KD_AFTER);
	return 0;
}

#endif /* KDELTA_PROGRAM_H */
