# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta.store: a damaged store is told apart, and rebuilt from the files of its trials."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from kdelta import runfolder
from kdelta.errors import StoreError
from kdelta.store import FORMAT, Store, rebuild
from run_records import NOW, execute, new_run

ROUNDS = os.environ.get("KDELTA_KILL_ROUNDS", "1")  # of the kill -9 test; 20 make it a soak
FORK = multiprocessing.get_context("fork")


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def _truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _without_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE arm")


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
        "UPDATE trial SET result = '{'",
        "UPDATE trial SET result = '[1]'",
        "UPDATE trial SET result = CAST(x'ff' AS TEXT)",
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
    with pytest.raises(StoreError, match="cannot be read or written: File exists"):
        runfolder.new_run_folder(tmp_path / "file", "a", NOW)
