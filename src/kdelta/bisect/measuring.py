# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures a point by the study's instrument, and says which end it is like.

The ends decide what a point is called.  Which way the search goes on is decided between the two
points that enclose the change so far: so it follows the larger part of what is left, and a second
change is told, not forced to one side.

Times are measured in blocks: one boot each of the good end, the point and the bad end, so that what
moves the whole machine moves all three.  Each time is divided by the middle of the two ends of its
block.  The comparisons are those of every timed run (stats.timing).
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from kdelta.analysis.findings import timing_of
from kdelta.analysis.times import TimeMeasure, per_operation
from kdelta.archive.apt import Progress
from kdelta.bisect.evidence import Findings, record
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.search import LIKE, Likeness, Mark, Position, locate
from kdelta.errors import InfraError, SpecError
from kdelta.guests import qemu
from kdelta.journal import results
from kdelta.kernels.kernel import Kernel
from kdelta.ladder.counts import CountEvidence, CountMethod, Measure
from kdelta.ladder.evidence import compare_arms
from kdelta.metric import Grade
from kdelta.run import exact, timed
from kdelta.run.runner import Trials, tried
from kdelta.sample import Outcome, TrialRecord, TrialResult
from kdelta.stats.timing import compare
from kdelta.study.spec import Study, TimeMachine
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.verdict.series import Series

Measurer = Callable[[Kernel, int, Path], TrialResult]
"""Measures a kernel once: as trial number N of the run in a folder, which gets its artifacts.

A fault of the kernel is a result that says so.  Raises InfraError when this machine is at fault,
Cancelled when the work was ended.
"""
LOOKS = (10, 20)  # blocks of a point after which it is judged
_MOST_LOST = 3  # blocks of a point in which an end may fail
Block = tuple[int, int, int]  # numbers of trials: of the good end, the point, the bad end


class TrialMeasure:
    """Measures with the Trials of any instrument."""

    def __init__(
        self, study: Study, trials: Trials, kernels: list[Kernel], environment: str = ""
    ) -> None:
        """study: of one scenario.  kernels: of the arms of `trials`, to which we add.

        environment: what measures here; results of different ones cannot be compared.
        """
        self.environment = environment
        self._workload, _, self._scenario = study.scenarios[0].partition(":")
        self._attempts = study.plan.max_attempts
        exact.guests_of(study)
        self._trials = trials
        self._kernels = kernels

    def __call__(self, kernel: Kernel, trial: int, folder: Path) -> TrialResult:
        """See Measurer.  This machine's faults are tried again within the study's budget."""
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        record = TrialRecord(
            index=trial,
            round=0,
            arm=self._kernels.index(kernel),
            workload=self._workload,
            scenario=self._scenario,
        )
        place = results.trial_folder(folder, trial)
        with self._trials.slot(record):
            self._trials.ready(record)
            return tried(self._trials, record, place, self._attempts, lambda _failed: None)


def measure_of(
    study: Study,
    wanted_qemu: str,
    cancelled: threading.Event,
    progress: Progress | None = None,
    *,
    again: bool = False,
) -> TrialMeasure:
    """What measures the study's instrument: counts, or times in KVM guests, which boot each time.

    Raises before anything is measured: SpecError, also for a study that times on the host, where
    every kernel needs a boot of the machine itself; InfraError, also when KVM boots no kernel here.
    """
    kernels: list[Kernel] = []
    if not study.instrument.traits.interleaved:
        bench = exact.bench_of(study, wanted_qemu, cancelled, progress, again=again)
        environment = f"QEMU {bench.emulator.version}, plugin {qemu.plugin_digest()}"
        return TrialMeasure(study, exact.ExactTrials(bench, kernels), kernels, environment)
    if study.time.machine is not TimeMachine.KVM:
        raise SpecError(
            "a bisection cannot boot this machine itself into kernel after kernel",
            place="time.machine",
            action='time guests with machine = "kvm", or bisect by hand with: git bisect',
        )
    timing = timed.timing_of(study, cancelled)
    emulator = qemu.choose(study.machine.target, wanted_qemu)
    trials = timed.KvmTrials(timing, study.machine, wanted_qemu, kernels)
    return TrialMeasure(study, trials, kernels, f"KVM, QEMU {emulator.version}")


class PointInstrument(Protocol):
    """Measures points and says what they are like."""

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """Measure a point; its results are on the disk, and the step not yet in the journal.

        Raises InfraError when this machine is at fault, Cancelled when the work was ended.
        """

    def findings(self) -> Findings[Any]:
        """What the journal has by now."""


class PointCounting:
    """The exact instrument: one trial says it."""

    def __init__(self, journal: Journal, measure: Measurer) -> None:
        self._journal = journal
        self._measure = measure

    def findings(self, extra: BisectStep | None = None) -> Findings[Measure]:
        """See PointInstrument."""
        percent = self._journal.state.question.study.thresholds.step_percent
        return Findings(self._journal, CountMethod(step_percent=percent), extra=extra)

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """See PointInstrument."""
        trial = self._journal.new_trial()
        result = self._measure(kernel, trial, self._journal.folder)
        self._journal.keep(trial, result)
        identity = result.kernel or kernel.identity()
        step = BisectStep(
            key=point.key, mark=Mark.SKIP, trials=(trial,), kernel=identity, build_s=build_s
        )
        counts = self.findings(step)
        if why := counts.fault(point):
            return replace(step, why=why)
        good, bad = self._journal.ends
        if point in (good, bad):
            return replace(step, mark=Mark.GOOD if point == good else Mark.BAD)
        ends, inner = _located(counts, point, good, bad), self._enclosing()
        nearer = _located(counts, point, *inner).nearer
        end, other = inner if nearer is Mark.GOOD else inner[::-1]
        if why := bytes_forbid(counts.arm(point), counts.arm(end), counts.arm(other), counts.phase):
            return replace(step, why=why)
        return replace(
            step,
            mark=nearer,
            standing=ends.likeness,
            position=round(ends.position, 4),
            beyond=ends.beyond,
            why=_unlike(ends),
        )

    def _enclosing(self) -> tuple[Point, Point]:
        """The points last marked good and bad: they enclose what is searched."""
        points = {point.key: point for point in self._journal.state.points}
        last = {step.mark: points[step.key] for step in self._journal.state.steps}
        return last[Mark.GOOD], last[Mark.BAD]


def bytes_forbid(
    arm: CountEvidence | None,
    like: CountEvidence | None,
    unlike: CountEvidence | None,
    phase: str,
) -> str:
    """Why bytes by string instructions forbid to say that a point is like one end, "" where they
    do not: from one that copies by other instructions the counts tell nothing.

    like: the end that it is nearer to, by instructions; unlike: the other one.
    """
    if not (arm and like and unlike):
        return ""
    near, far = like.measure(phase), unlike.measure(phase)
    if near is None or far is None:
        return ""
    ratio = near.per_operation / far.per_operation
    percent = 100 * (max(ratio, 1 / ratio) ** LIKE - 1)
    why = compare_arms(CountMethod(step_percent=percent), like, arm, phase=phase).signless
    return f"beside {like.arm.label}: {why}" if why else ""


def _located(counts: Findings[Measure], point: Point, good: Point, bad: Point) -> Position:
    measure, low, high = counts.measure(point), counts.value(good), counts.value(bad)
    if measure is None or low is None or high is None:
        raise ValueError("positions are between measured points")
    spread = measure.reading.spread / measure.operations
    return locate(measure.per_operation, good=low, bad=high, spread=spread)


def _unlike(found: Position) -> str:
    if found.likeness is not Likeness.UNKNOWN:
        return ""
    if not found.beyond:
        percent = f"{100 * found.position:.0f} %"
        return f"like neither end: {percent} of the way from the good end to the bad one"
    return f"like neither end: beyond the {found.nearer} one"


class BlockTiming:
    """The time instrument; see PointInstrument."""

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
        """See PointInstrument."""
        alpha = self._journal.state.question.study.time.alpha
        method = timing_of(record(self._journal), level=alpha)
        return BlockFindings(self._journal, method, extra=extra)

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """See PointInstrument."""
        good, bad = self._journal.ends
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
        why = self.findings(step).fault(self._journal.ends[0])
        return replace(step, mark=Mark.SKIP if why else Mark.GOOD, why=why)

    def _timed_blocks(self, step: BisectStep, kernel: Kernel, wanted: int) -> BisectStep:
        """Time blocks until so many are whole."""
        good, bad = (self._end(at) for at in (0, -1))
        is_end = step.key == self._journal.ends[1].key
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
        good, bad = self._journal.ends
        verdict = found.contrast(good, bad, step.blocks, alpha=self._alpha).verdict
        return replace(step, mark=Mark.SKIP if verdict is Verdict.UNDECIDED else Mark.BAD)

    def _judged(self, step: BisectStep, found: BlockFindings) -> BisectStep:
        """The step with its side, when that is sure: it differs from the other end."""
        points = {point.key: point for point in self._journal.state.points}
        (good, bad), point = self._journal.ends, points[step.key]
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
        point = self._journal.ends[at]
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
        steps, ends = self.journal.steps, self.journal.ends
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
        ends = set(self.journal.ends)
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
        ends = self.journal.ends
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
