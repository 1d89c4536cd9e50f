# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis stage of the time instrument: a stored run -> what each arm took, and verdicts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kdelta.analysis import metrics, variants
from kdelta.analysis.compat import kernbench
from kdelta.analysis.evidence import points
from kdelta.analysis.findings import scenarios
from kdelta.analysis.limits import limits
from kdelta.analysis.metrics import MetricTable
from kdelta.analysis.timed_series import (
    Rules,
    phases_of,
    rules_of,
    series_of,
    why_skipped,
)
from kdelta.foreign.series import Case
from kdelta.journal.run import RunRecord
from kdelta.metric import Grade
from kdelta.sample import (
    TOTAL,
    UNKNOWN,
    ArmRecord,
    HostFacts,
    Outcome,
    Skip,
    SkipKind,
    TrialRecord,
    TrialResult,
)
from kdelta.stats import sequential
from kdelta.stats.decomposition import Share, decompose
from kdelta.stats.detectors import MIN_REPLICATES, inspect
from kdelta.stats.multiplicity import correct
from kdelta.stats.sequential import Look, Stop
from kdelta.stats.series import ReplicateUnit, Series
from kdelta.stats.summary import Summary, summarise
from kdelta.stats.timing import TimeComparison, compare
from kdelta.study.spec import TimeMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedArm:
    """One arm: a summary per phase and of their total (ns per operation), last the total.

    comparison: of its total with the first arm's, None for the first arm and where one of the two
    was skipped; failures: one sentence each; skipped: why no trial was measured, else "".
    """

    arm: str
    control: bool
    release: str
    compiler: str
    phases: tuple[tuple[str, Summary], ...]
    comparison: TimeComparison | None
    failures: tuple[str, ...]
    skipped: str

    @property
    def total(self) -> Summary:
        """The summary over all phases."""
        return self.phases[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLadder:
    """One scenario over the arms of a run, in the study's order; the control comes last.

    published: the lines that the workload's own tool would print of the samples, if any.
    gap: the step that the study wants closed, "6.16 -> 6.17", "" without one; shares: what each
    other arm closes of it, their intervals holding together at the run's level.
    """

    workload: str
    scenario: str
    point: str  # of the study's matrix, "" without one
    operation: str
    replicate: ReplicateUnit
    grade: Grade
    arms: tuple[TimedArm, ...]
    cautions: tuple[str, ...]
    doubts: tuple[str, ...]
    machine: str
    published: tuple[str, ...]
    gap: str
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReport:
    """Everything that a run of the time instrument shows; metrics: what workloads told."""

    run_id: str
    name: str
    title: str
    created: str
    seed: int
    rounds: int
    kdelta_version: str
    tolerance: float
    alpha: float
    done: int
    planned: int
    ladders: tuple[TimedLadder, ...]
    metrics: tuple[MetricTable, ...]
    limits: tuple[str, ...]


def report(record: RunRecord) -> TimedReport:
    """Analyse a stored run of the time instrument."""
    rules = rules_of(record)
    if rules.sequential:
        rules = replace(rules, alpha=_level(record, rules))
    return TimedReport(
        run_id=record.run_id,
        name=record.name,
        title=record.title,
        created=record.created,
        seed=record.seed,
        rounds=record.rounds,
        kdelta_version=record.kdelta_version,
        tolerance=rules.tolerance,
        alpha=rules.alpha,
        done=sum(trial.result is not None for trial in record.trials),
        planned=len(record.trials),
        ladders=_corrected(
            [
                _ladder(part, rules, point, *names)
                for point, part in points(record)
                for names in scenarios(part)
            ]
        ),
        metrics=metrics.tables(record),
        limits=limits(record),
    )


def _corrected(ladders: Sequence[TimedLadder]) -> tuple[TimedLadder, ...]:
    """Verdicts with Holm's correction over the scenarios of one pair of arms."""
    judged = list(ladders)
    for at in range(len(judged[0].arms) if judged else 0):
        family = [(number, ladder.arms[at].comparison) for number, ladder in enumerate(judged)]
        known = [(number, each) for number, each in family if each is not None]
        if len(known) < 2:
            continue
        corrected = correct([comparison for _, comparison in known])
        for (number, _), comparison in zip(known, corrected, strict=True):
            arms = list(judged[number].arms)
            arms[at] = replace(arms[at], comparison=comparison)
            judged[number] = replace(judged[number], arms=tuple(arms))
    return tuple(judged)


def decided(record: RunRecord) -> Skip | None:
    """Why a run may stop after its last whole round; None when it has to go on.

    A run that wants so many valid trials of each arm stops when it has them.  A sequential one
    looks after every round, each time at the level that stats.sequential hands out; every
    comparison of every scenario must have stopped.
    """
    rules = rules_of(record)
    whole = _whole_rounds(record)
    if rules.want_valid and whole < record.rounds and _fewest_valid(record) >= rules.want_valid:
        said = f"not needed: every arm has {rules.want_valid} valid trials"
        return Skip(kind=SkipKind.NOT_NEEDED, sentence=said)
    counts = list(range(MIN_REPLICATES, whole + 1))
    if not rules.sequential or not counts or whole >= record.rounds:
        return None
    steps = sequential.levels(counts, budget=record.rounds, alpha=rules.alpha)
    reasons = []
    for looks in _looks(record, rules, counts, steps):
        found = sequential.decide(
            looks,
            next_n=whole + 1,
            budget=record.rounds,
            alpha=rules.alpha,
            tolerance=rules.tolerance,
        )
        if found.stop is Stop.CONTINUE:
            return None
        reasons.append(found.reason)
    said = "; ".join(dict.fromkeys(reasons))
    return Skip(kind=SkipKind.STOPPED_EARLY, sentence=f"not needed: {said}")


def _fewest_valid(record: RunRecord) -> int:
    """Valid trials of the arm and scenario that has the fewest."""
    valid = Counter(
        (trial.arm, trial.workload, trial.scenario)
        for trial in record.trials
        if trial.result and trial.result.outcome is Outcome.OK
    )
    every = {(trial.arm, trial.workload, trial.scenario) for trial in record.trials}
    return min((valid[key] for key in every), default=0)


def _looks(
    record: RunRecord, rules: Rules, counts: Sequence[int], steps: Sequence[float]
) -> Iterable[list[Look]]:
    """Per comparison, its looks; only the last is taken now: the others let the run go on."""
    earlier = [
        Look(n=count, level=level, low=0.0, high=math.inf)
        for count, level in zip(counts[:-1], steps[:-1], strict=True)
    ]
    at_level = replace(rules, alpha=steps[-1], sequential=False)
    parts = [(part, names) for _, part in points(record) for names in scenarios(part)]
    for part, names in parts:
        for arm in _ladder(part, at_level, "", *names).arms:
            found = arm.comparison
            if found is None:
                continue
            known = found.low is not None and found.high is not None
            low, high = (found.low, found.high) if known else (0.0, math.inf)
            now = Look(n=counts[-1], level=steps[-1], low=low or 0.0, high=high or math.inf)
            yield [*earlier, now]


def _whole_rounds(record: RunRecord) -> int:
    """Rounds all of whose trials were measured or skipped, counted from the first."""
    count = 0
    for number in range(record.rounds):
        results = [trial.result for trial in record.trials if trial.round == number]
        if any(result is None for result in results):
            break
        count += 1
    return count


def _level(record: RunRecord, rules: Rules) -> float:
    """The level of the last look of a sequential run: its verdicts are taken at it."""
    counts = list(range(MIN_REPLICATES, _whole_rounds(record) + 1))
    steps = sequential.levels(counts, budget=record.rounds, alpha=rules.alpha)
    return steps[-1] if steps and steps[-1] > 0 else rules.alpha


def cases(record: RunRecord) -> list[Case]:
    """Every metric of a run, the phases' and their total's, as series per arm."""
    rules = rules_of(record)
    found = []
    parts = [(point, part, *n) for point, part in points(record) for n in scenarios(part)]
    for point, part, workload, scenario in parts:
        own = [t for t in part.trials if (t.workload, t.scenario) == (workload, scenario)]
        done = [trial.result for trial in own if trial.result and trial.result.timed.phases]
        names, operation = phases_of(done)
        for name in (*names, TOTAL):
            series = tuple(
                series_of(arm, [t for t in own if t.arm == arm.index], name, rules, operation)
                for arm in part.arms
            )
            found.append(
                Case(
                    group=(("scenario", f"{workload}:{scenario} {point}".strip()),),
                    metric=series[0].metric,
                    series=series,
                    published=(),
                )
            )
    return found


def _ladder(
    record: RunRecord, rules: Rules, point: str, workload: str, scenario: str
) -> TimedLadder:
    own = [t for t in record.trials if (t.workload, t.scenario) == (workload, scenario)]
    by_arm = {arm.index: [t for t in own if t.arm == arm.index] for arm in record.arms}
    done = [trial.result for trial in own if trial.result and trial.result.timed.phases]
    names, operation = phases_of(done)
    grade = _grade(rules, done)
    series = {
        arm.index: series_of(arm, by_arm[arm.index], TOTAL, rules, operation) for arm in record.arms
    }
    arms = tuple(
        _arm(arm, by_arm[arm.index], names, series, record, rules, grade, operation)
        for arm in record.arms
    )
    noticed = [caution.sentence for one in series.values() for caution in inspect(one)]
    noticed += [
        caution.sentence for arm in arms if arm.comparison for caution in arm.comparison.cautions
    ]
    gap, shares = _gap(record, series, rules)
    return TimedLadder(
        workload=workload,
        scenario=scenario,
        point=point,
        operation=operation,
        replicate=rules.replicate,
        grade=grade,
        arms=arms,
        cautions=tuple(dict.fromkeys(noticed)),
        doubts=_doubts(done),
        machine=_machine(rules, done),
        published=kernbench.lines(workload, record.arms, by_arm),
        gap=gap,
        shares=shares,
    )


def _gap(
    record: RunRecord, series: dict[int, Series], rules: Rules
) -> tuple[str, tuple[Share, ...]]:
    """The study's gap in words, and what each arm but its two and the control closes of it."""
    named = variants.gap(record)
    arms = [arm for arm in record.arms if not arm.control]
    ends = [arm for name in named or () for arm in arms if arm.kernel.reference == name]
    if len(ends) != 2:
        return "", ()
    good, bad = (series[arm.index] for arm in ends)
    others = [series[arm.index] for arm in arms if arm not in ends]
    found = decompose(good, bad, [one for one in others if one.planned], alpha=rules.alpha)
    return f"{good.arm} -> {bad.arm}", found.shares


def _arm(
    arm: ArmRecord,
    trials: Sequence[TrialRecord],
    names: Sequence[str],
    series: dict[int, Series],
    record: RunRecord,
    rules: Rules,
    grade: Grade,
    operation: str,
) -> TimedArm:
    per_phase = [
        (name, summarise(series_of(arm, trials, name, rules, operation))) for name in names
    ]
    kernel = next((t.result.kernel for t in trials if t.result and t.result.kernel), arm.kernel)
    return TimedArm(
        arm=arm.label,
        control=arm.control,
        release=kernel.release,
        compiler=kernel.compiler,
        phases=(*per_phase, (TOTAL, summarise(series[arm.index]))),
        comparison=_comparison(arm, series, record, rules, grade),
        failures=tuple(_failures(trials)),
        skipped=why_skipped(trials),
    )


def _comparison(
    arm: ArmRecord, series: dict[int, Series], record: RunRecord, rules: Rules, grade: Grade
) -> TimeComparison | None:
    """With the first arm; the control, where there is one, is the first arm once more.

    When there is nothing else to compare, the control is compared: the machine with itself.
    """
    first = record.arms[0]
    control = next((one for one in record.arms if one.control), None)
    alone = all(one.control or one is first for one in record.arms)
    if arm is first or (arm.control and not alone):
        return None
    if not series[first.index].planned or not series[arm.index].planned:
        return None  # all of it was skipped
    return compare(
        series[first.index],
        series[arm.index],
        control=series[control.index] if control and not arm.control else None,
        grade=grade,
        tolerance=rules.tolerance,
        alpha=rules.alpha,
        seed=record.seed,
        require_state=True,
    )


def _failures(trials: Iterable[TrialRecord]) -> Iterable[str]:
    for trial in trials:
        result = trial.result
        if result and result.outcome not in (Outcome.OK, Outcome.SKIP):
            yield f"trial {trial.index}: {result.outcome}: {result.reason}"


def _grade(rules: Rules, done: Sequence[TrialResult]) -> Grade:
    """metal-time only where the host says that it is not a virtual machine itself."""
    if rules.machine is TimeMachine.KVM:
        return Grade.GUEST_TIME
    virtual = {host.virtualisation if (host := _host(result)) else None for result in done}
    return Grade.METAL_TIME if virtual == {"none"} else Grade.HOST_TIME


def _doubts(done: Sequence[TrialResult]) -> tuple[str, ...]:
    """What spoke against the machine, each once: the numbers in it differ from trial to trial."""
    found = (text for result in done if result.facts for text in result.facts.doubts)
    alike = {re.sub(r"[0-9.]+", "", text): text for text in found}
    return tuple(alike.values())


def _machine(rules: Rules, done: Sequence[TrialResult]) -> str:
    if not done:
        return ""
    host, facts = _host(done[0]), done[0].facts
    model = (host.cpu_model if host else None) or "unknown CPU"
    virtual = host.virtualisation if host else None
    where = f", itself a guest ({virtual})" if virtual not in (None, "none") else ""
    clock = (facts.seen.clocksource if facts else None) or UNKNOWN
    return f"{'KVM guest on ' if rules.machine == 'kvm' else ''}{model}{where}, clock {clock}"


def _host(result: TrialResult) -> HostFacts | None:
    return result.facts.host if result.facts else None
