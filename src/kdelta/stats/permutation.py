# SPDX-License-Identifier: GPL-2.0-or-later
"""How much two arms differ, with an interval that is right for few boots (docs/method.md).

A permutation test on Huber's scores of log values, with the session's trend projected out of
the scores, and the interval that this test implies: all ratios that it does not reject.  The test
needs no distribution, so it keeps its level with 5 boots an arm; the scores bound what one wild
boot can do, without removing it; the trend of the session, which both arms share when they are
interleaved, does not count as scatter.

numpy (extra `time`) is imported here, so only code that judges times may import this module.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Scores = Callable[[Array], Array]

CLIP = 1.2  # Huber's constant in units of SCALE_SHARE's scale; chosen in bench/power.py
SCALE_SHARE = 0.7  # the scale is the mean of this share of the deviations, the smallest
EXACT_LIMIT = 50_000  # so many assignments are enumerated; 9 against 9 boots has 48620
DRAWS = 39_999  # drawn otherwise; p = (1 + hits) / (1 + draws), Phipson and Smyth 2010
NORMAL_ABOVE = 200  # replicates; from here the permutation distribution is as good as normal
_TIE = 1e-9
_GRID = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """new/old as a ratio: estimate, interval at level 1 - alpha, and p of ratio 1.

    low is 0 and high is infinite when so few values cannot bound the ratio at this level.
    """

    ratio: float
    low: float
    high: float
    p: float


def shift(
    old: Sequence[float],
    new: Sequence[float],
    *,
    alpha: float,
    seed: int,
    when: Sequence[float] | None = None,
) -> Shift:
    """Estimate new/old from one positive value per replicate.

    when: place in the session of each value, old first (round or position); None: unknown.
    Raises ValueError for values that are not positive, or fewer than two an arm.
    """
    values = np.asarray([*old, *new], dtype=np.float64)
    if min(len(old), len(new)) < 2 or not np.all(np.isfinite(values)) or np.any(values <= 0):
        raise ValueError("two positive values an arm are needed")
    test = _Test.of(len(old), len(new), when=when, seed=seed)
    logs = np.log(values)
    centre = _estimate(test, logs)
    spread = max(float(np.ptp(logs - centre * test.is_new)), 1e-6)
    low, high = (_bound(test, logs, centre, side * spread, alpha) for side in (-1, 1))
    return Shift(
        ratio=math.exp(centre),
        low=math.exp(low),
        high=math.exp(high),
        p=float(test.p_values(logs[np.newaxis, :])[0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Test:
    """The permutation distribution of one design: n_old values, then n_new.

    assignments: one row of 0 and 1 per way to call n_new of the values new; empty: normal.
    trend: unit vector, orthogonal to the constant, of the place in the session; zero: unknown.
    """

    n_old: int
    n_new: int
    assignments: npt.NDArray[np.float32]
    exact: bool
    trend: Array
    is_new: Array

    @classmethod
    def of(cls, n_old: int, n_new: int, *, when: Sequence[float] | None, seed: int) -> _Test:
        count = n_old + n_new
        trend = np.zeros(count)
        if when is not None:
            trend = np.asarray(when, dtype=np.float64)
            trend = trend - trend.mean()
            size = float(np.linalg.norm(trend))
            trend = trend / size if size else trend
        assignments, exact = _assignments(n_old, n_new, seed)
        is_new = np.repeat([0.0, 1.0], [n_old, n_new])
        return cls(
            n_old=n_old,
            n_new=n_new,
            assignments=assignments,
            exact=exact,
            trend=trend,
            is_new=is_new,
        )

    def statistics(self, scores: Array) -> Array:
        """The scaled sum of the new arm's scores; one row per data set, with the trend out."""
        spread = self.n_old * self.n_new / (self.n_old + self.n_new)
        scale = math.sqrt(max(spread - float(self.is_new @ self.trend) ** 2, 1e-3 * spread))
        return np.asarray(scores @ self.is_new / scale)

    def without_trend(self, scores: Array) -> Array:
        """Scores with mean zero and no slope over the session (rank ANCOVA, Quade 1967)."""
        centred = scores - scores.mean(axis=1, keepdims=True)
        return np.asarray(centred - (centred @ self.trend)[:, np.newaxis] * self.trend)

    def p_values(self, logs: Array, scores: Scores | None = None) -> Array:
        """Two-sided p of no difference for each row of logs (data sets x values)."""
        flat = self.without_trend((scores or huber)(logs))
        observed = np.abs(self.statistics(flat))
        if self.is_large:
            return np.asarray([math.erfc(each / math.sqrt(2)) for each in observed / _sd(flat)])
        p = np.empty(len(flat))
        for start in range(0, len(flat), 200):
            rows = slice(start, start + 200)
            p[rows] = self._exceeding(flat[rows], observed[rows])
        return p

    @property
    def is_large(self) -> bool:
        """True when the permutation distribution is taken as normal."""
        return not self.assignments.size

    def z(self, logs: Array, assumed: float) -> float:
        """The statistic in standard deviations, if new/old were exp(assumed); large designs."""
        flat = self.without_trend(huber((logs - assumed * self.is_new)[np.newaxis, :]))
        return float((self.statistics(flat) / _sd(flat))[0])

    def _exceeding(self, flat: Array, observed: Array) -> Array:
        spread = self.n_old * self.n_new / (self.n_old + self.n_new)
        slope = self.assignments @ self.trend.astype(np.float32)
        scale = 1 / np.sqrt(np.maximum(spread - slope**2, 1e-3 * spread))
        sums = np.abs(self.assignments @ flat.T.astype(np.float32)) * scale[:, np.newaxis]
        limit = observed * (1 - 1e-5) - _TIE
        hits = (sums >= limit).sum(axis=0)
        p = hits / len(sums) if self.exact else (hits + 1) / (len(sums) + 1)
        if self.trend.any():
            # The trend took a degree of freedom: without this the level was 1.03 % for 1 %.
            p = np.minimum(p * (flat.shape[1] - 1) / (flat.shape[1] - 2), 1.0)
        return np.asarray(p)


def huber(values: Array) -> Array:
    """Huber's scores of each row: distance from the median in robust scale, clipped at CLIP."""
    distance = values - np.median(values, axis=1, keepdims=True)
    count = math.ceil(SCALE_SHARE * values.shape[1])
    size = np.partition(np.abs(distance), count - 1, axis=1)
    kept = size[:, :count]
    scale = kept.mean(axis=1, keepdims=True) / _consistency()
    # A lattice can put most values on the median: then the scale is that of all of them.
    scale = np.where(scale > _TIE, scale, size.mean(axis=1, keepdims=True) * math.sqrt(math.pi / 2))
    scale = np.where(scale > _TIE, scale, 1.0)
    return np.asarray(np.clip(distance / scale, -CLIP, CLIP))


def _sd(flat: Array) -> Array:
    """Standard deviation of each row's permuted statistic; infinite for rows without scatter."""
    sd = np.sqrt((flat**2).sum(axis=1) / (flat.shape[1] - 1))
    return np.where(sd > 0, sd, np.inf)


def _consistency() -> float:
    """Mean of the smallest SCALE_SHARE of |z| for standard normal z."""
    normal = NormalDist()
    edge = normal.inv_cdf((1 + SCALE_SHARE) / 2)
    return 2 * (normal.pdf(0) - normal.pdf(edge)) / SCALE_SHARE


@lru_cache(maxsize=16)
def _assignments(n_old: int, n_new: int, seed: int) -> tuple[npt.NDArray[np.float32], bool]:
    count = n_old + n_new
    if count > NORMAL_ABOVE:
        return np.empty((0, 0), dtype=np.float32), False
    if math.comb(count, n_new) <= EXACT_LIMIT:
        chosen = np.array(list(itertools.combinations(range(count), n_new)))
        exact = True
    else:
        generator = np.random.default_rng(seed)
        chosen = np.argsort(generator.random((DRAWS, count)), axis=1)[:, :n_new]
        exact = False
    rows = np.zeros((len(chosen), count), dtype=np.float32)
    np.put_along_axis(rows, chosen, 1, axis=1)
    return rows, exact


def _estimate(test: _Test, logs: Array) -> float:
    """The shift at which the test sees no difference at all (Hodges and Lehmann 1963)."""
    middle = float(np.median(logs[test.n_old :]) - np.median(logs[: test.n_old]))
    reach = max(float(np.ptp(logs)), 1e-6)
    if test.is_large:
        return _crossing(lambda at: test.z(logs, at), middle - reach, middle + reach)
    low, high = middle - reach, middle + reach
    for _ in range(3):
        grid = np.linspace(low, high, _GRID)
        flat = test.without_trend(huber(logs - grid[:, np.newaxis] * test.is_new))
        seen = test.statistics(flat)
        # The statistic falls as the assumed shift grows; ties make it flat around zero.
        above, below = grid[seen > _TIE], grid[seen < -_TIE]
        low = float(above.max()) if above.size else low
        high = float(below.min()) if below.size else high
        low, high = min(low, high), max(low, high)
    return (low + high) / 2


def _bound(test: _Test, logs: Array, centre: float, reach: float, alpha: float) -> float:
    """The furthest shift on one side of centre that the test does not reject."""
    if test.is_large:
        z = math.copysign(NormalDist().inv_cdf(1 - alpha / 2), -reach)
        return _crossing(lambda at: test.z(logs, at) - z, *sorted((centre, centre + 2 * reach)))
    kept, rejected = centre, centre + reach
    for _ in range(8):
        if _p_at(test, logs, np.array([rejected]))[0] <= alpha:
            break
        kept, reach = rejected, 2 * reach
        rejected = centre + reach
    else:
        return math.copysign(math.inf, reach)
    for _ in range(3):
        grid = np.linspace(kept, rejected, _GRID)
        inside = np.flatnonzero(_p_at(test, logs, grid) > alpha)
        last = int(inside.max()) if inside.size else 0
        kept, rejected = float(grid[last]), float(grid[min(last + 1, _GRID - 1)])
    return rejected


def _p_at(test: _Test, logs: Array, shifts: Array) -> Array:
    return test.p_values(logs - shifts[:, np.newaxis] * test.is_new)


def _crossing(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls from low to high crosses zero; an end when it does not."""
    from scipy.optimize import brentq

    if falling(low) <= 0:
        return low
    if falling(high) >= 0:
        return high
    return float(brentq(falling, low, high, xtol=1e-7))


def batch_p_values(
    logs: Array,
    *,
    n_old: int,
    seed: int,
    when: Sequence[float] | None = None,
    scores: Scores | None = None,
) -> Array:
    """p of no difference for many data sets of one design at once (data sets x values).

    scores: replaces Huber's scores; with ranks this is the exact Mann-Whitney test, ties and all.
    """
    n_new = logs.shape[1] - n_old
    return _Test.of(n_old, n_new, when=when, seed=seed).p_values(logs, scores)
