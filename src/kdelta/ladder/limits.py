# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run cannot say, in sentences: they belong to its findings as much as the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kdelta.ladder.evidence import Method
from kdelta.sample import Outcome, Run, TrialResult


def limits(record: Run, method: Method[Any]) -> tuple[str, ...]:
    """Sentences about what was not measured, or only under conditions; the general ones first."""
    results = [trial.result for trial in record.trials if trial.result]
    return tuple(
        dict.fromkeys(
            [
                *method.limits(record),
                *_of_trials(record),
                *_from_store(results),
                *_of_metrics(results),
            ]
        )
    )


def _of_trials(record: Run) -> Iterator[str]:
    labels = {arm.index: f"{arm.label} {arm.point}".strip() for arm in record.arms}
    missing: dict[str, list[str]] = {}
    # Not in the order of trials, which a seed decides.
    for trial in sorted(record.trials, key=lambda one: (one.workload, one.scenario, one.arm)):
        if trial.result and trial.result.outcome is Outcome.SKIP:
            name = f"{trial.workload}:{trial.scenario} on {labels[trial.arm]}"
            missing.setdefault(trial.result.reason, []).append(name)
    for reason, names in missing.items():
        found = list(dict.fromkeys(names))
        more = f" and {len(found) - 2} more" if len(found) > 2 else ""
        yield f"Not measured: {', '.join(found[:2])}{more}: {reason}."
    failed = Counter(
        trial.result.outcome
        for trial in record.trials
        if trial.result and trial.result.outcome not in (Outcome.OK, Outcome.SKIP)
    )
    if failed:
        told = ", ".join(f"{count} {outcome}" for outcome, count in failed.items())
        count = f"{sum(failed.values())} of {len(record.trials)} trials"
        yield f"{count} carry no valid result: {told}."


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
