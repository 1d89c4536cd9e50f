# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta runs status`: what the folder of a run says to another terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import run_records
from kdelta.cli.show import status as command
from kdelta.errors import StoreError
from kdelta.journal import status
from kdelta.journal.run import RunJournal
from kdelta.run import timed


@pytest.fixture
def journal(tmp_path: Path) -> RunJournal:
    return RunJournal.create(tmp_path / "demo", run_records.new_run(arms=2, rounds=2))


def told(journal: RunJournal, *words: str) -> str:
    found = CliRunner().invoke(command, ["--runs", str(journal.folder.parent), *words])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_who_does_what_while_it_is_executed(journal: RunJournal) -> None:
    run_records.execute(journal, 3)
    work = status.Assignments(journal.folder)
    for at, when in ((0, 1000.0), (1, 1010.0), (2, 1020.0)):
        path = journal.folder / "trials" / f"{at:04d}" / "result.json"
        os.utime(path, (when, when))
    work.tell(3, "tcp://a\x1b[31m")
    work.tell(4, "b")
    work.tell(4, "")
    record = journal.record()
    found = status.status(record, journal.folder, executing=True, now=1020.0)
    assert (found.ended, found.total, found.left_s) == (3, 8, 50.0)
    assert [(trial.index, who) for trial, who, _ in found.busy] == [(3, "tcp://a?[31m")]
    with journal.executing():
        assert "3 of 8 trials have ended, 5 are left; done in about" in told(journal)
        assert json.loads(told(journal, "--json"))["busy"][0]["trial"] == 3
    assert "nobody works on it: kdelta resume demo" in told(journal)
    assert "tcp" not in told(journal)


def test_a_damaged_file_costs_only_who(journal: RunJournal) -> None:
    (journal.folder / status.NAME).write_text("{")
    with journal.executing():
        assert "nobody can say yet" in told(journal)
    run_records.execute(journal)
    assert told(journal).strip().endswith("8 of 8 trials have ended, 0 are left.")


def test_a_run_on_a_pool_says_how_it_goes_on(journal: RunJournal) -> None:
    timed.note(journal.folder, "nodes")
    assert "kdelta resume demo --on LAB.TOML, with the pool nodes" in told(journal)
    (journal.folder / "placed.json").write_text("[")
    found = CliRunner().invoke(command, ["--runs", str(journal.folder.parent)])
    assert isinstance(found.exception, StoreError)
