# SPDX-License-Identifier: GPL-2.0-or-later
"""The comparisons of a run, a row for each pair of kernels: `kdelta show --comparisons`.

And path length and time of the same kernels side by side, each with its own grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.findings import Report
from kdelta.analysis.times import TimeMeasure
from kdelta.errors import SpecError
from kdelta.ladder.counts import Measure
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.metric import number
from kdelta.rendering.formats import Cell, picked
from kdelta.rendering.times import counted, drift, level, ratio
from kdelta.sample import TOTAL, Instrument
from kdelta.table.columns import (
    ABSENT,
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
class SideBySide:
    """One kernel in both runs; the same release, whatever each run calls it."""

    exact: Rung[Measure]
    timed: Rung[TimeMeasure]


def show_side_by_side(one: Report[Any], other: Report[Any]) -> list[Line]:
    """Both runs' scenarios that have kernels in common.  Raises SpecError when none has."""
    runs = {report.instrument: report for report in (one, other)}
    if len(runs) < 2:
        raise SpecError(
            "both runs are of the same instrument", action="give one exact run and one of time"
        )
    exact: Report[Measure]
    timed: Report[TimeMeasure]
    exact, timed = runs[Instrument.EXACT], runs[Instrument.TIME]
    lines: list[Line] = []
    for left in exact.ladders:
        for right in timed.ladders:
            pairs = _pairs(left, right)
            if _case(left) == _case(right) and pairs:
                lines += [*([()] if lines else []), *_section(left, right, pairs)]
    if not lines:
        raise SpecError(
            f"{exact.run_id} and {timed.run_id} have no scenario with a kernel in common",
            action="give two runs of one scenario over the same kernels",
        )
    return lines


def _case(ladder: Ladder[Any]) -> tuple[str, str, str]:
    return ladder.workload, ladder.scenario, ladder.point


def _pairs(left: Ladder[Measure], right: Ladder[TimeMeasure]) -> list[SideBySide]:
    """Kernels of both runs, in the order of the timed one; [] without its first, the baseline."""
    exact = {rung.release: rung for rung in left.rungs if rung.total and rung.release}
    arms = [rung for rung in right.rungs if not rung.control]
    if arms[0].release not in exact:
        return []
    return [SideBySide(exact=exact[arm.release], timed=arm) for arm in arms if arm.release in exact]


def _section(
    left: Ladder[Measure], right: Ladder[TimeMeasure], pairs: list[SideBySide]
) -> Iterator[Line]:
    yield from paragraph(f"{left.workload}:{left.scenario}", Tone.BOLD)
    yield from paragraph(
        f"instructions per {left.operation} (exact-path, never a time) beside nanoseconds per"
        f" {right.operation} ({right.grade}); ratios new/old against {pairs[0].exact.arm}"
    )
    yield ()
    yield from table_lines(
        [
            Column("kernel", shortened([p.exact.arm for p in pairs], 24), Tone.BOLD),
            Column("insns", (_insns(p) for p in pairs), right=True),
            Column("x insns", (_times(_path_ratio(pairs, p)) for p in pairs)),
            Column("ns", (_ns(p) for p in pairs), right=True),
            Column("x time", (ratio(p.timed.comparison) for p in pairs)),
            Column("verdict of time", (_worded_verdict(p) for p in pairs)),
        ]
    )
    yield ()
    for pair in pairs[1:]:
        yield from paragraph(_sentence(right, pairs, pair), Tone.BOLD)


def _insns(pair: SideBySide) -> str:
    return f"{pair.exact.total.per_operation:.1f}" if pair.exact.total else ABSENT


def _ns(pair: SideBySide) -> str:
    return f"{pair.timed.total.per_operation:.2f}" if pair.timed.total else ABSENT


def _path_ratio(pairs: list[SideBySide], pair: SideBySide) -> float | None:
    old, new = pairs[0].exact.total, pair.exact.total
    if pair is pairs[0] or old is None or new is None or not old.per_operation:
        return None
    return new.per_operation / old.per_operation


def _times(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"x{ratio:.3f}"


def _worded_verdict(pair: SideBySide) -> str:
    return pair.timed.comparison.verdict if pair.timed.comparison else ABSENT


def _sentence(right: Ladder[TimeMeasure], pairs: list[SideBySide], pair: SideBySide) -> str:
    path = _path_ratio(pairs, pair)
    head = f"{pair.exact.arm} executes {_plain(path)} the instructions of {pairs[0].exact.arm}"
    found = pair.timed.comparison
    if found is None or found.ratio is None or found.interval is None:
        return f"{head}; its time was not decided."
    if found.verdict in (Verdict.UNDECIDED, Verdict.INVALID):
        return f"{head}; its time is {found.verdict}."
    low, high = found.interval
    return (
        f"{head}; it takes {found.ratio:.2f}x the time ({right.grade}),"
        f" {level(found.alpha)} interval {low:.2f}-{high:.2f}, {counted(found)}{drift(found, 1)}."
    )


def _plain(ratio: float | None) -> str:
    return "an unknown multiple of" if ratio is None else f"{ratio:.2f}x"


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
