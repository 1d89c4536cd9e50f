# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta.journal.files: how a run is named, and found again."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from kdelta.cli.runs import list_command as runs
from kdelta.errors import SpecError
from kdelta.journal import files
from kdelta.journal.run import RUNS, RunJournal, unfinished
from kdelta.run import timed
from kdelta.study import spec
from kdelta.table.columns import headline
from run_records import NOW, execute, new_run


def test_run_ids_say_study_and_time_and_are_unique() -> None:
    first = files.new_id("mprotect-shared-dirty", NOW, ())
    assert first == "mprotect-shared-dirty-20261120-101500"
    second = files.new_id("mprotect-shared-dirty", NOW, {first})
    assert second == f"{first}-2"
    assert files.new_id("mprotect-shared-dirty", NOW, {first, second}) == f"{first}-3"


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
    journal = RunJournal.create(tmp_path / "done", done)
    execute(journal, 2)
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


def test_what_a_run_is_of_is_beside_it_or_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = new_run(name="done")
    RunJournal.create(tmp_path / "done", record)
    row = f"done    0/{len(record.trials)}"
    forms = {
        100: ["run   trials  study", f"{row}  {record.title}"],
        40: ["run   trials", row, f"  {headline(record.title, 38)}"],
    }
    for width, lines in forms.items():
        monkeypatch.setenv("COLUMNS", str(width))
        text = CliRunner().invoke(runs, ["--runs", str(tmp_path)]).output
        assert [line.rstrip() for line in text.splitlines()] == lines


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
