# SPDX-License-Identifier: GPL-2.0-or-later
"""What each arm of a stored run says of one scenario, and whether two arms may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec.structs import replace

from kdelta.journal.run import RunRecord
from kdelta.sample import (
    TOTAL,
    ArmRecord,
    Environment,
    Outcome,
    PhaseCounts,
    StateField,
    TrialRecord,
    TrialResult,
)
from kdelta.stats.exact import Location, LocationKind, representative
from kdelta.stats.verdict import CountReading

ITERATION = "iteration"  # the operation of a sum over phases of unequal operations


class State(StrEnum):
    """What the audit of the page state says of an arm."""

    OK = "ok"
    FAILED = "FAILED"
    UNKNOWN = "unknown"
    ABSENT = "absent"  # no trial came as far as the audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One phase of one arm, or the sum over its phases (phase TOTAL).

    value, minimum, maximum, deviation and trials_range are instructions per window (of `operations`
    operations).  value = user + kernel.  share, windows, minimum, maximum and deviation describe
    the windows of the one trial (number `trial`) that value comes from; for the sum over phases
    share is the lowest and deviation the sum, and windows, minimum, maximum and trial are None.
    trials: those that yielded a value; agree: those that yielded exactly this one; trials_range:
    the largest minus the smallest of them.
    """

    phase: str
    operation: str
    operations: int
    value: int
    user: int
    kernel: int
    kind: LocationKind
    share: float
    windows: int | None
    minimum: int | None
    maximum: int | None
    deviation: int
    trials: int
    agree: int
    trials_range: int
    trial: int | None
    left_out: int = 0  # windows in which another task ran

    @property
    def per_operation(self) -> float:
        """Instructions per operation."""
        return self.value / self.operations

    @property
    def reading(self) -> CountReading:
        """This measure as the verdict rules take it."""
        return CountReading(
            value=self.value,
            operations=self.operations,
            operation=self.operation,
            noise=max(self.deviation, self.trials_range),
        )


class Replicates(StrEnum):
    """What the trials of a scenario repeat: the whole boot, or only what came after it."""

    FRESH_BOOTS = "each a fresh boot"
    CHECKPOINT = "restored from one checkpoint of each kernel"
    MIXED = "some fresh boots, some restored from a checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEvidence:
    """All trials of one arm in one scenario, and what they amount to.

    used: the trials that the measures come from: those that ended ok, or, when there are none,
    those that ran but are INVALID (then objections is not empty).  phases is empty and total None
    when no trial yielded counts.  objections: why no comparison with this arm is allowed.
    """

    arm: ArmRecord
    trials: tuple[TrialRecord, ...]
    used: tuple[TrialRecord, ...]
    ok: int
    phases: tuple[Measure, ...]
    total: Measure | None
    state: State
    objections: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """True when this arm can be one side of a comparison."""
        return self.total is not None and not self.objections

    def measure(self, phase: str) -> Measure | None:
        """The measure of a phase (or TOTAL), None when there is none."""
        if phase == TOTAL:
            return self.total
        return next((measure for measure in self.phases if measure.phase == phase), None)


def result_of(trial: TrialRecord) -> TrialResult | None:
    """A trial's result, where stored counts that cannot be counts end as a failure."""
    result = trial.result
    if result is None or result.outcome is not Outcome.OK or _countable(result.exact.phases):
        return result
    return TrialResult(
        outcome=Outcome.INFRA_ERROR,
        reasons=("the stored result has no complete windows",),
        artifacts=result.artifacts,
    )


def gather(record: RunRecord, workload: str, scenario: str) -> tuple[ArmEvidence, ...]:
    """The evidence of every arm that the run planned for a scenario, in the study's order."""
    found = []
    for arm in record.arms:
        trials = tuple(
            trial
            for trial in record.trials
            if (trial.arm, trial.workload, trial.scenario) == (arm.index, workload, scenario)
        )
        if trials:
            found.append(arm_evidence(arm, trials))
    return tuple(found)


def points(record: RunRecord) -> tuple[tuple[str, RunRecord], ...]:
    """The points of a run's matrix, in the study's order: what tables call it, and its part."""
    found: dict[str, list[ArmRecord]] = {}
    for arm in record.arms:
        found.setdefault(arm.point, []).append(arm)
    if len(found) == 1:
        return ((next(iter(found)), record),)
    return tuple(
        (
            point,
            replace(
                record,
                arms=tuple(arms),
                trials=tuple(t for t in record.trials if t.arm in {arm.index for arm in arms}),
            ),
        )
        for point, arms in found.items()
    )


def obstacles(old: ArmEvidence, new: ArmEvidence) -> tuple[str, ...]:
    """Why two arms must not be compared, one sentence each; empty when they may be."""
    reasons = [
        f"{side.arm.label}: {objection}" for side in (old, new) for objection in side.objections
    ]
    if old.used and new.used:
        reasons += _environment_differences(old.used[0], new.used[0])
        if old.state is State.OK and new.state is State.OK:
            reasons += _state_differences(old.used[0], new.used[0])
        if _names(old.phases) != _names(new.phases):
            reasons.append(
                f"phases differ: {_names(old.phases) or 'none'} against {_names(new.phases)}"
            )
    return tuple(reasons)


def arm_evidence(arm: ArmRecord, trials: tuple[TrialRecord, ...]) -> ArmEvidence:
    """What the trials of one arm in one scenario amount to."""
    ended = [(trial, result) for trial in trials if (result := result_of(trial)) is not None]
    good = [pair for pair in ended if pair[1].outcome is Outcome.OK]
    invalid = [pair for pair in ended if pair[1].outcome is Outcome.INVALID]
    judged = good or invalid
    used = tuple(trial for trial, result in judged if _countable(result.exact.phases))
    state, objections = _state([result for _, result in judged])
    if not good and not objections:
        objections = sorted({result.reason or "no trial is valid" for _, result in invalid})
    objections += _inner_differences(used)
    phases = () if _mixed_phases(used) else _phase_measures(used)
    return ArmEvidence(
        arm=arm,
        trials=trials,
        used=used,
        ok=len(good),
        phases=phases,
        total=_total(phases, used) if phases else None,
        state=state,
        objections=tuple(objections),
    )


def _countable(phases: Sequence[PhaseCounts]) -> bool:
    return bool(phases) and all(
        counts.operations > 0 and len(counts.user) == len(counts.kernel) > 0 for counts in phases
    )


def _names(measures: Sequence[Measure]) -> str:
    return ", ".join(measure.phase for measure in measures)


def _state(results: Sequence[TrialResult]) -> tuple[State, list[str]]:
    if not results:
        return State.ABSENT, []
    if any(not result.state for result in results):
        return State.UNKNOWN, ["page state was not audited"]
    broken = {field: None for result in results for field in result.state if not field.holds}
    if not broken:
        return State.OK, []
    known = [field for field in broken if field.value != "unknown"]
    faults = [f"page state does not hold: {_fact(field)}" for field in known]
    faults += [f"page state is unknown: {_fact(f)}" for f in broken if f.value == "unknown"]
    return (State.FAILED if known else State.UNKNOWN), faults


def _fact(field: StateField) -> str:
    return f"{field.name} {field.when} the windows is {field.value}, wanted {field.want}"


def _inner_differences(used: Sequence[TrialRecord]) -> list[str]:
    """Why the trials of one arm are not trials of one thing."""
    reasons: dict[str, None] = {}
    for trial in used:
        reasons.update(dict.fromkeys(_environment_differences(used[0], trial)))
    if _mixed_phases(used):
        reasons["its trials have different phases or operations"] = None
    return list(reasons)


def _shape(trial: TrialRecord) -> tuple[tuple[str, int, str], ...]:
    phases = trial.result.exact.phases if trial.result else ()
    return tuple((counts.phase, counts.operations, counts.operation) for counts in phases)


def _mixed_phases(used: Sequence[TrialRecord]) -> bool:
    return len({_shape(trial) for trial in used}) > 1


def environment_of(trial: TrialRecord) -> Environment | None:
    """The environment a trial ran in, None when it did not run or did not record it."""
    return trial.result.environment if trial.result else None


def _environment_differences(old: TrialRecord, new: TrialRecord) -> list[str]:
    was, now = environment_of(old), environment_of(new)
    if was is None or now is None:
        return ["the environment of a trial was not recorded"]
    named = [
        f"{name} ({getattr(was, name)} against {getattr(now, name)})"
        for name in was.differences(now)
    ]
    return [f"environments differ: {', '.join(named)}"] if named else []


def _state_differences(old: TrialRecord, new: TrialRecord) -> list[str]:
    was, now = (
        {f"{field.name} {field.when}": field.value for field in trial.result.state if field.binding}
        if trial.result
        else {}
        for trial in (old, new)
    )
    named = [
        f"{name} ({was.get(name, 'not audited')} against {now.get(name, 'not audited')})"
        for name in dict.fromkeys([*was, *now])
        if was.get(name) != now.get(name)
    ]
    return [f"page states differ: {', '.join(named)}"] if named else []


def _phase_measures(used: Sequence[TrialRecord]) -> tuple[Measure, ...]:
    results = [trial.result for trial in used if trial.result]
    by_phase = zip(*(result.exact.phases for result in results), strict=True)
    return tuple(_phase_measure(used, counts) for counts in by_phase)


def _windows(counts: PhaseCounts) -> list[int]:
    return [user + kernel for user, kernel in zip(counts.user, counts.kernel, strict=True)]


def _phase_measure(used: Sequence[TrialRecord], per_trial: Sequence[PhaseCounts]) -> Measure:
    locations = [representative(_windows(counts), counts.switched) for counts in per_trial]
    across = representative([location.value for location in locations])
    chosen, counts = locations[across.index], per_trial[across.index]
    return Measure(
        phase=counts.phase,
        operation=counts.operation,
        operations=counts.operations,
        value=chosen.value,
        user=counts.user[chosen.index],
        kernel=counts.kernel[chosen.index],
        kind=chosen.kind,
        share=chosen.share,
        windows=chosen.n,
        minimum=chosen.minimum,
        maximum=chosen.maximum,
        deviation=chosen.deviation,
        trial=used[across.index].index,
        left_out=chosen.left_out,
        **_agreement(across),
    )


def _agreement(across: Location) -> dict[str, int]:
    return {
        "trials": across.n,
        "agree": round(across.share * across.n),
        "trials_range": across.maximum - across.minimum,
    }


def _total(phases: Sequence[Measure], used: Sequence[TrialRecord]) -> Measure:
    units = {(measure.operations, measure.operation) for measure in phases}
    operations, operation = units.pop() if len(units) == 1 else (1, ITERATION)
    value = sum(measure.value for measure in phases)
    per_trial = [
        sum(
            representative(_windows(counts), counts.switched).value
            for counts in trial.result.exact.phases
        )
        for trial in used
        if trial.result
    ]
    return Measure(
        phase=TOTAL,
        operation=operation,
        operations=operations,
        value=value,
        user=sum(measure.user for measure in phases),
        kernel=sum(measure.kernel for measure in phases),
        kind=LocationKind.MEDIAN
        if any(m.kind is LocationKind.MEDIAN for m in phases)
        else LocationKind.MODE,
        share=min(measure.share for measure in phases),
        windows=None,
        minimum=None,
        maximum=None,
        deviation=sum(measure.deviation for measure in phases),
        trials=len(per_trial),
        agree=per_trial.count(value),
        trials_range=max(per_trial) - min(per_trial),
        trial=None,
        left_out=sum(measure.left_out for measure in phases),
    )
