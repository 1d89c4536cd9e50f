# SPDX-License-Identifier: GPL-2.0-or-later
"""mmtests' comparison table, what compare-mmtests.pl prints for an operation of several samples,
and its JSON.

From bin/lib/MMTests of https://github.com/gormanm/mmtests: Stat.pm (the statistics), Summarise.pm
(which samples BAmean-N takes) and Compare.pm (the percentages, and the star on the mean row).
Never used for our verdict: the star tests the mean with a t test and an alpha of 5 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.imports.series import Case
from kdelta.metric import Better
from kdelta.sample import MetricValue, Outcome, TrialRecord, TrialResult
from kdelta.stats.decomposition import two_sided_p
from kdelta.stats.published_rules import MMTESTS_ALPHA

_BEST = (50, 95, 99)
_FIELD = 12
_COMPARE = 7
_KERNBENCH = "kernbench"
_PHASES = ("user", "syst", "elsp")
_MAILED = ("Amean", "BAmean-95", "BAmean-99")
_CELL = 23  # characters of a cell of mmtests' table


@dataclass(frozen=True, slots=True, kw_only=True)
class MmtestsCell:
    """A statistic of one arm and its change against the first arm: positive is better.

    star: a two-sample t test on the means says that they differ.
    """

    value: float
    percent: float
    star: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MmtestsRow:
    """One statistic over the arms, the first of which is the baseline."""

    name: str
    cells: tuple[MmtestsCell, ...]


def extracted(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """What `extract-mmtests.pl --print-json` writes, an object for each arm.

    Of its Extract.pm: operations, their unit, and of each the iterations (here: the trials) with
    their samples; Linaro's json-to-lava.py reads the same fields.
    """
    found: dict[str, dict[str, Any]] = {}
    for case in cases:
        group = "-".join(value for _, value in case.group)
        operation = f"{group}-{case.metric.name}"
        for series in case.series:
            values = [boot.values for boot in series.valid]
            if not values:
                continue
            own = found.setdefault(
                series.arm,
                {
                    "_ModuleName": "ExtractKdelta",
                    "_TestName": series.arm,
                    "_GeneratedOperations": [],
                    "_PlotYaxes": {},
                    "_ResultData": {},
                },
            )
            own["_GeneratedOperations"].append(operation)
            own["_PlotYaxes"][operation] = case.metric.unit
            own["_ResultData"][operation] = [
                {"SampleNrs": list(range(1, len(each) + 1)), "Values": list(each)}
                for each in values
            ]
    return list(found.values())


def table(samples: Sequence[Sequence[float]], better: Better) -> tuple[MmtestsRow, ...]:
    """Rows Min, Amean, Stddev, CoeffVar, Max, BAmean-50, -95, -99 over the samples of each arm.

    Where higher is better the means are harmonic and called so (Hmean, BHmean-50 ...).  A
    statistic that cannot be computed is NaN, as mmtests prints it.  Raises ValueError for an arm
    without samples.
    """
    if not all(samples):
        raise ValueError("an arm has no samples")
    arms = [_statistics(values, better) for values in samples]
    starred = [False] + [significant(samples[0], values, better) for values in samples[1:]]
    rows = []
    for name in arms[0]:
        mean = name in ("Amean", "Hmean")
        spread = name in ("Stddev", "HStddev", "CoeffVar", "HCoeffVar")
        lower = spread or better is Better.LOWER
        cells = [
            MmtestsCell(
                value=arm[name],
                percent=_change(arm[name], arms[0][name], lower=lower),
                star=mean and starred[at],
            )
            for at, arm in enumerate(arms)
        ]
        rows.append(MmtestsRow(name=name, cells=tuple(cells)))
    return tuple(rows)


def lines(operation: str, table_rows: Sequence[MmtestsRow]) -> list[str]:
    """The table as mmtests lays it out, without its head."""
    width = max(len(row.name) for row in table_rows)
    return [
        f"{row.name:<{width}} {operation}" + "".join(_cell(cell) for cell in row.cells)
        for row in table_rows
    ]


def _cell(cell: MmtestsCell) -> str:
    left, right = ("*", "*") if cell.star else ("(", ")")
    return f"{cell.value:{_FIELD}.2f} {left}{cell.percent:{_COMPARE}.2f}%{right}"


def _statistics(values: Sequence[float], better: Better) -> dict[str, float]:
    best_first = sorted(values, reverse=better is Better.HIGHER)
    letter = "H" if better is Better.HIGHER else ""
    name = "Hmean" if letter else "Amean"
    mean, sd = _mean(values, better), _sd(values, better)
    coefficient = 100 * sd / mean if mean and not math.isnan(sd) and not math.isnan(mean) else 0.0
    found = {
        "Min": min(values),
        name: mean,
        f"{letter}Stddev": sd,
        f"{letter}CoeffVar": coefficient,
        "Max": max(values),
    }
    for percent in _BEST:
        count = max(int(len(values) * percent / 100), 1)
        found[f"B{name}-{percent}"] = _mean(best_first[:count], better)
    return found


def _mean(values: Sequence[float], better: Better) -> float:
    if better is Better.LOWER:
        return sum(values) / len(values)
    return len(values) / sum(1 / value for value in values) if min(values) > 0 else math.nan


def _sd(values: Sequence[float], better: Better) -> float:
    if len(values) < 2:
        return math.nan
    if better is Better.LOWER:
        return statistics.stdev(values)
    mean = _mean(values, better)
    if math.isnan(mean):
        return math.nan
    squares = sum((1 / value - 1 / mean) ** 2 for value in values)
    return math.sqrt(squares * mean**4 / len(values))


def _change(value: float, base: float, *, lower: bool) -> float:
    """mmtests' pndiff (lower is better) and pdiff, with their own way around zero."""
    if math.isnan(value) or math.isnan(base) or value == base:
        return 0.0
    if value == 0:
        return 100.0 if lower else 0.0
    if base == 0:
        return -99.0 if lower else 100.0
    return 100 - value * 100 / base if lower else value * 100 / base - 100


def significant(
    base: Sequence[float], other: Sequence[float], better: Better, level: float = MMTESTS_ALPHA
) -> bool:
    """The star: a t test with the standard errors added and n + m - 2 degrees of freedom."""
    means = _mean(base, better), _mean(other, better)
    deviations = [_sd(values, better) for values in (base, other)]
    squares = [0.0 if math.isnan(sd) else sd**2 for sd in deviations]
    error = math.sqrt(squares[0] / len(base) + squares[1] / len(other))
    if math.isnan(means[0]) or math.isnan(means[1]):
        return False
    if not error:
        return means[0] != means[1]
    freedom = len(base) + len(other) - 2
    return two_sided_p(abs(means[0] - means[1]) / error, freedom) < level


def kernbench(workload: str, trials: Mapping[str, Sequence[TrialRecord]]) -> tuple[str, ...]:
    """kernbench's table of user-N, syst-N and elsp-N in seconds, as mails show it; N: jobs.

    Empty for another workload, or where no arm has samples.

    trials: by the arm's label; the samples of all that ended ok are put together, as mmtests does.
    """
    done = {arm: _done(own) for arm, own in trials.items()}
    known = [arm for arm in done if all(_seconds(done[arm], name) for name in _PHASES)]
    if workload != _KERNBENCH or not known:
        return ()
    told = {int(one.value) for arm in known for one in _jobs(done[arm]) if one.value}
    jobs = str(told.pop()) if len(told) == 1 else "N"
    by_phase = [
        _mailed(f"{name}-{jobs}", [_seconds(done[arm], name) for arm in known]) for name in _PHASES
    ]
    indent = len(max(_MAILED, key=len)) + 1 + len(f"{_PHASES[0]}-{jobs}")
    head = " " * indent + "".join(f"{arm[: _CELL - 1]:>{_CELL}}" for arm in known)
    return (head, *(rows[at] for at in range(len(_MAILED)) for rows in by_phase))


def _mailed(operation: str, samples: Sequence[Sequence[float]]) -> list[str]:
    found = table(samples, Better.LOWER)
    return lines(operation, [row for row in found if row.name in _MAILED])


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
