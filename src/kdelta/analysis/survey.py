# SPDX-License-Identifier: GPL-2.0-or-later
"""Many scenarios over many kernels in one table: which path changed where, by which functions."""

from __future__ import annotations

from dataclasses import dataclass

from kdelta.analysis.counts import Measure
from kdelta.analysis.evidence import points
from kdelta.analysis.explanation import Explanation, explain
from kdelta.analysis.findings import Ladder, Report, Rung, report
from kdelta.journal.run import RunRecord
from kdelta.sample import TOTAL
from kdelta.stats.verdict import Verdict

STEP_PERCENT = 5.0  # of the study that a survey is: it looks for what matters


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyCell:
    """One kernel in one scenario.  ratio: new/old against the nearest kernel above with a count.

    ratio None: there is none, for the reason in `note` ("skip", "invalid", "failed", "not run"),
    or because it is the first count.
    """

    per_operation: float | None
    ratio: float | None
    note: str
    crossing: str = ""  # "gcc 14 -> gcc 16": the two were built by different compilers


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow:
    """One scenario: a cell for each kernel, in the run's order.  inexact: counts hardly repeat."""

    reference: str
    point: str
    operation: str
    inexact: bool
    cells: tuple[SurveyCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyStep:
    """A step between two neighbouring kernels of a scenario, with its functions."""

    reference: str
    point: str
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A whole run as a table.  changes: the largest first, each beyond step_percent."""

    report: Report[Measure]
    step_percent: float
    kernels: tuple[str, ...]
    rows: tuple[SurveyRow, ...]
    changes: tuple[SurveyStep, ...]


def surveyed(record: RunRecord, *, step_percent: float | None = None) -> Survey:
    """Analyse a stored exact run of many scenarios; step_percent None: the study's threshold."""
    found = report(record, step_percent=step_percent)
    kernels = tuple(dict.fromkeys(rung.arm for each in found.ladders for rung in each.rungs))
    parts = dict(points(record))
    changes = [
        SurveyStep(
            reference=f"{ladder.workload}:{ladder.scenario}",
            point=ladder.point,
            explanation=explain(
                parts[ladder.point],
                step.old,
                step.new,
                scenario=f"{ladder.workload}:{ladder.scenario}",
                step_percent=found.step_percent,
            ),
        )
        for ladder in found.ladders
        for step in ladder.steps
    ]
    return Survey(
        report=found,
        step_percent=found.step_percent,
        kernels=kernels,
        rows=tuple(_row(ladder, kernels) for ladder in found.ladders),
        changes=tuple(sorted(changes, key=_size, reverse=True)),
    )


def _size(change: SurveyStep) -> float:
    ratio = change.explanation.comparison.ratio or 1.0
    return max(ratio, 1 / ratio) if ratio > 0 else 0.0


def _row(ladder: Ladder[Measure], kernels: tuple[str, ...]) -> SurveyRow:
    rungs = {rung.arm: rung for rung in ladder.rungs}
    inexact = any(m.kind == "median" for rung in ladder.rungs for m in rung.phases)
    return SurveyRow(
        reference=f"{ladder.workload}:{ladder.scenario}",
        point=ladder.point,
        operation=ladder.operation or "",
        inexact=inexact,
        cells=tuple(_cell(rungs.get(kernel)) for kernel in kernels),
    )


def _cell(rung: Rung[Measure] | None) -> SurveyCell:
    if rung is None or not rung.done:
        return SurveyCell(per_operation=None, ratio=None, note="not run")
    if rung.total is None:
        return SurveyCell(per_operation=None, ratio=None, note="skip" if rung.skipped else "failed")
    invalid = rung.comparison is not None and rung.comparison.verdict is Verdict.INVALID
    return SurveyCell(
        per_operation=rung.total.per_operation,
        ratio=rung.ratio(TOTAL).previous,
        note="invalid" if invalid else "",
        crossing=rung.comparison.crossing if rung.comparison else "",
    )


def quiet(found: Survey) -> int:
    """Scenarios in which nothing changed beyond the threshold and every kernel has a count."""
    changed = {(change.reference, change.point) for change in found.changes}
    return sum(
        (row.reference, row.point) not in changed
        and not any(cell.note or _crosses(cell, found.step_percent) for cell in row.cells)
        for row in found.rows
    )


def _crosses(cell: SurveyCell, step_percent: float) -> bool:
    """A change that may be the compilers'."""
    return bool(cell.crossing) and abs(100 * ((cell.ratio or 1) - 1)) > step_percent
