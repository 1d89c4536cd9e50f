# SPDX-License-Identifier: GPL-2.0-or-later
"""Short scenarios of everyday paths: one of each program in a guest, and contracts that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from boot.lab import Machine, betrayed, run_scenario
from kdelta import workload
from kdelta.machine.axes import MachineSettings
from kdelta.sample import Outcome

pytestmark = pytest.mark.boot

WINDOWS = 8
BATCHES = 465  # pages of a scenario that takes new ones from the allocator


@pytest.mark.parametrize(
    ("scenario", "function", "calls"),
    [
        ("fault:anon", "asm_exc_page_fault", BATCHES),
        ("unmap:mmap_page", "__x64_sys_munmap", 60 * 16),
        ("advise:dontneed", "__x64_sys_madvise", 1),
        ("fault_fork:fork_touch", "asm_exc_page_fault", BATCHES),
        ("process:fork_exit", "__x64_sys_exit_group", 31),
        ("lock:mlock", "__x64_sys_mlock", 1),
        ("userfault:missing", "handle_userfault", 62),
        ("tmpfs:read", "__x64_sys_pread64", BATCHES),
        ("tmpfs:read_thp", "shmem_file_read_iter", 64),
        ("page_cache:read_16_pages", "filemap_read", 15),
        ("page_cache:write_new", "filemap_add_folio", BATCHES),
        ("userfault:move_range", "__x64_sys_ioctl", 1),
        ("loops_mm:pagemap", "pagemap_read", 62),
        ("loops_mm:smaps", "__x64_sys_openat", 15),
        ("control:pipe_switch", "anon_pipe_write", 64),
        ("mprotect:pte_mapped_thp", "__x64_sys_mprotect", 1),
        ("fault_fork:fork_untouched", "__x64_sys_exit_group", 1),
        ("inotify_churn:distinct_1", "__x64_sys_inotify_add_watch", 16),
        ("loops_names:open", "__x64_sys_openat", 256),
        ("loops_ipc:tcp_loopback", "tcp_sendmsg_locked", 62),
        ("loops_calls:seccomp", "__secure_computing", 256),
        ("loops_mm:page_fault3_threads", "asm_exc_page_fault", 465),
        ("memcg:fault_depth_8", "asm_exc_page_fault", 465),
        # Over 60 layouts: all windows together.
        ("loops_process:exec_in_place", "__x64_sys_execve", 31 * 16),
        ("unmap:brk_touch_page", "asm_exc_page_fault", 60 * 31),
        ("mprotect:split_pages", "__x64_sys_mprotect", 60 * 16),
    ],
)
def test_a_window_does_what_its_name_says(
    scenario: str, function: str, calls: int, machine: Machine, tmp_path: Path
) -> None:
    """A scenario, and how often a window of it calls a function of the kernel.

    The plugin counted what the program says it did: two witnesses that know not each other.
    """
    result = run_scenario(machine, scenario, tmp_path)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    layouts = workload.parse_reference(scenario)[1].layouts
    assert {len(phase.kernel) for phase in result.exact.phases} == {max(WINDOWS, layouts)}
    called = {row.phase: row.calls for row in result.exact.functions if row.function == function}
    assert calls in called.values()


def test_a_loop_in_user_space_counts_to_the_instruction(machine: Machine, tmp_path: Path) -> None:
    (phase,) = run_scenario(machine, "control:user_loop", tmp_path).exact.phases
    assert len(set(phase.user)) == 1
    assert 2 * phase.operations <= phase.user[0] <= 2 * phase.operations + 20
    assert sorted(phase.kernel)[WINDOWS // 2] == 0


@pytest.mark.parametrize(
    ("scenario", "honest", "broken", "fact"),
    [
        ("fault:anon", "kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);",  # a page is never touched
         "kd_touch(start, KD_PAGES(s->bytes) - 1, KD_PAGE);",
         "window_present_after during is 464, not 465"),
        ("unmap:mremap_pmds",  # huge pages where none may be
         "kd_fault_in(start, s->bytes, s->flags & THP);", "kd_fault_in(start, s->bytes, true);",
         "anon_huge_kb before is 4096, not 0"),
        ("unmap:munmap", "KD_WINDOW(UNMAP, unmap(start, s->bytes));",  # a shrunk mapping
         "KD_WINDOW(UNMAP, unmap(start, s->bytes - KD_PAGE));",
         "window_vmas_after during is 1, not 0"),
        ("advise:pageout_free",  # a call named MADV_PAGEOUT that reclaims nothing
         "advise(start, s->bytes, MADV_FREE);", "advise(start, s->bytes, MADV_NORMAL);",
         "window_present_after during is 465, not 0"),
        ("fault_fork:fork_touch",  # nobody is left to copy for
         "	present = kd_present(start, s->bytes);",
         "	present = kd_present(start, s->bytes);	munmap(start, s->bytes);",
         "window_copied_pages during is 0, not 465"),
        ("fault_fork:fork_untouched", "	before = kd_minor_faults();",
         "	before = kd_minor_faults();\n	kd_touch(start, 1, KD_PAGE);",
         "window_faults during is 1, not 0"),
        ("unmap:brk_touch_page", "if (touch)\n			*(volatile char *)end = 1;",
         "if (touch && pairs > 1)\n			*(volatile char *)end = 1;",
         "window_faults during is 30, not 31"),
        ("unmap:brk_page", "kd_ladders(below, above);",  # both ladders on one side
         "kd_ladders(above, above);", "layouts_off during is 7, not 0"),
        ("mprotect:split_pages",  # the first page is at the edge of the mapping
         "span.start += span.stride / 2;", "span.start += 0;",
         "vmas_protected before is 32, not 33"),
        ("process:fork_exit", "	settle(s);\n	audit(KD_BEFORE);",
         ("	pthread_create(&(pthread_t){ 0 }, NULL, (void *(*)(void *))pause, NULL);\n"
          "	audit(KD_BEFORE);"), "threads before is 2, not 1"),
        ("lock:mlock", "if (!syscall(SYS_mlock, start, bytes))", "if (start || bytes)",
         "window_kb_locked during is 0, not 1860"),
        ("userfault:wp", "protect(start, s->bytes, UFFDIO_WRITEPROTECT_MODE_WP)",
         "protect(start, s->bytes, 0)", "window_protected during is 0, not 1024"),
        ("tmpfs:truncate", "KD_WINDOW(TRUNCATE, set_size(fd, 0));",
         "KD_WINDOW(TRUNCATE, set_size(fd, KD_PAGE));", "window_pages_after during is 1, not 0"),
        ("control:signal", "if (kill(self, SIGUSR1))", "if (kill(self, 0))",
         "window_signals during is 0, not 256"),
        ("loops_names:open_threads",  # nobody shares the table of descriptors
         "		kd_start_another();", "		kd_must(s);", "threads before is 1, not 2"),
        ("loops_calls:getpgid", "kd_must(getpgid(0) >= 0);",  # new memory in the window
         "kd_must(!*(volatile char *)mmap(NULL, 1, 1, 0x22, -1, 0));",
         "window_faults during is 256, not 0"),
        ("mprotect:pte_mapped_thp",  # base pages where huge ones are promised
         "if (madvise(whole, bytes, MADV_COLLAPSE))", "if (madvise(whole, bytes, MADV_NORMAL))",
         "compound_heads before is 0, not 8"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_invalid(
    scenario: str, honest: str, broken: str, fact: str, machine: Machine, tmp_path: Path
) -> None:
    betrayed(machine, scenario, honest, broken, fact, folder=tmp_path)


def test_no_window_is_stamped_with_time_that_audit_took(machine: Machine, tmp_path: Path) -> None:
    """A fine time is in force until the next tick: 1.3 % of tmpfs:overwrite, by its phase."""
    result = run_scenario(machine, "tmpfs:overwrite", tmp_path)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    called = {row.function for row in result.exact.functions}
    assert "ktime_get_coarse_real_ts64_mg" in called
    assert "ns_to_timespec64" not in called


def test_what_is_sustained_reaches_the_buddy_allocator(machine: Machine, tmp_path: Path) -> None:
    """Freed pages stay on the CPU's own lists, unless these are told to hold next to none."""
    for name, reached in (("munmap", False), ("munmap_sustained", True)):
        result = run_scenario(machine, f"unmap:{name}", tmp_path / name)
        assert (result.outcome, result.reason) == (Outcome.OK, "")
        freed = {row.function for row in result.exact.functions} & {"free_pcppages_bulk"}
        assert bool(freed) is reached


@pytest.mark.parametrize(
    ("scenario", "thp", "honest", "broken", "fact"),
    [
        ("mincore:mthp_64k_scan_64m", {"thp": "madvise", "mthp": "64kB=always"},
         "	if (s->flags & MTHP)\n		kd_touch(start, pages, KD_PAGE);",
         "	if (s->flags & MTHP)\n		kd_fault_in(start, s->bytes, false);",
         "compound_heads before is 0, not 1024"),
        ("unmap:munmap.2M-ptes", {"thp": "madvise"},
         "kd_fault_in(start, s->bytes, s->flags & THP);", "kd_fault_in(start, s->bytes, true);",
         "anon_huge_kb before is 2048, not 0"),
    ],
)  # fmt: skip
def test_folios_of_a_size_are_proven(
    scenario: str, thp: dict[str, str], honest: str, broken: str, fact: str,
    machine: Machine, tmp_path: Path,
) -> None:  # fmt: skip
    own = replace(machine, settings=structs.replace(machine.settings, **thp))
    good = run_scenario(own, scenario, tmp_path / "good")
    assert (good.outcome, good.reason) == (Outcome.OK, "")
    betrayed(own, scenario, honest, broken, fact, folder=tmp_path)


def test_a_machine_without_huge_pages_is_skipped(machine: Machine, tmp_path: Path) -> None:
    settings = MachineSettings(cmdline="transparent_hugepage=never")
    result = run_scenario(replace(machine, settings=settings), "fault:thp", tmp_path)
    assert result.outcome is Outcome.SKIP
    assert result.reason.startswith("transparent huge pages are off: ")
    assert not result.exact.phases
