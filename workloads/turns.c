// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What do tasks on several CPUs hand to each other when each does the same,
 * one after the other?  Loops of robots and suites at many tasks.
 */
#include "kdelta.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>

enum {							/* calls */
	PAGE_FAULT1, PAGE_FAULT2, PAGE_FAULT3, FAULT, FAULT_FILE, MAP, UNMAP, PROTECT, GIVE_BACK,
	MAPS, BRK, WAKE, WAIT, WAKE_PRIVATE, WAIT_PRIVATE, SEEK, PREAD, PREAD_OPENED, WRITE,
	ALLOCATE, OPEN, CREATE, WALK, DUP, PIPE, POLL, EVENT, SIGNAL, TIMER, FORK, THREAD, CHARGE,
	CHARGE_PIPE, GETPPID,
};

enum {							/* scenario flags */
	CALL = 255,
	PROCESSES = 1 << 8,
	ONE = 1 << 9,		/* all use what the first task has */
};

#define TWO	KD_TURNS(2)
#define MOST	8
#define AREA	(64UL << 20)	/* of a task; more than it asks for, a page a turn */
#define CHARGED	(15 * KD_PAGE)
#define ROOT	"/kdelta-cgroup"
#define FOLDER	"a_folder_with_a_long_name"	/* beyond the first line of its dentry */

static const struct kd_scenario scenarios[] = {
	{ "page_fault1", "threads map a page each, write to it and unmap it",
	  0, PAGE_FAULT1 | TWO, 1 },
	{ "page_fault1_4", "the same of four threads", 0, PAGE_FAULT1 | KD_TURNS(4), 1 },
	{ "page_fault1_processes", "the same of two processes",
	  0, PAGE_FAULT1 | PROCESSES | TWO, 1 },
	{ "page_fault2", "threads map a page of one file for themselves, write to it and unmap it",
	  0, PAGE_FAULT2 | TWO, 1 },
	{ "page_fault2_processes", "the same of two processes",
	  0, PAGE_FAULT2 | PROCESSES | TWO, 1 },
	{ "page_fault3", "threads map a page of one file shared, write to it and unmap it",
	  0, PAGE_FAULT3 | TWO, 1 },
	{ "page_fault3_processes",
	  "processes map a page of one file shared, write to it and unmap it",
	  0, PAGE_FAULT3 | PROCESSES | TWO, 1 },
	{ "fault_own_mapping", "threads write to a new page, each of a mapping of its own",
	  0, FAULT | TWO, 1 },
	{ "fault_one_mapping", "threads write to new pages of one mapping",
	  0, FAULT | ONE | TWO, 1 },
	{ "fault_own_file", "threads write to a new page, each of a file of its own, mapped shared",
	  0, FAULT_FILE | TWO, 1 },
	{ "mmap1", "threads map and unmap a page, untouched", 0, MAP | TWO, 1 },
	{ "mmap1_processes", "the same of two processes", 0, MAP | PROCESSES | TWO, 1 },
	{ "munmap_own", "threads unmap a page, each of a mapping of its own", 0, UNMAP | TWO, 1 },
	{ "mprotect_own",
	  "threads protect a page and make it writable, each of a mapping of its own",
	  0, PROTECT | TWO, 1 },
	{ "dontneed_own", "threads give back a page and write to it, each of a mapping of its own",
	  0, GIVE_BACK | TWO, 1 },
	{ "read_maps", "threads read the beginning of their list of mappings", 0, MAPS | TWO, 1 },
	{ "brk1", "threads grow the heap by a page and shrink it", 0, BRK | TWO, 1 },
	{ "brk1_processes", "processes grow their heap by a page and shrink it",
	  0, BRK | PROCESSES | TWO, 1 },
	{ "futex1_processes", "processes wake nobody, each by a word of its own",
	  0, WAKE | PROCESSES | TWO, 1 },
	{ "futex2_processes", "processes wait for a word of their own, which has changed already",
	  0, WAIT | PROCESSES | TWO, 1 },
	{ "futex3", "threads wake nobody, each by a private word of its own",
	  0, WAKE_PRIVATE | TWO, 1 },
	{ "futex4", "threads wait for a private word of their own, which has changed already",
	  0, WAIT_PRIVATE | TWO, 1 },
	{ "lseek_one_file", "threads seek in one open file", 0, SEEK | ONE | TWO, 1 },
	{ "lseek_own_files", "threads seek each in a file of its own", 0, SEEK | TWO, 1 },
	{ "pread_one_file", "threads read a byte of one open file", 0, PREAD | ONE | TWO, 1 },
	{ "pread_processes", "processes read a byte of one file, each opened for itself",
	  0, PREAD_OPENED | PROCESSES | TWO, 1 },
	{ "write_one_file", "processes write a byte to one file",
	  0, WRITE | PROCESSES | ONE | TWO, 1 },
	{ "write_own_files", "processes write a byte, each to a file of its own",
	  0, WRITE | PROCESSES | TWO, 1 },
	{ "fallocate_one_file", "processes give one file a page and take it back",
	  0, ALLOCATE | PROCESSES | ONE | TWO, 1 },
	{ "fallocate_own_files", "processes give a file of their own a page and take it back",
	  0, ALLOCATE | PROCESSES | TWO, 1 },
	{ "open_one_file", "processes open and close one file",
	  0, OPEN | PROCESSES | ONE | TWO, 1 },
	{ "open_own_files", "processes open and close each a file of its own in one folder",
	  0, OPEN | PROCESSES | TWO, 1 },
	{ "open_own_threads", "threads open and close each a file of its own in one folder",
	  0, OPEN | TWO, 1 },
	{ "create_one_folder", "processes create and remove a file of their own in one folder",
	  0, CREATE | PROCESSES | ONE | TWO, 1 },
	{ "create_own_folders", "processes create and remove a file, each in a folder of its own",
	  0, CREATE | PROCESSES | TWO, 1 },
	{ "lookup_past_opener",
	  "one process opens a folder and closes it, another looks up a file below it",
	  0, WALK | PROCESSES | TWO, 1 },
	{ "dup", "threads duplicate a descriptor and close it", 0, DUP | TWO, 1 },
	{ "pipe_one", "processes write a byte to one pipe and read it",
	  0, PIPE | PROCESSES | ONE | TWO, 1 },
	{ "pipe_own", "threads write a byte each to a pipe of its own and read it",
	  0, PIPE | TWO, 1 },
	{ "poll_one", "threads poll one pipe that is empty", 0, POLL | ONE | TWO, 1 },
	{ "poll_own", "threads poll each a pipe of its own that is empty", 0, POLL | TWO, 1 },
	{ "eventfd_one", "threads write to one eventfd and read it", 0, EVENT | ONE | TWO, 1 },
	{ "eventfd_own", "threads write each to an eventfd of its own and read it",
	  0, EVENT | TWO, 1 },
	{ "signal_threads", "threads send themselves a signal and catch it", 0, SIGNAL | TWO, 1 },
	{ "signal_processes", "processes send themselves a signal and catch it",
	  0, SIGNAL | PROCESSES | TWO, 1 },
	{ "timer_processes", "processes create a POSIX timer and delete it",
	  0, TIMER | PROCESSES | TWO, 1 },
	{ "fork_exit_processes", "processes fork, and wait for the child, which exits",
	  0, FORK | PROCESSES | TWO, 1 },
	{ "thread_create", "threads create a thread and join it", 0, THREAD | TWO, 1 },
	{ "memcg_fault_one", "processes of one cgroup map 15 pages, write to them and unmap them",
	  0, CHARGE | PROCESSES | ONE | TWO, 1 },
	{ "memcg_fault_own", "the same of processes in a cgroup each",
	  0, CHARGE | PROCESSES | TWO, 1 },
	{ "memcg_pipe_one", "processes of one cgroup make a pipe, write a byte to it and close it",
	  0, CHARGE_PIPE | PROCESSES | ONE | TWO, 1 },
	{ "memcg_pipe_own", "the same of processes in a cgroup each",
	  0, CHARGE_PIPE | PROCESSES | TWO, 1 },
	{ "getppid_threads", "threads ask for the number of the parent, which moves nothing",
	  0, GETPPID | TWO, 1 },
};

/* What each task has.  A line that is written to holds what is of one task alone. */
static struct own {
	char name[16], folder[48], group[32];
	int file, maps, event, ends[2];
	char *area;
	size_t next;		/* page of the area */
	bool grouped;
	uint32_t word;
} __attribute__((aligned(128))) tasks[MOST];
static bool one;

static struct own *own(void)
{
	return &tasks[kd_task];
}

/* Of the task, or of the first where all use that. */
static const struct own *used(void)
{
	return &tasks[one ? 0 : kd_task];
}

static void *mapped(size_t bytes, int flags, int fd)
{
	void *memory = mmap(NULL, bytes, KD_RW, flags, fd, 0);

	kd_must(memory != MAP_FAILED);
	return memory;
}

static void write_and_unmap(int fd, int flags)
{
	char *page = mapped(KD_PAGE, flags, fd);

	*(volatile char *)page = 1;
	kd_must(!munmap(page, KD_PAGE));
}

static void page_fault1(void)
{
	write_and_unmap(-1, MAP_PRIVATE | MAP_ANONYMOUS);
}

static void page_fault2(void)
{
	write_and_unmap(tasks[0].file, MAP_PRIVATE);
}

static void page_fault3(void)
{
	write_and_unmap(tasks[0].file, MAP_SHARED);
}

/* Another page each time, of the own half of the area where it is that of all. */
static char *next_page(void)
{
	size_t at = own()->next++ * KD_PAGE + (one ? kd_task * AREA / kd_turns() : 0);

	kd_must(at < AREA);
	return used()->area + at;
}

static void fault(void)
{
	*(volatile char *)next_page() = 1;
}

static void map(void)
{
	kd_must(!munmap(mapped(KD_PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1), KD_PAGE));
}

static void unmap(void)
{
	kd_must(!munmap(next_page(), KD_PAGE));
}

static void protect(void)
{
	kd_must(!mprotect(own()->area, KD_PAGE, PROT_READ));
	kd_must(!mprotect(own()->area, KD_PAGE, KD_RW));
}

static void give_back(void)
{
	kd_must(!madvise(own()->area, KD_PAGE, MADV_DONTNEED));
	*(volatile char *)own()->area = 1;
}

static void read_maps(void)
{
	char text[64];

	kd_must(pread(own()->maps, text, sizeof(text), 0) > 0);
}

static void grow_and_shrink(void)
{
	char *end = sbrk(KD_PAGE);

	kd_must(end != (void *)-1 && !brk(end));
}

static long futex(int operation, uint32_t value)
{
	return syscall(SYS_futex, &own()->word, operation, value, NULL, NULL, 0);
}

static void wake(void)
{
	kd_must(!futex(FUTEX_WAKE, 1));
}

static void wait_not(void)
{
	kd_must(futex(FUTEX_WAIT, 1) && errno == EAGAIN);
}

static void wake_private(void)
{
	kd_must(!futex(FUTEX_WAKE_PRIVATE, 1));
}

static void wait_not_private(void)
{
	kd_must(futex(FUTEX_WAIT_PRIVATE, 1) && errno == EAGAIN);
}

static void seek(void)
{
	kd_must(!lseek(used()->file, 0, SEEK_SET));
}

static void read_byte(int fd)
{
	char byte;

	kd_must(pread(fd, &byte, 1, 0) == 1);
}

static void read_used(void)
{
	read_byte(used()->file);
}

static void read_own(void)
{
	read_byte(own()->file);
}

static void write_byte(void)
{
	kd_must(pwrite(used()->file, "x", 1, 0) == 1);
}

static void allocate(void)
{
	kd_must(!fallocate(used()->file, 0, KD_PAGE, KD_PAGE));
	kd_must(!ftruncate(used()->file, KD_PAGE));
}

static void open_and_close(const char *name, int flags)
{
	int fd = open(name, flags, 0600);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void open_file(void)
{
	open_and_close(used()->name, O_RDONLY);
}

static void create(void)
{
	char name[64];

	snprintf(name, sizeof(name), "%s/new%u", used()->folder, kd_task);
	open_and_close(name, O_RDWR | O_CREAT | O_EXCL);
	kd_must(!unlink(name));
}

static void lookup_past_opener(void)
{
	if (!kd_task)
		open_and_close(FOLDER, O_RDONLY | O_DIRECTORY);
	else
		kd_must(!access(FOLDER "/file", F_OK));
}

static void duplicate(void)
{
	int fd = dup(tasks[0].file);

	kd_must(fd >= 0);
	kd_must(!close(fd));
}

static void pass_on(int in, int out, size_t bytes)
{
	uint64_t data = 1;

	kd_must(write(in, &data, bytes) == (ssize_t)bytes);
	kd_must(read(out, &data, bytes) == (ssize_t)bytes);
}

static void pipe_byte(void)
{
	pass_on(used()->ends[1], used()->ends[0], 1);
}

static void poll_pipe(void)
{
	struct pollfd empty = { used()->ends[0], POLLIN, 0 };

	kd_must(!poll(&empty, 1, 0));
}

static void count_event(void)
{
	pass_on(used()->event, used()->event, sizeof(uint64_t));
}

static void caught(int number)
{
	(void)number;
}

static void signal_self(void)
{
	kd_must(!syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1));
}

static void make_timer(void)
{
	struct sigevent nothing = { .sigev_notify = SIGEV_NONE };
	timer_t timer;

	kd_must(!timer_create(CLOCK_MONOTONIC, &nothing, &timer));
	kd_must(!timer_delete(timer));
}

static void fork_and_exit(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	kd_must(pid > 0 && waitpid(pid, NULL, 0) == pid);
}

static void *own_number(void *unused)
{
	(void)unused;
	return (void *)syscall(SYS_gettid);
}

static void make_thread(void)
{
	pthread_t thread;
	void *number;

	kd_must(!pthread_create(&thread, NULL, own_number, NULL));
	kd_must(!pthread_join(thread, &number));
	/* It still has to be taken off the list of threads. */
	while (!syscall(SYS_tgkill, getpid(), (uintptr_t)number, 0))
		sched_yield();
}

static bool write_into(const char *folder, const char *name, const char *text)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return kd_write_file(path, text);
}

static void enter_group(void)
{
	if (!own()->grouped)
		kd_must(write_into(used()->group, "cgroup.procs", "0"));
	own()->grouped = true;
}

static void charge(void)
{
	char *memory;

	enter_group();
	memory = mapped(CHARGED, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	kd_touch(memory, CHARGED / KD_PAGE, KD_PAGE);
	kd_must(!munmap(memory, CHARGED));
}

static void charge_pipe(void)
{
	int ends[2];

	enter_group();
	kd_must(!pipe(ends));
	kd_must(write(ends[1], "x", 1) == 1);
	kd_must(!close(ends[0]) && !close(ends[1]));
}

static void ask_parent(void)
{
	syscall(SYS_getppid);
}

static void leave_groups(void)
{
	umount2(ROOT, MNT_DETACH);
	rmdir(ROOT);
}

static void make_groups(void)
{
	if (mkdir(ROOT, 0700))
		kd_skip("there is no place for cgroups at %s: %s", ROOT, strerror(errno));
	kd_at_end(leave_groups);
	if (mount("none", ROOT, "cgroup2", 0, NULL))
		kd_skip("cgroups cannot be mounted: %s", strerror(errno));
	if (!write_into(ROOT, "cgroup.subtree_control", "+memory"))
		kd_skip("cgroups have no controller of memory: %s", strerror(errno));
	for (unsigned int task = 0; task < kd_turns(); task++) {
		snprintf(tasks[task].group, sizeof(tasks[task].group), ROOT "/kdelta%u", task);
		kd_must(!mkdir(tasks[task].group, 0700));
	}
}

static void set_up_task(unsigned int task, unsigned int call)
{
	struct own *its = &tasks[task];

	/* Of the same file, where each reads what the others do. */
	snprintf(its->name, sizeof(its->name), "file%u", call == PREAD_OPENED ? 0 : task);
	its->file = open(its->name, O_RDWR | O_CREAT, 0600);
	kd_must(its->file >= 0);
	kd_must(!ftruncate(its->file, KD_PAGE));
	kd_must(pwrite(its->file, "x", 1, 0) == 1);
	snprintf(its->folder, sizeof(its->folder), "folder%u", task);
	kd_must(!mkdir(its->folder, 0700));
	its->maps = open("/proc/self/maps", O_RDONLY);
	its->event = eventfd(0, 0);
	kd_must(its->maps >= 0 && its->event >= 0 && !pipe(its->ends));
	if (call == FAULT_FILE) {
		kd_must(!ftruncate(its->file, AREA));
		its->area = mapped(AREA, MAP_SHARED, its->file);
		return;
	}
	/* A page that nobody may touch keeps areas from being one mapping. */
	its->area = mapped(AREA + KD_PAGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	madvise(its->area, AREA, MADV_NOHUGEPAGE);
	kd_must(!mprotect(its->area + AREA, KD_PAGE, PROT_NONE));
}

static void set_up(unsigned int call)
{
	struct sigaction action = { .sa_handler = caught };

	kd_must(!sigaction(SIGUSR1, &action, NULL));
	if (call == CHARGE || call == CHARGE_PIPE)
		make_groups();
	kd_enter_tmpfs();
	for (unsigned int task = 0; task < kd_turns(); task++)
		set_up_task(task, call);
	kd_must(!mkdir(FOLDER, 0700));
	open_and_close(FOLDER "/file", O_RDWR | O_CREAT);
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[PAGE_FAULT1] = page_fault1, [PAGE_FAULT2] = page_fault2,
		[PAGE_FAULT3] = page_fault3, [FAULT] = fault, [FAULT_FILE] = fault,
		[MAP] = map, [UNMAP] = unmap,
		[PROTECT] = protect, [GIVE_BACK] = give_back, [MAPS] = read_maps,
		[BRK] = grow_and_shrink, [WAKE] = wake, [WAIT] = wait_not,
		[WAKE_PRIVATE] = wake_private, [WAIT_PRIVATE] = wait_not_private, [SEEK] = seek,
		[PREAD] = read_used, [PREAD_OPENED] = read_own, [WRITE] = write_byte,
		[ALLOCATE] = allocate, [OPEN] = open_file, [CREATE] = create,
		[WALK] = lookup_past_opener, [DUP] = duplicate, [PIPE] = pipe_byte,
		[POLL] = poll_pipe, [EVENT] = count_event, [SIGNAL] = signal_self,
		[TIMER] = make_timer, [FORK] = fork_and_exit, [THREAD] = make_thread,
		[CHARGE] = charge, [CHARGE_PIPE] = charge_pipe, [GETPPID] = ask_parent,
	};
	const struct kd_scenario *s;

	kd_fixed_layout(argv);
	s = kd_start(argc, argv, "turns", scenarios, ARRAY_SIZE(scenarios));
	one = s->flags & ONE;
	set_up(s->flags & CALL);
	return kd_loop_in_turns(once[s->flags & CALL], s->flags & PROCESSES);
}
