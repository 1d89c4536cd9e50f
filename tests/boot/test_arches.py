# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests of arm64 and riscv64: no tick is in any window, whichever way a CPU takes it.

riscv64 has one entry for ticks and faults, firmware below, and timers that are not saved.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boot import lab
from kdelta import arch, workload
from kdelta.run.counting import run_trial
from kdelta.sample import Outcome, TrialResult

pytestmark = pytest.mark.boot

ARM64, RISCV64 = arch.of("arm64"), arch.of("riscv64")
# 2 million instructions of a loop in user space are 4 ms of guest time, which is a tick.
LOOP = "control:user_loop"
SCAN = "mincore:no_thp_pte_scan_4m"
FAULTS = "fault:anon"
PAGES = 465  # of a window of FAULTS
TIMER = (
    *("timer", "hrtimer", "tick_", "gic_", "sched_clock", "el1h_64_irq", "el0t_64_irq"),
    *("riscv_timer", "riscv_intc", "do_irq", "handle_riscv_irq"),
)


def machine(of: arch.Arch) -> lab.Machine:
    return lab.of_arch("6.17" if of is ARM64 else "7.2", of.debian)


def run(of: arch.Arch, scenario: str, folder: Path, cpu: str = "everyday") -> TrialResult:
    result = lab.run_scenario(machine(of), scenario, folder, cpu_model=cpu)
    assert result.outcome is Outcome.OK, result.reason
    return result


@pytest.mark.parametrize(
    ("of", "cpu"),
    [
        (ARM64, "neoverse-n1"),
        (ARM64, "neoverse-v1"),
        # Ticks come through the firmware, and without (Sstc).
        (RISCV64, "rva22s64"),
        (RISCV64, "rva23s64"),
    ],
)
def test_neither_ticks_nor_firmware_are_in_a_window(
    of: arch.Arch, cpu: str, tmp_path: Path
) -> None:
    loop, scan = (run(of, name, tmp_path / name[:4], cpu) for name in (LOOP, SCAN))
    (windows,) = loop.exact.phases
    assert set(windows.user) == {windows.user[0]}
    assert not any(windows.kernel)
    names = {row.function for row in scan.exact.functions}
    assert "mincore_pte_range" in names
    assert not [name for name in names if name.startswith(TIMER)]


@pytest.mark.parametrize(
    ("of", "unknown", "cpu"),
    [
        (
            ARM64,  # the hardened vectors
            {"interrupts": tuple(e for e in ARM64.interrupts if e[0] == "vectors"), "stubs": ()},
            "neoverse-v1",
        ),
        (RISCV64, {"exceptions": RISCV64.traps, "traps": ()}, "everyday"),  # the kind of a trap
    ],
)
def test_what_is_not_known_brings_ticks_into_windows(
    of: arch.Arch,
    unknown: dict[str, Any],
    cpu: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the test above finds where that is not read."""
    run(of, FAULTS, tmp_path / "known", cpu)  # QEMU passes its self-test before
    monkeypatch.setitem(arch.ARCHES, of.debian, replace(of, **unknown))
    (windows,) = run(of, LOOP, tmp_path, cpu).exact.phases
    assert sum(count > 0 for count in windows.kernel) >= 4


def test_faults_are_counted_each_with_the_instructions_of_its_way(tmp_path: Path) -> None:
    called = {row.function: row.calls for row in run(RISCV64, FAULTS, tmp_path).exact.functions}
    assert called["handle_exception"] == called["do_page_fault"] == PAGES
    assert called["do_anonymous_page"] == PAGES


def test_a_boot_and_its_restores_count_the_same(tmp_path: Path) -> None:
    """A restored guest lost the timer that was set, and goes on none the less."""
    found = []
    own = machine(RISCV64)
    for number, fresh in enumerate((True, False, False)):
        load, scenario = workload.parse_reference(SCAN)
        bench = own.bench(fresh=fresh)
        result = run_trial(bench, own.kernel, scenario, load.program, tmp_path / str(number))
        assert (result.outcome, result.fresh_boot) == (Outcome.OK, fresh), result.reason
        (phase,) = result.exact.phases
        totals = [user + kernel for user, kernel in zip(phase.user, phase.kernel, strict=True)]
        found.append(Counter(totals).most_common(1)[0][0])
    assert found[0] == found[1] == found[2]
