# SPDX-License-Identifier: GPL-2.0-or-later
"""From what was counted to marks: is a point like the good end, like the bad one, or like neither?

The ends decide what a point is called.  Which way the search goes on is decided between the two
points that enclose the change so far: so it follows the larger part of what is left, and a second
change is told, not forced to one side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from kdelta.analysis.counts import CountEvidence, CountMethod, counted
from kdelta.analysis.evidence import compare_arms, obstacles
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.measuring import Measurer
from kdelta.bisect.place import Place, Standing, place
from kdelta.bisect.search import Mark
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.sample import ArmRecord, KernelIdentity, Outcome, TrialRecord, TrialResult
from kdelta.stats.verdict import Comparison

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


class Findings(Protocol):
    """What a bisection has measured so far, by point, whatever it measures."""

    def booted(self, point: Point) -> Point:
        """The point whose measurement counts for this one: itself, or one with the same image."""

    def value(self, point: Point) -> float | None:
        """Per operation, of a point that can be compared, else None."""

    def unit(self) -> str:
        """What a value counts: "instructions per page"."""

    def compare(self, old: Point, new: Point) -> Comparison:
        """The verdict on old -> new, both measured."""

    def changes(self) -> list[NeighbourChange]:
        """Every two measured neighbours that differ, in order."""


def changes_of(findings: Findings, points: Sequence[Point]) -> list[NeighbourChange]:
    """Every two measured neighbours among the points that differ, in order."""
    values = [(at, point, findings.value(point)) for at, point in enumerate(points)]
    measured = [(at, point, value) for at, point, value in values if value is not None]
    compared = [(findings.compare(old[1], new[1]), old, new) for old, new in pairwise(measured)]
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


class PointInstrument(Protocol):
    """Measures points and says what they are like."""

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """Measure a point; its results are on the disk, and the step not yet in the journal.

        Raises InfraError when this machine is at fault, Cancelled when the work was ended.
        """

    def findings(self) -> Findings:
        """What the journal has by now."""


class PointCounting:
    """The exact instrument: one trial says it."""

    def __init__(self, journal: Journal, measure: Measurer, *, step_percent: float) -> None:
        """step_percent: a change of fewer percent is none."""
        self._journal = journal
        self._measure = measure
        self._step_percent = step_percent

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """See PointInstrument."""
        trial = self._journal.new_trial()
        result = self._measure(kernel, trial, self._journal.folder)
        self._journal.keep(trial, result)
        identity = result.kernel or kernel.identity()
        step = BisectStep(
            key=point.key, mark=Mark.SKIP, trials=(trial,), kernel=identity, build_s=build_s
        )
        return self.findings().judged(point, step)

    def findings(self) -> PointCounts:
        """See PointInstrument."""
        return PointCounts(self._journal, step_percent=self._step_percent)


class PointCounts:
    """Everything that a bisection has counted so far, by point."""

    def __init__(self, journal: Journal, *, step_percent: float) -> None:
        """step_percent: a change of fewer percent is none."""
        self._journal = journal
        self._phase = journal.state.question.phase
        self._method = CountMethod(step_percent=step_percent)
        self._arms = _arms(record(journal))
        self._points = {point.key: point for point in journal.state.points}

    def booted(self, point: Point) -> Point:
        """The point whose measurement counts for this one: itself, or one with the same image."""
        step = self._journal.steps.get(point.key)
        return self._points[step.same_as] if step and step.same_as else point

    def arm(self, point: Point) -> CountEvidence | None:
        """What a point says; None: it was not booted."""
        return self._arms.get(self.booted(point).label)

    def value(self, point: Point) -> float | None:
        """Instructions per operation of a point that can be compared, else None."""
        arm = self.arm(point)
        measure = arm.measure(self._phase) if arm and arm.sound else None
        return measure.per_operation if measure else None

    def unit(self) -> str:
        """What a value counts: "instructions per page"."""
        for arm in self._arms.values():
            if measure := arm.measure(self._phase):
                return f"instructions per {measure.operation}"
        return "instructions"

    def compare(self, old: Point, new: Point) -> Comparison:
        """The verdict on old -> new, both booted."""
        was, now = (self._arms[self.booted(point).label] for point in (old, new))
        return compare_arms(self._method, was, now, phase=self._phase)

    def changes(self) -> list[NeighbourChange]:
        """See Findings."""
        return changes_of(self, self._journal.state.points)

    def judged(self, point: Point, step: BisectStep) -> BisectStep:
        """The step of a measured point with its mark, standing and what is to be told.

        step: with its trials, which the journal has not; what marks it will be replaced.
        """
        arm = _arms(record(self._journal, extra=step)).get(point.label)
        good, bad = self._journal.state.points[0], self._journal.state.points[-1]
        if arm is None or not arm.sound or arm.measure(self._phase) is None:
            return replace(step, mark=Mark.SKIP, why=_fault(arm, self._phase))
        if point in (good, bad):
            return replace(step, mark=Mark.GOOD if point == good else Mark.BAD)
        forbidden = obstacles(self._method, self._arms[self.booted(good).label], arm)
        if forbidden:
            return replace(step, mark=Mark.SKIP, why=forbidden[0])
        ends = self._placed(arm, good, bad)
        here = self._placed(arm, *self._enclosing())
        return replace(
            step,
            mark=here.nearer,
            standing=ends.standing,
            position=round(ends.position, 4),
            beyond=ends.beyond,
            why=_told(ends),
        )

    def _placed(self, arm: CountEvidence, good: Point, bad: Point) -> Place:
        measure = arm.measure(self._phase)
        low, high = self.value(good), self.value(bad)
        if measure is None or low is None or high is None:
            raise ValueError("places are between measured points")
        noise = measure.reading.noise / measure.operations
        return place(measure.per_operation, good=low, bad=high, noise=noise)

    def _enclosing(self) -> tuple[Point, Point]:
        """The points last marked good and bad: they enclose what is searched."""
        points = {point.key: point for point in self._journal.state.points}
        last = {step.mark: points[step.key] for step in self._journal.state.steps}
        return last[Mark.GOOD], last[Mark.BAD]


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


def _arms(run: RunRecord) -> dict[str, CountEvidence]:
    if not run.trials:
        return {}
    first = run.trials[0]
    return {arm.arm.label: arm for arm in counted(run, first.workload, first.scenario)}


def _fault(arm: CountEvidence | None, phase: str) -> str:
    """Why a point says nothing."""
    if arm is None:
        return "it was not measured"
    if arm.objections:
        return arm.objections[0]
    results: Sequence[TrialResult] = [trial.result for trial in arm.trials if trial.result]
    for result in results:
        if result.outcome is not Outcome.OK:
            return f"{result.outcome}: {result.reason}"
    return f"it has no phase {phase}"


def _told(found: Place) -> str:
    if found.standing is not Standing.UNKNOWN:
        return ""
    if not found.beyond:
        percent = f"{100 * found.position:.0f} %"
        return f"like neither end: {percent} of the way from the good end to the bad one"
    return f"like neither end: beyond the {found.nearer} one"
