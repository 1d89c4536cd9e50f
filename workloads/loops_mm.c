// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops over mappings and page faults under the names that robots and suites
 * have for them: written from what these do.  Where pages are new there are
 * as many in a window as are whole batches of the lists of reclaim.
 */
#include "kdelta.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum {							/* calls */
	PAGE_FAULT1, PAGE_FAULT2, PAGE_FAULT3, POPULATE, MMAP_128M, MMAP_FILE, MMAP_OVER, HOLE,
	MALLOC_128M, TLB_FLUSH1, TLB_FLUSH2,
	TLB_FLUSH, MADV_FREE_TOUCH, WILLNEED, COLD, POPULATE_READ, DONTFORK, PROTECT, GROW,
	MOVE, MSYNC, MLOCK, MLOCK2, MINCORE, STACK, SHM_SYSV, MEMFD_MAP, REMAP, READV,
	ADVISE_COLD, ADVISE_DONTNEED, MBIND, GET_MEMPOLICY, MOVE_PAGES, VMAS_64, PAGEMAP, SMAPS,
};

enum {							/* what is needed */
	CALL = 255,
	THREADS = 1 << 8,	/* a second thread, which sleeps */
	ONE_FAULT = 1 << 9,	/* a call takes */
	EIGHT_FAULTS = 1 << 10,
	BATCH_FAULTS = 1 << 11,	/* 15 */
	PAIRS_OF_FAULTS = 1 << 16,	/* 15 */
	OTHER = 1 << 12,	/* memory at the other place */
	PIDFD = 1 << 13,
	STACKS = 1 << 14,	/* room for one to grow */
	NODES = 1 << 15,	/* a kernel that knows of nodes */
};

#define SPAN	(15 * KD_PAGE)

static const struct kd_scenario scenarios[] = {
	{ "page_fault1", "15 anonymous pages mapped, written to and unmapped",
	  0, PAGE_FAULT1 | BATCH_FAULTS, 31 },
	{ "page_fault1_threads", "the same in a process of two threads",
	  0, PAGE_FAULT1 | BATCH_FAULTS | THREADS, 31 },
	{ "page_fault2", "15 pages of a file mapped privately, written to and unmapped",
	  0, PAGE_FAULT2 | BATCH_FAULTS, 31 },
	{ "page_fault3", "15 pages of a file mapped shared, written to and unmapped",
	  0, PAGE_FAULT3 | BATCH_FAULTS, 31 },
	{ "page_fault3_threads", "the same in a process of two threads",
	  0, PAGE_FAULT3 | BATCH_FAULTS | THREADS, 31 },
	{ "map_populate", "15 anonymous pages mapped with MAP_POPULATE and unmapped",
	  0, POPULATE | BATCH_FAULTS, 31 },
	{ "mmap_128m", "128 MiB mapped and unmapped, untouched", 0, MMAP_128M, 62 },
	{ "malloc_128m", "128 MiB and a page mapped, the first page written to, and unmapped",
	  0, MALLOC_128M | ONE_FAULT, 62 },
	{ "mmap_file", "15 pages of a file mapped shared and unmapped, untouched",
	  0, MMAP_FILE, 62 },
	{ "mmap_over", "a page mapped over another, and written to",
	  0, MMAP_OVER | ONE_FAULT, 465 },
	{ "munmap_hole", "a page in the middle unmapped and mapped again", 0, HOLE, 62 },
	{ "tlb_flush", "MADV_DONTNEED of a page, which is then written to",
	  0, TLB_FLUSH | ONE_FAULT, 465 },
	{ "tlb_flush1", "15 pages of a file mapped privately: each written to, dropped and read",
	  0, TLB_FLUSH1 | PAIRS_OF_FAULTS, 31 },
	{ "tlb_flush1_threads", "the same in a process of two threads",
	  0, TLB_FLUSH1 | PAIRS_OF_FAULTS | THREADS, 31 },
	{ "tlb_flush2", "15 anonymous pages: each written to, dropped by MADV_DONTNEED and read",
	  0, TLB_FLUSH2 | PAIRS_OF_FAULTS, 31 },
	{ "tlb_flush2_threads", "the same in a process of two threads",
	  0, TLB_FLUSH2 | PAIRS_OF_FAULTS | THREADS, 31 },
	{ "madv_free", "MADV_FREE of a page, which is then written to", 0, MADV_FREE_TOUCH, 62 },
	{ "madv_willneed", "MADV_WILLNEED of resident pages", 0, WILLNEED, 256 },
	{ "madv_cold", "MADV_COLD of 15 resident pages", 0, COLD, 62 },
	{ "madv_populate", "MADV_POPULATE_READ of resident pages", 0, POPULATE_READ, 62 },
	{ "madv_dontfork", "MADV_DONTFORK and MADV_DOFORK", 0, DONTFORK, 62 },
	{ "mprotect_page", "a page made read-only and writable again, in the middle of others",
	  0, PROTECT, 62 },
	{ "mremap_grow", "a mapping of 15 pages grown by one and shrunk", 0, GROW, 62 },
	{ "mremap_move", "15 resident pages moved to another place and back", 0, MOVE, 62 },
	{ "msync", "msync(MS_SYNC) of a mapped file in memory", 0, MSYNC, 256 },
	{ "mlock_page", "a page locked and unlocked", 0, MLOCK, 62 },
	{ "mlock_onfault", "mlock2(MLOCK_ONFAULT) of 15 resident pages, and munlock()",
	  0, MLOCK2, 62 },
	{ "mincore_page", "mincore() of 15 resident pages", 0, MINCORE, 256 },
	{ "stack", "a stack of 15 pages that grows, used and unmapped",
	  0, STACK | BATCH_FAULTS | STACKS, 31 },
	{ "shm_sysv", "a segment of System V made, attached, written to and removed",
	  0, SHM_SYSV | ONE_FAULT, 62 },
	{ "memfd_map", "a file in memory made, mapped, written to and closed",
	  0, MEMFD_MAP | ONE_FAULT, 62 },
	{ "remap_file_pages", "remap_file_pages() of a page of a mapped file",
	  0, REMAP | ONE_FAULT, 62 },
	{ "process_vm_readv", "process_vm_readv() of 8 bytes of oneself", 0, READV | OTHER, 256 },
	{ "process_madvise", "process_madvise(MADV_COLD) of 8 ranges of a page",
	  0, ADVISE_COLD | PIDFD, 62 },
	{ "process_madvise_drop", "process_madvise(MADV_DONTNEED) of 8 pages, written to again",
	  0, ADVISE_DONTNEED | PIDFD | EIGHT_FAULTS, 62 },
	{ "mbind", "mbind() of 15 resident pages to their node, and back", 0, MBIND | NODES, 62 },
	{ "get_mempolicy", "get_mempolicy()", 0, GET_MEMPOLICY | NODES, 256 },
	{ "move_pages", "move_pages() that asks where 15 resident pages are",
	  0, MOVE_PAGES | NODES, 62 },
	{ "vmas_64", "mprotect() over 64 mappings, and one mapping again", 0, VMAS_64 | OTHER, 15 },
	{ "pagemap", "pread() of 128 entries of /proc/self/pagemap, of resident pages",
	  0, PAGEMAP | OTHER, 62 },
	{ "smaps", "/proc/self/smaps opened, read and closed, with 128 resident pages",
	  0, SMAPS | OTHER, 15 },
};

static char *start;
static char *other;
static char *mapped;
static int file;
static int pidfd;
static int pagemap;

static char *map_anew(int fd, int flags)
{
	flags |= fd < 0 ? MAP_ANONYMOUS : 0;
	return mmap(NULL, SPAN, KD_RW, flags, fd, 0);
}

static void unmap(char *memory)
{
	kd_must(memory != MAP_FAILED);
	kd_must(!munmap(memory, SPAN));
}

static void touch_and_unmap(char *memory)
{
	kd_must(memory != MAP_FAILED);
	kd_touch(memory, SPAN / KD_PAGE, KD_PAGE);
	kd_must(!munmap(memory, SPAN));
}

static void advise(int advice)
{
	kd_must(!madvise(start, SPAN, advice));
}

static void move(char *from, char *to)
{
	kd_must(mremap(from, SPAN, SPAN, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
}

static void anonymous_faults(void)
{
	touch_and_unmap(map_anew(-1, MAP_PRIVATE));
}

static void private_faults(void)
{
	touch_and_unmap(map_anew(file, MAP_PRIVATE));
}

static void shared_faults(void)
{
	touch_and_unmap(map_anew(file, MAP_SHARED));
}

static void populated(void)
{
	unmap(map_anew(-1, MAP_PRIVATE | MAP_POPULATE));
}

static void map_and_touch(size_t bytes, size_t pages)
{
	char *memory = mmap(NULL, bytes, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	kd_must(memory != MAP_FAILED);
	kd_touch(memory, pages, KD_PAGE);
	kd_must(!munmap(memory, bytes));
}

static void map_much(void)
{
	map_and_touch(KD_MIB(128), 0);
}

static void allocate_much(void)
{
	map_and_touch(KD_MIB(128) + KD_PAGE, 1);	/* malloc() writes before its memory */
}

static void map_file(void)
{
	unmap(map_anew(file, MAP_SHARED));
}

static void map_over(void)
{
	kd_map_at(start, KD_PAGE, KD_RW, MAP_PRIVATE, -1);
	kd_touch(start, 1, KD_PAGE);
}

static void make_hole(void)
{
	kd_must(!munmap(start + 4 * KD_PAGE, KD_PAGE));
	kd_map_at(start + 4 * KD_PAGE, KD_PAGE, KD_RW, MAP_PRIVATE, -1);
}

static void drop_and_touch(void)
{
	kd_drop(start, KD_PAGE);
	kd_touch(start, 1, KD_PAGE);
}

static void flush_each(char *memory)
{
	kd_must(memory != MAP_FAILED);
	for (char *page = memory; page < memory + SPAN; page += KD_PAGE) {
		kd_touch(page, 1, KD_PAGE);
		kd_drop(page, KD_PAGE);
		(void)*(volatile char *)page;
	}
	kd_must(!munmap(memory, SPAN));
}

static void flush_file(void)
{
	flush_each(map_anew(file, MAP_PRIVATE));
}

static void flush_anonymous(void)
{
	flush_each(map_anew(-1, MAP_PRIVATE));
}

static void free_and_touch(void)
{
	advise(MADV_FREE);
	kd_touch(start, 1, KD_PAGE);
}

static void will_need(void)
{
	advise(MADV_WILLNEED);
}

static void is_cold(void)
{
	advise(MADV_COLD);
}

static void populate_again(void)
{
	advise(MADV_POPULATE_READ);
}

static void do_not_fork(void)
{
	advise(MADV_DONTFORK);
	advise(MADV_DOFORK);
}

static void protect_page(void)
{
	kd_must(!mprotect(start + 4 * KD_PAGE, KD_PAGE, PROT_READ));
	kd_must(!mprotect(start + 4 * KD_PAGE, KD_PAGE, KD_RW));
}

static void grow_and_shrink(void)
{
	kd_must(mremap(start, SPAN, SPAN + KD_PAGE, 0) == start);
	kd_must(mremap(start, SPAN + KD_PAGE, SPAN, 0) == start);
}

static void move_twice(void)
{
	move(start, other);
	move(other, start);
}

static void sync_memory(void)
{
	kd_must(!msync(mapped, SPAN, MS_SYNC));
}

static void lock_page(void)
{
	kd_must(!syscall(SYS_mlock, start, KD_PAGE));
	kd_must(!syscall(SYS_munlock, start, KD_PAGE));
}

static void lock_on_fault(void)
{
	kd_must(!syscall(SYS_mlock2, start, SPAN, MLOCK_ONFAULT));
	kd_must(!syscall(SYS_munlock, start, SPAN));
}

static void ask_resident(void)
{
	unsigned char resident[SPAN / KD_PAGE];

	kd_must(!mincore(start, SPAN, resident));
}

static void grow_stack(void)
{
	char *stack = start - KD_HUGE;

	kd_map_at(stack, KD_PAGE, KD_RW, MAP_PRIVATE | MAP_GROWSDOWN, -1);
	for (unsigned int page = 0; page < SPAN / KD_PAGE; page++)
		kd_touch(stack - page * KD_PAGE, 1, KD_PAGE);
	kd_must(!munmap(stack + KD_PAGE - SPAN, SPAN));
}

static void shared_segment(void)
{
	int id = shmget(IPC_PRIVATE, KD_PAGE, 0600);
	char *memory;

	if (id < 0)
		kd_skip("the kernel has no System V IPC: %s", strerror(errno));
	memory = shmat(id, NULL, 0);
	kd_must(!shmctl(id, IPC_RMID, NULL));
	kd_must(memory != (void *)-1);
	kd_touch(memory, 1, KD_PAGE);
	kd_must(!shmdt(memory));
}

static void attach_segment(void)
{
	shared_segment();
}

static void map_new_file(void)
{
	int fd = kd_memfd();

	kd_must(!ftruncate(fd, SPAN));
	kd_map_at(other, KD_PAGE, KD_RW, MAP_SHARED, fd);
	kd_touch(other, 1, KD_PAGE);
	kd_must(!munmap(other, KD_PAGE));
	kd_must(!close(fd));
}

static void remap_page(void)
{
	static unsigned int page;

	page ^= 1;
	kd_must(!syscall(SYS_remap_file_pages, mapped, KD_PAGE, 0, page, 0));
}

static void read_memory(void)
{
	struct iovec to = { other, 8 }, from = { start, 8 };

	kd_must(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 8);
}

static void advise_ranges(int advice)
{
	struct iovec ranges[8];

	for (unsigned int i = 0; i < ARRAY_SIZE(ranges); i++)
		ranges[i] = (struct iovec){ start + i * KD_PAGE, KD_PAGE };
	if (syscall(SYS_process_madvise, pidfd, ranges, 8, advice, 0) == 8 * (long)KD_PAGE)
		return;
	if (errno == EINVAL || errno == ENOSYS || errno == EPERM)
		kd_skip("process_madvise() cannot do it: %s", strerror(errno));
	kd_die("process_madvise");
}

static void cold_ranges(void)
{
	advise_ranges(MADV_COLD);
}

static void drop_ranges(void)
{
	advise_ranges(MADV_DONTNEED);
	kd_touch(start, 8, KD_PAGE);
}

static void bind_node(void)
{
	unsigned long node = 1;

	kd_must(!syscall(SYS_mbind, start, SPAN, 2, &node, 8, 0));
	kd_must(!syscall(SYS_mbind, start, SPAN, 0, NULL, 0, 0));
}

static void ask_policy(void)
{
	int policy;

	kd_must(!syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0));
}

static void ask_nodes(void)
{
	void *pages[SPAN / KD_PAGE];
	int where[SPAN / KD_PAGE];

	for (unsigned int i = 0; i < ARRAY_SIZE(pages); i++)
		pages[i] = start + i * KD_PAGE;
	kd_must(!syscall(SYS_move_pages, 0, ARRAY_SIZE(pages), pages, NULL, where, 0));
	kd_must(!where[0]);
}

static void protect_many(void)
{
	for (unsigned int i = 0; i < 64; i++)
		kd_must(!mprotect(other + 2 * i * KD_PAGE, KD_PAGE, PROT_READ));
	kd_must(!mprotect(other, 128 * KD_PAGE, KD_RW));
}

static void ask_pagemap(void)
{
	static uint64_t entries[128];
	off_t at = (uintptr_t)other / KD_PAGE * sizeof(*entries);

	kd_must(pread(pagemap, entries, sizeof(entries), at) == sizeof(entries));
	kd_must(entries[127] >> 63);	/* present */
}

static void ask_smaps(void)
{
	static char text[65536];
	int fd = open("/proc/self/smaps", O_RDONLY);

	kd_must(fd >= 0);
	while (read(fd, text, sizeof(text)) > 0)
		;
	kd_must(!close(fd));
}

static void set_up_memory(void)
{
	start = kd_map(SPAN, KD_RW, MAP_PRIVATE);
	other = start + KD_HUGE / 2;
	kd_no_thp(start, SPAN);
	kd_touch(start, SPAN / KD_PAGE, KD_PAGE);
	kd_must(!munmap(start + SPAN, KD_PAGE));	/* to grow into */
}

static void set_up_file(void)
{
	file = kd_memfd();
	kd_must(!ftruncate(file, SPAN));
	mapped = mmap(NULL, SPAN, KD_RW, MAP_SHARED, file, 0);
	kd_must(mapped != MAP_FAILED);
	kd_touch(mapped, SPAN / KD_PAGE, KD_PAGE);
}

static void set_up(const struct kd_scenario *s)
{
	set_up_memory();
	if (s->flags & OTHER) {
		kd_map_at(other, 128 * KD_PAGE, KD_RW, MAP_PRIVATE, -1);
		kd_no_thp(other, 128 * KD_PAGE);
		kd_touch(other, 128, KD_PAGE);
	}
	if (s->flags & STACKS)
		kd_must(!munmap(start - KD_HUGE - KD_MIB(1), KD_MIB(1) + KD_PAGE));
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	if ((s->flags & CALL) == PAGEMAP && pagemap < 0)
		kd_skip("pagemap cannot be read: %s", strerror(errno));
	if (s->flags & PIDFD)
		pidfd = syscall(SYS_pidfd_open, getpid(), 0);
	if (s->flags & NODES && syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0))
		kd_skip("the kernel does not know of nodes: %s", strerror(errno));
	if (s->flags & THREADS)
		kd_start_another();
}

int main(int argc, char **argv)
{
	static void (*const once[])(void) = {
		[PAGE_FAULT1] = anonymous_faults, [PAGE_FAULT2] = private_faults,
		[PAGE_FAULT3] = shared_faults, [POPULATE] = populated, [MMAP_128M] = map_much,
		[MALLOC_128M] = allocate_much, [TLB_FLUSH1] = flush_file,
		[TLB_FLUSH2] = flush_anonymous,
		[MMAP_FILE] = map_file, [MMAP_OVER] = map_over, [HOLE] = make_hole,
		[TLB_FLUSH] = drop_and_touch, [MADV_FREE_TOUCH] = free_and_touch,
		[WILLNEED] = will_need, [COLD] = is_cold, [POPULATE_READ] = populate_again,
		[DONTFORK] = do_not_fork, [PROTECT] = protect_page, [GROW] = grow_and_shrink,
		[MOVE] = move_twice, [MSYNC] = sync_memory, [MLOCK] = lock_page,
		[MLOCK2] = lock_on_fault, [MINCORE] = ask_resident, [STACK] = grow_stack,
		[SHM_SYSV] = attach_segment, [MEMFD_MAP] = map_new_file, [REMAP] = remap_page,
		[READV] = read_memory, [ADVISE_COLD] = cold_ranges,
		[ADVISE_DONTNEED] = drop_ranges, [MBIND] = bind_node,
		[GET_MEMPOLICY] = ask_policy, [MOVE_PAGES] = ask_nodes, [VMAS_64] = protect_many,
		[PAGEMAP] = ask_pagemap, [SMAPS] = ask_smaps,
	};
	const struct kd_scenario *s;
	unsigned int faults;

	kd_fixed_layout(argv);
	s = kd_start(argc, argv, "loops_mm", scenarios, ARRAY_SIZE(scenarios));
	faults = s->flags & PAIRS_OF_FAULTS ? 30 : s->flags & BATCH_FAULTS ? 15 :
		 s->flags & EIGHT_FAULTS ? 8 :
		 s->flags & ONE_FAULT ? 1 : 0;
	set_up_file();
	set_up(s);
	return kd_loop(once[s->flags & CALL], s->calls, s->flags & THREADS ? 2 : 1,
		       s->calls * faults, 0);
}
