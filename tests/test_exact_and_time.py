# SPDX-License-Identifier: GPL-2.0-or-later
"""Path length and time of the same kernels side by side."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kdelta.analysis.findings import report
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.rendering import comparisons
from kdelta.sample import ExactData, Instrument, Outcome, PhaseCounts, TrialResult
from kdelta.table import columns as page
from ladder_records import with_results
from timed_records import ENVIRONMENT, STATE, kernel, run


def exact_run(timed: RunRecord) -> RunRecord:
    """The same kernels counted: 300 instructions a page, then 670."""
    counts = {0: 300, 1: 670}
    trials = [
        replace(
            trial,
            result=TrialResult(
                outcome=Outcome.OK, kernel=kernel(trial.arm), environment=ENVIRONMENT, state=STATE,
                data=ExactData(
                    phases=(
                        PhaseCounts(phase="a", operations=4096, operation="page", user=(0,) * 4,
                                    kernel=(counts[trial.arm] * 4096,) * 4),
                    )
                ),
            ),
        )
        for trial in timed.trials
        if trial.round == 0 and trial.arm in counts
    ]  # fmt: skip
    return replace(
        timed, run_id="e-1", study=replace(timed.study, instrument=Instrument.EXACT), rounds=1,
        trials=tuple(trials),
    )  # fmt: skip


def test_path_length_and_time_stand_side_by_side() -> None:
    timed = run([20.0, 28.0, 20.0])
    lines = comparisons.show_side_by_side(report(exact_run(timed)), report(timed))
    text = " ".join(page.plain(lines).split())
    assert "executes 2.23x the instructions of" in text
    assert "it takes 1.40x the time" in text
    assert "(metal-time)" in text
    strangers = with_results(
        timed, lambda one: {"kernel": replace(kernel(0), release=f"9.{one.arm}")}
    )
    with pytest.raises(SpecError, match="no scenario with a kernel in common"):
        comparisons.show_side_by_side(report(exact_run(timed)), report(strangers))
