# SPDX-License-Identifier: GPL-2.0-or-later
"""A controller killed (SIGKILL) before any of its writes: gone on with, it says the same."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

import run_records
from kdelta.journal.run import RunJournal
from kdelta.run.exact import ExactTrials
from kdelta.workers import worker
from test_dispatch import FakeWorkers, answer, dispatch, own_of

_WRITES = ("os.rename", "os.remove", "os.mkdir", "os.truncate")
_OK = ["ok"] * 4
Told = list[tuple[bytes, str, list[tuple[str, bytes]]]]


def run(own: ExactTrials, journal: RunJournal) -> list[str]:
    return dispatch(own, FakeWorkers({"a": answer, "b": answer}), journal)


def killed(own: ExactTrials, journal: RunJournal, number: int) -> bool:
    """Execute a run in a process of its own, which dies before that write of it."""
    child = os.fork()
    if child == 0:
        _die_before(number, journal.folder)
        try:
            run(own, journal)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _die_before(number: int, folder: Path) -> None:
    left, mutex = [number], threading.Lock()

    def look(event: str, given: tuple[object, ...]) -> None:
        writes = event in _WRITES or (event == "open" and int(str(given[2])) & os.O_ACCMODE)
        if writes and str(given[0]).startswith(str(folder)):
            with mutex:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def told(journal: RunJournal) -> Told:
    """Of each trial what its result says, and its files but the one that says when."""
    found = []
    for trial in journal.record().trials:
        assert trial.result
        place = journal.folder / f"trials/{trial.index:04d}"
        files = [(path.name, path.read_bytes()) for path in sorted(place.iterdir())]
        others = [one for one in files if one[0] != "result.json" and one[0][0] != "."]
        found.append((worker.essence(trial.result), trial.result.address, others))
    return found


def test_killed_before_any_write_a_run_goes_on_to_the_same_results(tmp_path: Path) -> None:
    own = own_of(tmp_path)
    alone = RunJournal.create(tmp_path / "alone", run_records.new_run(arms=2, rounds=1))
    assert run(own, alone) == _OK
    number, died = 0, True
    while died:
        number += 1
        folder = tmp_path / f"at-{number}"
        journal = RunJournal.create(folder, run_records.new_run(arms=2, rounds=1))
        died = killed(own, journal, number)
        again = RunJournal.open(folder)
        assert died or again.is_finished()
        assert run(own, again) == _OK
        assert told(again) == told(alone), f"killed before write {number}"
    assert number > 4 * 5, "a trial is claimed, unpacked, and kept"


@pytest.mark.parametrize("left", ["calls.json.gz", "counts.bin.gz"])
def test_what_a_killed_attempt_left_is_of_no_result(tmp_path: Path, left: str) -> None:
    """A first parcel was unpacked and its controller killed; the next one has less in it."""
    journal = RunJournal.create(tmp_path / "run", run_records.new_run(arms=2, rounds=1))
    place = journal.folder / "trials/0000"
    place.mkdir(parents=True)
    (place / left).write_bytes(b"of another attempt")
    assert run(own_of(tmp_path), journal) == _OK
    assert sorted(path.name for path in place.iterdir()) == ["console.log", "result.json"]
