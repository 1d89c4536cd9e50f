# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta.journal: what is finished stays, whatever happens to the process."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kdelta import sample
from kdelta.errors import StoreError
from kdelta.journal import files
from kdelta.journal.run import RUNS, RunJournal
from kdelta.machine.axes import MachineSettings
from kdelta.study import spec
from run_records import execute, new_run, result_of

ROUNDS = os.environ.get("KDELTA_KILL_ROUNDS", "1")  # of the kill -9 test; 20 make it a soak
FORK = multiprocessing.get_context("fork")


def test_a_new_run_reads_back_as_given(tmp_path: Path) -> None:
    run = new_run()
    RunJournal.create(tmp_path / "run", run)
    journal = RunJournal.open(tmp_path / "run")
    assert journal.record() == run
    assert journal.pending() == list(run.trials)
    assert not journal.is_finished()
    assert (tmp_path / "run" / "study.toml").read_text() == spec.to_toml(run.study)
    with pytest.raises(StoreError, match="there is a run already"):
        RunJournal.create(tmp_path / "run", run)
    assert RunJournal.open(tmp_path / "run").record() == run


def test_a_part_of_a_run_has_the_results_of_its_arms_and_of_what_they_copy(tmp_path: Path) -> None:
    run = new_run()
    journal = RunJournal.create(tmp_path / "run", run)
    first, second = (arm.index for arm in run.arms[:2])
    origin = next(one.index for one in run.trials if one.arm == first)
    copied = sample.Copied(kind=sample.CopyKind.SAME_IMAGE, trial=origin, sentence="same code")
    with journal.executing():
        for trial in run.trials:
            journal.claim(trial.index)
            own = result_of(trial.index)
            journal.finish(trial.index, replace(own, copied=copied) if trial.arm == second else own)
    whole = {one.index: one for one in journal.record().trials}
    part = journal.record({second})
    assert part.arms == run.arms
    for one in part.trials:
        if one.arm == second or one.index == origin:
            assert one == whole[one.index]
        else:
            assert one.result is None
    assert [one.result for one in journal.plan.trials] == [None] * len(run.trials)


def test_results_come_back_exactly(tmp_path: Path) -> None:
    run = new_run()
    execute(RunJournal.create(tmp_path / "run", run))
    journal = RunJournal.open(tmp_path / "run")
    assert journal.is_finished()
    assert journal.pending() == []
    expected = [replace(one, attempts=1, result=result_of(one.index)) for one in run.trials]
    assert list(journal.record().trials) == expected
    assert replace(journal.record(), trials=()) == replace(run, trials=())


anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
whole = st.integers(-(2**80), 2**80)


def row(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Any value of a type of the run's files, all of whose fields are chosen."""
    return st.builds(kind, **{one.name: chosen(one.type) for one in msgspec.structs.fields(kind)})


def chosen(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type."""
    if kind in KNOWN:
        return KNOWN[kind]
    if get_origin(kind) is UnionType:
        return st.one_of(*map(chosen, get_args(kind)))
    if get_origin(kind) is tuple:
        return st.lists(chosen(get_args(kind)[0]), max_size=3).map(tuple)
    return row(kind) if issubclass(kind, msgspec.Struct) else st.sampled_from(kind)


KNOWN = {
    str: anything,
    int: whole,
    bool: st.booleans(),
    type(None): st.none(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    dict[str, str]: st.dictionaries(anything, anything, max_size=3),
    MachineSettings: st.builds(
        MachineSettings,
        cpus=st.integers(1, 64),
        cmdline=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
        preempt=st.sampled_from(["", "full"]),
    ),
}


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(result=row(sample.TrialResult))
def test_any_result_survives(
    tmp_path_factory: pytest.TempPathFactory, result: sample.TrialResult
) -> None:
    folder = tmp_path_factory.mktemp("any") / "run"
    journal = RunJournal.create(folder, new_run(arms=1, rounds=1))
    with journal.executing():
        journal.claim(0)
        journal.finish(0, result)
    assert journal.record().trials[0].result == result


def test_claim_and_finish_keep_the_journal(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path / "run", new_run())
    with journal.executing():
        assert [journal.claim(4), journal.claim(4)] == [1, 2]
        assert {one.index: one.attempts for one in journal.pending()}[4] == 2
        journal.finish(4, result_of(4))
        assert 4 not in [one.index for one in journal.pending()]
        for index in (4, 99):
            with pytest.raises(ValueError, match="is done or not planned"):
                journal.claim(index)
        for index in (4, 5, 99):
            with pytest.raises(ValueError, match="is not running"):
                journal.finish(index, result_of(index))
    assert journal.record().trials[4].attempts == 2
    assert journal.record().trials[5].result is None


def test_faults_of_this_machine_are_planned_again_and_nothing_else(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path / "run", new_run())
    infra = sample.TrialResult(
        outcome=sample.Outcome.INFRA_ERROR, reasons=("no mirror",), artifacts={"console": "x"}
    )
    guest = sample.TrialResult(outcome=sample.Outcome.GUEST_ERROR, reasons=("panic",))
    kept = result_of(2)
    with journal.executing():
        for index, result in ((0, infra), (1, guest), (2, kept)):
            journal.claim(index)
            journal.finish(index, result)
        assert journal.replan_failures() == 1
        assert journal.replan_failures() == 0
    journal = RunJournal.open(tmp_path / "run")
    with journal.executing():  # takes in no stale result either
        by_index = {trial.index: trial for trial in journal.record().trials}
        assert (by_index[0].result, by_index[0].attempts) == (None, 0)
        assert (by_index[1].result, by_index[2].result) == (guest, kept)
        assert journal.claim(0) == 1
        journal.finish(0, result_of(0))


def test_nothing_is_written_without_holding_the_run(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path / "run", new_run())
    with pytest.raises(RuntimeError, match="outside executing"):
        journal.claim(0)


def test_threads_share_a_journal(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path / "run", new_run(arms=6, rounds=2))
    pending = journal.pending()

    def work(part: int) -> None:
        for trial in pending[part::4]:
            journal.claim(trial.index)
            journal.finish(trial.index, result_of(trial.index))

    with journal.executing():
        threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(one.result == result_of(one.index) for one in journal.record().trials)


# Two processes


def _hold(folder: Path, pipe: Connection) -> None:
    with RunJournal.open(folder).executing():
        pipe.send("held")
        pipe.recv()


def test_two_processes_do_not_execute_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    journal = RunJournal.create(folder, new_run())
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_hold, args=(folder, theirs))
    child.start()
    theirs.close()
    assert ours.recv() == "held"
    with pytest.raises(StoreError) as caught:
        execute(journal)
    assert f"run run is being executed by process {child.pid};" in caught.value.sentence()
    assert len(RunJournal.open(folder).record().trials) == 12  # reading goes on
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    execute(journal)
    assert journal.is_finished()


def test_the_run_is_held_against_this_process_too(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path / "run", new_run())
    with journal.executing(), pytest.raises(StoreError, match=f"by process {os.getpid()}"):
        execute(RunJournal.open(tmp_path / "run"))
    execute(RunJournal.open(tmp_path / "run"))


def _run_until_killed(folder: Path, pipe: Connection) -> None:
    journal = RunJournal.open(folder)
    with journal.executing():
        pending = journal.pending()
        pipe.send(-1)
        for trial in pending:
            journal.claim(trial.index)
            journal.finish(trial.index, result_of(trial.index, functions=400))
            pipe.send(trial.index)
    os._exit(0)


def _received(pipe: Connection) -> Iterator[int]:
    try:
        while True:
            yield pipe.recv()
    except EOFError:
        return


def _kill_once(folder: Path, after: int, then_s: float) -> tuple[bool, set[int]]:
    """Let a child execute so many trials and a moment more: was it killed, what is finished?

    Trials and not seconds, since on a machine that does something else a moment ends no trial.
    """
    ours, theirs = FORK.Pipe(duplex=False)
    child = FORK.Process(target=_run_until_killed, args=(folder, theirs))
    child.start()
    theirs.close()
    said = set(islice(_received(ours), 1 + after))
    child.join(then_s)
    killed = child.exitcode is None
    child.kill()
    child.join()
    return killed, (said | set(_received(ours))) - {-1}


def test_kill_9_at_random_moments_loses_no_finished_trial(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    record = RunJournal.create(folder, new_run(arms=20, rounds=int(ROUNDS))).record()
    moments = random.Random(20261120)  # noqa: S311
    finished: set[int] = set()
    kills = 0
    while any(one.result is None for one in record.trials):
        killed, said = _kill_once(folder, moments.randrange(4), moments.uniform(0, 0.004))
        kills += killed
        finished |= said
        record = RunJournal.open(folder).record()
        assert finished <= {one.index for one in record.trials if one.result is not None}
        for trial in record.trials:
            assert trial.result in (None, result_of(trial.index, functions=400))
    assert kills >= 5


def test_attempts_of_a_killed_process_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with RunJournal.create(folder, new_run()).executing() as _:
        pass
    for attempt in (1, 2, 3):
        journal = RunJournal.open(folder)
        with journal.executing():
            assert journal.claim(7) == attempt
    assert RunJournal.open(folder).record().trials[7].attempts == 3
    with journal.executing():
        journal.claim(7)
        journal.finish(7, result_of(7))
    assert RunJournal.open(folder).record().trials[7].attempts == 4


def test_each_file_of_a_run_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    journal = RunJournal.create(folder, new_run(arms=3, rounds=2))
    with journal.executing():
        for trial in journal.pending():
            journal.claim(trial.index)
            journal.finish(trial.index, result_of(trial.index))
    opened = RunJournal.open(folder)
    seen: Counter[str] = Counter()
    read = files.read

    def counting(path: Path, kind: type[Any], *, action: str = "") -> Any:
        seen[str(path.relative_to(folder))] += 1
        return read(path, kind, action=action)

    monkeypatch.setattr(files, "read", counting)
    results = [trial.result for trial in opened.record().trials]
    assert len(results) == 12
    assert all(results)
    assert sum(name.startswith("trials/") for name in seen) == 12
    assert set(seen.values()) == {1}


# Full disk


def _assert_disk_full(caught: pytest.ExceptionInfo[StoreError], folder: Path) -> None:
    assert caught.value.sentence() == (
        f"{folder}: the disk is full; finished trials are kept: free some space, "
        "then give the same command to resume"
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = tmp_path / "small"
    path.mkdir()
    if libc.mount(b"none", bytes(path), b"tmpfs", 0, b"size=1m"):
        pytest.skip(f"mounting a tmpfs is not permitted: {os.strerror(ctypes.get_errno())}")
    yield path
    libc.umount2(bytes(path), 2)


def test_a_really_full_disk(small_disk: Path) -> None:
    folder = small_disk / "run"
    journal = RunJournal.create(folder, new_run(arms=20, rounds=2))
    ballast = small_disk / "ballast"
    free = shutil.disk_usage(small_disk).free
    ballast.write_bytes(bytes(free - 150_000))
    with pytest.raises(StoreError) as caught:
        execute(journal)
    _assert_disk_full(caught, folder)
    assert not list(folder.rglob("*.new"))
    kept = [one for one in RunJournal.open(folder).record().trials if one.result is not None]
    assert 0 < len(kept) < 80
    assert all(one.result == result_of(one.index) for one in kept)
    with pytest.raises(StoreError, match="the disk is full"):
        execute(journal)
    with pytest.raises(StoreError, match="the disk is full"):
        RunJournal.create(small_disk / "other", new_run(arms=64))
    assert RUNS.folders(small_disk) == [folder]
    ballast.unlink()
    execute(journal)
    assert all(one.result == result_of(one.index) for one in journal.record().trials)
