# SPDX-License-Identifier: GPL-2.0-or-later
"""How much of a regression something explains: a candidate fix, or probes that undo one part each.

With base (before), regressed (after) and an arm in between, the share of the gap that the arm
closes is (regressed - arm) / (regressed - base).  Its interval is Fieller's (1954): all shares c
for which the contrast (1 - c) regressed - arm + c base is not told from zero by a t test with
Welch's degrees of freedom.  A ratio of two noisy differences has no other honest interval: it is
unbounded as long as the gap itself is not certain, and then the answer is that there is none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from kdelta.metric import Grade
from kdelta.stats.detectors import MIN_REPLICATES, obstacles
from kdelta.stats.timing import compare
from kdelta.verdict.comparison import Share, Verdict
from kdelta.verdict.series import Series

_REACH = 20.0  # shares beyond -20 .. 20 are as good as unbounded


def gap_closed(base: Series, regressed: Series, arm: Series, *, alpha: float = 0.01) -> Share:
    """The share of the gap base -> regressed that `arm` (a candidate fix, a probe) closes."""
    arms = (base, regressed, arm)
    value = low = high = None
    if forbidden := obstacles(arms):
        reason = "; ".join(forbidden)
    elif few := [each.arm for each in arms if not each.valid]:
        reason = f"no values of {', '.join(few)}"
    else:
        before, after, between = (statistics.fmean(each.values) for each in arms)
        reason = f"{base.arm} and {regressed.arm} do not differ: there is no gap"
        if before != after:
            value = (after - between) / (after - before)
            low, high, reason = _interval(base, regressed, arm, value, alpha)
    return Share(arm=arm.arm, value=value, low=low, high=high, reason=reason)


def shares(
    base: Series, regressed: Series, arms: Sequence[Series], *, alpha: float = 0.01
) -> list[Share]:
    """What each arm closes: a candidate fix, or the regressed kernel with one part undone.

    The level is divided among the arms (Bonferroni), so all intervals hold together.  Parts that
    act on each other make the sum differ from what undoing all of them at once would give.  An
    interval is said where it says no more than the comparison of the two arms does.
    """
    level = alpha / max(len(arms), 1)
    return [
        _no_surer(gap_closed(base, regressed, arm, alpha=level), regressed, arm, level)
        for arm in arms
    ]


def _no_surer(share: Share, regressed: Series, arm: Series, alpha: float) -> Share:
    """Without an interval that is above or below 0 where nothing shows that the arms differ.

    Fieller's test is of means: it knows no margin of few boots, no drift and no clock that ticks.
    """
    if share.low is None or share.high is None or share.low <= 0 <= share.high:
        return share
    found = compare(regressed, arm, grade=Grade.HOST_TIME, alpha=alpha, obstacles=())
    shown = found.p is not None and found.p <= alpha
    if shown and found.verdict is not Verdict.UNDECIDED:
        return share
    return share.unsure(f"{regressed.arm} -> {arm.arm} is {found.verdict}")


class _Mean(NamedTuple):
    """A mean, the variance of that mean, and the degrees of freedom of the variance."""

    value: float
    variance: float
    freedom: int


def _mean(series: Series) -> _Mean:
    n = len(series.values)
    return _Mean(statistics.fmean(series.values), statistics.variance(series.values) / n, n - 1)


def _interval(
    base: Series, regressed: Series, arm: Series, value: float, alpha: float
) -> tuple[float | None, float | None, str]:
    from scipy.optimize import brentq

    short = min(len(each.valid) for each in (base, regressed, arm))
    if short < MIN_REPLICATES:
        kind = base.replicate.counted(short)
        return None, None, f"{kind} an arm bound no share: at least {MIN_REPLICATES} are needed"
    means = _mean(base), _mean(regressed), _mean(arm)
    # The gap is the contrast as c grows without end: when that is zero, no share is excluded.
    if _p(means, 1e9) > alpha:
        return None, None, "the gap itself is not certain"

    def edge(far: float) -> float:
        """The furthest share on one side of value that is not rejected."""
        outside = _p(means, far) > alpha
        return far if outside else float(brentq(lambda c: _p(means, c) - alpha, value, far))

    return edge(value - _REACH), edge(value + _REACH), ""


def _p(means: tuple[_Mean, _Mean, _Mean], share: float) -> float:
    """p of the t test of the contrast for this share."""
    base, regressed, arm = means
    weights = ((1 - share, regressed), (-1.0, arm), (share, base))
    size = sum(weight * mean.value for weight, mean in weights)
    parts = [(weight**2 * mean.variance, mean.freedom) for weight, mean in weights]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return float(math.isclose(size, 0.0, abs_tol=1e-12))
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return two_sided_p(size / math.sqrt(variance), freedom)


def two_sided_p(t: float, freedom: float) -> float:
    """Chance that |T| with this many degrees of freedom exceeds |t|."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def ratio_reach(*, old: float, new: float, freedom: tuple[int, int], alpha: float) -> float:
    """By what factor a ratio of means may be off, at 1 - alpha (Welch 1947).

    old, new: variance of each mean, relative to its square.  freedom: of each variance, n - 1.
    """
    from scipy.special import stdtrit

    whole = old + new
    if not whole:
        return 1.0
    degrees = whole**2 / (old**2 / freedom[0] + new**2 / freedom[1])
    return math.exp(-float(stdtrit(degrees, alpha / 2)) * math.sqrt(whole))
