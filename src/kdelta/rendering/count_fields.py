# SPDX-License-Identifier: GPL-2.0-or-later
"""Counted ladders for programs: the fields of JSON and the rows of CSV; see show.FieldsView."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kdelta.analysis.findings import Report
from kdelta.ladder.counts import Measure
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.procfs import compiler_short
from kdelta.rendering.formats import COUNTED, Cell, picked
from kdelta.sample import TOTAL

KIND = "show"
_REPORT = (
    "run_id", "name", "title", "created", "seed", "rounds", "kdelta_version", "step_percent",
    "ladders", "done", "planned", "metrics", "figures", "limits",
)  # fmt: skip
_LADDER = (
    "workload", "scenario", "point", "baseline", "goal", "phases", "operation", "rungs",
    "steps", "warnings", "failures", "machines", "replicates", "done", "planned",
)  # fmt: skip
_RUNG = (
    "arm", "reference", "release", "version", "build_id", "compiler", "total", "phases",
    "first", "previous", "ratios", "state", "ok", "done", "planned", "skipped", "comparison",
    "gap_closed",
)  # fmt: skip
_STEP = ("old", "new", "old_value", "new_value", "operation", "comparison")
HEAD: tuple[str, ...] = (
    "run", "workload", "scenario", "point", "arm", "release", "package", "phase",
    "operation", "operations", "instructions", "instructions_user", "instructions_kernel",
    "per_operation", "location", "share", "windows", "minimum", "maximum", "deviation",
    "layouts", "layouts_hit",
    "trials", "trials_agreeing", "trials_range", "first", "ratio_first", "previous",
    "ratio_previous", "state", "trials_ok", "trials_planned", "verdict", "grade", "reasons",
)  # fmt: skip


def data(report: Report[Measure]) -> dict[str, Any]:
    """The fields of JSON, format 1."""
    return picked(report, _REPORT, ladders=[_ladder(ladder) for ladder in report.ladders])


def _ladder(ladder: Ladder[Measure]) -> dict[str, Any]:
    return picked(
        ladder,
        _LADDER,
        rungs=[_rung(rung) for rung in ladder.rungs],
        steps=[picked(s, _STEP, comparison=picked(s.comparison, COUNTED)) for s in ladder.steps],
        machines=[picked(machine, ("environment", "arms")) for machine in ladder.machines],
    )


def _rung(rung: Rung[Measure]) -> dict[str, Any]:
    return picked(
        rung,
        _RUNG,
        compiler=compiler_short(rung.compiler),
        skipped=bool(rung.skipped),
        comparison=picked(rung.comparison, COUNTED) if rung.comparison else None,
    )


def rows(report: Report[Measure]) -> Iterator[tuple[Cell, ...]]:
    """One row for each scenario, kernel and phase, the sum of the phases last."""
    for ladder in report.ladders:
        for rung in ladder.rungs:
            for measure in (*rung.phases, rung.total) if rung.total else (None,):
                yield _row(report, ladder, rung, measure)


def _row(
    report: Report[Measure], ladder: Ladder[Measure], rung: Rung[Measure], measure: Measure | None
) -> tuple[Cell, ...]:
    phase = measure.phase if measure else TOTAL
    ratios = rung.ratio(phase)
    counts: tuple[Cell, ...] = (None,) * 17
    if measure:
        counts = (
            measure.operation, measure.operations, measure.value, measure.user,
            measure.kernel, measure.per_operation, measure.kind, measure.share,
            measure.windows, measure.minimum, measure.maximum, measure.deviation,
            len(measure.layouts.counts) if measure.layouts else None,
            measure.layouts.hit if measure.layouts else None,
            measure.trials, measure.agree, measure.trials_range,
        )  # fmt: skip
    # The verdict is on the sum of the phases, so only that row carries it.
    verdict = rung.comparison if phase == TOTAL else None
    return (
        report.run_id, ladder.workload, ladder.scenario, ladder.point,
        rung.arm, rung.release, rung.version, phase, *counts,
        rung.first, ratios.first, rung.previous, ratios.previous,
        rung.state, rung.ok, rung.planned,
        verdict.verdict if verdict else None,
        verdict.grade if verdict else None,
        "; ".join(verdict.reasons) if verdict else None,
    )  # fmt: skip
