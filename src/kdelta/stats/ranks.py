# SPDX-License-Identifier: GPL-2.0-or-later
"""Mann and Whitney's test as an interval: all differences of a new and an old value, counted.

The estimate is the median of these differences (Hodges and Lehmann 1963), and the interval lies
between two of them.  Differences that are equal to the assumed shift count against rejecting it, so
ties make the test careful.  numpy (extra `time`) is imported here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

Array = npt.NDArray[np.float64]

EXACT_UP_TO = 60  # values of both arms; above, the count of differences is as good as normal
_LISTED = 250_000  # so many differences are made and sorted; more are found by halving


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Differences:
    """Every new value minus every old one; both sorted."""

    old: Array
    new: Array

    @classmethod
    def of(cls, values: Array, n_old: int) -> Differences:
        """Of one set of values, the old arm's first."""
        return cls(old=np.sort(values[:n_old]), new=np.sort(values[n_old:]))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.old) * len(self.new)

    @property
    def median(self) -> float:
        """Hodges and Lehmann's estimate."""
        middle = (self.count + 1) / 2
        return (self._smallest(math.floor(middle)) + self._smallest(math.ceil(middle))) / 2

    def interval(self, alpha: float) -> tuple[float, float]:
        """All shifts that the test does not reject; infinite when so few values reject none."""
        left_out = _rejected(len(self.old), len(self.new), alpha)
        if left_out < 0:
            return -math.inf, math.inf
        return self._smallest(left_out + 1), self._smallest(self.count - left_out)

    def _smallest(self, place: int) -> float:
        """The difference at this place, from 1."""
        if self.count <= _LISTED:
            every = np.subtract.outer(self.new, self.old).ravel()
            return float(np.partition(every, place - 1)[place - 1])
        low, high = self.new[0] - self.old[-1], self.new[-1] - self.old[0]
        for _ in range(60):
            middle = (low + high) / 2
            enough = self._up_to(middle) >= place
            low, high = (low, middle) if enough else (middle, high)
        return float(high)

    def _up_to(self, shift: float) -> int:
        """How many differences are at most `shift`."""
        below = np.searchsorted(self.old, self.new - shift, side="left")
        return int(self.count - below.sum())


def p_values(values: Array, n_old: int) -> Array:
    """Two-sided p of no shift for each row (data sets x values), the old arm's values first."""
    n_new = values.shape[1] - n_old
    least = np.empty(len(values))
    for at, row in enumerate(values):
        old = np.sort(row[:n_old])
        above = int(np.searchsorted(old, row[n_old:], side="right").sum())
        below = n_old * n_new - int(np.searchsorted(old, row[n_old:], side="left").sum())
        least[at] = min(above, below)
    return chance(n_old, n_new, least)


def least_p(n_old: int, n_new: int) -> float:
    """The smallest p that so many values can have, two-sided."""
    return min(1.0, 2 / math.comb(n_old + n_new, n_new))


def chance(n_old: int, n_new: int, counts: Array) -> Array:
    """Two-sided chance of so few differences, or fewer, on one side of zero."""
    if n_old + n_new <= EXACT_UP_TO:
        tails = _tails(n_old, n_new)
        return np.asarray(
            np.minimum(1.0, 2 * tails[np.minimum(counts, len(tails) - 1).astype(int)])
        )
    centre, spread = _normal(n_old, n_new)
    return np.asarray(np.minimum(1.0, 2 * ndtr((counts + 0.5 - centre) / spread)))


def _rejected(n_old: int, n_new: int, alpha: float) -> int:
    """The most differences on one side of a shift that is rejected; -1: none ever is."""
    if n_old + n_new <= EXACT_UP_TO:
        return int(np.searchsorted(2 * _tails(n_old, n_new), alpha, side="right")) - 1
    centre, spread = _normal(n_old, n_new)
    return max(math.floor(float(centre + spread * ndtri(alpha / 2) - 0.5)), -1)


def _normal(n_old: int, n_new: int) -> tuple[float, float]:
    """Mean and standard deviation of the count of differences below zero."""
    pairs = n_old * n_new
    return pairs / 2, math.sqrt(pairs * (n_old + n_new + 1) / 12)


@lru_cache(maxsize=64)
def _tails(n_old: int, n_new: int) -> Array:
    """Chance of at most k differences below zero, for each k from 0.

    Counted by the product of (1 - q^(n_old + i)) / (1 - q^i), i from 1 to n_new.
    """
    ways = [1] + [0] * (n_old * n_new)
    for step in range(1, n_new + 1):
        for at in range(len(ways) - 1, n_old + step - 1, -1):
            ways[at] -= ways[at - n_old - step]
        for at in range(step, len(ways)):
            ways[at] += ways[at - step]
    whole = math.comb(n_old + n_new, n_new)
    return np.cumsum(np.asarray([each / whole for each in ways]))
