# SPDX-License-Identifier: GPL-2.0-or-later
"""What a bisection amounts to: the neighbours that differ, or why there are none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kdelta.bisect.commits import Commit
from kdelta.bisect.evidence import Findings, NeighbourChange
from kdelta.bisect.journal import Journal, Point
from kdelta.bisect.search import Found, Mark
from kdelta.verdict.comparison import Comparison, Verdict


class Ending(StrEnum):
    """How a bisection ended."""

    STEP = "step"  # two neighbours differ
    RANGE = "range"  # between the two that differ lie points that could not be measured
    GRADUAL = "gradual"  # the neighbours that it came down to do not differ: many small changes
    SAME = "same"  # the ends do not differ, so there is nothing to find
    UNDECIDED = "undecided"  # the ends scatter too much, or have no sign
    INVALID = "invalid"  # an end cannot be measured, or must not be compared


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionResult:
    """The result of a bisection.

    good, bad: the neighbours (for SAME, UNDECIDED and INVALID the ends), values per operation,
    None when not measured.  share: of the whole change between the ends, on the scale of
    logarithms.  skipped: what lies between good and bad.  others: further changes that were seen
    on the way.  back: measured points that are like the good end although an earlier one is not,
    each with that earlier one.  culprit: the commit, if a single one was found; else it is one of
    the candidates, of which a merge stands for what it brought.
    """

    ending: Ending
    reasons: tuple[str, ...]
    good: Point
    bad: Point
    good_value: float | None
    bad_value: float | None
    unit: str
    comparison: Comparison | None = None
    share: float | None = None
    skipped: tuple[Point, ...] = ()
    others: tuple[NeighbourChange, ...] = ()
    back: tuple[tuple[Point, Point], ...] = ()
    culprit: Commit | None = None
    candidates: tuple[Commit, ...] = ()


def of_ends(journal: Journal, findings: Findings[Any]) -> BisectionResult | None:
    """Why there is nothing to search, as far as the ends are measured; None: go on."""
    good, bad = journal.state.points[0], journal.state.points[-1]
    for side, end in (("good", good), ("bad", bad)):
        step = journal.steps.get(end.key)
        if step is None:
            return None
        if step.mark is Mark.SKIP:
            reason = f"the {side} end {end.label} cannot be measured: {step.why}"
            return _without_change(Ending.INVALID, (reason,), journal, findings)
    comparison = findings.compare(good, bad)
    if comparison.verdict.is_step:
        return None
    endings = {Verdict.SAME: Ending.SAME, Verdict.UNDECIDED: Ending.UNDECIDED}
    ending = endings.get(comparison.verdict, Ending.INVALID)
    return _without_change(ending, comparison.reasons, journal, findings, comparison)


def of_search(journal: Journal, findings: Findings[Any], found: Found) -> BisectionResult:
    """The outcome of a search over the journal's points that came to its end."""
    points = journal.state.points
    good, bad = points[found.good], points[found.bad]
    return of_pair(
        journal,
        findings,
        good,
        bad,
        skipped=[points[at] for at in found.skipped],
        back=[(points[first], points[second]) for first, second in found.reversals],
    )


def of_pair(
    journal: Journal,
    findings: Findings[Any],
    good: Point,
    bad: Point,
    *,
    skipped: Iterable[Point] = (),
    back: Iterable[tuple[Point, Point]] = (),
) -> BisectionResult:
    """The outcome when the change is between these two, both measured."""
    between = tuple(skipped)
    comparison = findings.compare(good, bad)
    ending = Ending.RANGE if between else Ending.STEP
    if comparison.verdict is Verdict.SAME:
        ending = Ending.GRADUAL
    elif not comparison.verdict.is_step:
        ending = Ending.UNDECIDED
    ends = journal.state.points[0], journal.state.points[-1]
    old, new, first, last = (findings.value(point) for point in (good, bad, *ends))
    share = None
    if old and new and first and last:
        share = math.log(new / old) / math.log(last / first)
    return BisectionResult(
        ending=ending,
        reasons=comparison.reasons,
        good=good,
        bad=bad,
        good_value=old,
        bad_value=new,
        unit=findings.unit(),
        comparison=comparison,
        share=share,
        skipped=between,
        others=tuple(one for one in findings.changes() if (one.old, one.new) != (good, bad)),
        back=tuple(back),
    )


def _without_change(
    ending: Ending,
    reasons: tuple[str, ...],
    journal: Journal,
    findings: Findings[Any],
    comparison: Comparison | None = None,
) -> BisectionResult:
    good, bad = journal.state.points[0], journal.state.points[-1]
    return BisectionResult(
        ending=ending,
        reasons=reasons,
        good=good,
        bad=bad,
        good_value=findings.value(good),
        bad_value=findings.value(bad),
        unit=findings.unit(),
        comparison=comparison,
    )


def boots(journal: Journal) -> int:
    """Trials that were started, the failed ones included."""
    steps = journal.state.steps
    beside = {number for step in steps for block in step.blocks for number in block}
    return len(beside | {number for step in steps for number in step.trials})


def builds(journal: Journal) -> int:
    """Kernels that were built or tried to be."""
    return sum(step.build_s is not None for step in journal.state.steps)
