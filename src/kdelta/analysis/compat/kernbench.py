# SPDX-License-Identifier: GPL-2.0-or-later
"""kernbench as mmtests reports it: Amean and BAmean rows of user-N, syst-N and elsp-N in seconds.

N is the number of jobs.  The rows are those that mails show; all of mmtests' are in `mmtests`.
Never used for our verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kdelta.analysis.compat import mmtests
from kdelta.metric import Better
from kdelta.sample import MetricValue, Outcome, TrialRecord, TrialResult

WORKLOAD = "kernbench"
_PHASES = ("user", "syst", "elsp")
_ROWS = ("Amean", "BAmean-95", "BAmean-99")
_CELL = 23  # characters of a cell of mmtests' table


def lines(workload: str, trials: Mapping[str, Sequence[TrialRecord]]) -> tuple[str, ...]:
    """The table over the arms that have samples; empty for another workload or without any.

    trials: by the arm's label; the samples of all that ended ok are put together, as mmtests does.
    """
    done = {arm: _done(own) for arm, own in trials.items()}
    known = [arm for arm in done if all(_seconds(done[arm], name) for name in _PHASES)]
    if workload != WORKLOAD or not known:
        return ()
    told = {int(one.value) for arm in known for one in _jobs(done[arm]) if one.value}
    jobs = str(told.pop()) if len(told) == 1 else "N"
    by_phase = [
        _rows(f"{name}-{jobs}", [_seconds(done[arm], name) for arm in known]) for name in _PHASES
    ]
    indent = len(max(_ROWS, key=len)) + 1 + len(f"{_PHASES[0]}-{jobs}")
    head = " " * indent + "".join(f"{arm[: _CELL - 1]:>{_CELL}}" for arm in known)
    return (head, *(rows[at] for at in range(len(_ROWS)) for rows in by_phase))


def _rows(operation: str, samples: Sequence[Sequence[float]]) -> list[str]:
    table = mmtests.table(samples, Better.LOWER)
    return mmtests.lines(operation, [row for row in table if row.name in _ROWS])


def _done(trials: Sequence[TrialRecord]) -> list[TrialResult]:
    return [t.result for t in trials if t.result and t.result.outcome is Outcome.OK]


def _jobs(results: Sequence[TrialResult]) -> list[MetricValue]:
    return [metric for result in results for metric in result.metrics if metric.name == "jobs"]


def _seconds(results: Sequence[TrialResult], phase: str) -> list[float]:
    return [
        nanoseconds / 1e9
        for result in results
        for times in result.timed.phases
        if times.phase == phase
        for nanoseconds in times.nanoseconds
    ]
