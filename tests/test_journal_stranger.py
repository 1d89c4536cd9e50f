# SPDX-License-Identifier: GPL-2.0-or-later
"""Run folders that a stranger packed: nothing is written outside them, and nothing hangs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import run_records
from kdelta import files
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.files import NotPlainError
from kdelta.journal import raw_counts
from kdelta.journal.results import trial_folder
from kdelta.journal.run import RUNS, RunJournal
from kdelta.study import spec

INTO = ("result.json", "command.txt", "console.log", "counts.bin", "counts.bin.gz", "swap.img")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one trial's result, beside a file and a folder that are not its own."""
    journal = RunJournal.create(tmp_path / "runs" / "sent", run_records.new_run())
    run_records.execute(journal, 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary").write_text("dear diary")
    return journal.folder


def symlink(path: Path, mine: Path) -> None:
    path.symlink_to(mine / "diary")


def hard_link(path: Path, mine: Path) -> None:
    path.hardlink_to(mine / "diary")


def pipe(path: Path, _mine: Path) -> None:
    os.mkfifo(path)


def listening(path: Path, _mine: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("plant", [symlink, hard_link, pipe, listening], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "name",
    ["lock", "lock.pid", "attempts.json", "show.txt", *(f"trials/0001/{name}" for name in INTO)],
)
def test_nothing_is_written_through_what_is_no_file_of_the_run(
    name: str, plant: Callable[[Path, Path], None], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    monkeypatch.chdir(path.parent)  # a socket's path is short
    plant(Path(path.name), run.parents[1] / "mine")
    journal = RunJournal.open(run)
    with pytest.raises(StoreError, match="nothing is written into a run's folder with"):
        run_records.execute(journal)
    assert (run.parents[1] / "mine" / "diary").read_text() == "dear diary"


@pytest.mark.parametrize("name", ["trials", "trials/0001", "elsewhere"])
def test_no_folder_of_a_run_leads_out_of_it(name: str, run: Path) -> None:
    mine = run.parents[1] / "mine"
    if (run / name).exists():
        (run / name).rename(run.parent / "gone")
    (run / name).symlink_to(mine, target_is_directory=True)
    with pytest.raises(StoreError, match="with a symbolic link in it"):
        run_records.execute(RunJournal.open(run))
    assert [path.name for path in mine.iterdir()] == ["diary"]


def test_a_link_beside_the_runs_is_none(run: Path) -> None:
    (run.parent / "other").symlink_to(run)
    assert RUNS.folders(run.parent) == [run]


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("plant", [os.mkfifo, zeros, endless], ids=["pipe", "device", "huge"])
@pytest.mark.parametrize("name", ["run.json", "study.toml", "attempts.json"])
def test_what_is_no_plain_file_is_refused_at_once(
    name: str, plant: Callable[[Path], None], run: Path
) -> None:
    (run / name).unlink()
    plant(run / name)
    with pytest.raises(KdeltaError, match=r"it is no plain file|it has more than \d+ bytes"):
        RunJournal.open(run).record()


def test_a_result_that_is_a_pipe_is_left_out(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    (trial,) = run.glob("trials/*/result.json")
    trial.unlink()
    os.mkfifo(trial)
    assert not any(one.result for one in RunJournal.open(run).record().trials)
    assert "no plain file" in caplog.text


@pytest.mark.parametrize("plant", [os.mkfifo, zeros, endless], ids=["pipe", "device", "huge"])
def test_studies_and_counts_are_plain_files(plant: Callable[[Path], None], tmp_path: Path) -> None:
    plant(tmp_path / "it")
    with pytest.raises(SpecError, match="the study cannot be read: it "):
        spec.load(tmp_path / "it")
    kept = trial_folder(tmp_path, 0) / "counts.bin.gz"
    kept.parent.mkdir(parents=True)
    plant(kept)
    with pytest.raises(StoreError, match=r"its raw counts cannot be read: .*it "):
        raw_counts.typical_windows(tmp_path, 0, run_records.result_of(0))


def test_content_is_bounded_whatever_a_file_says_of_its_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert files.content(tmp_path / "a", 5) == b"12345"
    with pytest.raises(NotPlainError, match="more than 4 bytes"):
        files.content(tmp_path / "a", 4)
    with pytest.raises(NotPlainError, match="more than 4 bytes"):  # its size is said to be 0
        files.content(Path("/proc/self/status"), 4)
