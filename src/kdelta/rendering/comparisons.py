# SPDX-License-Identifier: GPL-2.0-or-later
"""Comparisons: those of a run, of two instruments, a gate's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from kdelta.analysis.findings import Report, TimeMeasure
from kdelta.analysis.gate import GateCase, GateResult
from kdelta.errors import SpecError
from kdelta.ladder.counts import Measure
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.metric import plural
from kdelta.rendering.formats import COUNTED, Cell, JudgedCase, View, picked
from kdelta.rendering.sentences import effort
from kdelta.rendering.times import counted, drift, level, ratio
from kdelta.sample import TOTAL, Instrument
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    figure,
    paragraph,
    shortened,
    table_lines,
    verdict_span,
)
from kdelta.table.counts import times
from kdelta.verdict.comparison import Comparison, Verdict

_NUMBERS = ("ratio", "low", "high", "difference", "spread", "p", "alpha")
_WORDS = ("verdict", "grade", "crossing")
_LISTS = ("differences", "reasons")
_JUDGED = (*_NUMBERS, *_WORDS, *_LISTS)
_HEAD = (
    "run", "workload", "scenario", "point", "phase", "old", "new", "operation", "unit",
    "old_per_operation", "new_per_operation", "old_trials", "new_trials",
    *_NUMBERS,
    *_WORDS,
    *_LISTS,
)  # fmt: skip
_LADDER = ("workload", "scenario", "point")
_OPEN = (Verdict.UNDECIDED, Verdict.INVALID)  # of these the table says why


# One kernel in both runs; the same release, whatever each run calls it.
PairedRun = tuple[Rung[Measure], Rung[TimeMeasure]]


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
            same = picked(left, _LADDER) == picked(right, _LADDER)
            if same and (pairs := _pairs(left, right)):
                lines += [*([()] if lines else []), *_section(left, right, pairs)]
    if not lines:
        raise SpecError(
            f"{exact.run_id} and {timed.run_id} have no scenario with a kernel in common",
            action="give two runs of one scenario over the same kernels",
        )
    return lines


def _pairs(left: Ladder[Measure], right: Ladder[TimeMeasure]) -> list[PairedRun]:
    """Kernels of both runs, in the order of the timed one; [] without its first, the baseline."""
    exact = {rung.release: rung for rung in left.rungs if rung.total and rung.release}
    arms = [rung for rung in right.rungs if not rung.control]
    if arms[0].release not in exact:
        return []
    return [(exact[arm.release], arm) for arm in arms if arm.release in exact]


def _section(
    left: Ladder[Measure], right: Ladder[TimeMeasure], pairs: list[PairedRun]
) -> Iterator[Line]:
    exact, timed = [one for one, _ in pairs], [one for _, one in pairs]
    first = exact[0]
    counts = [one.total.per_operation if one.total else None for one in exact]
    base = counts[0]
    paths = [None, *(one / base if base and one is not None else None for one in counts[1:])]
    insns = [ABSENT if one is None else f"{one:.1f}" for one in counts]
    ns = [f"{one.total.per_operation:.2f}" if one.total else ABSENT for one in timed]
    verdicts = [one.comparison.verdict if one.comparison else ABSENT for one in timed]
    yield from paragraph(f"{left.workload}:{left.scenario}", Tone.BOLD)
    yield from paragraph(
        f"instructions per {left.operation} (exact-path, never a time) beside nanoseconds per"
        f" {right.operation} ({right.grade}); ratios new/old against {first.arm}"
    )
    yield ()
    yield from table_lines(
        [
            Column("kernel", shortened([one.arm for one in exact], 24), Tone.BOLD),
            Column("insns", insns, right=True),
            Column("x insns", (ABSENT if path is None else f"x{path:.3f}" for path in paths)),
            Column("ns", ns, right=True),
            Column("x time", (ratio(one.comparison) for one in timed)),
            Column("verdict of time", verdicts),
        ]
    )
    yield ()
    for one, time, path in [*zip(exact, timed, paths, strict=True)][1:]:
        multiple = "an unknown multiple of" if path is None else f"{path:.2f}x"
        head = f"{one.arm} executes {multiple} the instructions of {first.arm}"
        yield from paragraph(f"{head}; {_time_told(right, time.comparison)}.", Tone.BOLD)


def _time_told(right: Ladder[TimeMeasure], found: Comparison | None) -> str:
    if found is None or found.ratio is None or found.interval is None:
        return "its time was not decided"
    if found.verdict in _OPEN:
        return f"its time is {found.verdict}"
    low, high = found.interval
    return (
        f"it takes {found.ratio:.2f}x the time ({right.grade}),"
        f" {level(found.alpha)} interval {low:.2f}-{high:.2f}, {counted(found)}{drift(found, 1)}"
    )


@dataclass(frozen=True, slots=True)
class Compared:
    """Two kernels of a scenario and what their comparison says."""

    ladder: Ladder[Any]
    old: Rung[Any]
    new: Rung[Any]
    comparison: Comparison

    @property
    def operation(self) -> str:
        """What values are per."""
        return self.ladder.operation or "operation"

    @property
    def values(self) -> tuple[float | None, float | None]:
        """Of both kernels, per operation; None: that kernel has none."""
        old, new = (rung.total for rung in (self.old, self.new))
        return old.per_operation if old else None, new.per_operation if new else None

    def phases(self) -> list[dict[str, Any]]:
        """Where there are several, values per operation; a phase has no verdict of its own."""
        old = {measure.phase: measure.per_operation for measure in self.old.phases}
        return [
            {
                "phase": m.phase,
                "operation": m.operation,
                "old_per_operation": old[m.phase],
                "new_per_operation": m.per_operation,
                "ratio": self.new.ratio(m.phase).previous,
            }
            for m in self.new.phases
            if m.phase in old and len(self.new.phases) > 1
        ]


def run_comparisons(report: Report[Any]) -> Iterator[Compared]:
    """Every comparison of a run, in the order of its ladders."""
    for ladder in report.ladders:
        rungs = {rung.arm: rung for rung in ladder.rungs}
        for rung in ladder.rungs:
            old = rungs.get(rung.previous or "")
            if old and rung.comparison:
                yield Compared(ladder, old, rung, rung.comparison)


def show(report: Report[Any]) -> list[Line]:
    """A table for each scenario."""
    lines: list[Line] = []
    for ladder, pairs in groupby(run_comparisons(report), lambda one: one.ladder):
        own = list(pairs)
        at = f", {ladder.point}" if ladder.point else ""
        told = f"{ladder.workload}:{ladder.scenario}{at}: {report.unit} per {own[0].operation}"
        lines += [*([()] if lines else []), *paragraph(told, Tone.BOLD)]
        lines += table_lines(
            [
                Column("old", shortened([one.old.arm for one in own], 24)),
                Column("new", shortened([one.new.arm for one in own], 24), Tone.BOLD),
                Column("old", (figure(one.values[0]) for one in own), right=True),
                Column("new", (figure(one.values[1]) for one in own), right=True),
                Column("ratio", (times(one.comparison.ratio) for one in own), right=True),
                Column("verdict", (verdict_span(one.comparison) for one in own)),
            ]
        )
        for one in own:
            if one.comparison.verdict in _OPEN:
                lines += _reasons(f"{one.old.arm} -> {one.new.arm}", one.comparison)
    return lines or list(paragraph("Nothing was compared: the run has one kernel with values."))


def _reasons(what: str, found: Comparison) -> Iterator[Line]:
    text = f"{what}: {found.verdict}: {'; '.join(found.reasons)}"
    return paragraph(text, VERDICT_TONES[found.verdict])


def document(report: Report[Any]) -> tuple[str, object]:
    """See formats.View."""
    rows = [_fields(one) for one in run_comparisons(report)]
    return "comparisons", {**picked(report, ("run_id", "unit")), "comparisons": rows}


def _fields(one: Compared) -> dict[str, Any]:
    return {
        **picked(one.ladder, _LADDER),
        "old": one.old.arm,
        "new": one.new.arm,
        "operation": one.operation,
        "old_per_operation": one.values[0],
        "new_per_operation": one.values[1],
        "old_trials": one.old.ok,
        "new_trials": one.new.ok,
        "phases": one.phases(),
        **picked(one.comparison, _JUDGED),
    }


def table(report: Report[Any]) -> tuple[Sequence[str], list[Sequence[Cell]]]:
    """A row for each phase, where there are several, and then that of the sum, with the verdict."""
    rows: list[dict[str, Any]] = []
    for one in run_comparisons(report):
        whole = _fields(one) | {"run": report.run_id, "unit": report.unit, "phase": TOTAL}
        of_phase = whole | dict.fromkeys(_JUDGED)
        lists = {name: "; ".join(whole[name]) for name in _LISTS}
        rows += [*(of_phase | phase for phase in one.phases()), whole | lists]
    return _HEAD, [[row[name] for name in _HEAD] for row in rows]


_GATE_HEAD = (
    "run", "baseline_run", "scenario", "old", "new", "operation", "old_value", "new_value",
    "unit", "ratio", "verdict", "grade", "closes", "skipped", "reasons",
)  # fmt: skip


def show_gate(found: GateResult) -> list[Line]:
    """A table, and a sentence for whatever is not the same."""
    lines = list(paragraph(f"{found.old} -> {found.new}, {found.unit} per operation", Tone.BOLD))
    for warned in found.debugging:
        lines += paragraph(warned, Tone.BAD)
    cases = found.cases
    lines += table_lines(
        [
            Column("scenario", shortened([case.name for case in cases], 44), Tone.BOLD),
            Column("old", (figure(case.old) for case in cases), right=True),
            Column("new", (figure(case.new) for case in cases), right=True),
            Column("change", (_gate_change(found, case) for case in cases)),
            Column("", map(_gate_verdict, cases)),
        ]
    )
    for case in cases:
        if case.closes or case.open_question:
            lines += _reasons(case.name, case.comparison)
    return [*lines, (), *paragraph(_gate_conclusion(found), Tone.BOLD)]


def _gate_conclusion(found: GateResult) -> str:
    closing = sum(case.closes for case in found.cases)
    left = sum(case.open_question for case in found.cases)
    if closing:
        return f"FAIL: {plural(closing, 'scenario')} of {len(found.cases)}."
    if not found.cases:
        return "UNDECIDED: nothing was compared; the runs have no scenario in common."
    if found.undecided:
        return f"UNDECIDED: nothing fails, and {plural(left, 'scenario')} cannot be judged."
    return f"PASS: {plural(len(found.cases), 'scenario')}, none to fail on."


def _gate_change(found: GateResult, case: GateCase) -> str:
    if case.skipped:
        return "not supported there"
    ratio = case.comparison.ratio
    words = effort(case.comparison, timed=found.unit != "instructions")
    return words if ratio is None else f"x{ratio:.3f}, {words}"


def _gate_verdict(case: GateCase) -> Span:
    found = Span("skip", Tone.FAINT) if case.skipped else verdict_span(case.comparison)
    return replace(found, text=f"{found.text} FAILS") if case.closes else found


def _gate_document(found: GateResult) -> tuple[str, object]:
    cases = [
        picked(
            case,
            ("name", "operation", "old", "new", "skipped", "closes", "comparison"),
            comparison=picked(case.comparison, COUNTED),
        )
        for case in found.cases
    ]
    names = ("run_id", "baseline_run", "old", "new", "unit", "closed", "undecided", "cases")
    return "gate", picked(found, names, cases=cases)


def _gate_table(found: GateResult) -> tuple[Sequence[str], Iterator[Sequence[Cell]]]:
    rows = (
        (
            found.run_id, found.baseline_run, case.name, found.old, found.new, case.operation,
            case.old, case.new, found.unit, case.comparison.ratio, case.comparison.verdict,
            case.comparison.grade, str(case.closes).lower(), case.skipped,
            "; ".join(case.comparison.reasons),
        )
        for case in found.cases
    )  # fmt: skip
    return _GATE_HEAD, rows


def gate_cases(found: GateResult) -> tuple[str, str, Sequence[JudgedCase]]:
    """See formats.View."""
    told = [
        JudgedCase(
            name=case.name,
            values=(figure(case.old), figure(case.new)),
            change=_gate_change(found, case),
            failed=case.closes,
            skipped=case.skipped or (why if case.open_question else ""),
            why=why,
        )
        for case in found.cases
        for why in ("; ".join(case.comparison.reasons),)
    ]
    # What the values are: who reads a comment or a log of CI sees no other word of it.
    per = {case.operation for case in found.cases if case.operation}
    unit = f"{found.unit} per {per.pop() if len(per) == 1 else 'operation'}"
    counted_ones = "path lengths, counted under emulation, and no times."
    means = counted_ones if found.unit == "instructions" else "less is better."
    title = f"kdelta gate: {found.old} to {found.new}"
    return title, f"{_gate_conclusion(found)} Values are {unit}: {means}", told


GATE_VIEW = View(show=show_gate, document=_gate_document, table=_gate_table, cases=gate_cases)
