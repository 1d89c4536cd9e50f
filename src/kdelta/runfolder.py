# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder of a run: its layout, its files, and how a run is named and found again.

RUN/study.toml                 the study as it was run
RUN/run.json                   the RunRecord without results; its presence makes a folder a run
RUN/store.sqlite               the journal and all rows (kdelta.store)
RUN/lock, lock.pid             held by, and the number of, the executing process
RUN/trials/0007/result.json    what trial 7 yielded, beside its console log and other artifacts
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kdelta.errors import SpecError, StoreError
from kdelta.files import write_aside
from kdelta.sample import RunRecord, TrialRecord, TrialResult

log = logging.getLogger(__name__)

STUDY_FILE = "study.toml"
RUN_FILE = "run.json"
STORE_FILE = "store.sqlite"
LIST_RUNS = "list the runs with: kdelta runs"

_SHOWN = 10
_NOT_OURS = (msgspec.MsgspecError, ValueError, RecursionError)  # of decoding a foreign file
_FULL = (errno.ENOSPC, errno.EDQUOT)


class RunHead(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one run from another, read from run.json without its trials."""

    run_id: str = ""
    name: str = ""
    title: str = ""
    created: str = ""
    study_digest: str = ""


class _ResultFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """result.json: a result that says whose it is."""

    index: int
    attempts: int
    result: TrialResult


def new_run_id(name: str, now: datetime, taken: Collection[str]) -> str:
    """A run id not in `taken`: the study's name and the time, such as NAME-20261120-101500."""
    base = f"{name}-{now:%Y%m%d-%H%M%S}"
    run_id, number = base, 1
    while run_id in taken:
        number += 1
        run_id = f"{base}-{number}"
    return run_id


def new_run_folder(root: Path, name: str, now: datetime) -> Path:
    """Make a new run's empty folder under `root`, its name a new run id; safe against others."""
    taken: set[str] = set()
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        while True:
            folder = root / new_run_id(name, now, taken)
            try:
                folder.mkdir()
            except FileExistsError:
                taken.add(folder.name)
            else:
                return folder


def runs(root: Path) -> list[Path]:
    """The run folders under `root`, newest first."""
    with disk_errors(root):
        found = [path.parent for path in root.glob(f"*/{RUN_FILE}")]
    return sorted(found, key=lambda folder: (head(folder).created, folder.name), reverse=True)


def head(folder: Path) -> RunHead:
    """A run's head; empty if its run.json cannot be read, which opening the run will explain."""
    try:
        return msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=RunHead)
    except (OSError, *_NOT_OURS):
        return RunHead()


def find_run(root: Path, text: str) -> Path:
    """The run folder that `text` names: "latest", an id, a unique prefix of one, or a path.

    Raises SpecError listing the candidates.
    """
    known = runs(root)
    if text == "latest" and known:
        return known[0]
    if exact := [folder for folder in known if folder.name == text]:
        return exact[0]
    if text and (Path(text) / RUN_FILE).is_file():
        return Path(text)
    matches = [folder for folder in known if text and folder.name.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        cause = f'"{text}" is the beginning of {len(matches)} runs'
    elif known:
        cause = f'no run is called "{text}"'
    else:
        raise SpecError(
            "there are no runs yet", place=str(root), action="make one with: kdelta run STUDY"
        )
    raise SpecError(cause, place=str(root), action=f"there are {_listed(matches or known)}")


def _listed(folders: list[Path]) -> str:
    names = ", ".join(folder.name for folder in folders[:_SHOWN])
    more = len(folders) - _SHOWN
    return f"{names} and {more} more" if more > 0 else names


def trial_folder(folder: Path, index: int) -> Path:
    """Where a trial's result and artifacts lie."""
    return folder / "trials" / f"{index:04d}"


def write_run(folder: Path, run: RunRecord) -> None:
    """Write run.json: the run without its results."""
    planned = tuple(replace(trial, attempts=0, result=None) for trial in run.trials)
    write_aside(folder / RUN_FILE, msgspec.json.encode(replace(run, trials=planned)))


def read_run(folder: Path) -> RunRecord:
    """The run that run.json holds, with no results.  Raises StoreError."""
    path = folder / RUN_FILE
    try:
        with disk_errors(folder):
            return msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except _NOT_OURS as error:
        raise StoreError(
            f"the file is corrupt: {error}",
            place=str(path),
            action=f"the results of its trials can still be read in {folder / 'trials'}",
        ) from error


def write_result(folder: Path, index: int, attempts: int, result: TrialResult) -> None:
    """Write a trial's result.json."""
    path = trial_folder(folder, index)
    path.mkdir(parents=True, exist_ok=True)
    content = _ResultFile(index=index, attempts=attempts, result=result)
    write_aside(path / "result.json", msgspec.json.encode(content))


def forget_result(folder: Path, index: int) -> None:
    """Remove a trial's result.json, so that the trial can be planned again."""
    with disk_errors(folder):
        (trial_folder(folder, index) / "result.json").unlink(missing_ok=True)


def read_result(folder: Path, trial: TrialRecord) -> TrialRecord:
    """`trial` with the result that its result.json holds, or unchanged if there is none."""
    path = trial_folder(folder, trial.index) / "result.json"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_ResultFile)
    except FileNotFoundError:
        return trial
    except (OSError, *_NOT_OURS) as error:
        log.warning("%s: left out, it cannot be read: %s", path, error)
        return trial
    if found.index != trial.index:
        log.warning("%s: left out, it is the result of trial %d", path, found.index)
        return trial
    return replace(trial, attempts=found.attempts, result=found.result)


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """Turn an OSError of the body into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(place) from error
        raise StoreError(
            f"the run cannot be read or written: {error.strerror or error}",
            place=str(error.filename or place),
            action="check that the folder exists and belongs to you",
        ) from error


def disk_full(place: Path) -> StoreError:
    """The error of a full disk: nothing finished is lost, and the run resumes."""
    return StoreError(
        "the disk is full",
        place=str(place),
        action="finished trials are kept: free some space, then give the same command to resume",
    )
