# SPDX-License-Identifier: GPL-2.0-or-later
"""How others would decide, computed from what they published.  Compared with ours.

Each rule takes the values of two arms and says whether it would call them different.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kdelta.metric import Better
from kdelta.stats.timing import two_sided_p

BENCHSTAT_ALPHA = 0.05
BENCHSTAT_CONFIDENCE = 0.95
MMTESTS_ALPHA = 0.05
EXACT_PAIRS = 50  # golang/perf uses the exact distribution up to this size without ties


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchstat:
    """What golang.org/x/perf's benchstat prints: medians with intervals, p, and the change.

    change: new/old - 1 of the medians; None where benchstat prints "~" (p above alpha).
    """

    old_median: float
    old_interval: tuple[float, float]
    new_median: float
    new_interval: tuple[float, float]
    p: float
    change: float | None


def benchstat(old: Sequence[float], new: Sequence[float]) -> Benchstat:
    """Mann-Whitney's U test at 0.05, and medians with order-statistic intervals at 95 %."""
    was, now = statistics.median(old), statistics.median(new)
    p = mann_whitney(old, new)
    return Benchstat(
        old_median=was,
        old_interval=median_interval(old, confidence=BENCHSTAT_CONFIDENCE),
        new_median=now,
        new_interval=median_interval(new, confidence=BENCHSTAT_CONFIDENCE),
        p=p,
        change=now / was - 1 if p <= BENCHSTAT_ALPHA and was else None,
    )


def mann_whitney(old: Sequence[float], new: Sequence[float]) -> float:
    """Two-sided p: exact, ties included, up to EXACT_PAIRS values an arm; normal above."""
    ranks = _doubled_ranks([*old, *new])
    observed = sum(ranks[len(old) :])
    count = len(old) + len(new)
    centre = len(new) * (count + 1)  # twice the mean rank sum
    distance = abs(observed - centre)
    if max(len(old), len(new)) > EXACT_PAIRS:
        ties = sum(each**3 - each for each in Counter(ranks).values())
        spread = len(old) * len(new) / 12 * (count + 1 - ties / (count * (count - 1)))
        z = max(distance / 2 - 0.5, 0) / math.sqrt(spread) if spread > 0 else 0.0
        return min(1.0, 2 * statistics.NormalDist().cdf(-z))
    ways = _rank_sums(tuple(sorted(ranks)), len(new))
    extreme = sum(times for total, times in ways.items() if abs(total - centre) >= distance)
    return extreme / math.comb(count, len(new))


def median_interval(values: Sequence[float], *, confidence: float) -> tuple[float, float]:
    """Order statistics that cover the median at least with this confidence; else infinite."""
    ordered, n = sorted(values), len(values)
    outside = 0.0
    best = (-math.inf, math.inf)
    for below in range(n // 2):
        outside += math.comb(n, below) / 2**n
        if 1 - 2 * outside < confidence:
            break
        best = (ordered[below], ordered[n - 1 - below])
    return best


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the mid-rank of each value, so that ties stay whole."""
    ordered = sorted(values)
    return [bisect_left(ordered, value) + 1 + bisect_right(ordered, value) for value in values]


@lru_cache(maxsize=64)
def _rank_sums(ranks: tuple[int, ...], size: int) -> dict[int, int]:
    """How many choices of `size` ranks have each sum."""
    ways: list[dict[int, int]] = [{0: 1}] + [{} for _ in range(size)]
    for rank in ranks:
        for taken in range(size, 0, -1):
            for total, times in ways[taken - 1].items():
                ways[taken][total + rank] = ways[taken].get(total + rank, 0) + times
    return ways[size]


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


def mmtests_significant(base: Sequence[float], other: Sequence[float], better: Better) -> bool:
    """mmtests' star: a t test with the standard errors added and n + m - 2 degrees of freedom."""
    means = _mean(base, better), _mean(other, better)
    deviations = [_sd(values, better) for values in (base, other)]
    squares = [0.0 if math.isnan(sd) else sd**2 for sd in deviations]
    error = math.sqrt(squares[0] / len(base) + squares[1] / len(other))
    if math.isnan(means[0]) or math.isnan(means[1]):
        return False
    if not error:
        return means[0] != means[1]
    freedom = len(base) + len(other) - 2
    return two_sided_p(abs(means[0] - means[1]) / error, freedom) < MMTESTS_ALPHA
