# SPDX-License-Identifier: GPL-2.0-or-later
"""MADV_PAGEOUT in guests: without swap, on zram, on a disk; and contracts that do not hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from boot import lab
from boot.command import Command
from kdelta import data
from kdelta.errors import GuestError
from kdelta.guests.orders import SWAP_BYTES, Order, SwapBacking, swap_orders
from kdelta.machine.axes import Lacking, MachineSettings
from kdelta.machine.identity import MachineSeen
from kdelta.run.exact import ExactTrials
from kdelta.sample import Outcome, TrialRecord, TrialResult

pytestmark = pytest.mark.boot

SMALL = "madvise_pageout:pageout_anon_16m_nohugepage"
ZRAM = "madvise_pageout:pageout_anon_4m_nohugepage_zram"
DISK = "madvise_pageout:pageout_anon_4m_nohugepage_disk"
PAGES = 1024


@pytest.fixture(scope="session")
def machine() -> lab.Machine:
    return lab.machine("6.12")


def seen(result: TrialResult) -> MachineSeen:
    """What the guest said of its machine."""
    assert result.facts
    return result.facts.seen


def calls(result: TrialResult, phase: str, function: str) -> int:
    """How often a function was entered in the window that stands for a phase."""
    rows = [row for row in result.exact.functions if (row.phase, row.function) == (phase, function)]
    return sum(row.calls for row in rows)


def test_without_swap_no_page_leaves(machine: lab.Machine, tmp_path: Path) -> None:
    result = lab.run_scenario(machine, SMALL, tmp_path)
    assert result.outcome is Outcome.OK, result.reason
    told = lab.facts(result, "during")
    assert (told["advised_present_pages"], told["advised_swapped_pages"]) == ("4096", "0")
    assert told["advised_reclaimed_pages"] == "0"
    assert "pswpout" not in told
    assert [metric.value for metric in result.metrics] == [0]
    assert calls(result, "touch", "asm_exc_page_fault") == 0


def test_zram_takes_every_page_and_its_functions_have_names(
    machine: lab.Machine, tmp_path: Path
) -> None:
    result = lab.run_scenario(machine, ZRAM, tmp_path, swap="zram")
    assert result.outcome is Outcome.OK, result.reason
    assert not result.fresh_boot
    assert seen(result).swap == f"/dev/zram0 {(SWAP_BYTES >> 10) - 4}"
    told = lab.facts(result, "during")
    assert (told["advised_present_pages"], told["advised_swapped_pages"]) == ("0", str(PAGES))
    assert told["advised_reclaimed_pages"] == str(PAGES)
    assert told["pswpout"] == told["pswpin"] == str(10 * PAGES)
    assert [metric.value for metric in result.metrics] == [PAGES]
    assert calls(result, "advise", "LZ4_compress_fast_extState") == PAGES
    assert calls(result, "touch", "LZ4_decompress_safe") == PAGES
    assert calls(result, "touch", "asm_exc_page_fault") == PAGES


def test_a_disk_takes_every_page(machine: lab.Machine, tmp_path: Path) -> None:
    """The scenario's needs give the guest its disk, and with one it cannot be restored."""
    trials = ExactTrials(machine.bench(), (machine.kernel,))
    name, _, scenario = DISK.partition(":")
    planned = TrialRecord(index=0, round=0, arm=0, workload=name, scenario=scenario)
    result = trials.measure(planned, tmp_path / "0000")
    assert result.outcome is Outcome.OK, result.reason
    assert result.fresh_boot
    assert (seen(result).swap or "").startswith("/dev/nvme0n1 ")
    told = lab.facts(result, "during")
    assert (told["advised_present_pages"], told["advised_swapped_pages"]) == ("0", str(PAGES))
    assert told["pswpout"] == str(10 * PAGES)
    assert calls(result, "touch", "asm_exc_page_fault") == PAGES
    assert not list(tmp_path.rglob("swap.img"))


@pytest.mark.parametrize(
    ("name", "swap", "honest", "broken", "told"),
    [
        (SMALL, "", "kd_no_thp(start, s->bytes)", "madvise(start, 0, MADV_NORMAL)",
         ("thp_eligible before is 1, not 0", "anon_huge_kb before is 16384, not 0")),
        (ZRAM, "zram",  # nothing is paged out
         "madvise(start, bytes, MADV_PAGEOUT)", "madvise(start, bytes, MADV_COLD)",
         (f"advised_present_pages during is {PAGES}, not 0",
          f"advised_swapped_pages during is 0, not {PAGES}")),
        (SMALL, "",  # a mapping that shrank
         "\taudit(KD_AFTER, s, start);\n",
         "\tmunmap(start, KD_PAGE);\n\taudit(KD_AFTER, s, start);\n",
         ("present_pages after is 4095, not 4096",)),
    ],
)  # fmt: skip
def test_a_broken_contract_is_invalid(
    name: str, swap: str, honest: str, broken: str, told: tuple[str, ...],
    machine: lab.Machine, tmp_path: Path,
) -> None:  # fmt: skip
    lab.betrayed(machine, name, honest, broken, *told, folder=tmp_path, swap=swap)


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        (ZRAM, "", "the scenario needs swap on one zram device and on nothing else"),
        (DISK, "zram", "the scenario needs swap on one disk or file and on nothing else"),
        (SMALL, "zram", "the scenario needs a machine without swap: swapoff -a"),
    ],
)
def test_the_wrong_swap_is_no_number(
    name: str, given: str, reason: str, machine: lab.Machine, tmp_path: Path
) -> None:
    result = lab.run_scenario(machine, name, tmp_path, swap=given)
    assert (result.outcome, result.reason) == (Outcome.SKIP, reason)
    assert not result.exact.phases


def test_a_kernel_without_its_modules_is_skipped(machine: lab.Machine, tmp_path: Path) -> None:
    lone = replace(machine.kernel, reference="file:bzImage", package="", config=None)
    result = lab.run_scenario(machine, ZRAM, tmp_path, swap="zram", kernel=lone)
    assert result.outcome is Outcome.SKIP
    assert result.reason == (
        "swap: the kernel has no zram built in, and file:bzImage did not come in a package, which"
        " would have modules; swap on a disk needs none"
    )


def test_a_guest_says_what_it_cannot_have(machine: lab.Machine, tmp_path: Path) -> None:
    damaged = tmp_path / "zram.ko"
    damaged.write_bytes(b"\x7fELF and nothing more")
    disk = swap_orders(MachineSettings(swap="disk"), SwapBacking())
    with pytest.raises(Lacking, match=r"no /dev/nvme0n1 \(CONFIG_BLK_DEV_NVME=y\)"):
        machine.answers(*disk)
    zram = swap_orders(MachineSettings(swap="zram"), SwapBacking(modules=(damaged,)))
    with pytest.raises(Lacking, match="swap: loading zram: Exec format error"):
        machine.answers(*zram, modules=(damaged,))
    for device in ("/dev/null", "/dev/../etc"):
        with pytest.raises(GuestError, match="the guest cannot do 'swapon'"):
            machine.answers(Order(f"swapon {device}"))


def test_two_kernels_with_other_pages_are_not_compared(tmp_path: Path) -> None:
    """MADV_DONTNEED of 6.17 frees page tables, that of 6.12 does not: no huge page fits there."""
    command = Command(tmp_path / "runs", data.directory("workloads"))
    scenario = "madvise_pageout:pageout_anon_16m_default"
    text = command.run("run", scenario, "--kernels", "6.12,6.17").replace("\n  ", " ")
    assert "INVALID: page states differ: faulted_anon_huge_kb during (0 against 16384)" in text
    assert "anon_huge_kb after (0 against 16384)" in text
    assert text.count("INVALID: page states differ") == 1
    command.no_guests()
