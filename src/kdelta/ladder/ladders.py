# SPDX-License-Identifier: GPL-2.0-or-later
"""The ladders of a stored run: its kernels below each other, each compared with one above.

A pure function of the run: another threshold needs no new measurement.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Generic, Self

from kdelta.ladder.calls import failing
from kdelta.ladder.evidence import (
    ArmEvidence,
    M,
    Method,
    ScenarioEvidence,
    compare_arms,
    copies,
    counted_phases,
    gathered,
    nearest,
    obstacles,
)
from kdelta.metric import Grade
from kdelta.printable import few, told_name
from kdelta.procfs import compiler_family
from kdelta.sample import TOTAL, Environment, KernelIdentity, Outcome, Run, TrialResult
from kdelta.verdict.comparison import Comparison, Share


def limits(record: Run, method: Method[Any]) -> tuple[str, ...]:
    """Sentences about what was not measured, or only under conditions; the general ones first."""
    results = [trial.result for trial in record.trials if trial.result]
    own = (*_of_trials(record), *_from_store(results), *_of_metrics(results))
    return tuple(dict.fromkeys((*method.limits(record), *own)))


def _of_trials(record: Run) -> Iterator[str]:
    labels = {arm.index: f"{arm.label} {arm.point}".strip() for arm in record.arms}
    missing: dict[str, list[str]] = {}
    # Not in the order of trials, which a seed decides.
    for trial in sorted(record.trials, key=lambda one: (one.workload, one.scenario, one.arm)):
        if trial.result and trial.result.outcome is Outcome.SKIP:
            name = f"{trial.workload}:{trial.scenario} on {labels[trial.arm]}"
            missing.setdefault(trial.result.reason, []).append(name)
    for reason, names in missing.items():
        yield f"Not measured: {few(dict.fromkeys(names), 2)}: {reason}."
    failed = Counter(
        trial.result.outcome
        for trial in record.trials
        if trial.result and trial.result.outcome not in (Outcome.OK, Outcome.SKIP)
    )
    if failed:
        told = ", ".join(f"{count} {outcome}" for outcome, count in failed.items())
        yield f"{failed.total()} of {len(record.trials)} trials carry no valid result: {told}."


def _from_store(results: list[TrialResult]) -> Iterator[str]:
    days = sorted(result.stored.partition("T")[0] for result in results if result.stored)
    if days:
        dates = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
        yield (
            f"{len(days)} of {len(results)} trials are from the store, {dates}: the same kernel,"
            " program, machine, QEMU and seed were counted then. --again counts them again."
        )


def _of_metrics(results: list[TrialResult]) -> Iterator[str]:
    absent: dict[str, dict[str, None]] = {}
    for result in results:
        for metric in result.metrics:
            if metric.value is None:
                absent.setdefault(metric.absent, {})[metric.name] = None
    for reason, names in absent.items():
        yield f"Absent, not zero: {', '.join(names)}: {reason}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One trial that ended without data; console is relative to the run folder, "" if none."""

    trial: int
    arm: str
    outcome: Outcome
    reason: str
    console: str


@dataclass(frozen=True, slots=True)
class Ratios:
    """new/old of one phase against the first and the previous kernel; None: not comparable."""

    phase: str
    first: float | None
    previous: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung(ArmEvidence[M]):
    """One kernel of a ladder.

    first and previous name the kernels that it is compared with; previous is the ladder's baseline
    or, without one, the nearest above with valid values, of the same compiler where one is.
    passed: why that is not the row above, "" where it is.  comparison is None for the first kernel,
    while no trial has ended, and where one of the two was skipped.  share: what it closes of the
    study's gap.
    """

    first: str | None
    previous: str | None
    passed: str
    ratios: tuple[Ratios, ...]
    comparison: Comparison | None
    share: Share | None = None

    @property
    def gap_closed(self) -> float | None:
        """The share without its interval: 0 nothing, 1 all; None: unknown."""
        return self.share.value if self.share else None

    def ratio(self, phase: str) -> Ratios:
        """The ratios of a phase (or TOTAL)."""
        known = (ratios for ratios in self.ratios if ratios.phase == phase)
        return next(known, Ratios(phase, None, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStep:
    """A change above the threshold between two kernels, per operation."""

    old: str
    new: str
    old_value: float
    new_value: float
    operation: str
    comparison: Comparison

    @classmethod
    def of(cls, old: ArmEvidence[M], new: ArmEvidence[M], comparison: Comparison) -> Self | None:
        """From old to new; None where one has no value."""
        if not old.total or not new.total:
            return None
        return cls(
            old=old.label,
            new=new.label,
            old_value=old.total.per_operation,
            new_value=new.total.per_operation,
            operation=new.total.operation,
            comparison=comparison,
        )

    @property
    def size(self) -> float:
        """How far it goes, either way: |log(new/old)|."""
        ratio = self.comparison.ratio
        return abs(math.log(ratio)) if ratio else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What trials were measured on, in words, and the arms whose trials these were."""

    told: str
    environment: Environment | None
    arms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder(Generic[M]):
    """One scenario over all kernels of a run, in the study's order.

    point: of the study's matrix, "" without one.  baseline: the arm that all others are compared
    with, "" where each is compared with the one above.  goal, regressed: the ends of the study's
    gap, "" without one.  phases: names, in order of execution.  steps: the largest first.
    operation: of the totals, None while nothing is known.  doubts: of the machine about itself.
    failing: which system calls of the windows return errors, "" for none.  beside: what of the
    machines differs that a path may grow with.  unit: what values count.
    """

    workload: str
    scenario: str
    point: str
    baseline: str
    goal: str
    regressed: str
    phases: tuple[str, ...]
    operation: str | None
    grade: Grade
    rungs: tuple[Rung[M], ...]
    steps: tuple[LadderStep, ...]
    warnings: tuple[str, ...]
    doubts: tuple[str, ...]
    failing: str
    beside: tuple[str, ...]
    failures: tuple[Failure, ...]
    machines: tuple[Machine, ...]
    replicates: StrEnum | None
    done: int
    planned: int
    unit: str

    @property
    def reference(self) -> str:
        """The scenario: "mprotect:anon_full_toggle"."""
        return f"{self.workload}:{self.scenario}"

    @property
    def name(self) -> str:
        """The scenario, without the folder of a C file, and its point of the matrix."""
        return f"{told_name(self.workload, self.scenario)} {self.point}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLadders(Generic[M]):
    """All ladders of a run.

    step_percent: what is SAME.  alpha: the share of false alarms that is allowed, None of counts.
    debugging: which kernels are built for that, a sentence each.  beside: of another quantity that
    it counted, too.
    """

    run_id: str
    step_percent: float
    alpha: float | None
    ladders: tuple[Ladder[M], ...]
    beside: tuple[Ladder[M], ...] = ()
    debugging: tuple[str, ...] = ()
    done: int
    planned: int


def ladders(record: Run, method: Method[M]) -> tuple[Ladder[M], ...]:
    """A ladder for each scenario at each point of the matrix.

    The verdicts on one pair of arms, over all of them, are one family (Method.family).
    """
    own = [(one, _rungs(one.part, one.arms, method)) for one in gathered(record, method)]
    families: dict[tuple[str, str | None], list[Comparison]] = {}
    for rung in (rung for _, rungs in own for rung in rungs):
        if rung.comparison:
            families.setdefault((rung.label, rung.previous), []).append(rung.comparison)
    decided = {pair: iter(method.family(family)) for pair, family in families.items()}
    found = []
    for one, rungs in own:
        told = tuple(
            replace(rung, comparison=next(decided[rung.label, rung.previous]))
            if rung.comparison
            else rung
            for rung in rungs
        )
        found.append(_ladder(one, _with_shares(one.part, told, method), method))
    return tuple(found)


def _ladder(own: ScenarioEvidence[M], rungs: tuple[Rung[M], ...], method: Method[M]) -> Ladder[M]:
    arms = own.arms
    good, bad = ends(own.part)
    base = baseline(own.part, method)
    with_data = next((arm for arm in arms if arm.total), None)
    verdicts = [rung.comparison for rung in rungs if rung.comparison]
    results = [trial.result for arm in arms for trial in arm.trials if trial.result]
    # Each doubt once: the numbers in it differ from trial to trial.
    found = [text for result in results if result.facts for text in result.facts.doubts]
    return Ladder(
        workload=own.workload,
        scenario=own.scenario,
        point=own.point,
        baseline=base,
        goal=good,
        regressed=bad,
        phases=tuple(measure.phase for measure in with_data.phases) if with_data else (),
        failing=failing(one for arm in arms for one in counted_phases(arm)),
        operation=with_data.total.operation if with_data and with_data.total else None,
        grade=method.grade(arms),
        rungs=rungs,
        steps=_steps(rungs, good),
        warnings=(
            *method.warnings(arms, verdicts),
            *(f"{r.label} is compared with {r.previous}: {r.passed}" for r in rungs if r.passed),
            *copies(arms),
            *(
                f"{arm.label}: the guest of trial {trial.index} died once and not again, so no"
                f" kernel is blamed: {died.reason}"
                for arm in arms
                for trial in arm.trials
                if trial.result and (died := trial.result.flaky)
            ),
        ),
        doubts=tuple({re.sub(r"[0-9.]+", "", text): text for text in found}.values()),
        beside=tuple(_machine_states(arms)),
        failures=tuple(
            Failure(
                trial=trial.index,
                arm=arm.label,
                outcome=trial.result.outcome,
                reason=trial.result.reason,
                console=trial.result.artifacts.get("console", ""),
            )
            for arm in arms
            for trial in arm.trials
            if trial.result and trial.result.outcome is not Outcome.OK
        ),
        machines=_machines(arms, method),
        replicates=method.replicates(arms),
        done=sum(rung.done for rung in rungs),
        planned=sum(len(rung.trials) for rung in rungs),
        unit=method.unit,
    )


def _machine_states(arms: Sequence[ArmEvidence[Any]]) -> Iterator[str]:
    """How much there was, before the windows, of what a path may grow with, where arms differ."""
    known = [(arm.label, trial.result) for arm in arms for trial in arm.used[:1]]
    for fact in ("tasks", "mounts", "free_pages"):
        values = {
            label: field.value
            for label, result in known
            for field in (result.state if result else ())
            if (field.when, field.name) == ("before", f"machine_{fact}")
        }
        if len({*values.values()}) > 1:
            told = ", ".join(f"{label} {value}" for label, value in values.items())
            yield f"{fact.replace('_', ' ')} of the machine before the windows: {told}"


def ends(record: Run) -> tuple[str, str]:
    """The arms that are the good and the regressed kernel of the study's gap, "" without one."""
    own = {arm.kernel.reference: arm.label for arm in record.arms if not arm.control}
    good, bad = record.gap or ("", "")
    return own.get(good, ""), own.get(bad, "")


def baseline(record: Run, method: Method[Any]) -> str:
    """The arm that all others are compared with: "" for a ladder of releases.

    By a method that has one it is the first; else the regressed kernel of the study's gap, or the
    first of several kernels that are all built from one source.
    """
    arms = [arm for arm in record.arms if not arm.control]
    if method.baseline:
        return arms[0].label
    if record.gap:
        return ends(record)[1]
    if len(arms) > 1 and all(arm.kernel.source for arm in arms):
        # "6.17.8" of "6.17.8+mincore-present-first,min"
        sources = {re.split(r"[+,]", arm.kernel.name, maxsplit=1)[0] for arm in arms}
        return arms[0].label if len(sources) == 1 else ""
    return ""


def _rungs(record: Run, arms: Sequence[ArmEvidence[M]], method: Method[M]) -> tuple[Rung[M], ...]:
    base = baseline(record, method)
    if base:
        # Every arm against it.  The control is the baseline once more; when there is nothing else
        # to compare, it is compared itself: the machine with itself.
        fixed = next((arm for arm in arms if arm.label == base), None)
        control = next((arm for arm in arms if arm.arm.control), None)
        if control and all(arm in (fixed, control) for arm in arms):
            control = None
        return tuple(
            _rung(arm, None, None, None, method)
            if arm is fixed
            else _rung(arm, fixed, None if arm is control else fixed, control, method)
            for arm in arms
        )
    above: list[ArmEvidence[M]] = []
    rungs = []
    for arm in arms:
        sound = [other for other in above if other.sound]
        at = nearest(arm.kernel, [other.kernel for other in sound])
        first, previous = (sound[0], sound[at]) if sound else (None, None)
        rung = _rung(arm, first, previous, None, method)
        rungs.append(replace(rung, passed=_passed(rung, arm.kernel, above[-1])) if sound else rung)
        above.append(arm)
    return tuple(rungs)


def _passed(rung: Rung[M], kernel: KernelIdentity, above: ArmEvidence[M]) -> str:
    """Why a kernel is compared with another one than that of the row above, "" where it is not."""
    name = above.label
    if rung.previous == name or rung.total is None:
        return ""
    if not above.sound:
        return f"{name} has no valid count"
    compilers = {compiler_family(one.compiler) for one in (kernel, above.kernel)}
    if len(compilers) == 1:
        return f"{name} was built with other options, and these two with the same"
    other = compiler_family(above.kernel.compiler)
    return f"{other} built {name}, and these two are of one compiler"


def _rung(
    arm: ArmEvidence[M],
    first: ArmEvidence[M] | None,
    previous: ArmEvidence[M] | None,
    control: ArmEvidence[M] | None,
    method: Method[M],
) -> Rung[M]:
    """Ratios are of each phase and of the sum; of times one is nothing without its interval."""
    names = [*(one.phase for one in arm.phases), TOTAL] if arm.total and method.explains else []
    judged = None if arm is control else _comparison(arm, previous, control, method)

    def against(old: ArmEvidence[M] | None) -> list[float | None]:
        if old is None:
            return [None for _ in names]
        forbidden = tuple(dict.fromkeys(obstacles(method, old, arm))) if names else ()
        known = {TOTAL: judged} if judged and old is previous and control is None else {}
        every = (known.get(name) or method.compare((old, arm), name, forbidden) for name in names)
        return [one.ratio for one in every]

    return Rung(
        **{field.name: getattr(arm, field.name) for field in fields(arm)},
        first=first.label if first else None,
        previous=previous.label if previous else None,
        passed="",
        ratios=tuple(map(Ratios, names, against(first), against(previous))),
        comparison=judged,
    )


def _comparison(
    arm: ArmEvidence[M],
    previous: ArmEvidence[M] | None,
    control: ArmEvidence[M] | None,
    method: Method[M],
) -> Comparison | None:
    if not arm.done or arm.skipped or (previous and previous.skipped):
        return None
    if previous:
        return compare_arms(method, previous, arm, control)
    return None if arm.sound else compare_arms(method, arm, arm)


def _with_shares(record: Run, rungs: tuple[Rung[M], ...], method: Method[M]) -> tuple[Rung[M], ...]:
    """What each arm but its ends and the control closes of the study's gap.

    Never surer than the step itself: at its level, and without intervals where it is no step.
    """
    names = ends(record)
    own = {rung.label: rung for rung in rungs if not rung.arm.control}
    good, bad = (own.get(name) for name in names)
    if good is None or bad is None or not (good.total and bad.total):
        return rungs
    others = [rung for name, rung in own.items() if name not in names and not rung.skipped]
    step = bad.comparison
    if step and method.alpha:
        method = replace(method, alpha=method.alpha / step.hypotheses)
    shares = {share.arm: share for share in method.shares([good, bad, *others])}
    if step and not step.verdict.is_step:
        why = f"the step is {step.verdict}"
        shares = {name: share.unsure(why) for name, share in shares.items()}
    return tuple(replace(rung, share=shares.get(rung.label)) for rung in rungs)


def _steps(rungs: Sequence[Rung[M]], goal: str) -> tuple[LadderStep, ...]:
    """The steps to all arms but the goal of a gap, which is said on its own."""
    known = {rung.label: rung for rung in rungs if rung.sound}
    steps = (
        LadderStep.of(known[rung.previous], rung, rung.comparison)
        for rung in rungs
        if rung.label != goal and rung.comparison and rung.comparison.verdict.is_step
        if rung.previous in known
    )
    return tuple(sorted(filter(None, steps), key=lambda step: step.size, reverse=True))


def _machines(arms: Sequence[ArmEvidence[M]], method: Method[M]) -> tuple[Machine, ...]:
    """Environments that differ in identity, and who ran in them."""
    groups: list[tuple[Mapping[str, object], TrialResult, dict[str, None]]] = []
    for arm in arms:
        for result in (trial.result for trial in arm.used if trial.result):
            own = method.conditions(result)
            if own is None:
                continue
            labels = next((who for known, _, who in groups if known == own), None)
            if labels is None:
                groups.append((own, result, labels := {}))
            labels[arm.label] = None
    return tuple(
        Machine(told=method.machine(one), environment=one.environment, arms=tuple(labels))
        for _, one, labels in groups
    )
