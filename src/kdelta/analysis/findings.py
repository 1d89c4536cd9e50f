# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis stage: a stored run -> Report.  All that the renderers may read.

A pure function of the record: another threshold needs no new measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kdelta.analysis import compilers, figures, metrics, variants
from kdelta.analysis.evidence import (
    ArmEvidence,
    Measure,
    Replicates,
    State,
    environment_of,
    gather,
    obstacles,
    points,
    result_of,
)
from kdelta.analysis.figures import FigureTable
from kdelta.analysis.limits import limits
from kdelta.analysis.metrics import MetricTable
from kdelta.journal.run import RunRecord
from kdelta.metric import INSNS_PER_OP
from kdelta.sample import TOTAL, Environment, Outcome
from kdelta.stats.exact import LocationKind
from kdelta.stats.verdict import STEP_PERCENT, Comparison, Verdict, compare

LOW_SHARE = 0.5  # a mode that fewer windows than this agree on is warned about


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One trial that ended without data; console is relative to the run folder, "" if none."""

    trial: int
    arm: str
    outcome: Outcome
    reason: str
    console: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """new/old of one phase against the first and the previous kernel; None: not comparable."""

    phase: str
    first: float | None
    previous: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One kernel of a ladder.

    total and phases are absent (None, empty) when no trial yielded counts.  first and previous
    name the kernels that it is compared with; previous is the nearest one above with valid counts.
    comparison is None for the first kernel, while no trial has ended, and for one that was skipped:
    all that ended found it not to support the scenario.
    """

    arm: str
    reference: str
    release: str
    version: str
    build_id: str
    compiler: str
    total: Measure | None
    phases: tuple[Measure, ...]
    first: str | None
    previous: str | None
    ratios: tuple[Ratios, ...]
    state: State
    ok: int
    done: int
    planned: int
    skipped: bool
    comparison: Comparison | None
    gap_closed: float | None = None

    def ratio(self, phase: str) -> Ratios:
        """The ratios of a phase (or TOTAL)."""
        empty = Ratios(phase=phase, first=None, previous=None)
        return next((ratios for ratios in self.ratios if ratios.phase == phase), empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStep:
    """A change above the threshold between two kernels, per operation."""

    old: str
    new: str
    old_value: float
    new_value: float
    operation: str
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An environment and the arms whose trials ran in it."""

    environment: Environment
    arms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """One scenario over all kernels of a run, in the study's order.

    point: of the study's matrix, "" without one.  baseline: the arm that all others are compared
    with, "" where each is compared with the one above.  goal: the arm whose level the study's gap
    ends at, "" without a gap.  phases: names, in order of execution.
    steps: the largest first.  operation: of the totals, None while nothing is known.
    """

    workload: str
    scenario: str
    point: str
    baseline: str
    goal: str
    phases: tuple[str, ...]
    operation: str | None
    rungs: tuple[Rung, ...]
    steps: tuple[LadderStep, ...]
    warnings: tuple[str, ...]
    failures: tuple[Failure, ...]
    machines: tuple[Machine, ...]
    replicates: Replicates | None
    done: int
    planned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a run shows.

    metrics: what workloads told beside their phases; figures: what the study wants to know of
    functions; limits: what it cannot say, a sentence each.
    """

    run_id: str
    name: str
    title: str
    created: str
    seed: int
    rounds: int
    kdelta_version: str
    step_percent: float
    ladders: tuple[Ladder, ...]
    done: int
    planned: int
    metrics: tuple[MetricTable, ...]
    figures: tuple[FigureTable, ...]
    limits: tuple[str, ...]


def report(record: RunRecord, *, step_percent: float | None = None) -> Report:
    """Analyse a stored run.  step_percent None: the study's own threshold."""
    threshold = record.study.thresholds.step_percent if step_percent is None else step_percent
    return Report(
        run_id=record.run_id,
        name=record.name,
        title=record.title,
        created=record.created,
        seed=record.seed,
        rounds=record.rounds,
        kdelta_version=record.kdelta_version,
        step_percent=threshold,
        ladders=tuple(
            _ladder(part, point, names, threshold)
            for point, part in points(record)
            for names in scenarios(part)
        ),
        done=sum(trial.result is not None for trial in record.trials),
        planned=len(record.trials),
        metrics=metrics.tables(record),
        figures=figures.tables(record),
        limits=limits(record),
    )


def scenarios(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """(workload, scenario) of a run, each once, in the order of its study."""
    order = {name: at for at, name in enumerate(record.study.scenarios)}
    found = {(trial.workload, trial.scenario) for trial in record.trials}
    return tuple(sorted(found, key=lambda n: (order.get(":".join(n), len(order)), n)))


def _ladder(record: RunRecord, point: str, names: tuple[str, str], step_percent: float) -> Ladder:
    workload, scenario = names
    arms = gather(record, workload, scenario)
    base, goal = variants.baseline(record), variants.goal(record)
    rungs = _with_gap(record, _rungs(arms, step_percent, base))
    with_data = next((arm for arm in arms if arm.total), None)
    return Ladder(
        workload=workload,
        scenario=scenario,
        point=point,
        baseline=base,
        goal=goal,
        phases=tuple(measure.phase for measure in with_data.phases) if with_data else (),
        operation=with_data.total.operation if with_data and with_data.total else None,
        rungs=rungs,
        steps=_steps(arms, rungs, goal),
        warnings=tuple(_warnings(arms, base)),
        failures=tuple(_failures(arms)),
        machines=_machines(arms),
        replicates=_replicates(arms),
        done=sum(rung.done for rung in rungs),
        planned=sum(rung.planned for rung in rungs),
    )


def _with_gap(record: RunRecord, rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    """The rungs with what each closes of the study's gap, in a scenario where there is one."""
    named = variants.gap(record)
    values = {rung.reference: rung.total.per_operation for rung in rungs if rung.total}
    if named is None or not all(name in values for name in named):
        return rungs
    aim = next(rung.comparison for rung in rungs if rung.reference == named[0])
    if aim is None or aim.verdict is not Verdict.IMPROVEMENT:
        return rungs
    good, bad = values[named[0]], values[named[1]]
    return tuple(
        rung
        if rung.reference in named
        else replace(rung, gap_closed=variants.closed(good, bad, values.get(rung.reference)))
        for rung in rungs
    )


def _rungs(arms: Sequence[ArmEvidence], step_percent: float, base: str) -> tuple[Rung, ...]:
    fixed = next((arm for arm in arms if arm.arm.label == base and arm.sound), None)
    if base:
        return tuple(
            _rung(arm, *((None, None) if arm is fixed else (fixed, fixed)), step_percent)
            for arm in arms
        )
    first = previous = None
    rungs = []
    for arm in arms:
        rungs.append(_rung(arm, first, previous, step_percent))
        if arm.sound:
            first, previous = first or arm, arm
    return tuple(rungs)


def _rung(
    arm: ArmEvidence,
    first: ArmEvidence | None,
    previous: ArmEvidence | None,
    step_percent: float,
) -> Rung:
    ended = [result for trial in arm.trials if (result := result_of(trial))]
    done = len(ended)
    skipped = done > 0 and all(result.outcome is Outcome.SKIP for result in ended)
    kernel = arm.arm.kernel
    read_back = next((t.result.kernel for t in arm.used if t.result and t.result.kernel), kernel)
    measures = (*arm.phases, arm.total) if arm.total else ()
    return Rung(
        arm=arm.arm.label,
        reference=kernel.reference,
        release=read_back.release or kernel.release,
        version=kernel.version,
        build_id=read_back.build_id or kernel.build_id,
        compiler=compilers.short(read_back.compiler),
        total=arm.total,
        phases=arm.phases,
        first=first.arm.label if first else None,
        previous=previous.arm.label if previous else None,
        ratios=tuple(
            Ratios(
                phase=measure.phase,
                first=_ratio(first, arm, measure.phase),
                previous=_ratio(previous, arm, measure.phase),
            )
            for measure in measures
        ),
        state=arm.state,
        ok=arm.ok,
        done=done,
        planned=len(arm.trials),
        skipped=skipped,
        comparison=_rung_comparison(arm, previous, step_percent) if done and not skipped else None,
    )


def _rung_comparison(
    arm: ArmEvidence, previous: ArmEvidence | None, step_percent: float
) -> Comparison | None:
    if previous:
        return compare_arms(previous, arm, phase=TOTAL, step_percent=step_percent)
    return None if arm.sound else compare_arms(arm, arm, phase=TOTAL, step_percent=step_percent)


def compare_arms(
    old: ArmEvidence, new: ArmEvidence, *, phase: str, step_percent: float
) -> Comparison:
    """The verdict on old -> new for one phase, or for TOTAL."""
    was, now = old.measure(phase), new.measure(phase)
    return compare(
        was.reading if was else None,
        now.reading if now else None,
        metric=INSNS_PER_OP,
        step_percent=step_percent,
        obstacles=tuple(dict.fromkeys(obstacles(old, new))),
    )


def _ratio(old: ArmEvidence | None, new: ArmEvidence, phase: str) -> float | None:
    """new/old, None unless the two may be compared."""
    if old is None:
        return None
    comparison = compare_arms(old, new, phase=phase, step_percent=STEP_PERCENT)
    return comparison.ratio


def _steps(arms: Sequence[ArmEvidence], rungs: Sequence[Rung], goal: str) -> tuple[LadderStep, ...]:
    """The steps to all arms but the goal of a gap, which is told on its own."""
    values = {arm.arm.label: arm.total for arm in arms if arm.sound}
    steps = []
    for arm, rung in zip(arms, rungs, strict=True):
        old = values.get(rung.previous or "")
        if rung.arm == goal:
            continue
        if old and arm.total and rung.comparison and rung.comparison.verdict.is_step:
            steps.append(
                LadderStep(
                    old=rung.previous or "",
                    new=rung.arm,
                    old_value=old.per_operation,
                    new_value=arm.total.per_operation,
                    operation=arm.total.operation,
                    comparison=rung.comparison,
                )
            )
    return tuple(sorted(steps, key=_size, reverse=True))


def _size(step: LadderStep) -> float:
    ratio = step.comparison.ratio
    return abs(math.log(ratio)) if ratio else math.inf


def _failures(arms: Sequence[ArmEvidence]) -> list[Failure]:
    found = []
    for arm in arms:
        for trial in arm.trials:
            result = result_of(trial)
            if result and result.outcome is not Outcome.OK:
                found.append(
                    Failure(
                        trial=trial.index,
                        arm=arm.arm.label,
                        outcome=result.outcome,
                        reason=result.reason,
                        console=result.artifacts.get("console", ""),
                    )
                )
    return found


def _machines(arms: Sequence[ArmEvidence]) -> tuple[Machine, ...]:
    """Environments that differ in identity, and who ran in them."""
    groups: list[tuple[Environment, dict[str, None]]] = []
    for arm in arms:
        for trial in arm.used:
            environment = environment_of(trial)
            if environment is None:
                continue
            labels = next((who for e, who in groups if not e.differences(environment)), None)
            if labels is None:
                labels = {}
                groups.append((environment, labels))
            labels[arm.arm.label] = None
    return tuple(Machine(environment=e, arms=tuple(labels)) for e, labels in groups)


def _replicates(arms: Sequence[ArmEvidence]) -> Replicates | None:
    fresh = {trial.result.fresh_boot for arm in arms for trial in arm.used if trial.result}
    if len(fresh) != 1:
        return Replicates.MIXED if fresh else None
    return Replicates.FRESH_BOOTS if fresh.pop() else Replicates.CHECKPOINT


def _warnings(arms: Sequence[ArmEvidence], base: str) -> list[str]:
    """What keeps an exact count from being exact; rides in the result."""
    measured = [(arm.arm.label, measure) for arm in arms for measure in arm.phases]
    found = []
    for phase in dict.fromkeys(measure.phase for _, measure in measured):
        own = [pair for pair in measured if pair[1].phase == phase]
        found += _window_warnings(phase, own)
    totals = [(arm.arm.label, arm.total) for arm in arms if arm.total]
    apart = [(label, total) for label, total in totals if total.trials_range]
    if apart:
        worst = max(total.trials_range / total.value if total.value else 0 for _, total in apart)
        agreed = ", ".join(f"{label} {total.agree}/{total.trials}" for label, total in apart)
        found.append(f"trials disagree, by at most {_percent(worst)}; equal to the value: {agreed}")
    single = [label for label, total in totals if total.trials == 1]
    if single and len(single) == len(totals):
        found.append("one trial per kernel: nothing shows that another trial would agree")
    elif single:
        found.append(f"one valid trial only, agreement not shown: {', '.join(single)}")
    if not base:
        found += _uneven_base_warnings(arms)
    return found + _copies(arms) + compilers.warnings(arms)


def _window_warnings(phase: str, measured: Sequence[tuple[str, Measure]]) -> list[str]:
    found = []
    median = [(label, m) for label, m in measured if m.kind is LocationKind.MEDIAN]
    low = [
        (label, m) for label, m in measured if m.kind is LocationKind.MODE and m.share < LOW_SHARE
    ]
    if left := [f"{label} {m.left_out}" for label, m in measured if m.left_out]:
        found.append(
            f"{phase}: windows left out because another task ran in them: {', '.join(left)}"
        )
    if median:
        worst = max(m.deviation / m.value if m.value else 0 for _, m in median)
        found.append(
            f"{phase}: counts hardly repeat, so the median window is shown (~); half of the"
            f" windows lie within {_percent(worst)} of it: {_labels(median)}"
        )
    if low:
        shares = ", ".join(f"{label} {m.share:.0%}" for label, m in low)
        found.append(f"{phase}: fewer than half of the windows have the shown count: {shares}")
    return found


def _uneven_base_warnings(arms: Sequence[ArmEvidence]) -> list[str]:
    """Say it when a kernel is compared with another one than that of the row above."""
    found = []
    base: ArmEvidence | None = None
    for above, arm in pairwise(arms):
        base = above if above.sound else base
        if base and base is not above and arm.used:
            found.append(
                f"{arm.arm.label} is compared with {base.arm.label}:"
                f" {above.arm.label} has no valid count"
            )
    return found


def _copies(arms: Sequence[ArmEvidence]) -> list[str]:
    """Say which kernels were not booted, and why that is no loss."""
    return [
        f"{arm.arm.label} was not booted: {why}"
        for arm in arms
        for why in dict.fromkeys(
            t.result.copied.sentence for t in arm.used if t.result and t.result.copied
        )
    ]


def _labels(measured: Sequence[tuple[str, Measure]]) -> str:
    return ", ".join(label for label, _ in measured)


def _percent(fraction: float) -> str:
    percent = 100 * fraction
    if 0 < percent < 0.001:
        return "less than 0.001 %"
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"
