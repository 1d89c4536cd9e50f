# SPDX-License-Identifier: GPL-2.0-or-later
"""The columns of the published framework's summary.csv, rebuilt from its runs.

The formulas were found from the published bundles and reproduce every cell of them (tests).
They are printed beside ours so that a reader can compare, and never used for our verdict: one run
has a CV of 0 here and so is `stable`, and a difference is classified without any interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MAX_CV = 0.10
TOLERANCE = 0.05


class Label(StrEnum):
    """How the framework's own reports call a row."""

    RELIABLE = "reliable"
    ROBUST_ONLY = "robust-only"
    PARTIAL = "partial"
    UNRELIABLE = "unreliable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """One arm's runs of a metric: values of those that ended ok, reasons of the others.

    warnings: what its audit of the results found; none in any published bundle.
    """

    arm: str
    values: tuple[float, ...]
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRow:
    """One row of summary.csv; figures are None when no run ended ok.

    cv is sample sd / mean, mad the median distance from the median, mad_ratio mad / median; each
    is 0 for one run, and 0 where it would divide by 0.
    """

    arm: str
    value: float | None
    median_value: float | None
    stdev_value: float | None
    cv: float | None
    mad_value: float | None
    mad_ratio: float | None
    min_value: float | None
    max_value: float | None
    baseline_value: float | None
    delta_vs_baseline: float | None
    baseline_median_value: float | None
    delta_vs_baseline_median: float | None
    classification: str
    status: str
    stable: bool
    robust_stable: bool
    semantic_warning: bool
    semantic_warning_reasons: str
    comparison_reliable: bool
    comparison_robust_reliable: bool
    run_count: int
    ok_runs: int
    failed_runs: int
    failure_reasons: str

    @property
    def label(self) -> Label:
        """reliable, robust-only, partial, or unreliable."""
        if self.status == "partial":
            return Label.PARTIAL
        if self.comparison_reliable:
            return Label.RELIABLE
        return Label.ROBUST_ONLY if self.comparison_robust_reliable else Label.UNRELIABLE

    def cell(self, column: str) -> str:
        """The cell of a column as summary.csv prints it."""
        found = getattr(self, column)
        if isinstance(found, bool):
            return "yes" if found else "no"
        if isinstance(found, float):
            return f"{found:.6f}"
        return "" if found is None else str(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statistics:
    mean: float | None = None
    median: float | None = None
    sd: float | None = None
    cv: float | None = None
    mad: float | None = None
    mad_ratio: float | None = None


def rows(
    arms: Sequence[Runs],
    *,
    baseline: str,
    tolerance: float = TOLERANCE,
    max_cv: float = MAX_CV,
    lower_is_better: bool = True,
) -> tuple[FrameworkRow, ...]:
    """The rows of all arms of one metric; `baseline` is the arm that deltas are against."""
    found = {runs.arm: _statistics(runs.values) for runs in arms}
    base = next((runs for runs in arms if runs.arm == baseline), Runs(arm=baseline, values=()))
    return tuple(
        _row(
            runs,
            found[runs.arm],
            base,
            found.get(baseline, _Statistics()),
            limits=(tolerance, max_cv),
            lower_is_better=lower_is_better,
        )
        for runs in arms
    )


def _statistics(values: Sequence[float]) -> _Statistics:
    if not values:
        return _Statistics()
    mean, median = statistics.mean(values), statistics.median(values)
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    mad = statistics.median(abs(value - median) for value in values)
    return _Statistics(
        mean=float(mean),
        median=float(median),
        sd=float(sd),
        cv=sd / mean if mean else 0.0,
        mad=float(mad),
        mad_ratio=mad / median if median else 0.0,
    )


def _row(
    runs: Runs,
    mine: _Statistics,
    base_runs: Runs,
    base: _Statistics,
    *,
    limits: tuple[float, float],
    lower_is_better: bool,
) -> FrameworkRow:
    tolerance, max_cv = limits
    delta = _delta(mine.mean, base.mean)
    mean_ok, robust_ok = _steady(runs, mine, max_cv)
    base_mean_ok, base_robust_ok = _steady(base_runs, base, max_cv)
    return FrameworkRow(
        arm=runs.arm,
        value=mine.mean,
        median_value=mine.median,
        stdev_value=mine.sd,
        cv=mine.cv,
        mad_value=mine.mad,
        mad_ratio=mine.mad_ratio,
        min_value=min(runs.values, default=None),
        max_value=max(runs.values, default=None),
        baseline_value=base.mean,
        delta_vs_baseline=delta,
        baseline_median_value=base.median,
        delta_vs_baseline_median=_delta(mine.median, base.median),
        classification=_classified(delta, tolerance, lower_is_better=lower_is_better),
        status=_status(runs),
        stable=mean_ok,
        robust_stable=robust_ok,
        semantic_warning=bool(runs.warnings),
        semantic_warning_reasons=";".join(runs.warnings),
        comparison_reliable=mean_ok and base_mean_ok,
        comparison_robust_reliable=robust_ok and base_robust_ok,
        run_count=len(runs.values) + len(runs.failures),
        ok_runs=len(runs.values),
        failed_runs=len(runs.failures),
        failure_reasons=";".join(dict.fromkeys(runs.failures)),
    )


def _status(runs: Runs) -> str:
    if not runs.values:
        return "unsupported"
    return "partial" if runs.failures else "ok"


def _steady(runs: Runs, found: _Statistics, max_cv: float) -> tuple[bool, bool]:
    """(stable, robust_stable): all runs ended ok, and CV or MAD ratio is at most the limit."""
    ok = _status(runs) == "ok" and found.cv is not None and found.mad_ratio is not None
    return ok and (found.cv or 0.0) <= max_cv, ok and (found.mad_ratio or 0.0) <= max_cv


def _delta(value: float | None, base: float | None) -> float | None:
    if value is None or base is None:
        return None
    return (value - base) / base if base else 0.0


def _classified(delta: float | None, tolerance: float, *, lower_is_better: bool) -> str:
    if delta is None:
        return "unsupported"
    if abs(delta) <= tolerance:
        return "neutral"
    return "regression" if (delta > 0) == lower_is_better else "improvement"
