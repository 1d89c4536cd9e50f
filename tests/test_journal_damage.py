# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta.journal: files that are damaged, foreign or of another version are told by their path."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdelta.errors import StoreError
from kdelta.journal import files
from kdelta.journal.run import FORMAT, RunJournal
from run_records import NOW, execute, new_run, result_of


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


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def _truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _cut_short(path: Path) -> None:
    os.truncate(path, 20)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _deep(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def _of_another_trial(path: Path) -> None:
    shutil.copy(path.parent.parent / "0001" / "result.json", path)


def _of_another_run(path: Path) -> None:
    changed(path, run="another")


def _with_an_unknown_key(path: Path) -> None:
    changed(path, **{"\x1b[31mred": 1})


def _with_an_unknown_key_inside(path: Path) -> None:
    result = json.loads(path.read_text())["result"]
    changed(path, result=result | {"certainly": True})


def _with_data_of_no_instrument(path: Path) -> None:
    result = json.loads(path.read_text())["result"]
    changed(path, result=result | {"data": result["data"] | {"type": "oracle"}})


def _with_half_a_count(path: Path) -> None:
    path.write_text(path.read_text().replace("16384", "16384.5"))


DAMAGES = [
    _garbage,
    _truncated,
    _empty,
    _deep,
    _of_another_trial,
    _of_another_run,
    _with_an_unknown_key,
    _with_an_unknown_key_inside,
    _with_data_of_no_instrument,
    _with_half_a_count,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_told_by_its_path_and_measured_again(
    folder: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
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


@pytest.mark.parametrize("damage", [_garbage, _cut_short, _empty, _deep])
@pytest.mark.parametrize("name", ["run.json", "study.toml", "attempts.json"])
def test_a_damaged_file_of_the_run_is_told_by_its_path(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    if name == "attempts.json":
        result_file(folder, 0).unlink()
    damage(folder / name)
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
        "run": plan,
        "arm": plan["arms"][0],
        "kernel": plan["arms"][0]["kernel"],
        "trial": plan["trials"][0],
    }[key]
    holder["sudo"] = True
    (folder / "run.json").write_text(json.dumps(plan))
    with pytest.raises(StoreError, match=r"run.json: the file is damaged: .*unknown field `sudo`"):
        RunJournal.open(folder)


def test_a_plan_whose_trials_are_of_no_arm_is_refused(folder: Path) -> None:
    trials = json.loads((folder / "run.json").read_text())["trials"]
    changed(folder / "run.json", trials=[trials[0] | {"arm": 99}, *trials[1:]])
    with pytest.raises(StoreError, match="its trials are not those of its arms"):
        RunJournal.open(folder)
    changed(folder / "run.json", trials=[*trials, trials[0]])
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


def test_a_run_of_before_the_subjects_is_read(folder: Path) -> None:
    plan = json.loads((folder / "run.json").read_text())
    del plan["subjects"]
    (folder / "run.json").write_text(json.dumps(plan | {"format": 2}))
    assert RunJournal.open(folder).record().subjects == {}


def test_folders_that_are_no_run_or_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"not a run: it has no run.json; list the runs with"):
        RunJournal.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file.*cannot be read or written: .*check that"):
        RunJournal.create(tmp_path / "file", new_run())
    with pytest.raises(StoreError, match="cannot be read or written: File exists"):
        files.new_folder(tmp_path / "file", "a", NOW)
