# SPDX-License-Identifier: GPL-2.0-or-later
"""Looking at the data before the budget is spent, without paying for it in false alarms.

Every look uses its own level, which an alpha-spending function of Lan and DeMets (1983) hands out
in the shape of O'Brien and Fleming (1979): hardly anything early, nearly all at the end.  The
intervals of all looks together cover the truth with 1 - alpha (repeated confidence intervals,
Jennison and Turnbull 1989), so it does not matter why one stops: because the arms differ, because
they are the same, or because one has seen enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

from kdelta.stats.detectors import MIN_REPLICATES

_NORMAL = NormalDist()
_EDGE = 8.0  # standard deviations integrated over
_STEP = 0.05  # of the grid, in standard deviations of the final statistic


def stopped(low: float, high: float, *, n: int, tolerance: float) -> str:
    """Why to stop after a look at n replicates an arm, "" when not.

    low, high: the interval of new/old at the level of that look.
    """
    text = f"after {n} replicates an arm new/old is {low:.4g} to {high:.4g}"
    if 1 / (1 + tolerance) <= low and high <= 1 + tolerance:
        return f"{text}, within {100 * tolerance:g} %"
    return text if low > 1 or high < 1 else ""


def levels(counts: Sequence[int], *, budget: int, alpha: float) -> tuple[float, ...]:
    """The two-sided level of each look, at `counts` replicates an arm of at most `budget`.

    Looks need not be planned: the level of a look depends on earlier ones only.  A look with
    fewer than MIN_REPLICATES gets 0: it can decide nothing.  Raises ValueError for counts that
    do not rise within the budget.
    """
    rising = all(first < second for first, second in pairwise(counts))
    if not 0 < alpha < 1 or not rising or (counts and not 0 < counts[0] <= counts[-1] <= budget):
        raise ValueError("looks must rise from 1 to the budget, and alpha must be within 0..1")
    used = [count for count in counts if count >= MIN_REPLICATES]
    bounds = boundaries([count / budget for count in used], alpha=alpha)
    handed = [2 * _NORMAL.cdf(-bound) for bound in bounds]
    return (*(0.0 for count in counts if count < MIN_REPLICATES), *handed)


def boundaries(fractions: Sequence[float], *, alpha: float) -> tuple[float, ...]:
    """|z| at which each look at a fraction of the information stops (two-sided, level alpha).

    Solved look by look: the chance to cross now, and not before, is what may be spent now
    (Armitage, McPherson and Rowe 1969, by the trapezoidal rule).
    """
    found: list[float] = []
    spent, before = 0.0, 0.0
    inside = [(0.0, 1.0)]  # (score z * sqrt(t), its chance) of not having crossed so far
    for fraction in fractions:
        sd = math.sqrt(fraction - before)
        total = spending(fraction, alpha=alpha)
        bound = _root(inside, sd, math.sqrt(fraction), target=total - spent)
        found.append(bound)
        inside = _step(inside, sd, min(bound, _EDGE) * math.sqrt(fraction))
        spent, before = total, fraction
    return tuple(found)


def spending(fraction: float, *, alpha: float) -> float:
    """What is spent of alpha at a fraction of the information, alpha / 2 on each side.

    4 - 4 Phi(z(alpha / 4) / sqrt(t)): Lan and DeMets' function for O'Brien and Fleming's shape.
    """
    return 4 * _NORMAL.cdf(_NORMAL.inv_cdf(alpha / 4) / math.sqrt(min(fraction, 1.0)))


def _root(inside: Sequence[tuple[float, float]], sd: float, root: float, *, target: float) -> float:
    """The bound on |z| that is crossed from `inside` with chance `target`."""
    low, high = 0.0, 40.0
    for _ in range(60):
        bound = (low + high) / 2
        edge = bound * root
        crossed = sum(
            chance * (_upper((edge - score) / sd) + _upper((edge + score) / sd))
            for score, chance in inside
        )
        low, high = (bound, high) if crossed > target else (low, bound)
    return high


def _step(
    inside: Sequence[tuple[float, float]], sd: float, edge: float
) -> list[tuple[float, float]]:
    """Chances on a grid within -edge..edge after one more normal increment."""
    count = max(math.ceil(2 * edge / _STEP), 2)
    width = 2 * edge / count
    found = []
    for index in range(count + 1):
        at = -edge + index * width
        density = sum(
            chance * math.exp(-((at - score) ** 2) / (2 * sd * sd)) for score, chance in inside
        )
        weight = width / 2 if index in (0, count) else width
        found.append((at, density * weight / (sd * math.sqrt(2 * math.pi))))
    return found


def _upper(z: float) -> float:
    """Upper tail of the standard normal."""
    return math.erfc(z / math.sqrt(2)) / 2
