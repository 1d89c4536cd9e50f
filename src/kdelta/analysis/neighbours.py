# SPDX-License-Identifier: GPL-2.0-or-later
"""A scenario over the kernels of a lab: each beside the one before it, whichever runs counted them.

Of any two kernels those of one run are compared where one has both, else the newest of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kdelta.analysis.lines import line
from kdelta.analysis.survey import SurveyStep, surveyed
from kdelta.journal.run import RunRecord
from kdelta.ladder.builds import nearest
from kdelta.ladder.counts import CountEvidence, CountMethod
from kdelta.ladder.evidence import compare_arms
from kdelta.ladder.ladders import baseline
from kdelta.sample import TOTAL
from kdelta.verdict.comparison import Comparison

Counted = Sequence[tuple[RunRecord, dict[str, CountEvidence]]]
"""Of one scenario the runs, the newest first, and what each has by kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A kernel beside the one before it in its line.

    record: the run that has it, of a comparison of two runs that of the newer kernel.
    alone: no run has both.
    """

    kernel: str
    previous: str
    comparison: Comparison
    record: RunRecord
    alone: bool
    steps: tuple[SurveyStep, ...]


def is_ladder(record: RunRecord) -> bool:
    """True for a run of kernels in their order: no variants of one source, no control, no gap."""
    return not (
        record.gap or any(arm.control for arm in record.arms) or baseline(record, CountMethod())
    )


def beside(every: Counted, kernels: Sequence[str]) -> Iterator[Neighbour]:
    """Each kernel with a value that has one before it in its line.  kernels: oldest first."""
    above: list[tuple[str, CountEvidence]] = []
    for kernel in kernels:
        seen = next((own[kernel] for _, own in every if kernel in own and own[kernel].total), None)
        if seen is None:
            continue
        own_line = line(seen.arm.kernel)
        able = [(name, arm) for name, arm in above if line(arm.arm.kernel) == own_line]
        if able:
            at = nearest(seen.kernel, [arm.kernel for _, arm in able])
            found = both(every, able[at][0], kernel)
            if found:
                yield _compared(able[at][0], kernel, *found)
        if seen.sound:
            above.append((kernel, seen))


def both(
    every: Counted, old: str, new: str
) -> tuple[RunRecord, RunRecord, CountEvidence, CountEvidence] | None:
    """Two kernels of the newest run that has both, else each of the newest that has it."""
    was = now = None
    for record, own in every:
        first, second = (own.get(name) for name in (old, new))
        first, second = (arm if arm and arm.total else None for arm in (first, second))
        if first and second:
            return record, record, first, second
        was = was or (first and (record, first))
        now = now or (second and (record, second))
    return (was[0], now[0], was[1], now[1]) if was and now else None


def _compared(
    previous: str,
    kernel: str,
    was: RunRecord,
    now: RunRecord,
    old: CountEvidence,
    new: CountEvidence,
) -> Neighbour:
    percent = now.study.thresholds.step_percent
    comparison = compare_arms(CountMethod(step_percent=percent), old, new)
    moves = comparison.verdict.is_step or _a_phase_moves(old, new, percent)
    steps = surveyed(_pair(now, old, new), step_percent=percent).changes if moves else ()
    return Neighbour(
        kernel=kernel,
        previous=previous,
        comparison=comparison,
        record=now,
        alone=was is not now,
        steps=tuple(steps),
    )


def _a_phase_moves(old: CountEvidence, new: CountEvidence, percent: float) -> bool:
    """True where a phase of several changed: then the rules of a survey are asked."""
    if len(new.phases) < 2:
        return False
    values = {phase.phase: phase.per_operation for phase in old.phases if phase.phase != TOTAL}
    return any(
        (was := values.get(phase.phase)) and abs(100 * (phase.per_operation / was - 1)) > percent
        for phase in new.phases
    )


def _pair(record: RunRecord, old: CountEvidence, new: CountEvidence) -> RunRecord:
    """The two kernels as a run of their own."""
    arms = tuple(replace(one.arm, index=at) for at, one in enumerate((old, new)))
    trials = tuple(
        replace(trial, arm=at) for at, one in enumerate((old, new)) for trial in one.trials
    )
    return replace(record, arms=arms, trials=trials)
