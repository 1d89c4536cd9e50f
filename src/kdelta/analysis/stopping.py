# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a run may stop before all that was planned is measured."""

from __future__ import annotations

import math
from collections import Counter

from kdelta.analysis.findings import ladders
from kdelta.analysis.looks import levels, whole_rounds
from kdelta.analysis.methods import timing_of
from kdelta.journal.run import RunRecord
from kdelta.sample import Outcome, Skip, SkipKind


def decided(record: RunRecord) -> Skip | None:
    """Why a run may stop after its last whole round; None when it has to go on.

    A run that wants so many valid trials of each arm stops when it has them.  A sequential one
    looks after every round, each time at the level that stats.multiplicity hands out; every
    comparison of every scenario must have stopped.
    """
    time = record.study.time
    whole = whole_rounds(record)
    if whole >= record.rounds:
        return None
    if time.want_valid and _fewest_valid(record) >= time.want_valid:
        said = f"not needed: every arm has {time.want_valid} valid trials"
        return Skip(kind=SkipKind.NOT_NEEDED, sentence=said)
    steps = levels(record)
    if not steps:
        return None
    now = timing_of(record, level=steps[-1])
    reasons = []
    for ladder in ladders(record, now):
        for found in (rung.comparison for rung in ladder.rungs if rung.comparison):
            low, high = found.interval or (0.0, math.inf)
            tolerance = now.step_percent / 100
            reason = _stopped(low, high, n=whole, tolerance=tolerance)
            if not reason:
                return None
            reasons.append(reason)
    said = "; ".join(dict.fromkeys(reasons))
    return Skip(kind=SkipKind.STOPPED_EARLY, sentence=f"not needed: {said}")


def _stopped(low: float, high: float, *, n: int, tolerance: float) -> str:
    """Why to stop after a look at n replicates an arm, "" when not.

    low, high: the interval of new/old at the level of that look.
    """
    text = f"after {n} replicates an arm new/old is {low:.4g} to {high:.4g}"
    if 1 / (1 + tolerance) <= low and high <= 1 + tolerance:
        return f"{text}, within {100 * tolerance:g} %"
    return text if low > 1 or high < 1 else ""


def _fewest_valid(record: RunRecord) -> int:
    """Valid trials of the arm and scenario that has the fewest."""
    valid = Counter(
        (trial.arm, trial.workload, trial.scenario)
        for trial in record.trials
        if trial.result and trial.result.outcome is Outcome.OK
    )
    every = {(trial.arm, trial.workload, trial.scenario) for trial in record.trials}
    return min((valid[key] for key in every), default=0)
