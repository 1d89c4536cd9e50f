# SPDX-License-Identifier: GPL-2.0-or-later
"""From the trials of a timed run to series: which samples, of what machine, by whose rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdelta.journal.run import RunRecord
from kdelta.metric import Assume, Better, Metric
from kdelta.sample import (
    UNKNOWN,
    ArmRecord,
    MachineFacts,
    Outcome,
    PhaseTimes,
    TrialRecord,
    TrialResult,
)
from kdelta.stats.series import Boot, ReplicateUnit, Series
from kdelta.study.spec import Replicate, TimeMachine

# What must be the same for two arms: the machine, and how it was set.
_OF_HOST = ("machine", "cpu_model", "microcode", "governor", "epp", "turbo", "smt")
_SEEN = ("clocksource", "thp", "preempt", "cpus", "memory_mib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a stored study says of its verdicts; tolerance: a share of 1."""

    tolerance: float
    alpha: float
    machine: TimeMachine
    replicate: ReplicateUnit
    sequential: bool
    want_valid: int


def rules_of(record: RunRecord) -> Rules:
    """The rules of a run's study."""
    time = record.study.time
    per_process = time.machine is TimeMachine.HOST and time.replicate is Replicate.PROCESS
    return Rules(
        tolerance=time.tolerance_percent / 100,
        alpha=time.alpha,
        sequential=time.sequential,
        want_valid=time.want_valid,
        machine=time.machine,
        replicate=ReplicateUnit.PROCESS_ROUND if per_process else ReplicateUnit.BOOT,
    )


def series_of(
    arm: ArmRecord, trials: Sequence[TrialRecord], phase: str, rules: Rules, operation: str
) -> Series:
    """The samples of an arm's trials in one phase (or TOTAL), in ns per operation."""
    results = [trial.result for trial in trials if trial.result and trial.result.timed.phases]
    machine = results[0].facts if results else None
    return Series(
        arm=arm.label,
        metric=Metric(
            name=f"{phase}_ns_per_{operation}",
            unit=f"ns/{operation}",
            better=Better.LOWER,
            assume=Assume.NOTHING,
        ),
        boots=tuple(
            _boot(arm, trial, phase, rules)
            for trial in trials
            if trial.result and not skipped(trial)
        ),
        planned=sum(not skipped(trial) for trial in trials),
        facts=_compared(machine) if machine else (),
        state=_state(results),
        replicate=rules.replicate,
    )


def _compared(facts: MachineFacts) -> tuple[tuple[str, str], ...]:
    """What must be the same for two arms, by name; what is not known is equal to nothing known."""
    of_host = () if facts.guest else _OF_HOST
    found = [(name, getattr(facts.host, name, None)) for name in of_host]
    found += [(name, getattr(facts.seen, name)) for name in _SEEN]
    return tuple((name, UNKNOWN if value is None else str(value)) for name, value in found)


def why_skipped(trials: Sequence[TrialRecord]) -> str:
    """The reason of the first trial when all were skipped, else ""."""
    results = [trial.result for trial in trials if skipped(trial)]
    if not results or len(results) < len(trials) or results[0] is None:
        return ""
    return results[0].reason or "it gave no reason"


def skipped(trial: TrialRecord) -> bool:
    """True when the machine or the kernel lacks what the trial wants."""
    return trial.result is not None and trial.result.outcome is Outcome.SKIP


def _boot(arm: ArmRecord, trial: TrialRecord, phase: str, rules: Rules) -> Boot:
    result = trial.result
    values = _per_operation(result, phase) if result and result.outcome is Outcome.OK else ()
    reason = (result.reason or result.outcome) if result else ""
    return Boot(
        label=f"{arm.label} round {trial.round + 1}",
        position=trial.index,
        values=values,
        failure="" if values else reason or "it has no samples",
        refilled=trial.attempts > 1,
        round=trial.round,
        boot_id=result.facts.boot_id if result and result.facts else "",
        run=f"trial {trial.index}" if rules.replicate is ReplicateUnit.PROCESS_ROUND else "",
    )


def _per_operation(result: TrialResult, phase: str) -> tuple[float, ...]:
    """Samples in ns per operation; of TOTAL: of each iteration the sum over the phases that add."""
    chosen = [times for times in result.timed.phases if times.counts_for(phase)]
    if not chosen or any(times.operations <= 0 for times in chosen):
        return ()
    columns = [[ns / times.operations for ns in times.nanoseconds] for times in chosen]
    return tuple(sum(values) for values in zip(*columns, strict=False))


def phases_of(done: Sequence[TrialResult]) -> tuple[list[str], str]:
    """Names of the phases beside the total, and the operation that the total is per."""
    times: tuple[PhaseTimes, ...] = done[0].timed.phases if done else ()
    names = [one.phase for one in times] if len(times) > 1 else []
    operations = {one.operation for one in times}
    return names, operations.pop() if len(operations) == 1 else "iteration"


def _state(results: Sequence[TrialResult]) -> tuple[tuple[str, str], ...]:
    """The audited facts of an arm that bind; one that differs between its trials is unknown."""
    seen: dict[str, str] = {}
    for result in results:
        for field in filter(lambda each: each.binding, result.state):
            name = f"{field.name} {field.when}"
            seen[name] = field.value if seen.get(name, field.value) == field.value else UNKNOWN
    return tuple(seen.items())
