"""kdelta.store and kdelta.runfolder: what is finished stays, whatever happens to the process."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kdelta import runfolder, sample
from kdelta.errors import SpecError, StoreError
from kdelta.store import FORMAT, Store, rebuild, unfinished
from kdelta.study import spec
from kdelta.study.plan import make_plan

NOW = datetime(2026, 11, 20, 10, 15, 0, tzinfo=UTC)
FORK = multiprocessing.get_context("fork")


def kernel(reference: str) -> sample.KernelIdentity:
    return sample.KernelIdentity(
        reference=reference,
        release=f"{reference}.1-cloud-amd64",
        version=f"{reference}.1-1",
        arch="amd64",
        flavour="cloud",
        image_sha256="ab" * 32,
    )


def new_run(
    *, arms: int = 3, rounds: int = 2, name: str = "demo", run_id: str = ""
) -> sample.RunRecord:
    study = spec.from_arguments(
        ["mprotect:a", "mincore:b"], [f"6.{at}" for at in range(arms)], rounds=rounds, name=name
    )
    return sample.RunRecord(
        run_id=run_id or name,
        name=name,
        title=study.title,
        seed=2**63 - 1,
        rounds=rounds,
        created=NOW.isoformat(),
        kdelta_version="0.1.0",
        study_toml=spec.to_toml(study),
        study_digest=spec.digest(study),
        arms=tuple(
            sample.ArmRecord(index=at, label=f"6.{at}", kernel=kernel(f"6.{at}"))
            for at in range(arms)
        ),
        trials=make_plan(study, 5).trials,
    )


def result_of(index: int, functions: int = 3) -> sample.TrialResult:
    """A result that only this trial can have, with numbers beyond 64 bits."""
    return sample.TrialResult(
        outcome=sample.Outcome.OK,
        kernel=replace(kernel("6.1"), build_id="f0" * 20, compiler="gcc 14"),
        environment=sample.Environment(
            accelerator="tcg",
            qemu_version="10.0.2",
            plugin_sha256="cd" * 32,
            machine="q35",
            cpu_model="max",
            cpus=1,
            memory_mib=1024,
            cmdline="nokaslr",
            mitigations="0123",
        ),
        phases=(
            sample.PhaseCounts(
                phase="protect",
                operations=16384,
                operation="page",
                user=(1, 2**63, 2**64 + index),
                kernel=(index, 2**70),
            ),
            sample.PhaseCounts(phase="x", operations=2**65, operation="call", user=(), kernel=()),
        ),
        functions=tuple(
            sample.FunctionCount(
                phase="protect", function=f"f{at}", insns=2**62 + at * (index + 1), calls=2**64 + at
            )
            for at in range(functions)
        ),
        state=(
            sample.StateField(when="before", name="present", value="16384", want="16384"),
            sample.StateField(when="after", name="thp", value="unknown", want="0"),
        ),
        fresh_boot=index % 2 == 0,
        wall_s=0.1 + index,
        artifacts={"console": f"trials/{index:04d}/console.log", "b": "x"},
    )


def execute(store: Store, count: int | None = None) -> None:
    with store.executing():
        for trial in store.pending()[:count]:
            store.claim(trial.index)
            store.finish(trial.index, result_of(trial.index))


def test_a_new_run_reads_back_as_given(tmp_path: Path) -> None:
    run = new_run()
    Store.create(tmp_path / "run", run)
    store = Store.open(tmp_path / "run")
    assert store.record() == run
    assert store.pending() == list(run.trials)
    assert not store.is_finished()
    assert (tmp_path / "run" / "study.toml").read_text() == run.study_toml
    with pytest.raises(StoreError, match="there is a run already"):
        Store.create(tmp_path / "run", run)
    assert Store.open(tmp_path / "run").record() == run


def test_results_come_back_exactly(tmp_path: Path) -> None:
    run = new_run()
    execute(Store.create(tmp_path / "run", run))
    store = Store.open(tmp_path / "run")
    assert store.is_finished()
    assert store.pending() == []
    expected = [replace(one, attempts=1, result=result_of(one.index)) for one in run.trials]
    assert list(store.record().trials) == expected
    assert replace(store.record(), trials=()) == replace(run, trials=())


anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
whole = st.integers(-(2**80), 2**80)


@st.composite
def results(draw: st.DrawFn) -> sample.TrialResult:
    texts = {
        kind: {field.name: anything for field in fields(kind) if field.type == "str"}
        | {field.name: whole for field in fields(kind) if field.type == "int"}
        for kind in (
            sample.KernelIdentity,
            sample.Environment,
            sample.PhaseCounts,
            sample.FunctionCount,
            sample.StateField,
        )
    }
    windows = st.lists(whole, max_size=4).map(tuple)
    phases = st.builds(
        sample.PhaseCounts, **(texts[sample.PhaseCounts] | {"user": windows, "kernel": windows})
    )

    def many(kind: type[object]) -> st.SearchStrategy[tuple[object, ...]]:
        return st.lists(st.builds(kind, **texts[kind]), max_size=3).map(tuple)  # type: ignore[index]

    return draw(
        st.builds(
            sample.TrialResult,
            outcome=st.sampled_from(sample.Outcome),
            reason=anything,
            kernel=st.none() | st.builds(sample.KernelIdentity, **texts[sample.KernelIdentity]),
            environment=st.none() | st.builds(sample.Environment, **texts[sample.Environment]),
            phases=st.lists(phases, max_size=3).map(tuple),
            functions=many(sample.FunctionCount),
            state=many(sample.StateField),
            fresh_boot=st.booleans(),
            wall_s=st.floats(allow_nan=False, allow_infinity=False),
            artifacts=st.dictionaries(anything, anything, max_size=3),
        )
    )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(result=results())
def test_any_result_survives_store_and_rebuild(
    tmp_path_factory: pytest.TempPathFactory, result: sample.TrialResult
) -> None:
    folder = tmp_path_factory.mktemp("any") / "run"
    store = Store.create(folder, new_run(arms=1, rounds=1))
    with store.executing():
        store.claim(0)
        store.finish(0, result)
    assert store.record().trials[0].result == result
    assert rebuild(folder).record() == store.record()


def test_claim_and_finish_keep_the_journal(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", new_run())
    with store.executing():
        assert [store.claim(4), store.claim(4)] == [1, 2]
        assert {one.index: one.attempts for one in store.pending()}[4] == 2
        store.finish(4, result_of(4))
        assert 4 not in [one.index for one in store.pending()]
        for index in (4, 99):
            with pytest.raises(ValueError, match="is done or not planned"):
                store.claim(index)
        for index in (4, 5, 99):
            with pytest.raises(ValueError, match="is not running"):
                store.finish(index, result_of(index))
    assert store.record().trials[4].attempts == 2
    assert store.record().trials[5].result is None


def test_nothing_is_written_without_holding_the_run(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", new_run())
    with pytest.raises(RuntimeError, match="outside executing"):
        store.claim(0)


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", new_run(arms=6, rounds=2))
    pending = store.pending()

    def work(part: int) -> None:
        for trial in pending[part::4]:
            store.claim(trial.index)
            store.finish(trial.index, result_of(trial.index))

    with store.executing():
        threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(one.result == result_of(one.index) for one in store.record().trials)


def test_an_arm_learns_its_kernel(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", new_run())
    known = replace(kernel("6.1"), release="6.1.99", build_id="ef" * 20)
    with store.executing():
        store.set_arm_kernel(1, known, label="6.1.99")
        store.set_arm_kernel(2, known)
        with pytest.raises(ValueError, match="no arm 3"):
            store.set_arm_kernel(3, known)
    arms = store.record().arms
    assert [arm.label for arm in arms] == ["6.0", "6.1.99", "6.2"]
    assert arms[1].kernel == arms[2].kernel == known
    (tmp_path / "run" / "store.sqlite").unlink()
    assert rebuild(tmp_path / "run").record().arms == arms


# Two processes


def _hold(folder: Path, pipe: Connection) -> None:
    with Store.open(folder).executing():
        pipe.send("held")
        pipe.recv()


def test_two_processes_do_not_execute_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    store = Store.create(folder, new_run())
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_hold, args=(folder, theirs))
    child.start()
    theirs.close()
    assert ours.recv() == "held"
    for attempt in (lambda: execute(store), lambda: rebuild(folder)):
        with pytest.raises(StoreError) as caught:
            attempt()
        assert f"run run is being executed by process {child.pid};" in caught.value.sentence()
    assert len(Store.open(folder).record().trials) == 12  # reading goes on
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    execute(store)
    assert store.is_finished()


def test_the_run_is_held_against_this_process_too(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", new_run())
    with store.executing(), pytest.raises(StoreError, match=f"by process {os.getpid()}"):
        execute(Store.open(tmp_path / "run"))
    execute(Store.open(tmp_path / "run"))


def _run_until_killed(folder: Path, pipe: Connection) -> None:
    store = Store.open(folder)
    with store.executing():
        pending = store.pending()
        pipe.send(-1)
        for trial in pending:
            store.claim(trial.index)
            store.finish(trial.index, result_of(trial.index, functions=400))
            pipe.send(trial.index)
    os._exit(0)


def _received(pipe: Connection) -> Iterator[int]:
    try:
        while True:
            yield pipe.recv()
    except EOFError:
        return


def test_kill_9_at_random_moments_loses_no_finished_trial(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = new_run(arms=20, rounds=5)
    Store.create(folder, run)
    moments = random.Random(20261120)  # noqa: S311
    finished: set[int] = set()
    kills = 0
    while not Store.open(folder).is_finished():
        ours, theirs = FORK.Pipe(duplex=False)
        child = FORK.Process(target=_run_until_killed, args=(folder, theirs))
        child.start()
        theirs.close()
        ours.recv()
        time.sleep(moments.uniform(0, 0.06))
        if child.exitcode is None:
            child.kill()
            kills += 1
        child.join()
        finished |= set(_received(ours))
        record = Store.open(folder).record()
        done = {one.index for one in record.trials if one.result is not None}
        assert finished <= done
        for trial in record.trials:
            expected = result_of(trial.index, functions=400)
            assert trial.result in (None, expected)
    assert kills >= 10
    assert finished | done == set(range(len(run.trials)))
    assert rebuild(folder).record() == record


def test_a_result_whose_transaction_was_cut_off_is_taken_in(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    store = Store.create(folder, new_run())
    with store.executing():
        assert [store.claim(0), store.claim(1)] == [1, 1]
        runfolder.write_result(folder, 0, 1, result_of(0))
    with store.executing():
        assert 0 not in [one.index for one in store.pending()]
    trials = store.record().trials
    assert (trials[0].result, trials[1].result) == (result_of(0), None)


# Full disk


def _capped(store: Store, *, pages: int) -> Callable[[], None]:
    """Give the store's file a size limit, as a full disk would; returns what lifts it."""

    def cap(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    sa.event.listen(store._engine, "connect", cap)
    return lambda: sa.event.remove(store._engine, "connect", cap)


def _assert_disk_full(caught: pytest.ExceptionInfo[StoreError], folder: Path) -> None:
    assert caught.value.sentence() == (
        f"{folder}: the disk is full; finished trials are kept: free some space, "
        "then give the same command to resume"
    )


def test_a_full_store_keeps_what_is_finished_and_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    store = Store.create(folder, new_run(arms=20, rounds=2))
    lift = _capped(store, pages=(folder / "store.sqlite").stat().st_size // 4096 + 3)
    with pytest.raises(StoreError) as caught:
        execute(store)
    _assert_disk_full(caught, folder)
    kept = [one for one in Store.open(folder).record().trials if one.result is not None]
    assert 0 < len(kept) < 80
    assert all(one.result == result_of(one.index) for one in kept)
    lift()
    execute(store)
    assert all(one.result == result_of(one.index) for one in store.record().trials)


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
    store = Store.create(folder, new_run(arms=20, rounds=2))
    ballast = small_disk / "ballast"
    free = shutil.disk_usage(small_disk).free
    ballast.write_bytes(bytes(free - 150_000))
    with pytest.raises(StoreError) as caught:
        execute(store)
    _assert_disk_full(caught, folder)
    assert not list(folder.rglob("*.new"))
    kept = [one for one in Store.open(folder).record().trials if one.result is not None]
    assert 0 < len(kept) < 80
    assert all(one.result == result_of(one.index) for one in kept)
    with pytest.raises(StoreError, match="the disk is full"):
        execute(store)
    with pytest.raises(StoreError, match="the disk is full"):
        Store.create(small_disk / "other", new_run(arms=64))
    assert runfolder.runs(small_disk) == [folder]
    ballast.unlink()
    execute(store)
    assert all(one.result == result_of(one.index) for one in store.record().trials)


# Damage


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def _truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _without_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE state_field")


def _without_column(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE trial DROP COLUMN attempts")


def _damaged_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(8192, len(data), 4096):
        data[at : at + 64] = b"\xa5" * 64
    path.write_bytes(data)


def _without_format(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM meta")


DAMAGES = [
    _garbage,
    _truncated,
    _empty,
    _without_table,
    _without_column,
    _damaged_pages,
    _without_format,
    Path.unlink,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_corrupt_store_is_told_and_rebuilt(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "run"
    store = Store.create(folder, new_run())
    execute(store, 7)
    before = store.record()
    damage(folder / "store.sqlite")
    with pytest.raises(StoreError) as caught:
        Store.open(folder)
    sentence = caught.value.sentence()
    assert sentence.startswith(f"{folder / 'store.sqlite'}: the store is corrupt: ")
    assert sentence.endswith("; nothing measured is lost, rebuild it with: kdelta rebuild run")
    assert "\n" not in sentence
    assert rebuild(folder).record() == before
    execute(Store.open(folder))
    assert Store.open(folder).is_finished()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trial SET outcome = 'perhaps'",
        "UPDATE trial SET kernel = '{'",
        "UPDATE trial SET environment = '[1]'",
        "UPDATE phase SET user = '[1.5]'",
        "UPDATE function_count SET insns = 'many'",
        "UPDATE function_count SET function = x'ff'",
        "UPDATE state_field SET value = CAST(x'ff' AS TEXT)",
        "DELETE FROM run",
    ],
)
def test_nonsense_in_the_rows_is_a_corrupt_store(tmp_path: Path, statement: str) -> None:
    store = Store.create(tmp_path / "run", new_run())
    execute(store)
    with sqlite3.connect(tmp_path / "run" / "store.sqlite") as connection:
        connection.execute(statement)
    with pytest.raises(StoreError, match="the store is corrupt"):
        Store.open(tmp_path / "run").record()


def test_a_journal_of_the_corrupt_store_does_not_reach_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    store = Store.create(folder, new_run())
    execute(store)
    before = store.record()
    (folder / "store.sqlite-journal").write_bytes(b"stale")
    _garbage(folder / "store.sqlite")
    assert rebuild(folder).record() == before
    assert not (folder / "store.sqlite-journal").exists()
    assert (folder / "store.sqlite.corrupt").exists()


def test_rebuild_plans_again_what_has_no_readable_result(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    execute(Store.create(folder, new_run()))
    (folder / "trials" / "0002" / "result.json").write_bytes(b"{")
    shutil.copy(folder / "trials/0000/result.json", folder / "trials/0003/result.json")
    shutil.rmtree(folder / "trials" / "0004")
    assert [one.index for one in rebuild(folder).pending()] == [2, 3, 4]


def test_a_run_without_its_plan_cannot_be_rebuilt(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Store.create(folder, new_run())
    (folder / "run.json").write_bytes(b"{}")
    with pytest.raises(StoreError, match=r"run.json: the file is corrupt: .*can still be read in"):
        rebuild(folder)
    (folder / "run.json").unlink()
    with pytest.raises(StoreError, match="No such file"):
        rebuild(folder)


def test_a_newer_store_names_the_kdelta_it_needs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Store.create(folder, new_run())
    with sqlite3.connect(folder / "store.sqlite") as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", [str(FORMAT + 1)])
        connection.execute("UPDATE meta SET value = '9.1.0' WHERE key = 'kdelta'")
    with pytest.raises(StoreError) as caught:
        Store.open(folder)
    assert caught.value.sentence() == (
        f"{folder / 'store.sqlite'}: the store has format 2, this kdelta knows up to 1; "
        "use kdelta 9.1.0 or newer, which wrote it"
    )


def test_folders_that_are_no_run_or_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"not a run: it has no run.json; list the runs with"):
        Store.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file.*cannot be read or written: .*check that"):
        Store.create(tmp_path / "file", new_run())
    with pytest.raises(StoreError, match="cannot be read or written: Not a directory"):
        runfolder.new_run_folder(tmp_path / "file", "a", NOW)


# Names of runs


def test_run_ids_say_study_and_time_and_are_unique() -> None:
    first = runfolder.new_run_id("mprotect-shared-dirty", NOW, ())
    assert first == "mprotect-shared-dirty-20261120-101500"
    second = runfolder.new_run_id("mprotect-shared-dirty", NOW, {first})
    assert second == f"{first}-2"
    assert runfolder.new_run_id("mprotect-shared-dirty", NOW, {first, second}) == f"{first}-3"


def test_new_run_folders_never_collide(tmp_path: Path) -> None:
    root = tmp_path / "not" / "there"
    made = [runfolder.new_run_folder(root, "a", NOW) for _ in range(3)]
    assert [one.name for one in made] == [f"a-20261120-101500{end}" for end in ("", "-2", "-3")]
    assert runfolder.runs(root) == []  # nothing is a run before it is created
    Store.create(made[1], new_run())
    assert runfolder.runs(root) == [made[1]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three runs: b-1 is the newest."""
    for hours, run_id in ((1, "a-1"), (2, "a-2"), (3, "b-1")):
        created = (NOW + timedelta(hours=hours)).isoformat()
        Store.create(tmp_path / "runs" / run_id, replace(new_run(run_id=run_id), created=created))
    return tmp_path / "runs"


def test_find_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in runfolder.runs(root)] == ["b-1", "a-2", "a-1"]
    assert runfolder.find_run(root, "latest").name == "b-1"
    assert runfolder.find_run(root, "a-1").name == "a-1"
    assert runfolder.find_run(root, "b").name == "b-1"
    assert runfolder.find_run(root / "elsewhere", str(root / "a-2")) == root / "a-2"
    monkeypatch.chdir(root)
    assert runfolder.find_run(root / "elsewhere", "./a-2") == Path("a-2")
    assert runfolder.head(root / "a-1").run_id == "a-1"


def test_find_run_lists_candidates(root: Path) -> None:
    cases = {
        "a": f'{root}: "a" is the beginning of 2 runs; there are a-2, a-1',
        "zz": f'{root}: no run is called "zz"; there are b-1, a-2, a-1',
        "": f'{root}: no run is called ""; there are b-1, a-2, a-1',
        "../runs": f'{root}: no run is called "../runs"; there are b-1, a-2, a-1',
    }
    for text, sentence in cases.items():
        with pytest.raises(SpecError) as caught:
            runfolder.find_run(root, text)
        assert caught.value.sentence() == sentence
    with pytest.raises(SpecError, match="there are no runs yet; make one with"):
        runfolder.find_run(root / "none", "latest")


def test_an_unreadable_run_is_still_listed_and_explained(root: Path) -> None:
    (root / "b-1" / "run.json").write_bytes(b"\xff")
    assert [one.name for one in runfolder.runs(root)] == ["a-2", "a-1", "b-1"]
    assert runfolder.find_run(root, "b-1").name == "b-1"


def test_unfinished_finds_the_newest_run_of_the_study(root: Path) -> None:
    digest = new_run().study_digest
    assert unfinished(root, digest) == root / "b-1"
    execute(Store.open(root / "b-1"))
    assert unfinished(root, digest) == root / "a-2"
    assert unfinished(root, "0" * 64) is None
    for name in ("a-1", "a-2"):
        execute(Store.open(root / name))
    assert unfinished(root, digest) is None
