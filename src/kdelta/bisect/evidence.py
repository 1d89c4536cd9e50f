# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts a point and says which end it is like; what was measured so far, and what it amounts to.

The ends decide what a point is called.  Which way the search goes on is decided between the two
points that enclose the change so far: so it follows the larger part of what is left, and a second
change is said, not forced to one side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace as filled

from kdelta.bisect.history import Commit
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.search import LIKE, Likeness, Mark, Position, locate
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.ladder.counts import CountEvidence, CountMethod, Measure
from kdelta.ladder.evidence import compare_arms, crossing, gather, obstacles
from kdelta.sample import ArmRecord, KernelIdentity, Outcome, TrialRecord, TrialResult
from kdelta.verdict.comparison import Comparison, Verdict

_UNKNOWN_KERNEL = KernelIdentity(
    reference="", release="", version="", arch="", flavour="", image_sha256=""
)


@dataclass(frozen=True, slots=True)
class NeighbourChange:
    """Two measured neighbours that differ; between: points not measured."""

    old: Point
    new: Point
    between: int
    comparison: Comparison


class Findings:
    """What a bisection has counted so far, by point."""

    def __init__(self, journal: Journal, *, extra: BisectStep | None = None) -> None:
        """extra: a step whose trials are on the disk, and which the journal has not."""
        percent = journal.state.question.study.thresholds.step_percent
        self.method = CountMethod(step_percent=percent)
        self.journal = journal
        self.phase = journal.state.question.phase
        self._extra = extra

    @cached_property
    def arms(self) -> dict[str, CountEvidence]:
        """What the booted points say, by label."""
        workload, _, scenario = self.journal.state.question.study.scenarios[0].partition(":")
        run = record(self.journal, extra=self._extra)
        return {arm.label: arm for arm in gather(run, workload, scenario, self.method)}

    def booted(self, point: Point) -> Point:
        """The point whose measurement counts for this one: itself, or one with the same image."""
        step = self.journal.steps.get(point.key)
        twin = step.same_as if step else ""
        return next((each for each in self.journal.state.points if each.key == twin), point)

    def arm(self, point: Point) -> CountEvidence | None:
        """What a point says; None: it was not booted."""
        return self.arms.get(self.booted(point).label)

    def measure(self, point: Point) -> Measure | None:
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
        measured = [
            (at, point) for at, point in enumerate(self.journal.state.points) if self.measure(point)
        ]
        return [
            NeighbourChange(old, new, second - first - 1, comparison)
            for (first, old), (second, new) in pairwise(measured)
            if (comparison := self.compare(old, new)).verdict.is_step
        ]

    def fault(self, point: Point) -> str:
        """Why a point says nothing, or nothing beside the good end; "" when it does."""
        arm = self.arm(point)
        if arm is None or arm.objections:
            return arm.objections[0] if arm else "it was not measured"
        if not arm.sound or arm.measure(self.phase) is None:
            results = (t.result for t in arm.trials if t.result)
            failed = (f"{r.outcome}: {r.reason}" for r in results if r.outcome is not Outcome.OK)
            return next(failed, f"it has no phase {self.phase}")
        good = self.arm(self.journal.ends[0])
        if good is None or point in self.journal.ends:
            return ""
        crossed = crossing(good.kernel, arm.kernel)
        forbidden = obstacles(self.method, good, arm)
        return next(iter(forbidden), crossed and f"it was built differently: {crossed}")


def record(journal: Journal, *, extra: BisectStep | None = None) -> RunRecord:
    """A bisection as a run: an arm for each booted point, in order, with its trials' results."""
    study = journal.state.question.study
    workload, _, scenario = study.scenarios[0].partition(":")
    steps = journal.steps | ({extra.key: extra} if extra else {})
    arms: list[ArmRecord] = []
    trials: list[TrialRecord] = []
    for point in journal.state.points:
        step, at = steps.get(point.key), len(arms)
        if step and step.trials:
            kernel = step.kernel or _UNKNOWN_KERNEL
            arms.append(ArmRecord(index=at, label=point.label, kernel=kernel))
            for turn, number in enumerate(sorted(step.trials)):
                own = TrialRecord(
                    index=number, round=turn, arm=at, workload=workload, scenario=scenario
                )
                trials.append(filled(own, attempts=1, result=journal.result(number)))
    return RunRecord(
        run_id=journal.state.run_id,
        name=study.name,
        title=f"bisection of {study.scenarios[0]} from {' to '.join(study.kernels)}",
        seed=0,
        rounds=1 + max((trial.round for trial in trials), default=0),
        created=journal.state.created,
        kdelta_version="",
        study=study,
        arms=tuple(arms),
        trials=tuple(sorted(trials, key=lambda trial: trial.index)),
        bisection=True,
    )


class Ending(StrEnum):
    """How a bisection ended."""

    STEP = "step"  # two neighbours differ
    RANGE = "range"  # between the two that differ lie points that could not be measured
    GRADUAL = "gradual"  # the neighbours that it came down to do not differ: many small changes
    SAME = "same"  # the ends do not differ, so there is nothing to find
    UNDECIDED = "undecided"  # the ends scatter too much, or have no sign
    INVALID = "invalid"  # an end cannot be measured, or must not be compared


@dataclass(frozen=True, slots=True)
class BisectionResult:
    """The result of a bisection.

    good, bad: the neighbours (for SAME, UNDECIDED and INVALID the ends).  share: of the whole
    change between the ends, on the scale of logarithms.  skipped: what lies between good and bad.
    others: further changes that were seen on the way.  culprit: the commit, if a single one was
    found; else it is one of the candidates, of which a merge stands for what it brought.
    """

    ending: Ending
    reasons: tuple[str, ...]
    good: Point
    bad: Point
    comparison: Comparison | None = None
    share: float | None = None
    skipped: tuple[Point, ...] = ()
    others: tuple[NeighbourChange, ...] = ()
    culprit: Commit | None = None
    candidates: tuple[Commit, ...] = ()


def of_ends(findings: Findings) -> BisectionResult | None:
    """Why there is nothing to search, as far as the ends are measured; None: go on."""
    ends = findings.journal.ends
    for side, end in zip(("good", "bad"), ends, strict=True):
        step = findings.journal.steps.get(end.key)
        if step is None:
            return None
        if step.mark is Mark.SKIP:
            reason = f"the {side} end {end.label} cannot be measured: {step.why}"
            return BisectionResult(Ending.INVALID, (reason,), *ends)
    comparison = findings.compare(*ends)
    if comparison.verdict.is_step:
        return None
    endings = {Verdict.SAME: Ending.SAME, Verdict.UNDECIDED: Ending.UNDECIDED}
    ending = endings.get(comparison.verdict, Ending.INVALID)
    return BisectionResult(ending, comparison.reasons, *ends, comparison)


def of_pair(
    findings: Findings, good: Point, bad: Point, *, skipped: Iterable[Point] = ()
) -> BisectionResult:
    """The outcome when the change is between these two, both measured."""
    skipped = tuple(skipped)
    comparison = findings.compare(good, bad)
    ending = Ending.RANGE if skipped else Ending.STEP
    if comparison.verdict is Verdict.SAME:
        ending = Ending.GRADUAL
    elif not comparison.verdict.is_step:
        ending = Ending.UNDECIDED
    was, now, first, last = map(findings.value, (good, bad, *findings.journal.ends))
    share = None
    if was and now and first and last:
        share = math.log(now / was) / math.log(last / first)
    return BisectionResult(
        ending=ending,
        reasons=comparison.reasons,
        good=good,
        bad=bad,
        comparison=comparison,
        share=share,
        skipped=skipped,
        others=tuple(one for one in findings.changes() if (one.old, one.new) != (good, bad)),
    )


def boots(journal: Journal) -> int:
    """Trials that were started, the failed ones included."""
    return len({number for step in journal.state.steps for number in step.trials})


def builds(journal: Journal) -> int:
    """Kernels that were built or tried to be."""
    return sum(step.build_s is not None for step in journal.state.steps)


Measurer = Callable[[Kernel, int, Path], TrialResult]
"""Measures a kernel once: as trial number N of the run in a folder, which gets its artifacts.

A fault of the kernel is a result that says so.  Raises InfraError when this machine is at fault,
Cancelled when the work was ended.
"""


class PointCounting:
    """Counts points, one trial each, and says what they are like."""

    def __init__(self, journal: Journal, measure: Measurer) -> None:
        self._journal = journal
        self._measure = measure

    def findings(self, extra: BisectStep | None = None) -> Findings:
        """What the journal has by now."""
        return Findings(self._journal, extra=extra)

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """Measure a point; its results are on the disk, and the step not yet in the journal.

        Raises InfraError when this machine is at fault, Cancelled when the work was ended.
        """
        used = (number for step in self._journal.state.steps for number in step.trials)
        trial = 1 + max(used, default=-1)
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
        points = {each.key: each for each in self._journal.state.points}
        last = {each.mark: points[each.key] for each in self._journal.state.steps}
        # The points last marked enclose what is searched.
        ends, inner = _located(counts, point, good, bad), (last[Mark.GOOD], last[Mark.BAD])
        nearer = _located(counts, point, *inner).nearer
        end, other = inner if nearer is Mark.GOOD else inner[::-1]
        if why := bytes_forbid(counts.arm(point), counts.arm(end), counts.arm(other), counts.phase):
            return replace(step, why=why)
        if ends.likeness is Likeness.UNKNOWN:
            way = f"{100 * ends.position:.0f} % of the way from the good end to the bad one"
            why = f"like neither end: {f'beyond the {ends.nearer} one' if ends.beyond else way}"
        place = round(ends.position, 4)
        found = replace(step, mark=nearer, standing=ends.likeness, position=place, why=why)
        return replace(found, beyond=ends.beyond)


def bytes_forbid(
    arm: CountEvidence | None, like: CountEvidence | None, unlike: CountEvidence | None, phase: str
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
    return f"beside {like.label}: {why}" if why else ""


def _located(counts: Findings, point: Point, good: Point, bad: Point) -> Position:
    measure, low, high = counts.measure(point), counts.value(good), counts.value(bad)
    if measure is None or low is None or high is None:
        raise ValueError("positions are between measured points")
    spread = measure.reading.spread / measure.operations
    return locate(measure.per_operation, good=low, bad=high, spread=spread)
