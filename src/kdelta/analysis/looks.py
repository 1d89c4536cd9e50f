# SPDX-License-Identifier: GPL-2.0-or-later
"""At which rounds a sequential run has looked at its data, and at which levels."""

from __future__ import annotations

from kdelta.analysis.evidence import SUPERFLUOUS
from kdelta.journal.run import RunRecord
from kdelta.stats import multiplicity
from kdelta.stats.detectors import MIN_REPLICATES


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
