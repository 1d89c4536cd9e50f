# SPDX-License-Identifier: GPL-2.0-or-later
"""The method of a run, by its instrument: the only place that chooses."""

from __future__ import annotations

from typing import Any

from kdelta.analysis.looks import levels
from kdelta.analysis.times import TimeMethod
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import UNSEEN_PERCENT, CountMethod
from kdelta.ladder.evidence import Method, refuse_traced
from kdelta.sample import Instrument
from kdelta.study.spec import Replicate, TimeMachine
from kdelta.verdict.series import ReplicateUnit


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
