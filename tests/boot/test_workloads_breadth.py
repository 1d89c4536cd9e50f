# SPDX-License-Identifier: GPL-2.0-or-later
"""Short scenarios of everyday paths: one of each program in a guest, and contracts that fail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from boot import lab
from boot.lab import Machine, Sabotage, run_scenario
from kdelta import workload
from kdelta.machine.axes import MachineSettings
from kdelta.sample import Outcome

pytestmark = pytest.mark.boot

WINDOWS = 8
BATCHES = 465  # pages of a scenario that takes new ones from the allocator


@pytest.fixture(scope="module")
def machine() -> Machine:
    return lab.machine("6.17")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A scenario, and how often a window of it calls a function of the kernel."""

    scenario: str
    function: str
    calls: int


@pytest.mark.parametrize(
    "work",
    [
        Work(scenario="fault:anon", function="asm_exc_page_fault", calls=BATCHES),
        Work(scenario="unmap:mmap_page", function="__x64_sys_munmap", calls=60 * 16),
        Work(scenario="advise:dontneed", function="__x64_sys_madvise", calls=1),
        Work(scenario="fault_fork:fork_touch", function="asm_exc_page_fault", calls=BATCHES),
        Work(scenario="process:fork_exit", function="__x64_sys_exit_group", calls=31),
        Work(scenario="lock:mlock", function="__x64_sys_mlock", calls=1),
        Work(scenario="userfault:missing", function="handle_userfault", calls=62),
        Work(scenario="tmpfs:read", function="__x64_sys_pread64", calls=BATCHES),
        Work(scenario="tmpfs:read_thp", function="shmem_file_read_iter", calls=64),
        Work(scenario="page_cache:read_16_pages", function="filemap_read", calls=15),
        Work(scenario="page_cache:write_new", function="filemap_add_folio", calls=BATCHES),
        Work(scenario="userfault:move_range", function="__x64_sys_ioctl", calls=1),
        Work(scenario="loops_mm:pagemap", function="pagemap_read", calls=62),
        Work(scenario="loops_mm:smaps", function="__x64_sys_openat", calls=15),
        Work(scenario="control:pipe_switch", function="anon_pipe_write", calls=64),
        Work(scenario="mprotect:pte_mapped_thp", function="__x64_sys_mprotect", calls=1),
        Work(scenario="fault_fork:fork_untouched", function="__x64_sys_exit_group", calls=1),
        Work(scenario="inotify_churn:distinct_1", function="__x64_sys_inotify_add_watch", calls=16),
        Work(scenario="loops_names:open", function="__x64_sys_openat", calls=256),
        Work(scenario="loops_ipc:tcp_loopback", function="tcp_sendmsg_locked", calls=62),
        Work(scenario="loops_calls:seccomp", function="__secure_computing", calls=256),
        Work(scenario="loops_mm:page_fault3_threads", function="asm_exc_page_fault", calls=465),
        Work(scenario="memcg:fault_depth_8", function="asm_exc_page_fault", calls=465),
        # Over 60 layouts: all windows together.
        Work(scenario="loops_process:exec_in_place", function="__x64_sys_execve", calls=31 * 16),
        Work(scenario="unmap:brk_touch_page", function="asm_exc_page_fault", calls=60 * 31),
        Work(scenario="mprotect:split_pages", function="__x64_sys_mprotect", calls=60 * 16),
    ],
    ids=lambda work: work.scenario,
)
def test_a_window_does_what_its_name_says(work: Work, machine: Machine, tmp_path: Path) -> None:
    """The plugin counted what the program says it did: two witnesses that know not each other."""
    result = run_scenario(machine, work.scenario, tmp_path)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    layouts = workload.parse_reference(work.scenario)[1].layouts
    assert {len(phase.kernel) for phase in result.exact.phases} == {max(WINDOWS, layouts)}
    called = {
        row.phase: row.calls for row in result.exact.functions if row.function == work.function
    }
    assert work.calls in called.values()


def test_a_loop_in_user_space_counts_to_the_instruction(machine: Machine, tmp_path: Path) -> None:
    (phase,) = run_scenario(machine, "control:user_loop", tmp_path).exact.phases
    assert len(set(phase.user)) == 1
    assert 2 * phase.operations <= phase.user[0] <= 2 * phase.operations + 20
    assert sorted(phase.kernel)[WINDOWS // 2] == 0


@pytest.mark.parametrize(
    "sabotage",
    [
        Sabotage(  # a page is never touched
         scenario="fault:anon", honest="kd_touch(start, KD_PAGES(s->bytes), KD_PAGE);",
         broken="kd_touch(start, KD_PAGES(s->bytes) - 1, KD_PAGE);",
         fact="window_present_after during is 464, not 465"),
        Sabotage(  # huge pages where none may be
         scenario="unmap:mremap_pmds", honest="kd_fault_in(start, s->bytes, s->flags & THP);",
         broken="kd_fault_in(start, s->bytes, true);", fact="anon_huge_kb before is 4096, not 0"),
        Sabotage(  # a shrunk mapping
         scenario="unmap:munmap", honest="KD_WINDOW(UNMAP, unmap(start, s->bytes));",
         broken="KD_WINDOW(UNMAP, unmap(start, s->bytes - KD_PAGE));",
         fact="window_vmas_after during is 1, not 0"),
        Sabotage(  # a call named MADV_PAGEOUT that reclaims nothing
         scenario="advise:pageout_free", honest="advise(start, s->bytes, MADV_FREE);",
         broken="advise(start, s->bytes, MADV_NORMAL);",
         fact="window_present_after during is 465, not 0"),
        Sabotage(  # nobody is left to copy for
         scenario="fault_fork:fork_touch", honest="	present = kd_present(start, s->bytes);",
         broken="	present = kd_present(start, s->bytes);	munmap(start, s->bytes);",
         fact="window_copied_pages during is 0, not 465"),
        Sabotage(scenario="fault_fork:fork_untouched", honest="	before = kd_minor_faults();",
         broken="	before = kd_minor_faults();\n	kd_touch(start, 1, KD_PAGE);",
         fact="window_faults during is 1, not 0"),
        Sabotage(scenario="unmap:brk_touch_page",
         honest="if (touch)\n			*(volatile char *)end = 1;",
         broken="if (touch && pairs > 1)\n			*(volatile char *)end = 1;",
         fact="window_faults during is 30, not 31"),
        Sabotage(  # both ladders on one side
         scenario="unmap:brk_page", honest="kd_ladders(below, above);",
         broken="kd_ladders(above, above);", fact="layouts_off during is 7, not 0"),
        Sabotage(  # the first page is at the edge of the mapping
         scenario="mprotect:split_pages", honest="span.start += span.stride / 2;",
         broken="span.start += 0;", fact="vmas_protected before is 32, not 33"),
        Sabotage(
            scenario="process:fork_exit",
            honest="	settle(s);\n	audit(KD_BEFORE);",
            broken="	pthread_create(&(pthread_t){ 0 }, NULL, (void *(*)(void *))pause, NULL);\n"
            "	audit(KD_BEFORE);",
            fact="threads before is 2, not 1",
        ),
        Sabotage(scenario="lock:mlock", honest="if (!syscall(SYS_mlock, start, bytes))",
         broken="if (start || bytes)", fact="window_kb_locked during is 0, not 1860"),
        Sabotage(scenario="userfault:wp",
         honest="protect(start, s->bytes, UFFDIO_WRITEPROTECT_MODE_WP)",
         broken="protect(start, s->bytes, 0)", fact="window_protected during is 0, not 1024"),
        Sabotage(scenario="tmpfs:truncate", honest="KD_WINDOW(TRUNCATE, set_size(fd, 0));",
         broken="KD_WINDOW(TRUNCATE, set_size(fd, KD_PAGE));",
         fact="window_pages_after during is 1, not 0"),
        Sabotage(scenario="control:signal", honest="if (kill(self, SIGUSR1))",
         broken="if (kill(self, 0))", fact="window_signals during is 0, not 256"),
        Sabotage(  # nobody shares the table of descriptors
         scenario="loops_names:open_threads", honest="		kd_start_another();",
         broken="		kd_must(s);", fact="threads before is 1, not 2"),
        Sabotage(  # new memory in the window
         scenario="loops_calls:getpgid", honest="kd_must(getpgid(0) >= 0);",
         broken="kd_must(!*(volatile char *)mmap(NULL, 1, 1, 0x22, -1, 0));",
         fact="window_faults during is 256, not 0"),
        Sabotage(  # base pages where huge ones are promised
         scenario="mprotect:pte_mapped_thp", honest="if (madvise(whole, bytes, MADV_COLLAPSE))",
         broken="if (madvise(whole, bytes, MADV_NORMAL))",
         fact="compound_heads before is 0, not 8"),
    ],
    ids=lambda sabotage: sabotage.scenario,
)  # fmt: skip
def test_a_broken_promise_is_invalid(sabotage: Sabotage, machine: Machine, tmp_path: Path) -> None:
    sabotage.check(machine, tmp_path)


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


def test_folios_of_64k_are_no_larger_and_no_smaller(machine: Machine, tmp_path: Path) -> None:
    settings = structs.replace(machine.settings, thp="madvise", mthp="64kB=always")
    own = replace(machine, settings=settings)
    good = run_scenario(own, "mincore:mthp_64k_scan_64m", tmp_path / "good")
    assert (good.outcome, good.reason) == (Outcome.OK, "")
    Sabotage(
        scenario="mincore:mthp_64k_scan_64m",
        honest="	if (s->flags & MTHP)\n		kd_touch(start, pages, KD_PAGE);",
        broken="	if (s->flags & MTHP)\n		kd_fault_in(start, s->bytes, false);",
        fact="compound_heads before is 0, not 1024",
    ).check(own, tmp_path)


def test_a_machine_without_huge_pages_is_skipped(machine: Machine, tmp_path: Path) -> None:
    settings = MachineSettings(cmdline="transparent_hugepage=never")
    result = run_scenario(replace(machine, settings=settings), "fault:thp", tmp_path)
    assert result.outcome is Outcome.SKIP
    assert result.reason.startswith("transparent huge pages are off: ")
    assert not result.exact.phases


def test_huge_pages_by_ptes_are_proven(machine: Machine, tmp_path: Path) -> None:
    own = replace(machine, settings=structs.replace(machine.settings, thp="madvise"))
    good = run_scenario(own, "unmap:munmap.2M-ptes", tmp_path / "good")
    assert (good.outcome, good.reason) == (Outcome.OK, "")
    Sabotage(
        scenario="unmap:munmap.2M-ptes", honest="kd_fault_in(start, s->bytes, s->flags & THP);",
        broken="kd_fault_in(start, s->bytes, true);", fact="anon_huge_kb before is 2048, not 0",
    ).check(own, tmp_path)  # fmt: skip
