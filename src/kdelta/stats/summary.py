# SPDX-License-Identifier: GPL-2.0-or-later
"""Location and scatter of the replicates of one arm."""

from __future__ import annotations

import statistics

from kdelta.verdict.series import Series, Summary


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
