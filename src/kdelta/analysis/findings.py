# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis stage: a stored run -> Report.  All that the renderers may read.

A pure function of the record: another threshold needs no new measurement.
"""

from __future__ import annotations

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
from kdelta.ladder.evidence import M, Method, ScenarioEvidence, gathered, refuse_traced
from kdelta.ladder.ladders import RunLadders, of_run
from kdelta.sample import Instrument, Outcome, Skip, SkipKind
from kdelta.study.spec import Replicate, TimeMachine
from kdelta.verdict.series import ReplicateUnit

# ---- the method of a run -------------------------------------------------------------------------


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


def timing_of(record: RunRecord, *, step_percent: float | None = None) -> TimeMethod:
    """The method of a timed run.  Raises SpecError for a run of another instrument."""
    if not record.instrument.traits.interleaved:
        raise SpecError(
            f"other tools judge times; the instrument of this run is {record.instrument}",
            place=record.run_id,
        )
    time = record.study.time
    guests = time.machine is TimeMachine.KVM
    rounds = not guests and time.replicate is Replicate.PROCESS
    return TimeMethod(
        step_percent=time.tolerance_percent if step_percent is None else step_percent,
        alpha=time.alpha,
        seed=record.seed,
        guests=guests,
        replicate=ReplicateUnit.PROCESS_ROUND if rounds else ReplicateUnit.BOOT,
    )


def enough_valid(record: RunRecord) -> Skip | None:
    """Why the trials that are left are not needed; None when the run has to go on.

    A run that wants so many valid trials of each arm stops when it has them.
    """
    wanted = record.study.time.want_valid
    every = {(trial.arm, trial.workload, trial.scenario) for trial in record.trials}
    valid = Counter(
        (trial.arm, trial.workload, trial.scenario)
        for trial in record.trials
        if trial.result and trial.result.outcome is Outcome.OK
    )
    if not wanted or min((valid[key] for key in every), default=0) < wanted:
        return None
    said = f"not needed: every arm has {wanted} valid trials"
    return Skip(kind=SkipKind.NOT_NEEDED, sentence=said)


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
