# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's catalogue: what run folders hold, once each, and one sentence for whatever is wrong."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

import ladder_records
from kdelta import catalogue
from kdelta.catalogue import database, indexing, place, queries, rows, schema
from kdelta.catalogue.indexing import Indexed
from kdelta.cli.lab import lab
from kdelta.cli.main import main
from kdelta.errors import InfraError, SpecError, StoreError
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.sample import Outcome

SCENARIO = f"{ladder_records.WORKLOAD}:{ladder_records.SCENARIO}"
HOSTILE = "\x1b[31m\x00\ud800\u202e'; DROP TABLE runs; --" + "x" * 5000


def kept(folder: Path, record: RunRecord) -> Path:
    """A run's folder with all its results."""
    journal = RunJournal.create(folder, replace(record, run_id=folder.name))
    with journal.executing():
        for trial in record.trials:
            if trial.result:
                journal.claim(trial.index)
                journal.finish(trial.index, trial.result)
    return folder


def addressed(record: RunRecord) -> RunRecord:
    """Each trial with an address of its own, as counting leaves one."""
    trials = [
        replace(trial, result=replace(trial.result, address=f"{trial.index:064x}"))
        for trial in record.trials
        if trial.result
    ]
    return replace(record, trials=tuple(trials))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    kept(tmp_path / "runs" / "first", addressed(ladder_records.ladder(1)))
    return tmp_path / "runs"


def asked(*words: str) -> Result:
    return CliRunner().invoke(lab, words)


def told(*words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(asked(*words, "--json").stdout)
    return found


def index(runs: Path) -> str:
    return asked("index", "--runs", str(runs)).stdout


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["lab", *words])
    return int(ended.value.code or 0), capsys.readouterr().err


def test_what_is_indexed_is_what_the_run_shows(runs: Path) -> None:
    assert index(runs).startswith("1 new")
    history = told("history", SCENARIO)
    assert [row["kernel"] for row in history] == list(ladder_records.TOTALS)
    assert [round(float(str(row["per_operation"])), 1) for row in history] == [
        round(value + 100, 1) for value in ladder_records.TOTALS.values()
    ]
    (step,) = [row for row in told("steps", "6.17") if row["phase"] == "total"]
    assert (step["old"], step["new"]) == ("6.16.12", "6.17.13")
    assert "prot_commit_flush_ptes" in str(step["functions"])
    assert not [row for row in told("steps", "6.17") if row["new"] != "6.17.13"]
    function = told("function", "prot_commit_flush_ptes")
    assert "6.16.12" not in [row["kernel"] for row in function]
    assert {row["per_operation"] for row in function} == {328.0}
    assert told("runs")[0]["run_id"] == "first"


def test_a_trial_is_found_by_the_address_of_what_was_counted(runs: Path) -> None:
    index(runs)
    (row,) = told("find", f"{3:064x}")
    assert (row["number"], row["kernel"], row["scenario"]) == (3, "6.17.13", SCENARIO)
    assert len(told("find", "0" * 62)) == 9
    nothing = asked("find", "f" * 64)
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    with pytest.raises(SpecError, match="no address"):
        CliRunner().invoke(lab, ["find", "12%"], catch_exceptions=False)


def test_indexing_again_changes_nothing_until_a_folder_changes(runs: Path) -> None:
    index(runs)
    before = told("trials", "--run", "first")
    assert index(runs).startswith("1 unchanged")
    (runs / "first" / "trials" / "0008" / "result.json").unlink()
    assert index(runs).startswith("1 again")
    assert told("trials", "--run", "first") == before[:-1]
    shutil.copytree(runs / "first", runs / "second")
    assert index(runs).startswith("1 new, 1 unchanged")
    shutil.rmtree(runs / "first")
    assert "1 removed" in index(runs)
    assert [row["folder"] for row in told("runs")] == [str(runs / "second")]


def test_the_newest_run_stands_for_a_kernel(runs: Path) -> None:
    old, new = (ladder_records.result(ladder_records.Trial(per_page=v)) for v in (300.0, 500.0))
    record = ladder_records.run({"6.16.12": [old], "6.17.13": [new]})
    kept(runs / "newer", replace(record, created="2026-11-21T10:15:00Z"))
    kept(runs / "older", replace(record, created="2026-01-01T10:15:00Z"))
    index(runs)
    found = {row["kernel"]: row for row in told("history", SCENARIO)}
    assert (found["6.17.13"]["run"], found["6.17.13"]["per_operation"]) == ("newer", 500.0)
    assert found["6.18.15"]["run"] == "first"


def test_counts_of_another_machine_stay_apart(runs: Path) -> None:
    other = replace(ladder_records.ENVIRONMENT, cpu_model="486")
    trial = ladder_records.Trial(per_page=300.0, environment=other)
    kept(runs / "other", ladder_records.run({"6.17.13": [ladder_records.result(trial)]}))
    index(runs)
    found = [row for row in told("history", SCENARIO) if row["kernel"] == "6.17.13"]
    assert len({row["machine"] for row in found}) == len(found) == 2


def test_names_of_strangers_do_no_harm(runs: Path) -> None:
    record = ladder_records.ladder(1)
    arms = [replace(record.arms[0], label=HOSTILE.replace("\ud800", "")), *record.arms[1:]]
    strange = replace(record, arms=tuple(arms), title=HOSTILE.replace("\ud800", ""), created="no")
    kept(runs / "strange", strange)
    assert index(runs).startswith("2 new")
    for words in (("runs",), ("history", SCENARIO), ("trials", "--run", "strange")):
        shown = asked(*words).stdout
        assert shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert max(len(str(value)) for row in told("runs") for value in row.values()) <= 400
    assert rows.text(HOSTILE).isprintable()
    assert rows.real(float("nan")) is None


def test_folders_that_are_no_runs_are_told(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    strange = tmp_path / "pipe"
    strange.mkdir()
    (strange / "run.json").symlink_to("/dev/zero")
    (runs / "first" / "study.toml").write_text("name = ")
    found = asked("index", str(strange), str(runs), str(tmp_path / "none"))
    assert found.exit_code == 0
    assert "no plain file" in found.stderr
    assert "study.toml" in found.stderr
    assert "3 left out" in found.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("index",),
        ("runs",),
        ("trials", "--run", "x"),
        ("find", "0123456789"),
        ("function", "x"),
        ("history", "x:y"),
        ("steps", "6.17"),
    ],
)
def test_without_the_extra_it_is_said_what_to_install(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(place, "find_spec", lambda _name: None)
    for name in ("queries", "indexing", "database"):
        monkeypatch.delitem(sys.modules, f"kdelta.catalogue.{name}")
        monkeypatch.delattr(catalogue, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    status, sentence = fails(capsys, *words)
    assert status == 3
    assert "needs sqlalchemy and alembic, which is not installed" in sentence
    assert "pip install 'kdelta[lab]'" in sentence


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("mysql://u:secret@h/x", 2, "is no address of a catalogue"),
        ("postgresql://u:secret@127.0.0.1:1/x", 3, "Connection refused; is its server there?"),
        ("sqlite:////proc/x/lab.sqlite", 3, "cannot be made"),
    ],
)
def test_a_wrong_or_dead_address_is_one_sentence(
    url: str,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(place.VARIABLE, url)
    status, sentence = fails(capsys, "runs")
    assert status == code
    assert said in sentence
    assert sentence.count("\n") == 1
    assert "secret" not in sentence


def test_an_empty_a_damaged_and_a_newer_catalogue_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Path
) -> None:
    file = tmp_path / "own.sqlite"
    monkeypatch.setenv(place.VARIABLE, str(file))
    url = place.address()
    with pytest.raises(StoreError, match="is empty; fill it: kdelta lab index"):
        _runs_of(url)
    index(runs)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '99'")
    with pytest.raises(StoreError, match=r"of a newer kdelta \(schema 99\); use that kdelta"):
        _runs_of(url)
    file.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="no catalogue at all; remove the file"):
        _runs_of(url)


def _runs_of(url: str) -> Sequence[object]:
    with database.opened(url) as catalogue, catalogue.reading() as connection:
        return queries.all_runs(connection)


def test_an_older_catalogue_is_upgraded_and_its_runs_indexed_again(
    tmp_path: Path, runs: Path
) -> None:
    url = f"sqlite:///{tmp_path}/old.sqlite"
    older = database.Catalogue(database._engine(url), url)
    with older.writing() as connection:
        database._migrate(connection, database._scripts(), "1")
        connection.exec_driver_sql(
            "INSERT INTO runs VALUES (1, ?, 'x', 'first', 't', 'exact', 'c', '0', 1, 1)",
            (str(runs / "first"),),
        )
    with pytest.raises(StoreError, match="of an earlier kdelta; bring it up to date"):
        older.check()
    older.close()
    with database.opened(url, fresh=True) as catalogue:
        (one,) = indexing.index(catalogue, [], [runs])
        assert one.what is Indexed.AGAIN
        with catalogue.reading() as connection:
            assert queries.steps_of(connection)


def test_a_locked_catalogue_is_told(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_S", 0.1)
    url = f"sqlite:///{tmp_path}/own.sqlite"
    with database.opened(url, fresh=True) as catalogue:
        other = sqlite3.connect(tmp_path / "own.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InfraError, match="another program has held the catalogue"):
            list(indexing.index(catalogue, [], [runs]))
        other.close()
        assert [one.what for one in indexing.index(catalogue, [], [runs])] == [Indexed.NEW]


def test_the_tables_are_those_that_the_migrations_make(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    url = f"sqlite:///{tmp_path}/own.sqlite"
    with database.opened(url, fresh=True) as catalogue, catalogue.reading() as connection:
        found = compare_metadata(MigrationContext.configure(connection), schema.metadata)
    assert {one[0] for one in found} <= {"remove_index"}


def test_a_run_without_counts_has_its_trials(runs: Path) -> None:
    failed = ladder_records.failed(Outcome.GUEST_ERROR, "it panicked")
    kept(runs / "bad", ladder_records.run({"6.16.12": [failed], "6.17.13": [None]}))
    index(runs)
    (row,) = told("trials", "--run", "bad")
    assert (row["outcome"], row["reason"], row["address"]) == ("guest-error", "it panicked", "")
