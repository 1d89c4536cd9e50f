# SPDX-License-Identifier: GPL-2.0-or-later
"""Mann and Whitney's test as an interval: all differences of a new and an old value, counted.

The estimate is the median of these differences (Hodges and Lehmann 1963), and the interval lies
between two of them.  Differences that are equal to the assumed shift count against rejecting it, so
ties make the test careful.

So few counts are possible of small arms that the test falls short of its level: of 9 against 9 at
1 % by a fifth.  There the orders of values with one count are told apart by their studentised
ranks (`finely`), which is a test of orders as well, and as exact for arms that scatter alike.

numpy (extra `time`) is imported here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

EXACT_UP_TO = 60  # values of both arms; above, the count of differences is as good as normal
FEW = 12  # values of the smaller arm; of so many the counts are fine enough
_LISTED = 250_000  # so many differences are made and sorted; more are found by halving
_ENUMERATED = 50_000  # orders of values of two arms; of more, so many less one are drawn
_LEAST = 1e-9  # relative to a standard error
_EQUAL = 1e-12  # logs
_FINE_UP_TO = 0.05  # p of counts that orders are told apart of
_DIGITS = 12  # of logs: a shift in binary fractions makes equal values nearly so


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

    def interval(self, alpha: float, *, seed: int) -> tuple[float, float]:
        """All shifts that the test does not reject; infinite when so few values reject none."""
        left_out = _rejected(len(self.old), len(self.new), alpha)
        if left_out < 0:
            return -math.inf, math.inf
        place = left_out + 1
        low = [self._smallest(place), self._smallest(place + 1)]
        high = [self._smallest(self.count - left_out - at) for at in (0, 1)]
        return (
            low[self._beyond(low, alpha, seed)],
            high[self._beyond(high, alpha, seed)],
        )

    def _beyond(self, places: Sequence[float], alpha: float, seed: int) -> int:
        """1 when what lies between two differences is rejected as well: one order has one p."""
        if not finely(len(self.old), len(self.new)) or abs(places[1] - places[0]) < _EQUAL:
            return 0
        moved = np.concatenate([self.old, self.new - sum(places) / 2])[np.newaxis, :]
        return int(p_values(moved, len(self.old), seed=seed)[0] <= alpha)

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


def p_values(values: Array, n_old: int, *, seed: int) -> Array:
    """Two-sided p of no shift for each row (data sets x values), the old arm's values first."""
    n_new = values.shape[1] - n_old
    pairs = n_old * n_new
    least, equal = np.empty(len(values)), np.empty(len(values), dtype=bool)
    for at, row in enumerate(values):
        old = np.sort(row[:n_old])
        above = int(np.searchsorted(old, row[n_old:], side="right").sum())
        below = pairs - int(np.searchsorted(old, row[n_old:], side="left").sum())
        least[at], equal[at] = min(above, below), above + below > pairs
    p = chance(n_old, n_new, least)
    if finely(n_old, n_new):
        rows = ~equal & (p <= _FINE_UP_TO)
        if rows.any():
            p[rows] = _between(values[rows], n_old, least[rows].astype(int), seed)
    return p


def finely(n_old: int, n_new: int) -> bool:
    """True of arms so small that orders with one count are told apart."""
    return min(n_old, n_new) < FEW and n_old + n_new <= EXACT_UP_TO


def _between(values: Array, n_old: int, counts: Counts, seed: int) -> Array:
    """p of these counts, less the share of it of orders whose studentised ranks are nearer."""
    n_new = values.shape[1] - n_old
    size = np.abs(_studentised(np.round(values, _DIGITS), n_old))
    orders = _orders(n_old, n_new, seed)
    whole = chance(n_old, n_new, counts)
    under = np.where(counts > 0, chance(n_old, n_new, np.maximum(counts - 1, 0)), 0.0)
    share = np.empty(len(values))
    for at, (count, each) in enumerate(zip(counts, size, strict=True)):
        share[at] = orders.share(orders.by_count.get(int(count), np.empty(0)), each)
    return np.asarray(under + (whole - under) * share)


def studentised_p(values: Array, n_old: int, *, seed: int) -> Array:
    """The same of ranks over their own scatter in each arm (Brunner and Munzel 2000).

    Held against all orders of as many different values, or many drawn ones (Neubert and Brunner
    2007): right for arms that scatter alike, and nearly so for others.  Equal values count half.
    """
    n_new = values.shape[1] - n_old
    size = np.abs(_studentised(np.round(values, _DIGITS), n_old))
    if n_old + n_new > EXACT_UP_TO:
        return np.asarray(np.minimum(1.0, 2 * ndtr(-size)))
    orders = _orders(n_old, n_new, seed)
    return np.asarray(orders.share(orders.sizes, size))


def _studentised(values: Array, n_old: int) -> Array:
    """How far the ranks of the arms are apart, over the scatter of the places among the other."""
    n_new = values.shape[1] - n_old
    places = rankdata(values, axis=1)
    old = places[:, :n_old] - rankdata(values[:, :n_old], axis=1)
    new = places[:, n_old:] - rankdata(values[:, n_old:], axis=1)
    scatter = (
        old.var(axis=1, ddof=1) / n_old / n_new**2 + new.var(axis=1, ddof=1) / n_new / n_old**2
    )
    # Arms that do not overlap have no such scatter: half a place is the least.
    least = 0.5 / (n_old * n_new) ** 2
    return np.asarray((new.mean(axis=1) / n_old - 0.5) / np.sqrt(np.maximum(scatter, least)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Orders:
    """|studentised ranks| of all orders of so many different values, or of drawn ones; sorted.

    by_count: those of the orders with so many differences on the rarer side of zero.
    """

    sizes: Array
    by_count: Mapping[int, Array]
    exact: bool

    def share(self, sizes: Array, size: Array | float) -> Array | float:
        """The share of some of the orders that are at least as far apart as `size`."""
        hits = len(sizes) - np.searchsorted(sizes, size - _LEAST)
        if self.exact:
            return np.maximum(hits, 1) / max(len(sizes), 1)
        return np.asarray((hits + 1) / (len(sizes) + 1))


@lru_cache(maxsize=16)
def _orders(n_old: int, n_new: int, seed: int) -> _Orders:
    count, pairs = n_old + n_new, n_old * n_new
    exact = math.comb(count, n_new) <= _ENUMERATED
    if exact:
        chosen = np.array(list(itertools.combinations(range(count), n_new)))
        is_new = np.zeros((len(chosen), count))
        np.put_along_axis(is_new, chosen, 1, axis=1)
        rows = np.argsort(is_new, axis=1, kind="stable").astype(np.float64)
    else:
        rows = np.random.default_rng(seed).random((_ENUMERATED - 1, count))
    sizes = np.abs(_studentised(rows, n_old))
    order = np.argsort(sizes)
    above = rankdata(rows, axis=1)[:, n_old:].sum(axis=1) - n_new * (n_new + 1) // 2
    counts = np.minimum(above, pairs - above)[order]
    by_count = {int(each): sizes[order][counts == each] for each in np.unique(counts)}
    return _Orders(sizes=sizes[order], by_count=by_count, exact=exact)


def least_p(n_old: int, n_new: int) -> float:
    """The smallest p that so many values can have, two-sided."""
    return min(1.0, 2 / math.comb(n_old + n_new, n_new))


def chance(n_old: int, n_new: int, counts: Array | Counts) -> Array:
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
