# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta.runfolder: how a run is named, and found again."""

from __future__ import annotations

import multiprocessing
import os
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from kdelta import runfolder
from kdelta.errors import SpecError
from kdelta.store import Store, unfinished
from run_records import NOW, execute, new_run

ROUNDS = os.environ.get("KDELTA_KILL_ROUNDS", "1")  # of the kill -9 test; 20 make it a soak
FORK = multiprocessing.get_context("fork")


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
