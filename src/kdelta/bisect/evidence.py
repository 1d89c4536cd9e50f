# SPDX-License-Identifier: GPL-2.0-or-later
"""What a bisection has measured so far, by point, and the same as a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic

from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.journal.run import RunRecord
from kdelta.ladder import builds
from kdelta.ladder.evidence import ArmEvidence, M, Method, compare_arms, gather, obstacles
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
        crossed = builds.crossing(good.kernel, arm.kernel)
        forbidden = obstacles(self.method, good, arm)
        return next(iter(forbidden), crossed and f"it has another compiler: {crossed}")


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
