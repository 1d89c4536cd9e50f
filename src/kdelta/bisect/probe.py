# SPDX-License-Identifier: GPL-2.0-or-later
"""One kernel, one question, one exit code: good, bad or skip, as `git bisect run` wants them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from kdelta.analysis.explanation import find_arm, find_scenario
from kdelta.bisect.evidence import bytes_forbid
from kdelta.bisect.search import Likeness, Mark, locate
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import CountEvidence, CountMethod, counted
from kdelta.ladder.evidence import arm_evidence, obstacles
from kdelta.metric import number
from kdelta.sample import ArmRecord, KernelIdentity, Outcome, TrialRecord, TrialResult
from kdelta.source.make import SourceError


class ExitStatus(IntEnum):
    """What `git bisect run` takes a command's exit status for."""

    GOOD = 0
    BAD = 1
    SKIP = 125


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is good: either like `good` rather than like `bad`, or below or above a value.

    Values are per operation.  like: the arms that good and bad are of, when they were measured.
    """

    good: float | None = None
    bad: float | None = None
    below: float | None = None
    above: float | None = None
    like: tuple[CountEvidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The answer, and one sentence that says what was measured."""

    answer: ExitStatus
    sentence: str


def rule_of(
    *,
    good: float | None = None,
    bad: float | None = None,
    below: float | None = None,
    above: float | None = None,
) -> Rule:
    """The rule of a command line.  Raises SpecError unless it is exactly one."""
    pair = good is not None or bad is not None
    if pair + (below is not None) + (above is not None) != 1:
        raise SpecError(
            "say what is good by exactly one rule",
            action="give --good-value and --bad-value, or --below, or --above, or --like-run",
        )
    if pair and (good is None or bad is None):
        raise SpecError("--good-value and --bad-value belong together", action="give both")
    if any(value is not None and value <= 0 for value in (good, bad, below, above)):
        raise SpecError("a count per operation is positive", action="give a value above 0")
    if good is not None and good == bad:
        raise SpecError("the good and the bad value are the same", action="give two values")
    return Rule(good=good, bad=bad, below=below, above=above)


def rule_of_run(record: RunRecord, scenario: str, phase: str, good: str, bad: str) -> Rule:
    """The rule of two arms of a run, by default the first and the last.  Raises SpecError."""
    workload, name = find_scenario(record, scenario)
    arms = counted(record, workload, name)
    first = find_arm(arms, good) if good else arms[0]
    chosen = first, find_arm(arms, bad) if bad else arms[-1]
    values = []
    for arm in chosen:
        measure = arm.measure(phase)
        if not arm.sound or measure is None:
            why = arm.objections[0] if arm.objections else f"it has no {phase}"
            raise SpecError(f"{arm.arm.label} cannot stand for an end: {why}", place=record.run_id)
        values.append(measure.per_operation)
    if values[0] == values[1]:
        raise SpecError(
            f"{chosen[0].arm.label} and {chosen[1].arm.label} have the same value",
            place=record.run_id,
            action="name two that differ with --good and --bad",
        )
    return Rule(good=values[0], bad=values[1], like=chosen)


def answer(
    result: TrialResult, kernel: KernelIdentity, scenario: str, phase: str, rule: Rule
) -> Probed:
    """What a trial says by a rule.  Raises SpecError when it cannot be held against the rule."""
    workload, _, own = scenario.partition(":")
    trial = TrialRecord(index=0, round=0, arm=0, workload=workload, scenario=own, result=result)
    record = ArmRecord(index=0, label=kernel.reference, kernel=kernel)
    arm = arm_evidence(record, (trial,), CountMethod())
    name = kernel.name or kernel.release or kernel.reference
    if not arm.sound:
        failed = f"{result.outcome}: {result.reason}"
        own = "it has no counts" if result.outcome is Outcome.OK else failed
        why = next(iter(arm.objections), own)
        return Probed(answer=ExitStatus.SKIP, sentence=f"{name}: skip: {why}")
    measure = arm.measure(phase)
    if measure is None:
        known = ", ".join(each.phase for each in arm.phases)
        raise SpecError(f"{scenario} has no phase {phase}", action=f"its phases: {known}")
    for end in rule.like:
        if found := obstacles(CountMethod(), end, arm):
            raise SpecError(
                f"it must not be compared with {end.arm.label}: {found[0]}",
                action="measure the ends again on this machine",
            )
    value = measure.per_operation
    spread = measure.reading.spread / measure.operations
    decided, why = _decide(value, spread, rule)
    if rule.like and decided is not ExitStatus.SKIP:
        like, unlike = rule.like if decided is ExitStatus.GOOD else rule.like[::-1]
        if forbidden := bytes_forbid(arm, like, unlike, phase):
            decided, why = ExitStatus.SKIP, forbidden
    said = f"{name}: {number(value)} instructions per {measure.operation}, {phase}"
    if measure.handled:
        said += f" (string instructions: {measure.handled / measure.operations:,.0f} bytes)"
    return Probed(answer=decided, sentence=f"{said}: {decided.name.lower()}: {why}")


def unbuildable(reference: str, error: SourceError) -> Probed:
    """The answer for a source that does not build."""
    why = f"{reference}: skip: it does not build: {error.first}"
    return Probed(answer=ExitStatus.SKIP, sentence=why)


def _decide(value: float, spread: float, rule: Rule) -> tuple[ExitStatus, str]:
    limit = rule.below if rule.below is not None else rule.above
    if limit is not None:
        side = "below" if value < limit else "above" if value > limit else "exactly at"
        if abs(value - limit) < spread:
            return ExitStatus.SKIP, f"the windows scatter across {number(limit)}"
        good = value < limit if rule.below is not None else value > limit
        return (ExitStatus.GOOD if good else ExitStatus.BAD), f"{side} {number(limit)}"
    if rule.good is None or rule.bad is None:
        raise ValueError("a rule has two values or a limit")
    found = locate(value, good=rule.good, bad=rule.bad, spread=spread)
    if found.likeness is Likeness.UNKNOWN and not found.beyond:
        return ExitStatus.SKIP, f"like neither {number(rule.good)} nor {number(rule.bad)}"
    if found.nearer is Mark.GOOD:
        return ExitStatus.GOOD, f"nearer to {number(rule.good)} than to {number(rule.bad)}"
    return ExitStatus.BAD, f"nearer to {number(rule.bad)} than to {number(rule.good)}"
