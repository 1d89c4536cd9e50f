# SPDX-License-Identifier: GPL-2.0-or-later
"""From what was counted to marks: is a point like the good end, like the bad one, or like neither?

The ends decide what a point is called.  Which way the search goes on is decided between the two
points that enclose the change so far: so it follows the larger part of what is left, and a second
change is told, not forced to one side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, Protocol

from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.measuring import Measurer
from kdelta.bisect.place import LIKE, Place, Standing, place
from kdelta.bisect.search import Mark
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.ladder.counts import CountEvidence, CountMethod, Measure
from kdelta.ladder.evidence import ArmEvidence, M, Method, compare_arms, crossing, gather, obstacles
from kdelta.sample import ArmRecord, KernelIdentity, Outcome, TrialRecord
from kdelta.verdict.comparison import Comparison

_UNKNOWN_KERNEL = KernelIdentity(
    reference="", release="", version="", arch="", flavour="", image_sha256=""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourChange:
    """Two measured neighbours that differ; values per operation, between: points not measured."""

    old: Point
    new: Point
    old_value: float
    new_value: float
    between: int
    comparison: Comparison


class Findings(Generic[M]):
    """What a bisection has measured so far, by point, by its instrument's method."""

    def __init__(
        self, journal: Journal, method: Method[M], *, extra: BisectStep | None = None
    ) -> None:
        """extra: a step whose trials are on the disk, and which the journal has not."""
        self.method = method
        self.journal = journal
        self.phase = journal.state.question.phase
        self._extra = extra

    @cached_property
    def arms(self) -> dict[str, ArmEvidence[M]]:
        """What the booted points say, by label."""
        workload, _, scenario = self.journal.state.question.scenario.partition(":")
        run = record(self.journal, extra=self._extra)
        return {arm.arm.label: arm for arm in gather(run, workload, scenario, self.method)}

    def booted(self, point: Point) -> Point:
        """The point whose measurement counts for this one: itself, or one with the same image."""
        step = self.journal.steps.get(point.key)
        twin = step.same_as if step else ""
        return next((each for each in self.journal.state.points if each.key == twin), point)

    def arm(self, point: Point) -> ArmEvidence[M] | None:
        """What a point says; None: it was not booted."""
        return self.arms.get(self.booted(point).label)

    def measure(self, point: Point) -> M | None:
        """What was measured of a point that can be compared, else None."""
        arm = self.arm(point)
        return arm.measure(self.phase) if arm and arm.sound else None

    def value(self, point: Point) -> float | None:
        """Per operation, of a point that can be compared, else None."""
        measure = self.measure(point)
        return measure.per_operation if measure else None

    def unit(self) -> str:
        """What a value counts: "instructions per page"."""
        for arm in self.arms.values():
            if measure := arm.measure(self.phase):
                return f"{self.method.unit} per {measure.operation}"
        return self.method.unit

    def compare(self, old: Point, new: Point) -> Comparison:
        """The verdict on old -> new, both booted."""
        was, now = (self.arms[self.booted(point).label] for point in (old, new))
        return compare_arms(self.method, was, now, phase=self.phase)

    def changes(self) -> list[NeighbourChange]:
        """Every two measured neighbours that differ, in order."""
        values = [
            (at, point, self.value(point)) for at, point in enumerate(self.journal.state.points)
        ]
        measured = [(at, point, value) for at, point, value in values if value is not None]
        compared = [(self.compare(old[1], new[1]), old, new) for old, new in pairwise(measured)]
        return [
            NeighbourChange(
                old=old,
                new=new,
                old_value=was,
                new_value=now,
                between=second - first - 1,
                comparison=comparison,
            )
            for comparison, (first, old, was), (second, new, now) in compared
            if comparison.verdict.is_step
        ]

    def fault(self, point: Point) -> str:
        """Why a point says nothing, or nothing beside the good end; "" when it does."""
        arm, ends = self.arm(point), (self.journal.state.points[0], self.journal.state.points[-1])
        if arm is None or not arm.sound or arm.measure(self.phase) is None:
            return _fault(arm, self.phase)
        good = self.arm(ends[0])
        if good is None or point in ends:
            return ""
        crossed = crossing(good.kernel, arm.kernel)
        forbidden = obstacles(self.method, good, arm)
        return next(iter(forbidden), crossed and f"it has another compiler: {crossed}")


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
        good, bad = self._journal.state.points[0], self._journal.state.points[-1]
        if point in (good, bad):
            return replace(step, mark=Mark.GOOD if point == good else Mark.BAD)
        ends, inner = _placed(counts, point, good, bad), self._enclosing()
        nearer = _placed(counts, point, *inner).nearer
        end, other = inner if nearer is Mark.GOOD else inner[::-1]
        if why := bytes_forbid(counts.arm(point), counts.arm(end), counts.arm(other), counts.phase):
            return replace(step, why=why)
        return replace(
            step,
            mark=nearer,
            standing=ends.standing,
            position=round(ends.position, 4),
            beyond=ends.beyond,
            why=_told(ends),
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


def _placed(counts: Findings[Measure], point: Point, good: Point, bad: Point) -> Place:
    measure, low, high = counts.measure(point), counts.value(good), counts.value(bad)
    if measure is None or low is None or high is None:
        raise ValueError("places are between measured points")
    spread = measure.reading.spread / measure.operations
    return place(measure.per_operation, good=low, bad=high, spread=spread)


def record(journal: Journal, *, extra: BisectStep | None = None) -> RunRecord:
    """A bisection as a run: an arm for each booted point, in order, with its trials' results."""
    question = journal.state.question
    workload, _, scenario = question.scenario.partition(":")
    steps = journal.steps | ({extra.key: extra} if extra else {})
    booted = [
        (point, steps[point.key], _trials(journal, steps, point))
        for point in journal.state.points
        if point.key in steps and steps[point.key].trials
    ]
    trials = [
        TrialRecord(
            index=number,
            round=round_,
            arm=arm,
            workload=workload,
            scenario=scenario,
            attempts=1,
            result=journal.result(number),
        )
        for arm, (_, _, numbers) in enumerate(booted)
        for round_, number in enumerate(numbers)
    ]
    return RunRecord(
        run_id=journal.state.run_id,
        name=question.study.name,
        title=f"bisection of {question.scenario} from {question.good} to {question.bad}",
        seed=0,
        rounds=max((len(numbers) for *_, numbers in booted), default=1),
        created=journal.state.created,
        kdelta_version="",
        study=question.study,
        arms=tuple(
            ArmRecord(index=arm, label=point.label, kernel=step.kernel or _UNKNOWN_KERNEL)
            for arm, (point, step, _) in enumerate(booted)
        ),
        trials=tuple(sorted(trials, key=lambda trial: trial.index)),
    )


def _trials(journal: Journal, steps: Mapping[str, BisectStep], point: Point) -> list[int]:
    """A point's trials: its own and, of an end, those beside others."""
    points, own = journal.state.points, list(steps[point.key].trials)
    if point == points[0]:
        own += [block[0] for step in steps.values() for block in step.blocks]
    if point == points[-1]:
        own += [block[2] for step in steps.values() for block in step.blocks]
    return sorted(set(own))


def _fault(arm: ArmEvidence[Any] | None, phase: str) -> str:
    """Why a point says nothing."""
    if arm is None:
        return "it was not measured"
    if arm.objections:
        return arm.objections[0]
    failed = (t.result for t in arm.trials if t.result and t.result.outcome is not Outcome.OK)
    return next((f"{each.outcome}: {each.reason}" for each in failed), f"it has no phase {phase}")


def _told(found: Place) -> str:
    if found.standing is not Standing.UNKNOWN:
        return ""
    if not found.beyond:
        percent = f"{100 * found.position:.0f} %"
        return f"like neither end: {percent} of the way from the good end to the bad one"
    return f"like neither end: beyond the {found.nearer} one"
