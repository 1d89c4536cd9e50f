# SPDX-License-Identifier: GPL-2.0-or-later
"""Formats for programs: points and comparisons as tables, and what other tools read."""

from __future__ import annotations

import csv
import functools
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import ladder_records
import timed_records
from kdelta.analysis.findings import Report, report
from kdelta.cli.show import show
from kdelta.journal import results
from kdelta.journal.run import RunJournal
from kdelta.rendering import comparisons
from kdelta.rendering import show as points
from kdelta.rendering.formats import written
from kdelta.table.columns import WIDTH, plain

EXACT = ladder_records.ladder(rounds=2)
TIMED = timed_records.run([20.0, 22.0, 20.0])
RUNS = {"exact": EXACT, "timed": TIMED}


@functools.cache
def found(run: str) -> Report[Any]:
    return report(RUNS[run])


def rows(form: str, view: object, run: str) -> list[dict[str, str]]:
    text = written(form, view, found(run))
    if form == "tsv":
        head, *others = (line.split("\t") for line in text.splitlines())
        return [dict(zip(head, cells, strict=True)) for cells in others]
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("view", [points, comparisons])
def test_tabs_and_commas_part_the_same_cells(run: str, view: object) -> None:
    assert rows("tsv", view, run) == rows("csv", view, run)


def test_no_label_breaks_a_row_of_tabs() -> None:
    evil = "6.1\t7.0\r\n=cmd()\x1b[31m\u2028"
    arms = (replace(EXACT.arms[0], label=evil), *EXACT.arms[1:])
    text = written("tsv", points, report(replace(EXACT, arms=arms)))
    assert len({line.count("\t") for line in text.split("\n")[:-1]}) == 1
    assert text.isascii()
    assert not set(text) & set("\r\x1b")


def test_comparisons_say_what_the_ladder_says() -> None:
    told = rows("csv", comparisons, "exact")
    totals = [row for row in told if row["phase"] == "total"]
    rungs = [rung for rung in found("exact").ladders[0].rungs if rung.comparison]
    assert [row["verdict"] for row in totals] == [r.comparison.verdict for r in rungs]  # type: ignore[union-attr]
    assert [(row["old"], row["new"]) for row in totals] == [(r.previous, r.arm) for r in rungs]
    assert {row["verdict"] for row in told if row["phase"] != "total"} == {""}
    content = json.loads(written("json", comparisons, found("exact")))
    assert content["kind"] == "comparisons"
    assert [str(one["ratio"]) for one in content["comparisons"]] == [r["ratio"] for r in totals]
    assert len(content["comparisons"][0]["phases"]) == 2


def test_comparisons_of_times_have_intervals() -> None:
    (row, *_) = [row for row in rows("csv", comparisons, "timed") if row["verdict"]]
    assert row["unit"] == "ns"
    assert float(row["low"]) < float(row["ratio"]) < float(row["high"])


@pytest.mark.parametrize("run", RUNS)
def test_comparisons_fit_a_terminal(run: str) -> None:
    text = plain(comparisons.show(found(run)))
    assert "REGRESSION" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_what_is_undecided_says_why() -> None:
    """Of what is decided the table says all."""
    other = (replace(ladder_records.STATE[0], value="1"), *ladder_records.STATE[1:])
    arms = {
        "6.16.1": [ladder_records.result(ladder_records.Trial(per_page=500))],
        "6.17.1": [ladder_records.result(ladder_records.Trial(per_page=500, state=other))],
    }
    unlike = report(ladder_records.run(arms))
    lines = " ".join(plain(comparisons.show(unlike)).split())
    (reasons,) = [one.comparison.reasons for one in unlike.ladders[0].rungs if one.comparison]
    assert reasons
    assert f"6.16.1 -> 6.17.1: INVALID: {'; '.join(reasons)}" in lines
    told = " ".join(plain(comparisons.show(found("exact"))).split())
    for one in found("exact").ladders[0].rungs:
        decided = one.comparison and one.comparison.verdict not in ("UNDECIDED", "INVALID")
        assert not decided or f"-> {one.arm}:" not in told


def test_one_kernel_is_compared_with_nothing() -> None:
    alone = replace(EXACT, arms=EXACT.arms[:1], trials=tuple(t for t in EXACT.trials if t.arm == 0))
    assert "Nothing was compared" in plain(comparisons.show(report(alone)))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    journal = RunJournal.create(tmp_path / "run", EXACT)
    for trial in EXACT.trials:
        assert trial.result
        kept = results.KeptResult(
            run=EXACT.run_id, index=trial.index, attempts=1, result=trial.result
        )
        results.keep(journal.folder, kept)
    return journal.folder


def test_show_prints_each(stored: Path) -> None:
    def told(*words: str) -> str:
        done = CliRunner().invoke(show, [str(stored), *words], standalone_mode=False)
        assert done.exception is None, done.exception
        return done.output

    assert told("--comparisons", "--tsv").startswith("run\tworkload\t")
    assert told("--tsv").count("\t") > 100
