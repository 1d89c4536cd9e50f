# SPDX-License-Identifier: GPL-2.0-or-later
"""Every file that a trial's counts depend on, cut or changed: the same counts, or a clear error."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from boot import lab
from kdelta import cache, files
from kdelta.errors import InfraError
from kdelta.run.exact import ExactTrials
from kdelta.sample import ExactData, Outcome, TrialRecord, TrialResult

pytestmark = pytest.mark.boot

# What a trial is made of; a QEMU is looked at where one is chosen (test_emulator).
KINDS = {"images", "build", "initramfs", "checkpoints", "symbols", "events"}
TRIAL = TrialRecord(index=0, round=0, arm=0, workload="mincore", scenario="no_thp_pte_scan_4m")


class Counting:
    """One trial, again and again, each time as a process of its own would measure it."""

    def __init__(self, machine: lab.Machine, folder: Path) -> None:
        self._trials = ExactTrials(machine.bench(), [machine.kernel])
        self._folder = folder
        self.kernel = machine.kernel

    def __call__(self) -> TrialResult:
        files._digests.clear()
        return self._trials.measure(TRIAL, self._folder / "trials" / "0000")

    def data(self) -> ExactData:
        """What a trial that has to be ok counted."""
        result = self()
        assert result.outcome is Outcome.OK, result.reason
        return result.exact


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counting]:
    """In a cache of the test's own, with an image that was fetched before."""
    machine = lab.machine("6.17")
    image = machine.kernel.image
    home = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patched.setenv("KDELTA_RESULTS_MIB", "0")
        own = cache.root() / "images" / image.parent.name
        shutil.copytree(image.parent, own)
        kernel = replace(machine.kernel, image=own / image.name)
        yield Counting(replace(machine, kernel=kernel), home)


def cut(path: Path) -> None:
    os.truncate(path, 0)


def turn(path: Path) -> None:
    """Change one bit of the middle, and set the times back."""
    facts = path.stat()
    with path.open("r+b") as file:
        at = facts.st_size // 2
        os.pwrite(file.fileno(), bytes([os.pread(file.fileno(), 1, at)[0] ^ 1]), at)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize("damage", [cut, turn], ids=lambda damage: str(damage.__name__))
def test_no_file_is_counted_with_that_is_not_what_was_made(
    damage: Callable[[Path], None], counting: Counting, tmp_path: Path
) -> None:
    expected = counting.data()
    assert counting.data() == expected
    paths = [path for kind in KINDS for path in (cache.root() / kind).rglob("*") if path.is_file()]
    assert {path.relative_to(cache.root()).parts[0] for path in paths} == KINDS
    for path in sorted(paths):
        if not path.exists() or not path.stat().st_size:
            continue  # made anew meanwhile; or nothing to damage
        if damage is turn and path.name == ".files.json":
            continue  # tests/test_cache.py has these
        kept = tmp_path / "kept"
        shutil.copy2(path, kept)
        damage(path)
        if path == counting.kernel.image:
            with pytest.raises(InfraError, match="the kernel image is another one"):
                counting()
            shutil.copy2(kept, path)
        else:
            assert counting.data() == expected, path
