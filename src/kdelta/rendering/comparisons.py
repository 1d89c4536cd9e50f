# SPDX-License-Identifier: GPL-2.0-or-later
"""The comparisons of a run, a row for each pair of kernels: `kdelta show --comparisons`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.findings import Report
from kdelta.ladder.ladders import Rung
from kdelta.metric import number
from kdelta.rendering.formats import Cell, picked
from kdelta.sample import TOTAL
from kdelta.table.columns import (
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    paragraph,
    shortened,
    table_lines,
)
from kdelta.table.counts import times
from kdelta.verdict.comparison import Comparison, Verdict

_NUMBERS = ("ratio", "low", "high", "difference", "spread", "p", "alpha")
_WORDS = ("verdict", "grade", "crossing")
_LISTS = ("differences", "reasons")
_HEAD = (
    "run", "workload", "scenario", "point", "phase", "old", "new", "operation", "unit",
    "old_per_operation", "new_per_operation", "old_trials", "new_trials",
    *_NUMBERS,
    *_WORDS,
    *_LISTS,
)  # fmt: skip
_LADDER = ("workload", "scenario", "point")
_OPEN = (Verdict.UNDECIDED, Verdict.INVALID)  # of these the table says why


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPhase:
    """A phase of two kernels, values per operation; it has no verdict of its own."""

    phase: str
    operation: str
    old_per_operation: float
    new_per_operation: float
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two kernels in a scenario, values per operation; None: that kernel has none.

    phases: where there are several.  trials: those that ended ok, of each kernel.
    """

    workload: str
    scenario: str
    point: str
    old: str
    new: str
    operation: str
    values: tuple[float | None, float | None]
    phases: tuple[ComparedPhase, ...]
    trials: tuple[int, int]
    comparison: Comparison


def compared(report: Report[Any]) -> Iterator[Compared]:
    """Every comparison of a run, in the order of its ladders."""
    for ladder in report.ladders:
        rungs = {rung.arm: rung for rung in ladder.rungs}
        for rung in ladder.rungs:
            old = rungs.get(rung.previous or "")
            if old is None or rung.comparison is None:
                continue
            own = {measure.phase: measure.per_operation for measure in old.phases}
            yield Compared(
                **picked(ladder, _LADDER),
                old=old.arm,
                new=rung.arm,
                operation=ladder.operation or "operation",
                values=(_per_operation(old), _per_operation(rung)),
                phases=tuple(
                    ComparedPhase(
                        phase=m.phase,
                        operation=m.operation,
                        old_per_operation=own[m.phase],
                        new_per_operation=m.per_operation,
                        ratio=rung.ratio(m.phase).previous,
                    )
                    for m in rung.phases
                    if m.phase in own and len(rung.phases) > 1
                ),
                trials=(old.ok, rung.ok),
                comparison=rung.comparison,
            )


def _per_operation(rung: Rung[Any]) -> float | None:
    return rung.total.per_operation if rung.total else None


def show(report: Report[Any]) -> list[Line]:
    """A table for each scenario."""
    lines: list[Line] = []
    groups: dict[tuple[str, str], list[Compared]] = {}
    for one in compared(report):
        groups.setdefault((f"{one.workload}:{one.scenario}", one.point), []).append(one)
    for (name, point), own in groups.items():
        at = f", {point}" if point else ""
        told = f"{name}{at}: {_unit(report)} per {own[0].operation}"
        lines += [*([()] if lines else []), *paragraph(told, Tone.BOLD)]
        lines += table_lines(
            [
                Column("old", shortened([one.old for one in own], 24)),
                Column("new", shortened([one.new for one in own], 24), Tone.BOLD),
                Column("old", (_value(one.values[0]) for one in own), right=True),
                Column("new", (_value(one.values[1]) for one in own), right=True),
                Column("ratio", (times(one.comparison.ratio) for one in own), right=True),
                Column("verdict", (_verdict(one.comparison) for one in own)),
            ]
        )
        for one in own:
            if one.comparison.verdict in _OPEN:
                why = "; ".join(one.comparison.reasons)
                tone = VERDICT_TONES[one.comparison.verdict]
                text = f"{one.old} -> {one.new}: {one.comparison.verdict}: {why}"
                lines += paragraph(text, tone)
    return lines or list(paragraph("Nothing was compared: the run has one kernel with values."))


def _unit(report: Report[Any]) -> str:
    return report.unit


def _value(value: float | None) -> str:
    return "-" if value is None else number(value)


def _verdict(found: Comparison) -> Span:
    return Span(found.verdict, VERDICT_TONES[found.verdict])


def document(report: Report[Any]) -> tuple[str, object]:
    """See formats.View."""
    rows = [
        {
            **picked(one, (*_LADDER, "old", "new", "operation")),
            "old_per_operation": one.values[0],
            "new_per_operation": one.values[1],
            "old_trials": one.trials[0],
            "new_trials": one.trials[1],
            "phases": one.phases,
            **picked(one.comparison, (*_NUMBERS, *_WORDS, *_LISTS)),
        }
        for one in compared(report)
    ]
    return "comparisons", {"run_id": report.run_id, "unit": _unit(report), "comparisons": rows}


def table(report: Report[Any]) -> tuple[Sequence[str], Iterator[Sequence[Cell]]]:
    """A row for each phase, where there are several, and then that of the sum, with the verdict."""
    return _HEAD, _rows(report)


def _rows(report: Report[Any]) -> Iterator[Sequence[Cell]]:
    unit = _unit(report)
    for one in compared(report):
        names = (report.run_id, one.workload, one.scenario, one.point)
        for own in one.phases:
            told = (own.old_per_operation, own.new_per_operation, *one.trials, own.ratio)
            head = (*names, own.phase, one.old, one.new, own.operation, unit, *told)
            yield (*head, *(None,) * (len(_HEAD) - len(head)))
        found = one.comparison
        yield (
            *names, TOTAL, one.old, one.new, one.operation, unit, *one.values, *one.trials,
            *(getattr(found, name) for name in (*_NUMBERS, *_WORDS)),
            *("; ".join(getattr(found, name)) for name in _LISTS),
        )  # fmt: skip
