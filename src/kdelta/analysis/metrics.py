# SPDX-License-Identifier: GPL-2.0-or-later
"""What is said beside the phases, and never judged: metrics of workloads, figures of a study.

A workload prints its metrics; a study asks for figures out of the functions that ran, by arm.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, NamedTuple, TypeVar

from kdelta.analysis.explanation import PIECE, stored
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import CountEvidence, counted
from kdelta.ladder.evidence import parts, points
from kdelta.metric import Better
from kdelta.sample import (
    TOTAL,
    ArmRecord,
    FunctionCount,
    MetricValue,
    Outcome,
    TraceData,
    TracePhase,
    TraceRow,
    TrialRecord,
)
from kdelta.study.probes import TracePer
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
        labels = tuple(arm.label for arm in part.arms)
        for case in sorted({(trial.workload, trial.scenario) for trial in part.trials}):
            own = [t for t in part.trials if (t.workload, t.scenario) == case]
            if rows := _rows(part.arms, own):
                found.append(ToldTable(*case, point, labels, rows))
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
    found = []
    cases = {(trial.workload, trial.scenario) for trial in record.trials if wanted}
    for workload, scenario in sorted(cases):
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


# ---- the hits of a traced run, kernel beside kernel, without any verdict -------------------------

# Tracing disturbs what it watches, so nothing here is compared with counts or times.


_Keyed = tuple[str, str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsCell:
    """Hits on one kernel: the fewest and the most per iteration, or per run.

    None where there are none, for the reason in `absent`.  ratio: to the first kernel, where both
    repeat and neither is zero.
    """

    arm: str
    fewest: float | None = None
    most: float | None = None
    ratio: float | None = None
    absent: str = ""

    @property
    def repeats(self) -> bool:
        """True when it was the same number each time."""
        return self.fewest is not None and self.fewest == self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsRow:
    """Something that is watched, or one of its values.  whole: of one whole run, with set-up."""

    watch: str
    key: str
    whole: bool
    cells: tuple[HitsCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTable:
    """One scenario at one point of the matrix.

    per: iteration or run.  phases: what an iteration does.  rows: what is watched in the study's
    order, each with its values behind it.  doubts: what was not counted, reasons: why something was
    not watched at all; one sentence each.
    """

    workload: str
    scenario: str
    point: str
    arms: tuple[str, ...]
    per: str
    phases: tuple[TracePhase, ...]
    rows: tuple[HitsRow, ...]
    doubts: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTraces:
    """A traced run."""

    run_id: str
    title: str
    tables: tuple[TraceTable, ...]


def traced(record: RunRecord) -> RunTraces | None:
    """The tables of a traced run; None for a run of another instrument."""
    if record.instrument.traits.judged:
        return None
    tables = (_table(part, point, *case) for point, part, *case in parts(record))
    return RunTraces(run_id=record.run_id, title=record.title, tables=tuple(tables))


class _Arm(NamedTuple):
    """An arm's valid trials, and why there are none."""

    label: str
    seen: tuple[TraceData, ...]
    fault: str

    def samples(self, key: _Keyed) -> list[float]:
        """Hits of a row each time that they were counted, per turn."""
        found: list[float] = []
        for data in self.seen:
            turns = (1,) if key[2] else data.turns
            row = next((row for row in data.rows if _key(row) == key), None)
            hits = row.hits if row else (0,) * len(turns)
            found += [count / each for count, each in zip(hits, turns, strict=True)]
        return found

    def absent(self, watch: str) -> str:
        """Why it was not watched, "" when it was."""
        if not self.seen:
            return self.fault or "not yet traced"
        if any(row.watch == watch for data in self.seen for row in data.rows):
            return ""  # a graph of several functions is one, and has what could be had of them
        named = {one.watch: one.reason for data in self.seen for one in data.skipped}
        return named.get(watch, "not watched there")


def _key(row: TraceRow) -> _Keyed:
    return row.watch, row.key, row.whole


def _table(record: RunRecord, point: str, workload: str, scenario: str) -> TraceTable:
    case = workload, scenario
    trials = [trial for trial in record.trials if (trial.workload, trial.scenario) == case]
    arms = [_arm(a.label, [t for t in trials if t.arm == a.index]) for a in record.arms]
    every = [data for arm in arms for data in arm.seen]
    doubts = [f"{a.label}: {doubt}" for a in arms for data in a.seen for doubt in data.doubts]
    return TraceTable(
        workload=workload,
        scenario=scenario,
        point=point,
        arms=tuple(arm.label for arm in arms),
        per=every[0].per if every else TracePer.ITERATION,
        phases=every[0].phases if every else (),
        rows=tuple(_hits_rows(arms, record.study.trace.watch)),
        doubts=tuple(dict.fromkeys(doubts)),
        reasons=(*(f"{arm.label}: {arm.fault}" for arm in arms if arm.fault), *_skips(arms)),
    )


def _arm(label: str, trials: Sequence[TrialRecord]) -> _Arm:
    ended = [trial.result for trial in trials if trial.result]
    bad = [one for one in ended if one.outcome is not Outcome.OK]
    good = [one.traced for one in ended if one.outcome is Outcome.OK]
    seen = tuple(
        data
        for data in good
        if data
        and min(data.turns, default=0) > 0
        and all(len(row.hits) == (1 if row.whole else len(data.turns)) for row in data.rows)
    )
    if bad:
        return _Arm(label, seen, f"{bad[0].outcome}: {bad[0].reason or 'it gave no reason'}")
    told = "its hits do not fit the times that they were counted"
    return _Arm(label, seen, "" if len(seen) == len(good) else told)


def _skips(arms: Sequence[_Arm]) -> tuple[str, ...]:
    found: dict[str, dict[str, None]] = {}
    for arm in arms:
        for one in (one for data in arm.seen for one in data.skipped):
            found.setdefault(f"{one.watch}: {one.reason}", {})[arm.label] = None
    return tuple(
        text if len(arms) == len(labels) > 1 else f"{', '.join(labels)}: {text}"
        for text, labels in found.items()
    )


def _hits_rows(arms: Sequence[_Arm], watched: Sequence[str]) -> list[HitsRow]:
    keys = {_key(row): max(row.hits) for arm in arms for data in arm.seen for row in data.rows}
    told = {key[0] for key in keys}
    graphs = told - {*watched}
    graphed = {name for graph in graphs for name in graph.split(", ")}
    keys |= {(name, "", False): 0 for name in watched if name not in told | graphed}
    order = {name: at for at, name in enumerate([*watched, *sorted(graphs)])}

    def place(key: _Keyed) -> tuple[int, bool, bool, int, str]:
        return order[key[0]], bool(key[1]), key[1].startswith("["), -keys[key], key[1]

    return [
        HitsRow(watch=key[0], key=key[1], whole=key[2], cells=_hits_cells(arms, key))
        for key in sorted(keys, key=place)
    ]


def _hits_cells(arms: Sequence[_Arm], key: _Keyed) -> tuple[HitsCell, ...]:
    found: list[HitsCell] = []
    for arm in arms:
        if absent := arm.absent(key[0]):
            found.append(HitsCell(arm=arm.label, absent=absent))
            continue
        samples = arm.samples(key)
        fewest, most, ratio = min(samples), max(samples), None
        if found and found[0].repeats and found[0].fewest and fewest == most != 0:
            ratio = fewest / found[0].fewest
        found.append(HitsCell(arm=arm.label, fewest=fewest, most=most, ratio=ratio))
    return tuple(found)
