# SPDX-License-Identifier: GPL-2.0-or-later
"""Many scenarios over many kernels in one table: which path changed where, by which functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from kdelta.analysis.explanation import Explanation, explain
from kdelta.analysis.findings import Report, report
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import Measure
from kdelta.ladder.evidence import points
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.sample import TOTAL
from kdelta.verdict.comparison import Comparison, Verdict

STEP_PERCENT = 5.0  # of the study that a survey is: it looks for what matters


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyCell:
    """One kernel in one scenario.  ratio: new/old against the nearest kernel above with a count.

    ratio None: there is none, for the reason in `note` ("skip", "invalid", "failed", "not run"),
    or because it is the first count.  undecided: a change beyond the threshold that is no step.
    signless: bytes by string instructions keep it from having a sign, or from being none.  by_hits:
    the layouts that are hit do.
    """

    per_operation: float | None
    ratio: float | None
    note: str
    crossing: str = ""  # "gcc 14 -> gcc 16": the two were built by different compilers
    undecided: bool = False
    signless: bool = False
    by_hits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyPhase:
    """A phase that changed where the sum over the phases did not."""

    name: str
    cells: tuple[SurveyCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow:
    """One scenario: a cell for each kernel, in the run's order.

    inexact: counts hardly repeat; layouts: of the kernel's trees and lists, that it is a mean over.
    """

    reference: str
    point: str
    operation: str
    inexact: bool
    layouts: int
    cells: tuple[SurveyCell, ...]
    phases: tuple[SurveyPhase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyStep:
    """A step between two neighbouring kernels of a scenario, with its functions.

    It is one of the sum over the phases, or of a phase where that is none (explanation.phase).
    phases: of a sum, what the phases did beyond the threshold, by name: new/old.  hit: layouts that
    were hit, old and new, of a scenario that goes over layouts.
    """

    reference: str
    point: str
    explanation: Explanation
    phases: tuple[tuple[str, float], ...] = ()
    hit: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPair:
    """Two neighbouring kernels of a scenario, built alike, that something keeps from an answer."""

    reference: str
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A whole run as a table.  changes: the largest first, each beyond step_percent.

    crossed: such changes that another compiler or other options may have made.  signless, by_hits:
    pairs that bytes by string instructions, or layouts that are hit, leave open.
    """

    report: Report[Measure]
    step_percent: float
    kernels: tuple[str, ...]
    rows: tuple[SurveyRow, ...]
    changes: tuple[SurveyStep, ...]
    crossed: tuple[SurveyStep, ...] = ()
    signless: tuple[OpenPair, ...] = ()
    by_hits: tuple[OpenPair, ...] = ()


def surveyed(record: RunRecord, *, step_percent: float | None = None) -> Survey:
    """Analyse a stored exact run of many scenarios; step_percent None: the study's threshold."""
    found = report(record, step_percent=step_percent)
    kernels = tuple(dict.fromkeys(rung.arm for each in found.ladders for rung in each.rungs))
    parts = dict(points(record))
    every = [
        tuple(_steps(parts[ladder.point], ladder, found.step_percent)) for ladder in found.ladders
    ]
    changes, crossed = (
        [tuple(one for one in own if _is_crossed(one) is wanted) for own in every]
        for wanted in (False, True)
    )
    return Survey(
        report=found,
        step_percent=found.step_percent,
        kernels=kernels,
        rows=tuple(
            _row(ladder, kernels, found.step_percent, own)
            for ladder, own in zip(found.ladders, changes, strict=True)
        ),
        changes=_largest_first(changes),
        crossed=_largest_first(crossed),
        signless=_open(found.ladders, lambda judged: judged.signless),
        by_hits=_open(found.ladders, lambda judged: judged.by_hits),
    )


def _is_crossed(step: SurveyStep) -> bool:
    return not step.explanation.comparison.verdict.is_step


def _largest_first(steps: Iterable[Iterable[SurveyStep]]) -> tuple[SurveyStep, ...]:
    every = chain.from_iterable(steps)
    return tuple(sorted(every, key=lambda one: -one.explanation.comparison.factor))


def _open(
    ladders: Sequence[Ladder[Measure]], why: Callable[[Comparison], str]
) -> tuple[OpenPair, ...]:
    """Of sums; those of two compilers are nobody's answer anyway."""
    return tuple(
        OpenPair(
            reference=ladder.name,
            old=rung.previous or "",
            new=rung.arm,
            why="; ".join(judged.reasons),
        )
        for ladder in ladders
        for rung in ladder.rungs
        if (judged := rung.comparison) and why(judged) and not judged.crossing
    )


def _steps(record: RunRecord, ladder: Ladder[Measure], step_percent: float) -> Iterator[SurveyStep]:
    """Those of the sums, also crossed, and where the sum has none, those of the phases."""

    def explained(rung: Rung[Measure], phase: str) -> Explanation:
        return explain(
            record,
            rung.previous or "",
            rung.arm,
            scenario=ladder.reference,
            phase=phase,
            step_percent=step_percent,
        )

    rungs = {rung.arm: rung for rung in ladder.rungs}
    for rung in ladder.rungs:
        # A scenario with one phase has that as its sum.
        moved = tuple(
            (phase, ratio)
            for phase in ladder.phases
            if len(ladder.phases) > 1 and (ratio := rung.ratio(phase).previous)
            if _beyond(ratio, step_percent)
        )
        judged = rung.comparison
        if rung.previous and judged and (judged.verdict.is_step or crossed(judged, step_percent)):
            yield SurveyStep(
                reference=ladder.reference,
                point=ladder.point,
                explanation=explained(rung, TOTAL),
                phases=moved,
                hit=_hit(rungs[rung.previous], rung),
            )
            continue
        for phase, _ in moved:
            found = explained(rung, phase)
            if found.comparison.verdict.is_step:
                yield SurveyStep(reference=ladder.reference, point=ladder.point, explanation=found)


def _hit(old: Rung[Measure], new: Rung[Measure]) -> tuple[int, int] | None:
    was, now = (rung.total.layouts if rung.total else None for rung in (old, new))
    return (was.hit, now.hit) if was and now else None


def crossed(judged: Comparison, step_percent: float) -> bool:
    """True for a change that a compiler or options leave undecided."""
    apart = judged.verdict is Verdict.UNDECIDED and bool(judged.crossing)
    return apart and _beyond(judged.ratio, step_percent)


def _beyond(ratio: float | None, step_percent: float) -> bool:
    return abs(100 * ((ratio or 1) - 1)) > step_percent


def _row(
    ladder: Ladder[Measure],
    kernels: tuple[str, ...],
    step_percent: float,
    steps: Sequence[SurveyStep],
) -> SurveyRow:
    rungs = {rung.arm: rung for rung in ladder.rungs}
    inexact = any(m.kind == "median" for rung in ladder.rungs for m in rung.phases)
    layouts = [rung.total.layouts for rung in ladder.rungs if rung.total]
    decided = {(step.explanation.phase, step.explanation.new) for step in steps}

    def of(phase: str) -> tuple[SurveyCell, ...]:
        return tuple(
            _cell(
                rungs.get(kernel),
                phase,
                step_percent,
                decided=bool({(TOTAL, kernel), (phase, kernel)} & decided),
            )
            for kernel in kernels
        )

    cells = of(TOTAL)
    phases = (SurveyPhase(name=phase, cells=of(phase)) for phase in ladder.phases)
    return SurveyRow(
        reference=ladder.reference,
        point=ladder.point,
        operation=ladder.operation or "",
        inexact=inexact,
        layouts=max((len(each.counts) for each in layouts if each), default=1),
        cells=cells,
        phases=tuple(each for each in phases if _says_more(each, cells, step_percent)),
    )


def _says_more(phase: SurveyPhase, cells: tuple[SurveyCell, ...], step_percent: float) -> bool:
    """True for a phase that changed between two kernels where the sum did not."""
    return any(
        _beyond(own.ratio, step_percent) and not _beyond(total.ratio, step_percent)
        for own, total in zip(phase.cells, cells, strict=True)
    )


def _cell(
    rung: Rung[Measure] | None, phase: str, step_percent: float, *, decided: bool
) -> SurveyCell:
    if rung is None or not rung.done:
        return SurveyCell(per_operation=None, ratio=None, note="not run")
    if rung.total is None:
        return SurveyCell(per_operation=None, ratio=None, note="skip" if rung.skipped else "failed")
    judged = rung.comparison
    measure = next((one for one in (rung.total, *rung.phases) if one.phase == phase), None)
    ratio, crossing = rung.ratio(phase).previous, judged.crossing if judged else ""
    note = "invalid" if judged and judged.verdict is Verdict.INVALID else ""
    signless = bool(phase == TOTAL and judged and judged.signless)
    by_hits = bool(phase == TOTAL and judged and judged.by_hits)
    moved = not crossing and not note and _beyond(ratio, step_percent)
    return SurveyCell(
        per_operation=measure.per_operation if measure else None,
        ratio=ratio,
        note=note,
        crossing=crossing,
        undecided=signless or by_hits or (moved and not decided),
        signless=signless,
        by_hits=by_hits,
    )


def quiet(found: Survey) -> int:
    """Scenarios in which nothing changed beyond the threshold and every kernel has a count."""
    changed = {(change.reference, change.point) for change in found.changes}
    return sum(
        (row.reference, row.point) not in changed
        and not any(
            cell.note
            or cell.undecided
            or (cell.crossing and _beyond(cell.ratio, found.step_percent))
            for cells in (row.cells, *(phase.cells for phase in row.phases))
            for cell in cells
        )
        for row in found.rows
    )
