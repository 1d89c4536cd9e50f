# SPDX-License-Identifier: GPL-2.0-or-later
"""What is said beside the phases, and never judged: metrics of workloads, figures of a study.

A workload prints its metrics; a study asks for figures out of the functions that ran, by arm.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from kdelta.analysis.explanation import PIECE, stored
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import CountEvidence, counted
from kdelta.ladder.evidence import points
from kdelta.metric import Better
from kdelta.sample import TOTAL, ArmRecord, FunctionCount, MetricValue, Outcome, TrialRecord
from kdelta.study.spec import Figure, FigureCount, FigurePer


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCell:
    """One metric of one arm over its trials that ended ok.

    median, minimum, maximum: of the n trials that have a value, None without any; ratio: of the
    median to the first arm's, None where there is no such ratio; absent: why trials have no value.
    Neither a value nor a reason: no trial told it.
    """

    arm: str
    median: float | None
    minimum: float | None
    maximum: float | None
    n: int
    ratio: float | None
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric over the arms of its table, in their order."""

    name: str
    unit: str
    better: Better
    cells: tuple[MetricCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureCell:
    """One figure of one arm.  value None: there is none, for the reason in `absent`."""

    arm: str
    value: float | None
    absent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """One figure over the arms of its table, in their order; what: its meaning, may be empty."""

    name: str
    what: str
    cells: tuple[FigureCell, ...]


R = TypeVar("R", MetricRow, FigureRow)


@dataclass(frozen=True, slots=True)
class ToldTable(Generic[R]):
    """All rows of one scenario at one point of the study's matrix ("" without one)."""

    workload: str
    scenario: str
    point: str
    arms: tuple[str, ...]
    rows: tuple[R, ...]


MetricTable = ToldTable[MetricRow]
FigureTable = ToldTable[FigureRow]


def tables(record: RunRecord) -> tuple[MetricTable, ...]:
    """The tables of a run, in the order of its matrix and of its scenarios' names."""
    found = []
    for point, part in points(record):
        names = sorted({(trial.workload, trial.scenario) for trial in part.trials})
        for workload, scenario in names:
            own = [t for t in part.trials if (t.workload, t.scenario) == (workload, scenario)]
            rows = _rows(part.arms, own)
            if rows:
                labels = tuple(arm.label for arm in part.arms)
                found.append(ToldTable(workload, scenario, point, labels, rows))
    return tuple(found)


def _rows(arms: Sequence[ArmRecord], trials: Sequence[TrialRecord]) -> tuple[MetricRow, ...]:
    """In the order in which the program tells them; what belongs to a family stays together."""
    told: dict[str, dict[int, list[MetricValue]]] = {}
    for trial in trials:
        if trial.result and trial.result.outcome is Outcome.OK:
            for metric in trial.result.metrics:
                told.setdefault(metric.name, {}).setdefault(trial.arm, []).append(metric)
    families = list(dict.fromkeys(name.partition(".")[0] for name in told))
    ordered = sorted(told, key=lambda name: families.index(name.partition(".")[0]))
    return tuple(_row(name, arms, told[name]) for name in ordered)


def _row(name: str, arms: Sequence[ArmRecord], told: dict[int, list[MetricValue]]) -> MetricRow:
    example = next(iter(told.values()))[0]
    first: float | None = None
    cells = []
    for at, arm in enumerate(arms):
        own = told.get(arm.index, [])
        values = [one.value for one in own if one.value is not None]
        absent = [one.absent for one in own if one.value is None]
        median = statistics.median(values) if values else None
        first = first if at else median
        cells.append(
            MetricCell(
                arm=arm.label,
                median=median,
                minimum=min(values, default=None),
                maximum=max(values, default=None),
                n=len(values),
                ratio=median / first if median is not None and first else None,
                absent=tuple(dict.fromkeys(absent)),
            )
        )
    return MetricRow(name=name, unit=example.unit, better=example.better, cells=tuple(cells))


def figure_tables(record: RunRecord) -> tuple[FigureTable, ...]:
    """The figures of a run, none when its study asks for none."""
    wanted = record.study.figures
    if not wanted:
        return ()
    found = []
    for workload, scenario in sorted({(t.workload, t.scenario) for t in record.trials}):
        arms = {point: counted(part, workload, scenario) for point, part in points(record)}
        every = [arm for own in arms.values() for arm in own]
        ran = {figure.name for figure in wanted if any(_matching(figure, arm) for arm in every)}
        for point, own in arms.items():
            rows = tuple(_figure_row(figure, own, ran=figure.name in ran) for figure in wanted)
            labels = tuple(arm.arm.label for arm in own)
            found.append(ToldTable(workload, scenario, point, labels, rows))
    return tuple(found)


def _figure_row(figure: Figure, arms: Sequence[CountEvidence], *, ran: bool) -> FigureRow:
    """ran: the figure's functions did, under some kernel on some machine of the run."""
    cells = []
    for arm in arms:
        value, absent = _figure_value(figure, arm)
        # A name that runs nowhere is more likely misspelt, inlined or of another kernel than idle.
        if not absent and not ran:
            value, absent = None, f"nothing called {' or '.join(figure.functions)} ran anywhere"
        cells.append(FigureCell(arm=arm.arm.label, value=value, absent=absent))
    return FigureRow(name=figure.name, what=figure.what.strip(), cells=tuple(cells))


def _figure_value(figure: Figure, arm: CountEvidence) -> tuple[float | None, str]:
    """(value, "") or (None, why there is none)."""
    measure = arm.measure(figure.phase or TOTAL)
    if measure is None or not arm.sound:
        reasons = [trial.result.reason for trial in arm.trials if trial.result]
        return None, next(filter(None, (*arm.objections, *reasons)), "it has no counts")
    if not any(stored(arm, one) for one in arm.phases if figure.phase in ("", one.phase)):
        return None, "no functions are stored"
    count = sum(_counted(figure, row) for row in _matching(figure, arm))
    if figure.divide or figure.of:
        whole = figure.divide or _metric(figure.of, arm)
        if whole is None:
            return None, f"the workload told no metric {figure.of}"
        return (whole / count, "") if count else (None, "its functions did not run")
    return (count / measure.operations if figure.per is FigurePer.OPERATION else count), ""


def _metric(name: str, arm: CountEvidence) -> float | None:
    trials = {measure.trial for measure in arm.phases}
    results = [trial.result for trial in arm.used if trial.result and trial.index in trials]
    told = (metric for result in results for metric in result.metrics)
    return next((metric.value for metric in told if metric.name == name), None)


def _matching(figure: Figure, arm: CountEvidence) -> list[FunctionCount]:
    """Rows of the named functions; a name stands for the clones that the compiler made, too."""
    return [
        row
        for measure in arm.phases
        if figure.phase in ("", measure.phase)
        for row in stored(arm, measure)
        if any(
            fnmatchcase(name, pattern)
            for pattern in figure.functions
            for name in {row.function, row.function.partition(".")[0]}
        )
    ]


def _counted(figure: Figure, row: FunctionCount) -> int:
    """A piece that the compiler split off is entered from its own function: that is no call."""
    if figure.count is FigureCount.INSNS:
        return row.insns
    return 0 if PIECE.search(row.function) else row.calls
