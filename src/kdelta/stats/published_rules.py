# SPDX-License-Identifier: GPL-2.0-or-later
"""How others would decide, computed from what they published.  Printed beside, never used.

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
