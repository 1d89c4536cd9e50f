# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis stage: a stored run -> Report.  All that the renderers may read.

A pure function of the record: another threshold needs no new measurement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from kdelta.analysis import metrics
from kdelta.analysis.metrics import FigureTable, MetricTable
from kdelta.analysis.times import TimeMethod
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import UNSEEN_PERCENT, CountMethod
from kdelta.ladder.evidence import SUPERFLUOUS, M, Method, ScenarioEvidence, gathered, refuse_traced
from kdelta.ladder.ladders import RunLadders, ladders, of_run
from kdelta.sample import Instrument, Outcome, Skip, SkipKind
from kdelta.stats import multiplicity
from kdelta.stats.detectors import MIN_REPLICATES
from kdelta.study.spec import Replicate, TimeMachine
from kdelta.verdict.series import ReplicateUnit

# ---- the method of a run -------------------------------------------------------------------------


def levels(record: RunRecord) -> tuple[float, ...]:
    """The level of each look that a run has taken, none of one that is not sequential.

    The last one is that of its verdicts.
    """
    time = record.study.time
    if not time.sequential:
        return ()
    counts = range(MIN_REPLICATES, whole_rounds(record) + 1)
    return multiplicity.levels(counts, budget=record.rounds, alpha=time.alpha)


def whole_rounds(record: RunRecord) -> int:
    """Rounds all of whose trials were measured or cannot be, counted from the first.

    A round that was left out because enough was known was not measured: no look was taken at it.
    """
    count = 0
    for number in range(record.rounds):
        results = [trial.result for trial in record.trials if trial.round == number]
        if any(each is None or (each.skip and each.skip.kind in SUPERFLUOUS) for each in results):
            break
        count += 1
    return count


def method_of(
    record: RunRecord, *, step_percent: float | None = None, alike: bool = False
) -> Method[Any]:
    """How a run measured and decides.  step_percent None: the study's own threshold.

    alike: its kernels were built in one tree, a change apart, and boot alike.  Raises SpecError for
    a traced run.
    """
    refuse_traced(record)
    if record.instrument is Instrument.TIME:
        return timing_of(record, step_percent=step_percent)
    own = record.study.thresholds.step_percent
    return CountMethod(
        step_percent=own if step_percent is None else step_percent,
        unseen_percent=0.0 if alike else UNSEEN_PERCENT,
    )


def timing_of(
    record: RunRecord, *, step_percent: float | None = None, level: float | None = None
) -> TimeMethod:
    """The method of a timed run; level None: of a sequential one that of its last look.

    Raises SpecError for a run of another instrument.
    """
    if not record.instrument.traits.interleaved:
        raise SpecError(
            f"other tools judge times; the instrument of this run is {record.instrument}",
            place=record.run_id,
        )
    time = record.study.time
    guests = time.machine is TimeMachine.KVM
    rounds = not guests and time.replicate is Replicate.PROCESS
    if level is None:
        level = next((at for at in levels(record)[-1:] if at > 0), time.alpha)
    return TimeMethod(
        step_percent=time.tolerance_percent if step_percent is None else step_percent,
        alpha=level,
        seed=record.seed,
        guests=guests,
        replicate=ReplicateUnit.PROCESS_ROUND if rounds else ReplicateUnit.BOOT,
    )


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


# ---- its report ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(RunLadders[M]):
    """Everything that a run shows.

    metrics: what workloads told beside their phases; figures: what the study wants to know of
    functions.
    """

    metrics: tuple[MetricTable, ...]
    figures: tuple[FigureTable, ...]


def report(
    record: RunRecord,
    *,
    step_percent: float | None = None,
    known: Sequence[ScenarioEvidence[Any]] | None = None,
) -> Report[Any]:
    """Analyse a stored run.  step_percent None: the study's own threshold.  known: its evidence."""
    method = method_of(record, step_percent=step_percent)
    every = gathered(record, method) if known is None else known
    found = of_run(record, method, every)
    own = {field.name: getattr(found, field.name) for field in fields(found)}
    return Report(
        **own,
        metrics=metrics.tables(record),
        figures=metrics.figure_tables(record) if method.explains else (),
    )
