# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests of riscv64: one entry for ticks and faults, firmware below, timers that are not saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from boot import lab
from kdelta import arch, workload
from kdelta.run.counting import run_trial
from kdelta.sample import Outcome, TrialResult

pytestmark = pytest.mark.boot

RISCV64 = arch.of("riscv64")

# 2 million instructions of a loop in user space are 4 ms of guest time, which is a tick.
LOOP = "control:user_loop"
SCAN = "mincore:no_thp_pte_scan_4m"
FAULTS = "fault:anon"
PAGES = 465  # of a window of FAULTS
TIMER = ("timer", "hrtimer", "tick_", "riscv_timer", "riscv_intc", "do_irq", "handle_riscv_irq")


def machine() -> lab.Machine:
    return lab.of_arch("7.2", "riscv64")


def run(scenario: str, folder: Path, cpu: str = "everyday") -> TrialResult:
    result = lab.run_scenario(machine(), scenario, folder, cpu_model=cpu)
    assert result.outcome is Outcome.OK, result.reason
    return result


@pytest.mark.parametrize("cpu", ["rva22s64", "rva23s64"])
def test_neither_ticks_nor_firmware_are_in_a_window(cpu: str, tmp_path: Path) -> None:
    """Ticks of the first CPU come through the firmware, those of the second without (Sstc)."""
    loop, scan = (run(name, tmp_path / name[:4], cpu) for name in (LOOP, SCAN))
    (windows,) = loop.exact.phases
    assert set(windows.user) == {windows.user[0]}
    assert not any(windows.kernel)
    names = {row.function for row in scan.exact.functions}
    assert "mincore_pte_range" in names
    assert not [name for name in names if name.startswith(TIMER)]


def test_a_trap_that_is_not_told_apart_brings_ticks_into_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above finds where its kind is not read."""
    run(FAULTS, tmp_path / "known")  # QEMU passes its self-test before
    monkeypatch.setitem(
        arch.ARCHES, "riscv64", replace(RISCV64, exceptions=RISCV64.traps, traps=())
    )
    (windows,) = run(LOOP, tmp_path).exact.phases
    assert sum(count > 0 for count in windows.kernel) >= 4


def test_faults_are_counted_each_with_the_instructions_of_its_way(tmp_path: Path) -> None:
    called = {row.function: row.calls for row in run(FAULTS, tmp_path).exact.functions}
    assert called["handle_exception"] == called["do_page_fault"] == PAGES
    assert called["do_anonymous_page"] == PAGES


def test_a_boot_and_its_restores_count_the_same(tmp_path: Path) -> None:
    """A restored guest lost the timer that was set, and goes on none the less."""
    found = []
    for number, fresh in enumerate((True, False, False)):
        load, scenario = workload.parse_reference(SCAN)
        bench = machine().bench(fresh=fresh)
        folder = tmp_path / str(number)
        result = run_trial(bench, machine().kernel, scenario, load.program, folder)
        assert (result.outcome, result.fresh_boot) == (Outcome.OK, fresh), result.reason
        (phase,) = result.exact.phases
        totals = [user + kernel for user, kernel in zip(phase.user, phase.kernel, strict=True)]
        found.append(Counter(totals).most_common(1)[0][0])
    assert found[0] == found[1] == found[2]
