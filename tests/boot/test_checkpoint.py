# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints: taken once, checked on use, made again when damaged, bounded in disk."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from boot import lab
from boot.lab import Machine
from kdelta import cache, files, guest, workload
from kdelta.errors import Cancelled
from kdelta.guests import checkpoint
from kdelta.guests.orders import Order
from kdelta.guests.qemu import Launch
from kdelta.guests.session import Guest
from kdelta.machine.axes import MachineSettings
from kdelta.run.counting import run_trial
from kdelta.sample import Outcome, TrialResult
from kdelta.verdict.windows import representative

pytestmark = pytest.mark.boot
SCENARIO = "mincore:no_thp_pte_scan_4m"
Counted = tuple[Path, TrialResult]


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose checkpoint is in a cache of its own."""
    machine = lab.machine("6.17")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return machine


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """A cache in which one trial was counted, and what it counted."""
    place = tmp_path_factory.mktemp("counted")
    machine = lab.machine("6.17")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(place / "cache"))
        patched.setenv("KDELTA_RESULTS_MIB", "0")
        result = lab.run_scenario(machine, SCENARIO, place)
    assert result.outcome is Outcome.OK, result.reason
    return place / "cache", result


@pytest.fixture
def copied(private: Machine, counted: Counted, tmp_path: Path) -> Machine:
    """A machine whose own cache is a copy of that one."""
    subprocess.run(["cp", "-a", counted[0], tmp_path / "cache"], check=True)
    return private


def fill_a_hole(folder: Path) -> None:
    """A byte where the guest had never written."""
    with (folder / "ram").open("r+b") as memory:
        memory.seek(os.lseek(memory.fileno(), 0, os.SEEK_HOLE) + 4096)
        memory.write(b"x")


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0xFF]))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(folder / "state", (folder / "state").stat().st_size // 2),
        lambda folder: flip(folder / "state", 1),
        lambda folder: os.truncate(folder / "state", (folder / "state").stat().st_size // 3),
        lambda folder: flip(folder / "ram", 17 << 20),  # the kernel's code, 1 MiB into it
        fill_a_hole,
        lambda folder: os.truncate(folder / "ram", 512 << 20),
    ],
    ids=["state", "its header", "state cut", "memory", "hole", "memory cut"],
)
def test_damage_is_found_and_mended(
    damage: Callable[[Path], None], copied: Machine, counted: Counted, tmp_path: Path
) -> None:
    damage(copied.checkpoint().folder)
    second = lab.run_scenario(copied, SCENARIO, tmp_path)
    assert second.outcome is Outcome.OK, second.reason
    assert cache.unchanged(copied.checkpoint().folder)
    both = (result.exact.phases[0].kernel for result in (counted[1], second))
    modes = [representative([*kernel]).value for kernel in both]
    assert modes[0] == modes[1]


def test_one_that_qemu_does_not_take_is_made_anew(
    private: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, to the byte, and of another machine than the one that is to be restored."""
    monkeypatch.setattr(checkpoint, "key", lambda *_: "one")
    smaller = replace(private, settings=MachineSettings(memory_mib=512)).checkpoint()
    saved = (smaller.folder / "ram").stat().st_size
    result = lab.run_scenario(private, SCENARIO, tmp_path)
    assert result.outcome is Outcome.OK, result.reason
    assert (private.checkpoint().folder / "ram").stat().st_size != saved


def own_files(folder: Path) -> list[tuple[str, int]]:
    """Names and times of a checkpoint's files, but for the note that it was compared."""
    return [
        (path.name, path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
        if path.name != ".compared.json"
    ]


def test_trials_leave_a_checkpoint_as_it_was(copied: Machine, tmp_path: Path) -> None:
    folder = copied.checkpoint().folder
    before = own_files(folder)
    for number in range(2):
        assert lab.run_scenario(copied, SCENARIO, tmp_path / str(number)).outcome is Outcome.OK
    assert own_files(folder) == before
    assert cache.unchanged(copied.checkpoint().folder)


def test_a_fresh_boot_leaves_nothing(private: Machine, tmp_path: Path) -> None:
    load, scenario = workload.parse_reference(SCENARIO)
    result = run_trial(
        private.bench(fresh=True), private.kernel, scenario, load.program, tmp_path / "0000"
    )
    assert result.outcome is Outcome.OK
    assert list((cache.root() / "checkpoints").iterdir()) == []
    assert not cache.held("checkpoints-")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up")
def test_root_runs_no_guest(copied: Machine) -> None:
    launch = Launch(
        image=copied.kernel.image, initramfs=guest.initramfs(lab.ARCH),
        orders=(Order("kallsyms"),), restore=copied.checkpoint().folder,
    )  # fmt: skip
    status = {}
    with Guest(copied.emulator, copied.settings, launch) as machine:
        while not machine.has_ended:
            for line in Path(f"/proc/{machine._child.pid}/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if value.strip():  # none any more of one that has just ended
                    status[name] = value.split()
    assert status["Uid"] == status["Gid"] == ["65534"] * 4
    assert status["CapEff"] == status["CapPrm"] == ["0" * 16]
    assert status["NoNewPrivs"] == ["1"]


def test_two_boots_end_in_the_same_memory(private: Machine) -> None:
    """And so in the same counts: what a restored guest does follows from it."""
    found = set()
    for _ in range(2):
        image = private.kernel.image
        with checkpoint.lent(
            private.emulator, private.settings, image, timeout=lab.TIMEOUT_S, fresh=True
        ) as point:
            found.add(files.filled_sha256(point.folder / "ram"))
    assert len(found) == 1


def test_two_at_once_make_one_that_is_used_again(private: Machine) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(private.checkpoint) for _ in range(2)]
        first = both[0].result()
        assert both[1].result() == first
    assert len(list((cache.root() / "checkpoints").iterdir())) == 1
    saved = (first.folder / "state").stat().st_mtime_ns
    assert private.checkpoint() == first
    assert (first.folder / "state").stat().st_mtime_ns == saved
    assert (first.folder / "console.log").is_file()


def test_oldest_goes_when_room_is_short(copied: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = copied.checkpoint().folder
    os.utime(first, (0, 0))
    monkeypatch.setenv("KDELTA_CHECKPOINTS_MIB", "1")
    other = Machine(
        emulator=copied.emulator, kernel=copied.kernel, settings=MachineSettings(memory_mib=512)
    )
    assert other.checkpoint().folder.is_dir()
    assert not first.exists()


def test_cancelling_leaves_nothing(private: Machine) -> None:
    cancelled = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(private.checkpoint, timeout=60, cancelled=cancelled)
        time.sleep(1)
        cancelled.set()
        with pytest.raises(Cancelled):
            taken.result(timeout=10)
    assert list((cache.root() / "checkpoints").iterdir()) == []
