# SPDX-License-Identifier: GPL-2.0-or-later
"""A run's folder: what is kept of a run, what a kill, damage or a stranger's file does to it."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kdelta import sample
from kdelta.cli.show import list_command as runs
from kdelta.errors import SpecError, StoreError
from kdelta.files import NotPlainError, content
from kdelta.journal import files, results
from kdelta.journal.run import FORMAT, RUNS, RunJournal, unfinished
from kdelta.machine.axes import MachineSettings
from kdelta.run import timed
from kdelta.study import spec
from run_records import NOW, execute, new_run, result_of

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


anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 2**63 - 1)
whole = st.integers(-(2**80), 2**80)


def row(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Any value of a type of the run's files, all of whose fields are chosen."""
    return st.builds(kind, **{one.name: chosen(one.type) for one in msgspec.structs.fields(kind)})


def chosen(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type."""
    if kind in KNOWN:
        return KNOWN[kind]
    if get_origin(kind) in (UnionType, Union):
        return st.one_of(*map(chosen, get_args(kind)))
    if get_origin(kind) is dict:
        return st.dictionaries(*map(chosen, get_args(kind)), max_size=3)
    if get_origin(kind) is tuple and get_args(kind)[-1] is not ...:
        return st.tuples(*map(chosen, get_args(kind)))
    if get_origin(kind) is tuple:
        return st.lists(chosen(get_args(kind)[0]), max_size=3).map(tuple)
    return row(kind) if issubclass(kind, msgspec.Struct) else st.sampled_from(kind)


KNOWN = {
    str: anything, int: whole, bool: st.booleans(), type(None): st.none(),
    sample.Option: anything.map("A={}".format),
    sample.Operations: st.integers(1, 2**63 - 1), sample.Count: counts,
    sample.Counts: st.lists(counts, min_size=1, max_size=3).map(tuple),
    float: st.floats(allow_nan=False, allow_infinity=False),
    MachineSettings: st.builds(
        MachineSettings,
        cpus=st.integers(1, 64),
        cmdline=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
        preempt=st.sampled_from(["", "full"]),
    ),
}  # fmt: skip


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(result=row(sample.TrialResult))
def test_any_result_survives(
    tmp_path_factory: pytest.TempPathFactory, result: sample.TrialResult
) -> None:
    assume(not results.contradiction(result, 0))
    result = replace(result, kernel=None)  # of another than its arm's it is left out
    folder = tmp_path_factory.mktemp("any") / "run"
    journal = RunJournal.create(folder, new_run(arms=1, rounds=1))
    with journal.executing():
        journal.claim(0)
        journal.finish(0, result)
    assert journal.record().trials[0].result == result


def test_claim_and_finish_keep_the_journal(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path / "run", new_run())
    with pytest.raises(RuntimeError, match="outside executing"):
        journal.claim(0)
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


def _run_until_killed(folder: Path, pipe: Connection) -> None:
    journal = RunJournal.open(folder)
    with journal.executing():
        for trial in journal.pending():
            pipe.recv()
            journal.claim(trial.index)
            journal.finish(trial.index, result_of(trial.index, functions=400))
            pipe.send(trial.index)
    os._exit(0)


def _kill_once(folder: Path, after: int, then_s: float) -> set[int]:
    """Let a child execute so many trials, then kill it a moment into the next: what it finished.

    The child waits for leave before each trial, so that no machine is too fast or too slow: it
    cannot end its run before the moment comes.
    """
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_run_until_killed, args=(folder, theirs))
    child.start()
    theirs.close()
    said = set()
    try:
        for _ in range(after):
            ours.send(None)
            said.add(ours.recv())
        ours.send(None)
        child.join(then_s)
        child.kill()
        said.add(ours.recv())
    except (EOFError, ConnectionError):
        pass  # the run is at its end, or the kill came before the last trial's
    child.join()
    return said


def test_kill_9_at_random_moments_loses_no_finished_trial(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    record = RunJournal.create(folder, new_run(arms=20, rounds=int(ROUNDS))).record()
    moments = random.Random(20261120)  # noqa: S311
    finished: set[int] = set()
    while any(one.result is None for one in record.trials):
        finished |= _kill_once(folder, moments.randrange(4), moments.uniform(0, 0.004))
        record = RunJournal.open(folder).record()
        assert finished <= {one.index for one in record.trials if one.result is not None}
        for trial in record.trials:
            assert trial.result in (None, result_of(trial.index, functions=400))


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
    execute(RunJournal.create(folder, new_run(arms=3, rounds=2)))
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
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 150_000))
    with pytest.raises(StoreError) as caught:
        execute(journal)
    assert caught.value.sentence() == (
        f"{folder}: the disk is full; finished trials are kept: free some space, "
        "then give the same command to resume"
    )
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose trials are all done."""
    execute(RunJournal.create(tmp_path / "run", new_run()))
    return tmp_path / "run"


def result_file(folder: Path, index: int) -> Path:
    return folder / "trials" / f"{index:04d}" / "result.json"


def changed(path: Path, **values: Any) -> None:
    """Replace keys of a JSON object."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def pending(folder: Path) -> list[int]:
    return [trial.index for trial in RunJournal.open(folder).pending()]


def reworded(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "another-trial": lambda path: shutil.copy(path.parent.parent / "0001" / "result.json", path),
    "another-run": lambda path: changed(path, run="another"),
    "unknown-key": lambda path: changed(path, **{"\x1b[31mred": 1}),
    "unknown-key-inside": lambda path: reworded(path, '"result":{', '"result":{"certainly":true,'),
    "no-instrument": lambda path: reworded(path, '"type":"exact"', '"type":"oracle"'),
    "other-windows": lambda path: reworded(path, f"[3,{2**63 - 1}]", "[0,0,0]"),
    "other-kernel": lambda path: reworded(path, '"arch":"amd64"', '"arch":"arm64"'),
    "ok-and-why": lambda path: reworded(path, '"reasons":[]', '"reasons":["forged"]'),
    "bare-option": lambda path: reworded(path, '"options":[]', '"options":["A"]'),
    "no-attempt": lambda path: changed(path, attempts=-1),
    "half-a-count": lambda path: reworded(path, "16384", "16384.5"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_result_is_told_by_its_path_and_measured_again(
    folder: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    path = result_file(folder, 3)
    damage(path)
    assert pending(folder) == [3]
    assert str(path) in caplog.text
    assert caplog.text.isprintable() or "\x1b" not in caplog.text
    execute(RunJournal.open(folder))
    trials = RunJournal.open(folder).record().trials
    assert [trial.result for trial in trials] == [result_of(trial.index) for trial in trials]


def test_a_result_that_is_gone_is_measured_again(folder: Path) -> None:
    result_file(folder, 2).unlink()
    shutil.rmtree(folder / "trials" / "0004")
    assert pending(folder) == [2, 4]


@pytest.mark.parametrize("damage", ["garbage", "empty", "deep"])
@pytest.mark.parametrize("name", ["run.json", "study.toml", "attempts.json"])
def test_a_damaged_file_of_the_run_is_told_by_its_path(
    folder: Path, name: str, damage: str
) -> None:
    if name == "attempts.json":
        result_file(folder, 0).unlink()
    DAMAGES[damage](folder / name)
    with pytest.raises(StoreError) as caught:
        RunJournal.open(folder).record()
    sentence = caught.value.sentence()
    assert sentence.startswith(f"{folder / name}: ")
    assert "; " in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("key", ["run", "arm", "kernel", "trial"])
def test_a_plan_with_an_unknown_key_is_refused(folder: Path, key: str) -> None:
    plan = json.loads((folder / "run.json").read_text())
    holder = {
        "run": plan, "arm": plan["arms"][0], "kernel": plan["arms"][0]["kernel"],
        "trial": plan["trials"][0],
    }[key]  # fmt: skip
    holder["sudo"] = True
    (folder / "run.json").write_text(json.dumps(plan))
    with pytest.raises(StoreError, match=r"run.json: the file is damaged: .*unknown field `sudo`"):
        RunJournal.open(folder)


def test_a_plan_whose_trials_are_of_no_arm_is_refused(folder: Path) -> None:
    trials = json.loads((folder / "run.json").read_text())["trials"]
    for wrong in ({"arm": 99}, {"index": -1}):
        changed(folder / "run.json", trials=[trials[0] | wrong, *trials[1:]])
        with pytest.raises(StoreError, match="its trials are not those of its arms"):
            RunJournal.open(folder)
    arms = json.loads((folder / "run.json").read_text())["arms"]
    changed(folder / "run.json", trials=trials, arms=[arms[0] | {"label": "6.1"}, *arms[1:]])
    with pytest.raises(StoreError, match="or its arms have no names of their own"):
        RunJournal.open(folder)
    changed(folder / "run.json", arms=arms, created="99999-01-01T00:00:00Z")
    with pytest.raises(StoreError, match="damaged: Invalid isoformat string"):
        RunJournal.open(folder)
    changed(folder / "run.json", created="2026-01-01", trials=[*trials, trials[0]])
    with pytest.raises(StoreError, match="its trials are not those of its arms"):
        RunJournal.open(folder)


def test_a_result_in_the_plan_is_none(folder: Path) -> None:
    """Only the trial's own file says what it yielded."""
    trials = json.loads((folder / "run.json").read_text())["trials"]
    result = json.loads(result_file(folder, 0).read_text())["result"]
    changed(folder / "run.json", trials=[trials[0] | {"result": result}, *trials[1:]])
    result_file(folder, 0).unlink()
    assert pending(folder) == [0]


def test_another_study_than_the_run_began_with_is_refused(folder: Path) -> None:
    path = folder / "study.toml"
    path.write_text(path.read_text().replace("step_percent = 1.0", "step_percent = 2.0"))
    with pytest.raises(StoreError, match=r"study.toml: it is not the study.*--new"):
        RunJournal.open(folder)
    path.unlink()
    with pytest.raises(StoreError, match=r"study.toml: the study cannot be read"):
        RunJournal.open(folder)


def test_a_newer_run_names_the_kdelta_it_needs(folder: Path) -> None:
    changed(folder / "run.json", format=FORMAT + 1, kdelta_version="9.1.0", more=1)
    with pytest.raises(StoreError) as caught:
        RunJournal.open(folder)
    assert caught.value.sentence() == (
        f"{folder / 'run.json'}: the run has format {FORMAT + 1}, this kdelta knows up to {FORMAT};"
        " use kdelta 9.1.0 or newer, which wrote it"
    )


def test_an_older_run_is_refused(folder: Path) -> None:
    plan = json.loads((folder / "run.json").read_text())
    del plan["format"]
    (folder / "run.json").write_text(json.dumps(plan))
    with pytest.raises(StoreError, match="the run is of an earlier kdelta; measure it again with"):
        RunJournal.open(folder)


def test_folders_that_are_no_run_or_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"not a run: it has no run.json; list the runs with"):
        RunJournal.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file.*cannot be read or written: .*check that"):
        RunJournal.create(tmp_path / "file", new_run())
    with pytest.raises(StoreError, match="cannot be read or written: File exists"):
        files.new_folder(tmp_path / "file", "a", NOW)


def test_new_run_folders_never_collide(tmp_path: Path) -> None:
    root = tmp_path / "not" / "there"
    made = [files.new_folder(root, "a", NOW) for _ in range(3)]
    assert [one.name for one in made] == [f"a-20261120-101500{end}" for end in ("", "-2", "-3")]
    assert RUNS.folders(root) == []  # nothing is a run before it is created
    RunJournal.create(made[1], new_run())
    assert RUNS.folders(root) == [made[1]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three runs: b-1 is the newest."""
    for hours, run_id in ((1, "a-1"), (2, "a-2"), (3, "b-1")):
        created = (NOW + timedelta(hours=hours)).isoformat()
        RunJournal.create(
            tmp_path / "runs" / run_id, replace(new_run(run_id=run_id), created=created)
        )
    return tmp_path / "runs"


def test_find_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in RUNS.folders(root)] == ["b-1", "a-2", "a-1"]
    assert RUNS.find(root, "latest").name == "b-1"
    second = replace(RunJournal.open(root / "b-1").record(), run_id="a-3")
    RunJournal.create(root / "a-3", second)  # in the same second
    os.utime(root / "b-1/run.json", ns=(1, 1))
    assert RUNS.find(root, "latest").name == "a-3"
    shutil.rmtree(root / "a-3")
    assert RUNS.find(root, "a-1").name == "a-1"
    assert RUNS.find(root, "b").name == "b-1"
    assert RUNS.find(root / "elsewhere", str(root / "a-2")) == root / "a-2"
    monkeypatch.chdir(root)
    assert RUNS.find(root / "elsewhere", "./a-2") == Path("a-2")


def test_find_run_lists_candidates(root: Path) -> None:
    cases = {
        "a": f'{root}: "a" is the beginning of 2 runs; there are a-2, a-1',
        "zz": f'{root}: no run is called "zz"; there are b-1, a-2, a-1',
        "": f'{root}: no run is called ""; there are b-1, a-2, a-1',
        "../runs": f'{root}: no run is called "../runs"; there are b-1, a-2, a-1',
    }
    for text, sentence in cases.items():
        with pytest.raises(SpecError) as caught:
            RUNS.find(root, text)
        assert caught.value.sentence() == sentence
    with pytest.raises(SpecError, match="there are no runs yet; make one with"):
        RUNS.find(root / "none", "latest")


def test_an_unreadable_run_is_still_listed_and_explained(root: Path) -> None:
    (root / "b-1" / "run.json").write_bytes(b"\xff")
    assert [one.name for one in RUNS.folders(root)] == ["a-2", "a-1", "b-1"]
    assert RUNS.find(root, "b-1").name == "b-1"


def test_unfinished_finds_the_newest_run_of_the_study(root: Path) -> None:
    study = new_run().study
    assert unfinished(root, study) == root / "b-1"
    execute(RunJournal.open(root / "b-1"))
    assert unfinished(root, study) == root / "a-2"
    assert unfinished(root, spec.with_settings(study, rounds=7)) is None
    for name in ("a-1", "a-2"):
        execute(RunJournal.open(root / name))
    assert unfinished(root, study) is None


def test_runs_are_listed_as_text_and_as_json(tmp_path: Path) -> None:
    done = new_run(name="done")
    execute(RunJournal.create(tmp_path / "done", done), 2)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    told = json.loads(CliRunner().invoke(runs, ["--runs", str(tmp_path), "--json"]).output)
    found = {one["run"]: one for one in told}
    assert (found["done"]["done"], found["done"]["trials"]) == (2, len(done.trials))
    assert found["done"]["title"] == done.title
    assert found["broken"]["fault"]
    text = CliRunner().invoke(runs, ["--runs", str(tmp_path)]).output
    assert f"2/{len(done.trials)}" in text
    assert found["broken"]["fault"].split()[0] in text
    assert CliRunner().invoke(runs, ["--runs", str(tmp_path / "no"), "--json"]).output == "[]\n"


def test_a_run_that_an_earlier_kdelta_timed_on_a_cluster_is_read(tmp_path: Path) -> None:
    """Its folder has the blocks of its jobs, each a run of its own, and its pool is gone."""
    journal = RunJournal.create(tmp_path / "demo", new_run())
    execute(journal)
    before = journal.record()
    block = journal.folder / "slurm" / "r000-p000"
    RunJournal.create(block, new_run())
    (block / "done").mkdir()
    for name in ("order.json", "done/machine.json", "job.sh"):
        (block / name).write_text("{}")
    (journal.folder / "placed.json").write_text('{"pool":"nodes"}')
    assert RUNS.folders(tmp_path) == [journal.folder]
    assert RUNS.find(tmp_path, "latest") == journal.folder
    with RunJournal.open(journal.folder).executing():
        assert RunJournal.open(journal.folder).record() == before
    with pytest.raises(SpecError, match="its times are of the pool nodes"):
        timed.note(journal.folder, "")


INTO = ("result.json", "command.txt", "console.log", "counts.bin", "counts.bin.gz", "swap.img")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one trial's result, beside a file and a folder that are not its own."""
    journal = RunJournal.create(tmp_path / "runs" / "sent", new_run())
    execute(journal, 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary").write_text("dear diary")
    return journal.folder


def listening(path: Path, _mine: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "symlink": lambda path, mine: path.symlink_to(mine / "diary"),
    "hard-link": lambda path, mine: path.hardlink_to(mine / "diary"),
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": listening,
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
@pytest.mark.parametrize(
    "name",
    ["lock", "attempts.json", "show.txt", *(f"trials/0001/{name}" for name in INTO)],
)
def test_nothing_is_written_through_what_is_no_file_of_the_run(
    name: str, plant: Callable[[Path, Path], object], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    monkeypatch.chdir(path.parent)  # a socket's path is short
    plant(Path(path.name), run.parents[1] / "mine")
    journal = RunJournal.open(run)
    with pytest.raises(StoreError, match="nothing is written into a run's folder with"):
        execute(journal)
    assert (run.parents[1] / "mine" / "diary").read_text() == "dear diary"


@pytest.mark.parametrize("name", ["trials", "trials/0001", "elsewhere"])
def test_no_folder_of_a_run_leads_out_of_it(name: str, run: Path) -> None:
    mine = run.parents[1] / "mine"
    if (run / name).exists():
        (run / name).rename(run.parent / "gone")
    (run / name).symlink_to(mine, target_is_directory=True)
    with pytest.raises(StoreError, match="with a symbolic link in it"):
        execute(RunJournal.open(run))
    assert [path.name for path in mine.iterdir()] == ["diary"]


def test_a_link_beside_the_runs_is_none(run: Path) -> None:
    (run.parent / "other").symlink_to(run)
    assert RUNS.folders(run.parent) == [run]
    (run.parent / "loop").symlink_to("loop")
    for none in (Path("/dev/null"), run.parent / "loop"):
        with pytest.raises(SpecError, match="it is no folder"):
            RUNS.folders(none)


@pytest.mark.parametrize("name", ["x;id", "$(id)", "a b", "`id`", "'"])
def test_a_run_whose_name_a_shell_would_execute_is_damaged(name: str, run: Path) -> None:
    changed(run / "run.json", run_id=name)
    with pytest.raises(StoreError, match="damaged"):
        RunJournal.open(run)


def test_content_is_bounded_whatever_a_file_says_of_its_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert content(tmp_path / "a", 5) == b"12345"
    with pytest.raises(NotPlainError, match="more than 4 bytes"):
        content(tmp_path / "a", 4)
    with pytest.raises(NotPlainError, match="more than 4 bytes"):  # its size is said to be 0
        content(Path("/proc/self/status"), 4)
