# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints: taken once, checked on use, made again when damaged, bounded in disk."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from boot import lab
from boot.lab import Machine
from kdelta import cache
from kdelta.machines import checkpoint
from kdelta.machines.machine import Settings
from kdelta.machines.session import Cancelled

pytestmark = pytest.mark.boot


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose checkpoint is in a cache of its own."""
    machine = lab.machine("old", "6.17")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return machine


def test_damage_is_found_and_mended(private: Machine) -> None:
    state = private.checkpoint().state
    whole = state.stat()
    for damage in (flip, truncate):
        damage(state)
        point = private.checkpoint()
        assert point.state == state
        assert abs(state.stat().st_size - whole.st_size) < whole.st_size // 10
        assert private.oracle("loop", 1000, 2).user() == [2001, 2001]


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
        settings=Settings(arch=lab.ARCH, memory_mib=512),
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


def flip(state: Path) -> None:
    with state.open("r+b") as stream:
        stream.seek(state.stat().st_size // 2)
        byte = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte[0] ^ 0xFF]))


def truncate(state: Path) -> None:
    os.truncate(state, state.stat().st_size // 3)
