# SPDX-License-Identifier: GPL-2.0-or-later
"""A block of a timed run: trials that one machine measures in one go, in a folder it shares.

BLOCK/study.toml, run.json     the block's trials, as a run of their own
BLOCK/order.json               by which kdelta it is to be measured
BLOCK/try-17-0/                an attempt: a run's folder while a machine measures
BLOCK/done/                    the one that came to its end first, with machine.json

An attempt becomes the block by a rename.  So a block is there whole or not at all, and of two
attempts, which a machine that was believed dead may make, only the first counts.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kdelta.errors import StoreError
from kdelta.files import content, sync
from kdelta.journal import files
from kdelta.journal.results import trial_folder
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.sample import TrialRecord, TrialResult

FORMAT = 1
_ORDER, _MACHINE, _DONE = "order.json", "machine.json", "done"
_AGAIN = "remove that folder, then: kdelta resume"
_FILE = re.compile(r"[a-z][a-z0-9]*(-[0-9]+)?(\.[a-z0-9]+){1,3}")
_MOST_BYTES = 64 << 20
_MOST_FILES = 64


class BlockOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a block is to be measured.  kdelta: what it says of itself (identities)."""

    format: int = FORMAT
    kdelta: tuple[str, ...]
    wanted_qemu: str = ""


class BlockMachine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who measured a block.  job, restart: of the cluster; node: the machine's name there."""

    format: int = FORMAT
    job: str
    restart: str
    node: str


def make(folder: Path, run: RunRecord, trials: Sequence[TrialRecord], order: BlockOrder) -> None:
    """Make a folder the block of these trials; whatever was in it stays.  Raises StoreError."""
    files.write(folder / _ORDER, order)
    RunJournal.create(folder, replace(run, trials=tuple(trials)), anew=True)


def order_of(folder: Path) -> BlockOrder:
    """How the block in a folder is to be measured.  Raises StoreError."""
    order = files.read(folder / _ORDER, BlockOrder)
    if order is None or order.format != FORMAT:
        raise StoreError("not a block that this kdelta knows", place=str(folder))
    return order


def is_done(folder: Path) -> bool:
    """True when the block was measured to its end."""
    return (folder / _DONE / _MACHINE).is_file()


def attempt(folder: Path, name: str) -> RunJournal:
    """A new attempt at the block; one of the same name is gone.  Raises StoreError."""
    whole = RunJournal.open(folder).record()
    place = folder / f"try-{name}"
    with files.disk_errors(place):
        if place.exists():
            shutil.rmtree(place)
    return RunJournal.create(place, whole)


def finish(folder: Path, own: RunJournal, machine: BlockMachine) -> bool:
    """Make an attempt the block; False: another one is it already.  Raises StoreError."""
    files.write(own.folder / _MACHINE, machine)
    with files.disk_errors(folder):
        try:
            own.folder.rename(folder / _DONE)  # refused when there is one: it is not empty
        except OSError:
            if not is_done(folder):
                raise
            return False
        sync(folder)
    return True


def machine_of(folder: Path) -> BlockMachine | None:
    """Who measured a block, None while nobody has.  Raises StoreError."""
    return files.read(folder / _DONE / _MACHINE, BlockMachine, action=_AGAIN)


def results(folder: Path) -> dict[int, TrialResult]:
    """What the trials of a measured block yielded.

    Raises StoreError for a block that is not whole, or not what was asked for.
    """
    asked = RunJournal.open(folder).record()
    found = RunJournal.open(folder / _DONE).record()
    bare = [replace(trial, attempts=0, result=None) for trial in found.trials]
    same = (found.run_id, found.study, found.arms) == (asked.run_id, asked.study, asked.arms)
    if not same or tuple(bare) != asked.trials:
        raise StoreError("another block than was asked for", place=str(folder), action=_AGAIN)
    yielded = {trial.index: trial.result for trial in found.trials if trial.result}
    if len(yielded) != len(asked.trials):
        raise StoreError("a trial's result is damaged", place=str(folder), action=_AGAIN)
    return yielded


def bring(folder: Path, index: int, result: TrialResult, run: Path) -> None:
    """Copy a trial's artifacts from a measured block into the run's folder.  Raises StoreError."""
    names = [Path(path).name for path in result.artifacts.values()]
    expected = [f"trials/{index:04d}/{name}" for name in names]
    strange = [name for name in names if not _FILE.fullmatch(name) or name == "result.json"]
    if strange or len(names) > _MOST_FILES or list(result.artifacts.values()) != expected:
        raise StoreError("a trial's files are none of it", place=str(folder), action=_AGAIN)
    source, target = trial_folder(folder / _DONE, index), trial_folder(run, index)
    with files.disk_errors(target):
        for name in names:
            files.write_bytes(target / name, content(source / name, _MOST_BYTES))


def tidy(folder: Path) -> None:
    """Remove the attempts that came to nothing."""
    for left in folder.glob("try-*"):
        shutil.rmtree(left, ignore_errors=True)
