# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests of arm64: no tick is in any window, whichever vectors a CPU takes it through."""

from __future__ import annotations

from dataclasses import replace
from functools import cache as remember
from pathlib import Path

import pytest

from boot import lab
from kdelta import arch
from kdelta.guests import qemu
from kdelta.kernels import reference
from kdelta.machine.axes import MachineSettings
from kdelta.sample import Outcome, TrialResult

pytestmark = pytest.mark.boot

ARM64 = arch.of("arm64")
# 2 million instructions of a loop in user space are 4 ms of guest time, which is a tick.
LOOP = "control:user_loop"
SCAN = "mincore:no_thp_pte_scan_4m"
TIMER = ("timer", "hrtimer", "tick_", "gic_", "sched_clock", "el1h_64_irq", "el0t_64_irq")


@remember
def machine() -> lab.Machine:
    return lab.Machine(
        emulator=qemu.for_counting(ARM64),
        kernel=reference.resolve("6.17", ARM64.debian),
        settings=MachineSettings(arch=ARM64.debian),
    )


def run(scenario: str, cpu: str, folder: Path) -> TrialResult:
    result = lab.run_scenario(machine(), scenario, folder, cpu_model=cpu)
    assert result.outcome is Outcome.OK, result.reason
    return result


@pytest.mark.parametrize("cpu", ["neoverse-n1", "neoverse-v1"])
def test_no_tick_is_in_a_window(cpu: str, tmp_path: Path) -> None:
    loop, mincore = (run(name, cpu, tmp_path / name[:4]) for name in (LOOP, SCAN))
    (windows,) = loop.exact.phases
    assert set(windows.user) == {windows.user[0]}
    assert not any(windows.kernel)
    names = {row.function for row in mincore.exact.functions}
    assert "mincore_pte_range" in names
    assert not [name for name in names if name.startswith(TIMER)]


def test_ticks_come_through_the_hardened_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above finds where these vectors are not known."""
    known = tuple(entry for entry in ARM64.interrupts if entry[0] == "vectors")
    monkeypatch.setitem(arch.ARCHES, "arm64", replace(ARM64, interrupts=known, stubs=()))
    (windows,) = run(LOOP, "neoverse-v1", tmp_path).exact.phases
    assert sum(count > 0 for count in windows.kernel) >= 4
