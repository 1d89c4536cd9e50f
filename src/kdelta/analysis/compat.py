# SPDX-License-Identifier: GPL-2.0-or-later
"""What the published framework makes of the same values, never used for a verdict.

The columns of its summary.csv.  Its formulas were found from the published bundles and reproduce
every cell of them (tests).  One run has a CV of 0 there and so is `stable`, and a difference is
classified without any interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

MAX_CV = 0.10
TOLERANCE = 0.05
_BEST_PERCENTS = (50, 95, 99)


# ---- the framework's columns ------------------------------------------------------------------


class Label(StrEnum):
    """How the framework's own reports call a row."""

    RELIABLE = "reliable"
    ROBUST_ONLY = "robust-only"
    PARTIAL = "partial"
    UNRELIABLE = "unreliable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """One arm's runs of a metric: values of those that ended ok, reasons of the others."""

    arm: str
    values: tuple[float, ...]
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRow:
    """One row of summary.csv; figures are None when no run ended ok.

    cv is sample sd / mean, mad the median distance from the median, mad_ratio mad / median; each
    is 0 for one run, and 0 where it would divide by 0.
    """

    arm: str
    value: float | None = None
    median_value: float | None = None
    stdev_value: float | None = None
    cv: float | None = None
    mad_value: float | None = None
    mad_ratio: float | None = None
    min_value: float | None = None
    max_value: float | None = None
    baseline_value: float | None = None
    delta_vs_baseline: float | None = None
    baseline_median_value: float | None = None
    delta_vs_baseline_median: float | None = None
    classification: str = "unsupported"
    status: str = "unsupported"
    stable: bool = False
    robust_stable: bool = False
    semantic_warning: bool = False  # of its audit of the results; true in no published bundle
    semantic_warning_reasons: str = ""
    comparison_reliable: bool = False
    comparison_robust_reliable: bool = False
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


def framework_rows(
    arms: Sequence[Runs],
    *,
    baseline: str,
    tolerance: float = TOLERANCE,
    max_cv: float = MAX_CV,
    lower_is_better: bool = True,
) -> tuple[FrameworkRow, ...]:
    """The rows of all arms of one metric; `baseline` is the arm that deltas are against."""
    own = [_row(runs, max_cv) for runs in arms]
    base = next((row for row in own if row.arm == baseline), None)
    if base is None:
        return tuple(own)

    def against(row: FrameworkRow) -> FrameworkRow:
        delta = _delta(row.value, base.value)
        return replace(
            row,
            baseline_value=base.value,
            delta_vs_baseline=delta,
            baseline_median_value=base.median_value,
            delta_vs_baseline_median=_delta(row.median_value, base.median_value),
            classification=_classified(delta, tolerance, lower_is_better=lower_is_better),
            comparison_reliable=row.stable and base.stable,
            comparison_robust_reliable=row.robust_stable and base.robust_stable,
        )

    return tuple(against(row) for row in own)


def _row(runs: Runs, max_cv: float) -> FrameworkRow:
    """Steady is an arm all of whose runs ended ok, with a CV or MAD ratio of at most the limit."""
    values, whole = runs.values, not runs.failures
    counted = FrameworkRow(
        arm=runs.arm,
        run_count=len(values) + len(runs.failures),
        ok_runs=len(values),
        failed_runs=len(runs.failures),
        failure_reasons=";".join(dict.fromkeys(runs.failures)),
    )
    if not values:
        return counted
    mean, median = float(statistics.mean(values)), float(statistics.median(values))
    sd = float(statistics.stdev(values)) if len(values) > 1 else 0.0
    mad = float(statistics.median(abs(value - median) for value in values))
    cv, mad_ratio = sd / mean if mean else 0.0, mad / median if median else 0.0
    return replace(
        counted,
        value=mean,
        median_value=median,
        stdev_value=sd,
        cv=cv,
        mad_value=mad,
        mad_ratio=mad_ratio,
        min_value=min(values),
        max_value=max(values),
        status="ok" if whole else "partial",
        stable=whole and cv <= max_cv,
        robust_stable=whole and mad_ratio <= max_cv,
    )


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
