# SPDX-License-Identifier: GPL-2.0-or-later
"""Every single reading of a scenario, in the order in which it was taken: samples, or windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.times import per_operation
from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import points
from kdelta.ladder.ladders import Ladder
from kdelta.sample import TOTAL, Outcome, TrialResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One trial's, per operation: ns of each sample, or instructions of each window."""

    arm: str
    trial: int
    values: tuple[float, ...]


def readings(record: RunRecord, ladder: Ladder[Any]) -> tuple[Readings, ...]:
    """Of the trials of a ladder that ended ok, by their order in the run."""
    part = dict(points(record))[ladder.point]
    labels = {arm.index: arm.label for arm in part.arms}
    found = [
        Readings(arm=labels[trial.arm], trial=trial.index, values=values)
        for trial in part.trials
        if (trial.workload, trial.scenario) == (ladder.workload, ladder.scenario)
        and trial.result
        and trial.result.outcome is Outcome.OK
        and (values := _values(trial.result))
    ]
    return tuple(sorted(found, key=lambda each: each.trial))


def _values(result: TrialResult) -> tuple[float, ...]:
    if result.timed.phases:
        return per_operation(result, TOTAL)[1]
    phases = result.exact.phases
    units = {(phase.operations, phase.operation) for phase in phases}
    operations = phases[0].operations if len(units) == 1 else 1
    windows: Sequence[list[int]] = [
        [user + kernel for user, kernel in zip(phase.user, phase.kernel, strict=False)]
        for phase in phases
    ]
    return tuple(sum(each) / operations for each in zip(*windows, strict=False))
