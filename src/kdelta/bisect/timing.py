# SPDX-License-Identifier: GPL-2.0-or-later
"""The time instrument: a point is timed in blocks with both ends, and compared with each of them.

A block is one boot each of the good end, the point and the bad end, so that what moves the whole
machine moves all three.  Times are corrected by it: each is divided by the middle of the two ends
of its block.  The comparisons are those of every timed run (stats.timing).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from kdelta.analysis.methods import timing_of
from kdelta.analysis.times import TimeMeasure, per_operation
from kdelta.bisect.evidence import Findings, record
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.measuring import Measurer
from kdelta.bisect.position import Likeness, locate
from kdelta.bisect.search import Mark
from kdelta.errors import InfraError
from kdelta.kernels.kernel import Kernel
from kdelta.metric import Grade
from kdelta.sample import Outcome, TrialResult
from kdelta.stats.timing import compare
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.verdict.series import Series

LOOKS = (10, 20)  # blocks of a point after which it is judged
_MOST_LOST = 3  # blocks of a point in which an end may fail
Block = tuple[int, int, int]  # numbers of trials: of the good end, the point, the bad end


class BlockTiming:
    """The time instrument; see measuring.PointInstrument."""

    def __init__(
        self,
        journal: Journal,
        measure: Measurer,
        kernel_of: Callable[[Point], Kernel],
        points: int,
    ) -> None:
        """kernel_of: an end's kernel, fetched or built.  points: there are to search."""
        self._journal = journal
        self._measure = measure
        self._kernel_of = kernel_of
        # Any of the points on the way could be taken for the wrong side, at any look.
        looks = len(LOOKS) * max(1, (points - 1).bit_length())
        self._alpha = journal.state.question.study.time.alpha / looks
        self._ends: dict[str, Kernel] = {}

    def findings(self, extra: BisectStep | None = None) -> BlockFindings:
        """See measuring.PointInstrument."""
        alpha = self._journal.state.question.study.time.alpha
        method = timing_of(record(self._journal), level=alpha)
        return BlockFindings(self._journal, method, extra=extra)

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """See measuring.PointInstrument."""
        good, bad = self._journal.state.points[0], self._journal.state.points[-1]
        step = BisectStep(key=point.key, mark=Mark.SKIP, kernel=kernel.identity(), build_s=build_s)
        if point in (good, bad):
            self._ends[point.key] = kernel
        if point == good:
            return self._first(step, kernel)
        for blocks in LOOKS:
            step = self._timed_blocks(step, kernel, blocks)
            found = self.findings(step)
            if why := step.why or found.fault(point):
                return replace(step, why=why)
            step = self._judged_end(step, found) if point == bad else self._judged(step, found)
            if step.mark is not Mark.SKIP and not step.why:
                return step
            if blocks != LOOKS[-1]:
                step = replace(step, why="")
        return replace(step, mark=Mark.BAD, why="") if point == bad else step

    def _first(self, step: BisectStep, kernel: Kernel) -> BisectStep:
        """The good end alone: whether it can be timed at all; its times come with the blocks."""
        trial = self._journal.new_trial()
        self._timed(kernel, trial)
        step = replace(step, trials=(trial,))
        why = self.findings(step).fault(self._journal.state.points[0])
        return replace(step, mark=Mark.SKIP if why else Mark.GOOD, why=why)

    def _timed_blocks(self, step: BisectStep, kernel: Kernel, wanted: int) -> BisectStep:
        """Time blocks until so many are whole."""
        good, bad = (self._end(at) for at in (0, -1))
        is_end = step.key == self._journal.state.points[-1].key
        kernels = (good, kernel) if is_end else (good, kernel, bad)
        whole = len(self.findings(step).whole(step.blocks))
        number = max(self._journal.new_trial(), 1 + max(map(max, step.blocks), default=-1))
        lost = 0
        while whole < wanted:
            trials = tuple(range(number, number + len(kernels)))
            number += len(kernels)
            results = [self._timed(one, trial) for one, trial in zip(kernels, trials, strict=True)]
            step = replace(
                step,
                trials=(*step.trials, trials[1]),
                blocks=(*step.blocks, (trials[0], trials[1], trials[-1])),
            )
            if why := _failure(results[1], self._journal.state.question.phase):
                return replace(step, why=why)
            if all(result.outcome is Outcome.OK for result in results):
                whole += 1
            elif (lost := lost + 1) >= _MOST_LOST:
                raise InfraError(
                    f"an end failed in {lost} blocks that were to be timed beside {step.key}",
                    action="look at the consoles in the folder, then give the same command",
                )
        return step

    def _judged_end(self, step: BisectStep, found: BlockFindings) -> BisectStep:
        """The bad end, when it is known whether it differs from the good one."""
        good, bad = self._journal.state.points[0], self._journal.state.points[-1]
        verdict = found.contrast(good, bad, step.blocks, alpha=self._alpha).verdict
        return replace(step, mark=Mark.SKIP if verdict is Verdict.UNDECIDED else Mark.BAD)

    def _judged(self, step: BisectStep, found: BlockFindings) -> BisectStep:
        """The step with its side, when that is sure: it differs from the other end."""
        points = {point.key: point for point in self._journal.state.points}
        good, point, bad = (
            self._journal.state.points[0],
            points[step.key],
            self._journal.state.points[-1],
        )
        beside = [
            found.contrast(*pair, step.blocks, alpha=self._alpha).verdict.is_step
            for pair in ((good, point), (point, bad))
        ]
        seen = locate(
            found.middle(point, step.blocks),
            good=found.middle(good, step.blocks),
            bad=found.middle(bad, step.blocks),
        )
        position = round(seen.position, 4)
        if not any(beside) or (
            all(beside) and seen.likeness is Likeness.UNKNOWN and not seen.beyond
        ):
            count = len(found.whole(step.blocks))
            why = f"undecided after {count} blocks: {100 * position:.0f} % of the way"
            return replace(step, standing=Likeness.UNKNOWN, position=position, why=why)
        mark = seen.nearer if all(beside) else Mark.BAD if beside[0] else Mark.GOOD
        return replace(
            step, mark=mark, standing=seen.likeness, beyond=seen.beyond, position=position
        )

    def _end(self, at: int) -> Kernel:
        point = self._journal.state.points[at]
        if point.key not in self._ends:
            self._ends[point.key] = self._kernel_of(point)
        return self._ends[point.key]

    def _timed(self, kernel: Kernel, trial: int) -> TrialResult:
        result = self._measure(kernel, trial, self._journal.folder)
        self._journal.keep(trial, result)
        return result


class BlockFindings(Findings[TimeMeasure]):
    """Everything that a bisection has timed so far."""

    def value(self, point: Point) -> float | None:
        """The median over the boots of a point that was judged, and of an end."""
        step = self.journal.steps.get(self.booted(point).key)
        judged = step and (step.standing is not None or step.mark is not Mark.SKIP)
        return super().value(point) if judged else None

    def compare(self, old: Point, new: Point) -> Comparison:
        """By the blocks in which both were, else each by its own, beside the ends of these."""
        steps, ends = (
            self.journal.steps,
            (self.journal.state.points[0], self.journal.state.points[-1]),
        )
        pair = self.booted(old), self.booted(new)
        own = [steps[point.key].blocks for point in pair]
        blocks = [own[at] if point not in ends else own[1 - at] for at, point in enumerate(pair)]
        if set(pair) == set(ends):
            blocks = [steps[ends[1].key].blocks] * 2
        alpha = self.journal.state.question.study.time.alpha
        return self.contrast(pair[0], pair[1], *blocks, alpha=alpha)

    def contrast(
        self, old: Point, new: Point, *blocks: Sequence[Block], alpha: float
    ) -> Comparison:
        """The verdict on two points by their times in blocks: those of each, or those of both."""
        old_blocks, new_blocks = (blocks * 2)[:2]
        ends = {self.journal.state.points[0], self.journal.state.points[-1]}
        # The middle of two ends that are compared is made of the very times.
        raw = {old, new} == ends
        was = self._series(old, old_blocks, corrected=not raw)
        now = self._series(new, new_blocks, corrected=not raw)
        tolerance = self.journal.state.question.study.time.tolerance_percent / 100
        return compare(was, now, grade=Grade.GUEST_TIME, tolerance=tolerance, alpha=alpha)

    def middle(self, point: Point, blocks: Sequence[Block]) -> float:
        """The median of a point's corrected times in these blocks."""
        return statistics.median(self._series(point, blocks, corrected=True).values)

    def whole(self, blocks: Sequence[Block]) -> list[Block]:
        """Those of which every boot has times."""
        return [block for block in blocks if all(map(self._reading, block))]

    def _reading(self, trial: int) -> float | None:
        return reading(self.journal.result(trial), self.phase)

    def _series(self, point: Point, blocks: Sequence[Block], *, corrected: bool) -> Series:
        """The times of a point in whole blocks.

        corrected: for what moved the ends of their block.  Then only the order of the blocks is
        left of the session: the points of two comparisons lie in it as if they were interleaved.
        """
        arm = self.arm(point)
        if arm is None:
            raise ValueError("times are of a measured point")
        ends = self.journal.state.points[0], self.journal.state.points[-1]
        column = ends.index(point) * 2 if point in ends else 1
        series = self.method.series(arm, self.phase)
        known = {boot.position: boot for boot in series.boots}
        boots = [known[block[column]] for block in self.whole(blocks)]
        if corrected:
            usual = self._middle_of_ends(self.journal.steps[ends[1].key].blocks[0])
            factors = [usual / self._middle_of_ends(block) for block in self.whole(blocks)]
            boots = [
                replace(
                    boot, position=3 * at + column, values=tuple(factor * v for v in boot.values)
                )
                for at, (boot, factor) in enumerate(zip(boots, factors, strict=True))
            ]
        return replace(series, boots=tuple(boots), planned=len(boots))

    def _middle_of_ends(self, block: Block) -> float:
        good, bad = self._reading(block[0]), self._reading(block[2])
        if not good or not bad:
            raise ValueError("a whole block has times of both ends")
        return math.sqrt(good * bad)


def reading(result: TrialResult, phase: str) -> float | None:
    """Nanoseconds per operation of a trial, in one phase or all: the median sample."""
    values = per_operation(result, phase)[1] if result.outcome is Outcome.OK else ()
    return statistics.median(values) if values else None


def _failure(result: TrialResult, phase: str) -> str:
    """Why a trial says nothing, "" when it does."""
    if result.outcome is not Outcome.OK:
        return f"{result.outcome}: {result.reason}"
    return "" if reading(result, phase) is not None else f"it has no phase {phase}"
