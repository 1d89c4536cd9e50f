# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints: taken once, checked on use, made again when damaged, bounded in disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from boot import lab
from boot.lab import Machine
from kdelta import cache, workload
from kdelta.errors import Cancelled
from kdelta.guests import checkpoint
from kdelta.machine.axes import MachineSettings
from kdelta.run.counting import run_trial
from kdelta.sample import Outcome, TrialResult
from kdelta.stats.exact import representative

pytestmark = pytest.mark.boot


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose checkpoint is in a cache of its own."""
    machine = lab.machine("old", "6.17")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return machine


def flip_middle(state: Path) -> None:
    flip(state, state.stat().st_size // 2)


def flip_header(state: Path) -> None:
    flip(state, 1)


def truncate(state: Path) -> None:
    os.truncate(state, state.stat().st_size // 3)


def flip(state: Path, at: int) -> None:
    content = bytearray(state.read_bytes())
    content[at] ^= 0xFF
    state.write_bytes(content)


@pytest.mark.parametrize("damage", [flip_middle, flip_header, truncate])
def test_damage_is_found_and_mended(
    damage: Callable[[Path], None], private: Machine, tmp_path: Path
) -> None:
    load, scenario = workload.parse_reference("mincore:no_thp_pte_scan_4m")

    def measure(folder: str) -> TrialResult:
        return run_trial(private.bench(), private.kernel, scenario, load.program, tmp_path / folder)

    first = measure("first")
    assert first.outcome is Outcome.OK
    state = private.checkpoint().state
    damage(state)
    second = measure("second")
    assert second.outcome is Outcome.OK, second.reason
    assert checkpoint.intact(private.checkpoint())
    modes = [representative([*result.exact.phases[0].kernel]).value for result in (first, second)]
    assert modes[0] == modes[1]


def test_one_that_qemu_does_not_take_is_made_anew(
    private: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, to the byte, and of another machine than the one that is to be restored."""
    monkeypatch.setattr(checkpoint, "_key", lambda *_: "one")
    smaller = replace(private, settings=MachineSettings(memory_mib=512)).checkpoint()
    saved = smaller.state.stat().st_size
    result = lab.run_scenario(private, "mincore:no_thp_pte_scan_4m", tmp_path)
    assert result.outcome is Outcome.OK, result.reason
    assert private.checkpoint().state.stat().st_size != saved


def test_two_at_once_make_one_that_is_used_again(private: Machine) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(private.checkpoint) for _ in range(2)]
        first = both[0].result()
        assert both[1].result() == first
    assert len(list((cache.root() / "checkpoints").iterdir())) == 1
    saved = first.state.stat().st_mtime_ns
    assert private.checkpoint() == first
    assert first.state.stat().st_mtime_ns == saved
    assert (first.state.parent / "console.log").is_file()


def test_the_oldest_goes_when_room_is_short(
    private: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = private.checkpoint().state.parent
    os.utime(first, (0, 0))
    monkeypatch.setenv("KDELTA_CHECKPOINTS_MIB", "1")
    other = Machine(
        emulator=private.emulator,
        kernel=private.kernel,
        settings=MachineSettings(memory_mib=512),
    )
    second = other.checkpoint().state.parent
    assert second.is_dir()
    assert not first.exists()


def test_cancelling_leaves_nothing(private: Machine) -> None:
    cancelled = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(
            checkpoint.take_or_find,
            private.emulator,
            private.settings,
            private.kernel.image,
            timeout=60,
            cancelled=cancelled,
        )
        time.sleep(1)
        cancelled.set()
        with pytest.raises(Cancelled):
            taken.result(timeout=10)
    assert list((cache.root() / "checkpoints").iterdir()) == []
