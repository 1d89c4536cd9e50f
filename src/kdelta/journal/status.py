# SPDX-License-Identifier: GPL-2.0-or-later
"""How far a run is, and who works on which trial: RUN/doing.json, read by `kdelta runs status`.

The file decides nothing: results say what is done, and a run without the file is whole.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdelta.errors import StoreError
from kdelta.files import write_aside
from kdelta.journal import files
from kdelta.journal.results import trial_folder
from kdelta.journal.run import RunRecord
from kdelta.printable import printable
from kdelta.sample import TrialRecord

NAME = "doing.json"
_RECENT = 40  # results that the speed is taken from
_MOST_NAME = 80


class Busy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who has a trial, and since when (seconds since 1970)."""

    who: str
    since: float


class Assignments:
    """Writes doing.json while the run is executed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._now: dict[int, Busy] = {}
        self._mutex = threading.Lock()

    def tell(self, index: int, who: str) -> None:
        """Note who has a trial, "" when its worker is free again.  A full disk stops nothing."""
        with self._mutex:
            self._now.pop(index, None)
            if who:
                self._now[index] = Busy(printable(who, _MOST_NAME), round(time.time(), 1))
            with contextlib.suppress(OSError):
                write_aside(self._path, msgspec.json.encode(self._now))


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How far a run is.

    failed: ended for this machine's fault.  busy: trials that are being measured, with who does it
    and for how many seconds.  executing: a process has the run.  left_s: until all is done if it
    goes on as the last results came, None while nobody can say.
    """

    run_id: str
    total: int
    ended: int
    failed: int
    busy: tuple[tuple[TrialRecord, str, float], ...]
    executing: bool
    left_s: float | None


def status(record: RunRecord, folder: Path, *, executing: bool, now: float) -> Status:
    """The status of a run, from what its folder says."""
    ended = [trial for trial in record.trials if trial.result]
    left = len(record.trials) - len(ended)
    return Status(
        run_id=record.run_id,
        total=len(record.trials),
        ended=len(ended),
        failed=sum(t.result.outcome == "infra-error" for t in ended if t.result),
        busy=tuple(_busy(record, folder, now)) if executing else (),
        executing=executing,
        left_s=_speed(folder, ended, now, left) if executing and left else None,
    )


def _busy(record: RunRecord, folder: Path, now: float) -> Iterator[tuple[TrialRecord, str, float]]:
    told: dict[int, Busy] = {}
    with contextlib.suppress(StoreError):
        told = files.read(folder / NAME, dict[int, Busy]) or {}
    for trial in record.trials:
        if trial.result is None and (busy := told.get(trial.index)):
            yield trial, busy.who, max(0.0, now - busy.since)


def _speed(folder: Path, ended: list[TrialRecord], now: float, left: int) -> float | None:
    """Seconds for the rest, by when the last results were written."""
    times = []
    for trial in ended:
        with contextlib.suppress(OSError):
            times.append((trial_folder(folder, trial.index) / "result.json").stat().st_mtime)
    recent = sorted(times)[-_RECENT:]
    if len(recent) < 2:
        return None
    return max(now - recent[0], 0.1) / (len(recent) - 1) * left
