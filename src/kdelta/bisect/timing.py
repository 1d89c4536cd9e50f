# SPDX-License-Identifier: GPL-2.0-or-later
"""The time instrument: points are timed in blocks with both ends until their side is sure.

A block is one boot each of the good end, the point and the bad end, so that what moves the whole
machine moves all three (bisect.side).  A point that stays undecided is skipped, and told.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace

from kdelta.analysis.findings import timing_of
from kdelta.analysis.times import TimeMeasure, per_operation
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.judging import Findings, record
from kdelta.bisect.measuring import Measurer
from kdelta.bisect.place import Standing, place
from kdelta.bisect.search import Mark
from kdelta.bisect.side import (
    Block,
    Contrast,
    Scatter,
    Side,
    contrast_of_blocks,
    contrast_of_places,
    levels,
    weigh,
)
from kdelta.errors import InfraError
from kdelta.kernels.kernel import Kernel
from kdelta.ladder.evidence import read_back, weighed_by_builds
from kdelta.metric import Grade
from kdelta.sample import Outcome, TrialResult
from kdelta.stats.detectors import MIN_REPLICATES
from kdelta.verdict.comparison import Comparison, Verdict

BUDGET = 20  # blocks for one point
_MOST_LOST = 3  # blocks of a point that may fail


class BlockTiming:
    """The time instrument; see judging.PointInstrument."""

    def __init__(
        self,
        journal: Journal,
        measure: Measurer,
        kernel_of: Callable[[Point], Kernel],
        points: int,
        *,
        budget: int = BUDGET,
    ) -> None:
        """kernel_of: an end's kernel, fetched or built.  points: there are to search."""
        self._journal = journal
        self._measure = measure
        self._kernel_of = kernel_of
        self._time = journal.state.question.study.time
        # Any of the points on the way could be taken for the wrong side.
        self._alpha = self._time.alpha / max(1, (points - 1).bit_length())
        self._budget = budget
        self._ends: dict[str, Kernel] = {}

    def findings(self, extra: BisectStep | None = None) -> BlockFindings:
        """See judging.PointInstrument."""
        method = timing_of(record(self._journal), level=self._time.alpha)
        return BlockFindings(self._journal, method, extra=extra)

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """See judging.PointInstrument."""
        good, bad = self._journal.state.points[0], self._journal.state.points[-1]
        step = BisectStep(key=point.key, mark=Mark.SKIP, kernel=kernel.identity(), build_s=build_s)
        if point == good:
            self._ends[good.key] = kernel
            return self._first(step, kernel)
        if point == bad:
            self._ends[bad.key] = kernel
            done = self._blocks(step, kernel, self._ends_decided)
        else:
            done = self._blocks(step, kernel, self._side_decided)
        why = done.why or self.findings(done).fault(point)
        if why:
            return replace(done, why=why)
        return replace(done, mark=Mark.BAD) if point == bad else self._judged(done)

    def _first(self, step: BisectStep, kernel: Kernel) -> BisectStep:
        """The good end alone: whether it can be timed at all; its times come with the blocks."""
        trial = self._journal.new_trial()
        self._timed(kernel, trial)
        step = replace(step, trials=(trial,))
        why = self.findings(step).fault(self._journal.state.points[0])
        return replace(step, mark=Mark.SKIP if why else Mark.GOOD, why=why)

    def _blocks(
        self, step: BisectStep, kernel: Kernel, decided: Callable[[list[Block]], bool]
    ) -> BisectStep:
        """Time blocks until it is decided, or the budget is spent."""
        good, bad = (self._end(at) for at in (0, -1))
        is_end = step.key == self._journal.state.points[-1].key
        blocks: list[Block] = []
        lost = 0
        number = self._journal.new_trial()
        while len(blocks) < self._budget and not decided(blocks):
            kernels = (good, kernel) if is_end else (good, kernel, bad)
            trials = tuple(range(number, number + len(kernels)))
            number += len(kernels)
            results = [self._timed(one, trial) for one, trial in zip(kernels, trials, strict=True)]
            step = replace(
                step,
                trials=(*step.trials, trials[1]),
                blocks=(*step.blocks, (trials[0], trials[1], trials[-1])),
            )
            why = _failure(results[1], self._phase())
            if why:
                return replace(step, why=why)
            block = _block(results, self._phase())
            if block:
                blocks.append(block)
            elif (lost := lost + 1) >= _MOST_LOST:
                raise InfraError(
                    f"an end failed in {lost} blocks that were to be timed beside {step.key}",
                    action="look at the consoles in the folder, then give the same command",
                )
        return step

    def _judged(self, step: BisectStep) -> BisectStep:
        """The step with its side, when that is sure."""
        times = self.findings()
        own = times.blocks(step)
        found = weigh(own, budget=self._budget, alpha=self._alpha, scatter=times.scatter())
        position = found.position if found.position is not None else math.nan
        if found.side is Side.UNDECIDED:
            where = (
                f"{100 * position:.0f} % of the way, give or take {100 * (found.error or 0):.0f}"
            )
            why = f"undecided after {found.blocks} blocks: {where}"
            return replace(step, standing=Standing.UNKNOWN, position=round(position, 4), why=why)
        seen = place(math.exp(position), good=1.0, bad=math.e)
        return replace(
            step,
            mark=Mark.GOOD if found.side is Side.GOOD else Mark.BAD,
            standing=seen.standing,
            beyond=seen.beyond,
            position=round(position, 4),
        )

    def _side_decided(self, blocks: list[Block]) -> bool:
        scatter = self.findings().scatter()
        return not weigh(blocks, budget=self._budget, alpha=self._alpha, scatter=scatter).more

    def _ends_decided(self, blocks: list[Block]) -> bool:
        count = len(blocks)
        if count < MIN_REPLICATES:
            return False
        alpha = levels(self._budget, self._time.alpha)[count - MIN_REPLICATES]
        widths = [block.width for block in blocks]
        found = contrast_of_blocks(
            widths, tolerance=self._time.tolerance_percent / 100, alpha=alpha
        )
        return found is not None and (found.same or found.differs)

    def _end(self, at: int) -> Kernel:
        point = self._journal.state.points[at]
        if point.key not in self._ends:
            self._ends[point.key] = self._kernel_of(point)
        return self._ends[point.key]

    def _timed(self, kernel: Kernel, trial: int) -> TrialResult:
        result = self._measure(kernel, trial, self._journal.folder)
        self._journal.keep(trial, result)
        return result

    def _phase(self) -> str:
        return self._journal.state.question.phase


class BlockFindings(Findings[TimeMeasure]):
    """Everything that a bisection has timed so far."""

    def value(self, point: Point) -> float | None:
        """The median over the boots of a point that was weighed, and of an end."""
        step = self.journal.steps.get(self.booted(point).key)
        weighed = step and (step.standing is not None or step.mark is not Mark.SKIP)
        return super().value(point) if weighed else None

    def compare(self, old: Point, new: Point) -> Comparison:
        """By the blocks in which both were, else by their places."""
        time = self.journal.state.question.study.time
        tolerance = time.tolerance_percent / 100
        was, now = self.booted(old), self.booted(new)
        pairs = self._pairs(was, now)
        if pairs is not None:
            found = contrast_of_blocks(pairs, tolerance=tolerance, alpha=time.alpha)
        else:
            places = [[block.place for block in self._of(point)] for point in (was, now)]
            found = contrast_of_places(*places, tolerance=tolerance, alpha=time.alpha)
        kernels = [read_back(arm.arm, arm.used) for arm in map(self.arm, (was, now)) if arm]
        weighed = _comparison(found, tolerance)
        if len(kernels) < 2:
            return weighed
        return weighed_by_builds(weighed, *kernels, scenario=self.journal.state.question.scenario)

    def blocks(self, step: BisectStep) -> list[Block]:
        """The blocks of a step that were measured whole."""
        found = (
            _block([self.journal.result(trial) for trial in trials], self.phase)
            for trials in step.blocks
        )
        return [block for block in found if block is not None]

    def scatter(self) -> Scatter:
        """What all points but the ends say of the scatter."""
        total = Scatter()
        for step in self.journal.state.steps:
            if step.key != self.journal.state.points[-1].key:
                total = total.plus(self.blocks(step))
        return total

    def _of(self, point: Point) -> list[Block]:
        step = self.journal.steps.get(point.key)
        return self.blocks(step) if step else []

    def _pairs(self, old: Point, new: Point) -> list[float] | None:
        """log(new) - log(old) in the blocks that had both; None: one of them is no end."""
        good, bad = self.journal.state.points[0], self.journal.state.points[-1]
        if old == good:
            return [math.log(block.point / block.good) for block in self._of(new)]
        if new == bad:
            return [math.log(block.bad / block.point) for block in self._of(old)]
        return None


def _comparison(found: Contrast | None, tolerance: float) -> Comparison:
    grade = Grade.GUEST_TIME  # no other machine can be booted into kernel after kernel
    if found is None:
        reasons = ("too few blocks were timed",)
        return Comparison(verdict=Verdict.UNDECIDED, grade=grade, reasons=reasons)
    percent = f"{100 * (found.ratio - 1):+.1f} % (p = {found.p:.2g})"
    if found.same:
        verdict, reason = Verdict.SAME, f"{percent}, within {100 * tolerance:g} %"
    elif found.differs:
        verdict = Verdict.REGRESSION if found.ratio > 1 else Verdict.IMPROVEMENT
        reason = percent
    else:
        verdict, reason = Verdict.UNDECIDED, f"{percent}: the boots scatter too much to say"
    return Comparison(verdict=verdict, grade=grade, reasons=(reason,), ratio=found.ratio)


def _block(results: list[TrialResult], phase: str) -> Block | None:
    """A block of (good, point, bad) or (good, bad); None: a part of it has no times."""
    values = [reading(result, phase) for result in results]
    known = [value for value in values if value is not None and value > 0]
    if len(known) != len(results):
        return None
    return Block(good=known[0], point=known[1], bad=known[-1])


def reading(result: TrialResult, phase: str) -> float | None:
    """Nanoseconds per operation of a trial, in one phase or all: the median sample."""
    values = per_operation(result, phase)[1] if result.outcome is Outcome.OK else ()
    return statistics.median(values) if values else None


def _failure(result: TrialResult, phase: str) -> str:
    """Why a trial says nothing, "" when it does."""
    if result.outcome is not Outcome.OK:
        return f"{result.outcome}: {result.reason}"
    return "" if reading(result, phase) is not None else f"it has no phase {phase}"
