# SPDX-License-Identifier: GPL-2.0-or-later
"""What is told of a traced run: hits of each kernel side by side, and nothing that judges them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from command_line import ended
from kdelta.analysis.findings import RunTraces, TraceTable, report, traced
from kdelta.errors import SpecError
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.rendering import show
from kdelta.rendering.bundle import run_files
from kdelta.rendering.formats import written
from kdelta.sample import (
    ArmRecord,
    Outcome,
    TraceData,
    TracePhase,
    TraceRow,
    TraceSkip,
    TrialResult,
)
from kdelta.study import spec
from kdelta.study.plan import make_plan
from kdelta.table.columns import plain
from run_records import NOW, kept, kernel

WATCH = ("f", "g(n=arg1)", "graph(h)")
PHASES = (TracePhase(phase="protect", operations=4096, operation="page"),)


def seen(*rows: TraceRow, skipped: Sequence[str] = (), doubts: tuple[str, ...] = ()) -> TrialResult:
    return TrialResult(
        outcome=Outcome.OK,
        data=TraceData(phases=PHASES, turns=(2, 2), rows=rows,
                       skipped=tuple(TraceSkip(watch=name, reason="inlined") for name in skipped),
                       doubts=doubts),
    )  # fmt: skip


OLD = seen(
    TraceRow(watch="f", hits=(8, 8)),
    TraceRow(watch="graph(h)", key="leaf", hits=(7,), whole=True),
    skipped=["g(n=arg1)"],
)
NEW = seen(
    TraceRow(watch="f", hits=(32, 32)), TraceRow(watch="g(n=arg1)", hits=(10, 11)),
    TraceRow(watch="g(n=arg1)", key="1", hits=(10, 11)), doubts=("f: 3 hits were missed",),
    skipped=["graph(h)"],
)  # fmt: skip


def record(*results: TrialResult) -> RunRecord:
    labels = [f"6.{at}" for at in range(len(results))]
    study = spec.from_arguments(["mprotect:a"], labels, instrument="trace", watch=list(WATCH))
    planned = make_plan(study, 5)
    return RunRecord(
        run_id="traced", name="traced", title="A trace", seed=1, rounds=1, created=NOW.isoformat(),
        kdelta_version="0.1.0", study=study,
        arms=tuple(
            ArmRecord(index=at, label=label, kernel=kernel(label))
            for at, label in enumerate(labels)
        ),
        trials=tuple(replace(trial, result=results[trial.arm]) for trial in planned),
    )  # fmt: skip


def found(*results: TrialResult) -> RunTraces:
    value = traced(record(*results))
    assert value is not None
    return value


def only(*results: TrialResult) -> TraceTable:
    (table,) = found(*results).tables
    return table


def cells(table: TraceTable) -> dict[tuple[str, str], list[tuple[float | None, float | None]]]:
    return {
        (row.watch, row.key): [(cell.fewest, cell.most) for cell in row.cells] for row in table.rows
    }


def test_hits_are_per_iteration_and_differ_where_they_do() -> None:
    table = only(OLD, NEW)
    assert cells(table) == {
        ("f", ""): [(4, 4), (16, 16)], ("g(n=arg1)", ""): [(None, None), (5, 5.5)],
        ("g(n=arg1)", "1"): [(None, None), (5, 5.5)], ("graph(h)", "leaf"): [(7, 7), (None, None)],
    }  # fmt: skip
    assert [row.cells[1].ratio for row in table.rows] == [4.0, None, None, None]
    assert table.rows[1].cells[0].absent == "inlined"
    assert table.doubts == ("6.1: f: 3 hits were missed",)
    assert table.reasons == ("6.0: g(n=arg1): inlined", "6.1: graph(h): inlined")


def test_what_was_watched_and_did_not_happen_is_zero_and_else_it_is_absent() -> None:
    other = seen(TraceRow(watch="g(n=arg1)", hits=(0, 0)), skipped=["f", "graph(h)"])
    found = cells(only(NEW, other))
    assert found["g(n=arg1)", "1"] == [(5, 5.5), (0, 0)]
    assert found["f", ""] == [(16, 16), (None, None)]
    assert found["graph(h)", ""] == [(None, None), (None, None)]


@pytest.mark.parametrize("outcome", [Outcome.INVALID, Outcome.GUEST_ERROR])
def test_a_trial_that_is_no_data_has_no_hits(outcome: Outcome) -> None:
    table = only(OLD, replace(NEW, outcome=outcome, reasons=("anon_pages before is 1, not 0",)))
    assert cells(table)["f", ""] == [(4, 4), (None, None)]
    assert table.reasons[0] == f"6.1: {outcome}: anon_pages before is 1, not 0"


@pytest.mark.parametrize(
    "data",
    [
        TraceData(rows=(TraceRow(watch="f", hits=()),)),
        TraceData(turns=(0, 2), rows=(TraceRow(watch="f", hits=(1, 2)),)),
        TraceData(turns=(2, 2), rows=(TraceRow(watch="f", hits=(1,)),)),
        TraceData(turns=(2,), rows=(TraceRow(watch="f", hits=(), whole=True),)),
    ],
)
def test_a_strangers_hits_that_cannot_be_are_none(data: TraceData) -> None:
    table = only(OLD, replace(OLD, data=data))
    assert cells(table)["f", ""] == [(4, 4), (None, None)]
    assert "do not fit" in table.reasons[0]


def test_rounds_are_more_samples() -> None:
    one = record(OLD)
    again = replace(one.trials[0], index=1, round=1, result=seen(TraceRow(watch="f", hits=(8, 10))))
    value = traced(replace(one, trials=(*one.trials, again)))
    assert value is not None
    assert cells(value.tables[0])["f", ""] == [(4, 5)]


def test_what_is_printed() -> None:
    text = plain(show.show_traces(found(OLD, NEW)))
    lines = [line.split() for line in text.splitlines()]
    assert ["f", "4", "16", "x4.000"] in lines
    assert ["g(n=arg1)", "-", "5..5.5", "-"] in lines
    assert ["=", "1", "-", "5..5.5", "-"] in lines
    assert ["leaf", "7", "-", "-"] in lines
    assert "an iteration is protect: 4096 x page" in text
    for word in ("REGRESSION", "IMPROVEMENT", "SAME"):
        assert word not in text


def test_json_and_csv_have_every_cell() -> None:
    value = found(OLD, NEW)
    told = json.loads(written("json", show.TRACES_VIEW, value))
    assert told["kind"] == "traces"
    assert told["tables"][0]["rows"][0]["cells"][1]["ratio"] == 4
    rows = list(csv.DictReader(io.StringIO(written("csv", show.TRACES_VIEW, value))))
    assert len(rows) == 8
    assert rows[2] | {"watch": "g(n=arg1)", "fewest": "", "absent": "inlined"} == rows[2]
    assert dict(run_files(record(OLD, NEW))).keys() == {"show.txt", "show.json", "show.csv"}


def test_hits_are_never_judged() -> None:
    with pytest.raises(SpecError, match="no verdict"):
        report(record(OLD, NEW))


def test_a_kept_run_is_shown_and_every_other_view_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KDELTA_RUNS", str(tmp_path))
    run = record(OLD, NEW)
    journal = RunJournal.open(kept(run, tmp_path / "traced"))
    assert journal.record().trials[0].result == run.trials[0].result
    shown = ended(capsys, "show", "traced")
    assert (shown.status, "x4.000" in shown.out) == (0, True)
    for words in (
        ["explain", "traced"],
        ["report", "traced"],
        ["coverage", "traced"],
        ["gate", "traced"],
    ):
        assert ended(capsys, *words).status == 2, words
