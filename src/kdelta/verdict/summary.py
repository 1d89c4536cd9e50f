# SPDX-License-Identifier: GPL-2.0-or-later
"""One arm over its replicates: what any report prints beside a verdict."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from kdelta.verdict.series import ReplicateUnit, Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Location and scatter over replicates, in the metric's unit.  None: it has no value.

    sd is the sample standard deviation (n - 1), cv is sd / mean (0.03 is 3 %), mad the median
    distance from the median, not scaled.
    """

    arm: str
    replicate: ReplicateUnit
    n: int
    planned: int
    median: float | None = None
    mean: float | None = None
    sd: float | None = None
    cv: float | None = None
    mad: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    @property
    def of_planned(self) -> str:
        """Valid of planned replicates: "8/9"."""
        return f"{self.n}/{self.planned}"


def summarise(series: Series) -> Summary:
    """Summarise one value per valid replicate."""
    values = series.values
    arm, planned, kind = series.arm, series.planned, series.replicate
    if not values:
        return Summary(arm=arm, replicate=kind, n=0, planned=planned)
    mean = statistics.fmean(values)
    median = statistics.median(values)
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Summary(
        arm=arm,
        replicate=kind,
        n=len(values),
        planned=planned,
        median=median,
        mean=mean,
        sd=sd,
        cv=None if sd is None or mean == 0 else sd / mean,
        mad=statistics.median(abs(value - median) for value in values),
        minimum=min(values),
        maximum=max(values),
    )
