# SPDX-License-Identifier: GPL-2.0-or-later
"""The one test of times: Brunner and Munzel's by permutation, and its interval (docs/times.md).

numpy and scipy (extra `time`) are imported here, so only code that judges times may import this.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.stats import brunnermunzel

Array = npt.NDArray[np.float64]
Halves = npt.NDArray[np.float32]  # exact for placements of PERMUTED_UP_TO values, and squares
Flags = npt.NDArray[np.bool_]

PERMUTED_UP_TO = 60  # values of both arms
ENUMERATED = 50_000  # assignments; of more, so many less one are drawn.  9 : 9 has 48,620
SHOWN = 9  # 9 boots all lie in one of two equal modes in 2 / 2^9 = 0.4 % of sessions, 8 in 0.8 %
MARGIN = 0.10
DOUBLED = 2.0
_DIGITS = 12  # of logs: a shift in binary fractions makes equal values nearly so
_ROUNDING = 1e-9  # of statistics that are equal
_LISTED = 250_000  # differences that are made and sorted; more are found by halving
_STEPS = 40  # of halving, for an end of an interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """new/old as a ratio: estimate, interval at level 1 - alpha, and p of ratio 1.

    ratio is within low..high.  low is 0 and high is infinite when so few values cannot bound the
    ratio at this level.  margin: the part of the interval on either side, as a ratio less 1, that
    is for modes which so few boots do not show.
    """

    ratio: float
    low: float
    high: float
    p: float
    margin: float = 0.0

    def inside(self, tolerance: float) -> bool:
        """True where no ratio of the interval is beyond the tolerance, up or down."""
        return 1 / (1 + tolerance) <= self.low and self.high <= 1 + tolerance

    def excludes_one(self) -> bool:
        """True where the arms surely differ."""
        return self.low > 1 or self.high < 1

    def bounded(self) -> bool:
        """True where the values bound the ratio on both sides."""
        return self.low > 0 and math.isfinite(self.high)


def shift(old: Sequence[float], new: Sequence[float], *, alpha: float, seed: int) -> Shift:
    """Estimate new/old from two positive values an arm or more, one a replicate, or ValueError."""
    arms = _logs(old, new)
    logs, n_old = np.concatenate(arms), len(old)
    margin = _margin(n_old, len(new))
    level = alpha if margin else alpha / DOUBLED
    is_new = np.arange(len(logs)) >= n_old

    def kept(moved: float) -> bool:
        found = p_values((logs - moved * is_new)[np.newaxis, :], n_old, seed=seed)
        return float(found[0]) > level

    p = float(guarded_p(logs[np.newaxis, :], n_old, seed=seed)[0])
    centre, reach = _median_difference(*arms), float(np.ptp(logs)) + 1.0
    low = _end(kept, centre, centre - reach) - margin
    high = _end(kept, centre, centre + reach) + margin
    if p > alpha:  # exactly then 0 is among the shifts that are kept
        low, high = min(low, 0.0), max(high, 0.0)
    elif low <= 0 <= high:
        p = math.nextafter(alpha, 1)
    ratio, least, most = (math.exp(each) for each in (centre, low, high))
    return Shift(ratio=ratio, low=least, high=most, p=p, margin=math.expm1(margin))


def _logs(old: Sequence[float], new: Sequence[float]) -> tuple[Array, Array]:
    arms = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
    for arm in arms:
        if len(arm) < 2 or not np.all(np.isfinite(arm)) or np.any(arm <= 0):
            raise ValueError("two positive values an arm are needed")
    return np.log(arms[0]), np.log(arms[1])


def guarded_p(logs: Array, n_old: int, *, seed: int) -> Array:
    """p of equal arms for each row of logs, old first: doubled, or of arms MARGIN apart."""
    by = _margin(n_old, logs.shape[1] - n_old)
    if not by:
        return np.minimum(DOUBLED * p_values(logs, n_old, seed=seed), 1.0)
    pairs = logs[:, n_old:, np.newaxis] - logs[:, np.newaxis, :n_old]
    apart = np.median(pairs.reshape(len(logs), -1), axis=1)
    near = logs.copy()
    near[:, n_old:] -= np.clip(apart, -by, by)[:, np.newaxis]
    return p_values(near, n_old, seed=seed)


def p_values(logs: Array, n_old: int, *, seed: int) -> Array:
    """Two-sided p of each row, old first: new values are as often above old ones as below."""
    rounded = np.round(logs, _DIGITS)
    if logs.shape[1] > PERMUTED_UP_TO:
        return np.array([_of_many(row[:n_old], row[n_old:]) for row in rounded])
    order = np.argsort(rounded, axis=1, kind="stable")
    ordered = np.take_along_axis(rounded, order, axis=1)
    is_new = order >= n_old
    starts = np.diff(ordered, axis=1, prepend=-np.inf) > 0
    rows: dict[bytes, list[int]] = {}
    for at, each in enumerate(starts):
        rows.setdefault(each.tobytes(), []).append(at)
    found = np.empty(len(logs))
    for same in rows.values():
        ties = np.diff(np.flatnonzero(starts[same[0]]), append=logs.shape[1])
        # The share of assignments at least as extreme as each row.
        sizes, exact = _distribution(tuple(ties.tolist()), n_old, seed)
        seen = _statistic(is_new[same], tuple(ties.tolist()), n_old) * (1 - _ROUNDING)
        hits = np.array([np.count_nonzero(sizes >= least) for least in seen])
        found[same] = hits / len(sizes) if exact else (hits + 1) / (len(sizes) + 1)
    return found


def least_p(n_old: int, n_new: int) -> float:
    """The smallest p that so many different values can have, as guarded_p gives it."""
    if n_old + n_new > PERMUTED_UP_TO:
        return 0.0
    count = math.comb(n_old + n_new, n_new)
    least = 2 / count if count <= ENUMERATED else 1 / ENUMERATED
    return least if _margin(n_old, n_new) else min(DOUBLED * least, 1.0)


def _margin(n_old: int, n_new: int) -> float:
    """How far, in logs, modes that so few boots do not show may move an arm: by assumption."""
    return math.log1p(MARGIN) if min(n_old, n_new) < SHOWN else 0.0


@lru_cache(maxsize=64)
def _distribution(ties: tuple[int, ...], n_old: int, seed: int) -> tuple[Array, bool]:
    """|statistic| of the assignments of values of which so many are equal each; whether of all."""
    is_new, exact = _assignments(n_old, sum(ties) - n_old, seed)
    return _statistic(is_new, ties, n_old), exact


@lru_cache(maxsize=8)
def _assignments(n_old: int, n_new: int, seed: int) -> tuple[Flags, bool]:
    """Which of sorted values are new, in all assignments (of equal arms half) or drawn ones."""
    count = n_old + n_new
    exact = math.comb(count, n_new) <= ENUMERATED
    if exact:
        chosen = np.array(list(itertools.combinations(range(count), n_new)))
        if n_old == n_new:
            chosen = chosen[chosen[:, 0] == 0]
    else:
        drawn = np.random.default_rng(seed).random((ENUMERATED - 1, count))
        chosen = np.argpartition(drawn, n_new, axis=1)[:, :n_new]
    is_new = np.zeros((len(chosen), count), dtype=bool)
    np.put_along_axis(is_new, chosen, values=True, axis=1)
    return is_new, exact


def _statistic(is_new: Flags, ties: tuple[int, ...], n_old: int) -> Array:
    """|Brunner and Munzel's statistic| of each row of sorted values.

    ties: how many values are equal, from the smallest up.  A value's placement is the number of
    the other arm's values below it; equal ones count half.
    """
    whole = np.asarray(ties, dtype=np.float32)
    n_new = is_new.shape[1] - n_old
    if len(ties) < is_new.shape[1]:
        starts = np.cumsum((0, *ties[:-1]))
        new = np.add.reduceat(is_new, starts, axis=1, dtype=np.float32)
    else:
        new = is_new.astype(np.float32)
    old = whole - new
    above, scatter = _placed(new, old, n_new, n_old)
    _, other = _placed(old, new, n_old, n_new)
    # Arms that do not overlap have no scatter of placements (Neubert and Brunner).
    least = 0.5 / (n_old * n_new) ** 2
    return np.asarray(np.abs(above / n_old - 0.5) / np.sqrt(np.maximum(scatter + other, least)))


def _placed(own: Halves, other: Halves, n_own: int, n_other: int) -> tuple[Array, Array]:
    """Mean placement of an arm's values, and the variance that this gives the share of pairs."""
    place = np.cumsum(other, axis=1) - other / 2
    total = np.einsum("ij,ij->i", own, place).astype(np.float64)
    squares = np.einsum("ij,ij,ij->i", own, place, place).astype(np.float64)
    variance = (squares - total**2 / n_own) / (n_own - 1)
    return total / n_own, variance / n_own / n_other**2


def _of_many(old: Array, new: Array) -> float:
    """The same by Student's t; of arms that do not overlap the least p that there is."""
    if old.max() < new.min() or new.max() < old.min():
        return 2 / math.comb(len(old) + len(new), len(new))
    if np.ptp(np.concatenate([old, new])) == 0:
        return 1.0
    return float(brunnermunzel(old, new).pvalue)


def _median_difference(old: Array, new: Array) -> float:
    """The median of every new value minus every old one."""
    count = len(old) * len(new)
    if count <= _LISTED:
        return float(np.median(np.subtract.outer(new, old)))
    ordered = np.sort(old)

    def smallest(place: int) -> float:
        low, high = float(new.min() - old.max()), float(new.max() - old.min())
        for _ in range(_STEPS):
            middle = (low + high) / 2
            below = count - int(np.searchsorted(ordered, new - middle, side="left").sum())
            low, high = (low, middle) if below >= place else (middle, high)
        return high

    return (smallest((count + 1) // 2) + smallest(count // 2 + 1)) / 2


def _end(kept: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last shift from inside outwards that is kept; infinite where even outside is."""
    if kept(outside):
        return math.copysign(math.inf, outside - inside)
    near, far = inside, outside
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (middle, far) if kept(middle) else (near, middle)
    return near
