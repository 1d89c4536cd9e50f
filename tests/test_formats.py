# SPDX-License-Identifier: GPL-2.0-or-later
"""Formats for programs: a run's points as a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import ladder_records
import timed_records
from kdelta.analysis.findings import report
from kdelta.cli.show import show
from kdelta.journal import results
from kdelta.journal.run import RunJournal
from kdelta.rendering import show as points
from kdelta.rendering.formats import written

EXACT = ladder_records.ladder(rounds=2)
TIMED = timed_records.run([20.0, 22.0, 20.0])
RUNS = {"exact": EXACT, "timed": TIMED}


def rows(form: str, run: str) -> list[dict[str, str]]:
    text = written(form, points, report(RUNS[run]))
    if form == "tsv":
        head, *others = (line.split("\t") for line in text.splitlines())
        return [dict(zip(head, cells, strict=True)) for cells in others]
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("run", RUNS)
def test_tabs_and_commas_part_the_same_cells(run: str) -> None:
    assert rows("tsv", run) == rows("csv", run)


def test_no_label_breaks_a_row_of_tabs() -> None:
    arms = (replace(EXACT.arms[0], label="6.1\t7.0\r\n=cmd()\x1b[31m\u2028"), *EXACT.arms[1:])
    text = written("tsv", points, report(replace(EXACT, arms=arms)))
    assert len({line.count("\t") for line in text.split("\n")[:-1]}) == 1
    assert text.isascii()
    assert not set(text) & set("\r\x1b")


def test_show_prints_them(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path / "run", EXACT)
    for trial in EXACT.trials:
        assert trial.result
        kept = results.KeptResult(
            run=EXACT.run_id, index=trial.index, attempts=1, result=trial.result
        )
        results.keep(journal.folder, kept)
    done = CliRunner().invoke(show, [str(journal.folder), "--tsv"], standalone_mode=False)
    assert done.exception is None, done.exception
    assert done.output.count("\t") > 100
