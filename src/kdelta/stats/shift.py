# SPDX-License-Identifier: GPL-2.0-or-later
"""How much two arms differ, with an interval that is right for few boots (docs/method.md).

On log values, two tests that fail where the other one is good: of means (Welch's, kept in bounds
by arrangements) where values scatter evenly, and of ranks (Mann and Whitney's) where they have
heavy tails or modes.  On which terms each is asked, `scatter` says: ranks of arms that scatter
unlike, or are of unlike size, are kept in bounds by arrangements too, since of one arm that
scatters three times as much as the other they alone are wrong in 2 to 5 % of cases at a promised
1 %.  Both are overruled where an arm may have two modes on both sides of the other, and so few
boots do not tell in which.

numpy (extra `time`) is imported here, so only code that judges times may import this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr
from scipy.stats import rankdata

from kdelta.stats import permutation, ranks
from kdelta.stats.ranks import Differences
from kdelta.stats.scatter import (
    EQUAL,
    FEW,
    HEAVY,
    RANKS_BESIDE_MEANS,
    SHOWN_MODES,
    Terms,
    alike,
    excess,
    kurtosis,
)
from kdelta.stats.welch import Spread

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# As far as boots that are too few to show modes may be from their arm's mean: by assumption.
MODES_MOVE = 0.10
# So many boots show by their fourth moment whether they have two modes of one size; of unlike size,
# by how much of their variance lies between the sides (of normal values at most 0.64).
_MANY, _FLAT, _TAILS = 16, -1.0, 1.5
_BETWEEN = 0.8
# Of the scatter of an arm, the most of the other's, where it may have modes; and where one arm has
# fewer than FEW and tails are not heavy, so that fewer of its boots hide its modes.
_NARROW, _NARROW_OF_FEW = 0.7, 0.85
# Of the scatter of an arm, what is left of it once it is folded, where it has modes.  At 0.63 an
# arm five times as wide has 1.3 % false alarms at 9 : 9.
_FOLDED = 0.7
TREND_P = 0.01  # a trend that is this certain is taken out
_THINNED = 200  # values an arm for what grows with the square
_LEAST = 1e-9  # half an interval, of logs, where nothing scatters
_STEPS = 14  # of halving, for the ends of an interval
_BESIDE = 200  # shifts beside an interval that are asked for modes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """new/old as a ratio: estimate, interval at level 1 - alpha, and p of ratio 1.

    ratio is within low..high.  low is 0 and high is infinite when so few values cannot bound the
    ratio at this level.  alike: the arms scatter alike, so ranks may be believed as they are.
    modes: the part of the interval, as a ratio less 1, that is for modes which so few do not show.
    """

    ratio: float
    low: float
    high: float
    p: float
    alike: bool
    modes: float


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
    n_old = len(old)
    modes = modes_move(len(old), len(new))
    logs, cost = without_trend(np.log(values)[np.newaxis, :], n_old, when)
    terms = Terms.of(logs, n_old)
    level = alpha / float(cost[0])
    p = float(p_values(_nearer(logs, n_old, modes), n_old, seed=seed)[0]) * float(cost[0])
    low, high = _of_means(logs, n_old, terms, alpha=level / float(terms.means[0]), seed=seed)
    centres = [float(logs[0, n_old:].mean() - logs[0, :n_old].mean())]
    if math.isfinite(terms.ranks[0]):
        pairs = Differences.of(logs[0], n_old)
        of_ranks = level / float(terms.ranks[0])
        by_ranks = _of_ranks(logs, n_old, pairs, terms, alpha=of_ranks, seed=seed)
        low, high = _meeting((low, high), by_ranks)
        centres.append(pairs.median)
    low, high = _overruled(logs, n_old, (low, high), alpha)
    ratio = _estimate(logs, n_old, [min(max(each, low), high) for each in centres], seed)
    low, high = low - modes, high + modes
    if p > alpha:
        low, high = min(low, 0.0), max(high, 0.0)
    elif low <= 0 <= high:
        p = math.nextafter(alpha, 1)
    return Shift(
        ratio=math.exp(ratio),
        low=math.exp(low),
        high=math.exp(high),
        p=min(p, 1.0),
        alike=bool(alike(logs, n_old)[0]),
        modes=math.expm1(modes),
    )


def modes_move(n_old: int, n_new: int) -> float:
    """How far, in logs, modes that so few boots do not show may move an arm."""
    return math.log1p(MODES_MOVE) if min(n_old, n_new) < SHOWN_MODES else 0.0


def batch_p_values(
    logs: Array,
    *,
    n_old: int,
    seed: int,
    when: Sequence[float] | None = None,
    up_to: float = 1.0,
) -> Array:
    """p of no difference for many data sets of one design at once (data sets x values).

    up_to: a p above it may be told smaller than it is, but not below it: that is faster.
    """
    flat, cost = without_trend(logs, n_old, when)
    near = _nearer(flat, n_old, modes_move(n_old, logs.shape[1] - n_old))
    return np.minimum(p_values(near, n_old, seed=seed, up_to=up_to) * cost, 1.0)


def _nearer(logs: Array, n_old: int, by: float) -> Array:
    """Each row with its arms nearer to each other by that much, as far as they are apart."""
    if by == 0.0:
        return logs
    apart = logs[:, n_old:].mean(axis=1) - logs[:, :n_old].mean(axis=1)
    near = logs.copy()
    near[:, n_old:] -= np.clip(apart, -by, by)[:, np.newaxis]
    return near


def p_values(logs: Array, n_old: int, *, seed: int, up_to: float = 1.0) -> Array:
    """p of no difference for each row: the smaller of the two tests' for asking twice."""
    terms = Terms.of(logs, n_old)
    p = terms.means * means_p(logs, n_old, terms, seed=seed, up_to=up_to)
    by_ranks = terms.ranks * ranks_p(
        logs, n_old, terms, seed=seed, up_to=np.minimum(up_to, p) / terms.ranks
    )
    return np.minimum(np.maximum(np.minimum(p, by_ranks), folded_p(logs, n_old)), 1.0)


def ranks_p(logs: Array, n_old: int, terms: Terms, *, seed: int, up_to: Array | float) -> Array:
    """p of equal ranks for each row: of what the terms of the arms' scatter ask for."""
    p = ranks.p_values(logs, n_old, seed=seed)
    rows = terms.tied | terms.lightly
    if rows.any():
        own = ranks.studentised_p(logs[rows], n_old, seed=seed)
        p[rows] = np.where(terms.tied[rows], own, np.maximum(p[rows], own))
    rows = terms.guarded & (p <= up_to)
    if rows.any():
        p[rows] = np.maximum(p[rows], _sides_of_ranks(logs[rows], n_old, seed=seed))
    return p


def _sides_of_ranks(logs: Array, n_old: int, *, seed: int) -> Array:
    """The share of sides as extreme as those of the ranks; 0 of so many that it need not be asked.

    Equal values have equal ranks, also where a shift in binary fractions made them nearly so.
    """
    if logs.shape[1] > permutation.LARGE:
        return np.zeros(len(logs))
    placed = rankdata(np.round(logs, 12), axis=1)
    return permutation.of_sides(placed, n_old, seed=seed)


def folded_p(logs: Array, n_old: int) -> Array:
    """Of an arm with modes on both sides of the other the chance of so few boots in one; else 0.

    That is an arm that scatters more than the other, and once it is folded about the other's mean
    hardly more.  Which of its modes a boot falls into is a toss: what is seen of its mean is worth
    no more than that.
    """
    found = np.zeros(len(logs))
    if logs.shape[1] > permutation.LARGE:
        return found
    old, new = logs[:, :n_old], logs[:, n_old:]
    few = min(old.shape[1], new.shape[1]) < FEW
    light = (excess(logs, n_old) <= HEAVY) & few
    narrow = np.where(light, _NARROW_OF_FEW, _NARROW)
    for arm, other in ((old, new), (new, old)):
        count = arm.shape[1]
        distance = arm - other.mean(axis=1, keepdims=True)
        above = (distance > 0).sum(axis=1)
        fewer = np.minimum(above, count - above)
        sd = arm.std(axis=1, ddof=1)
        modes = _of_two_modes(arm, distance) if count >= _MANY else np.ones(len(arm), dtype=bool)
        modes &= (fewer > 0) & (np.abs(distance).std(axis=1, ddof=1) <= _FOLDED * sd)
        modes &= other.std(axis=1, ddof=1) <= narrow * sd
        if other.shape[1] >= _MANY:  # or heavy tails, as this arm then has, too
            modes &= kurtosis(other) <= _TAILS
        # Beside values that are all equal the others have their sides and nothing else.
        modes |= (fewer > 0) & (other.std(axis=1) <= EQUAL)
        toss = np.minimum(2 * bdtr(fewer.astype(np.float64), count, 0.5), 1.0)
        found = np.maximum(found, np.where(modes, toss, 0.0))
    return found


def _of_two_modes(arm: Array, distance: Array) -> Flags:
    """True of rows with two modes, by the fourth moment or by the sides of the other arm's mean."""
    above = distance > 0
    part = above.mean(axis=1)
    upper = np.divide(
        (distance * above).mean(axis=1), part, out=np.zeros_like(part), where=part > 0
    )
    lower = np.divide(
        (distance * ~above).mean(axis=1), 1 - part, out=np.zeros_like(part), where=part < 1
    )
    between = part * (1 - part) * (upper - lower) ** 2
    return np.asarray((kurtosis(arm) < _FLAT) | (between >= _BETWEEN * arm.var(axis=1)))


def means_p(logs: Array, n_old: int, terms: Terms, *, seed: int, up_to: float = 1.0) -> Array:
    """p of equal means for each row: the largest of Welch's and of both kinds of arrangements."""
    difference = logs[:, n_old:].mean(axis=1) - logs[:, :n_old].mean(axis=1)
    p = Spread.of(logs, n_old).p_values(difference)
    if logs.shape[1] <= permutation.LARGE and terms.arranged.any():
        rows = terms.arranged
        p[rows] = _arranged(p[rows], logs[rows], n_old, seed, up_to)
    return p


def _arranged(p: Array, logs: Array, n_old: int, seed: int, up_to: float) -> Array:
    """The largest of p and of both kinds of arrangements, for each row."""
    for test in (permutation.of_sides, permutation.of_arms):
        rows = p <= up_to
        if rows.any():
            p[rows] = np.maximum(p[rows], test(logs[rows], n_old, seed=seed))
    return p


def least_p(n_old: int, n_new: int) -> float:
    """The smallest p that so many values can have."""
    return min(permutation.least_p(n_old + n_new), RANKS_BESIDE_MEANS * ranks.least_p(n_old, n_new))


def without_trend(logs: Array, n_old: int, when: Sequence[float] | None) -> tuple[Array, Array]:
    """Log values of each row without the session's line, where there certainly is one.

    Also what p is to be multiplied by, for the degree of freedom that the line took.  Slope and
    test are within arms (Theil and Sen; Kendall; Hirsch, Slack and Smith 1982), so a difference
    between arms is no trend.  Values are moved apart from their arm's median by what the line took
    of the scatter.
    """
    cost = np.ones(len(logs))
    count = logs.shape[1]
    if when is None or count < 6:
        return logs, cost
    place = np.asarray(when, dtype=np.float64)
    slope, p = _trend(logs, place, n_old)
    moving = p <= TREND_P
    if not moving.any():
        return logs, cost
    flat = logs.copy()
    flat[moving] -= slope[moving, np.newaxis] * (place - place.mean())
    wider = math.sqrt((count - 2) / (count - 3))
    for arm in (slice(0, n_old), slice(n_old, None)):
        middle = np.median(flat[moving, arm], axis=1, keepdims=True)
        flat[moving, arm] = middle + wider * (flat[moving, arm] - middle)
    return flat, cost


def _trend(logs: Array, place: Array, n_old: int) -> tuple[Array, Array]:
    """Slope of log values per unit of place, and its p, for each row."""
    slopes, score, variance = [], np.zeros(len(logs)), np.zeros(len(logs))
    for arm in (slice(0, n_old), slice(n_old, None)):
        order = np.argsort(place[arm], kind="stable")
        order = order[:: max(1, len(order) // _THINNED)]
        values, places = logs[:, arm][:, order], place[arm][order]
        first, second = np.triu_indices(len(order), 1)
        run = places[second] - places[first]
        rise = (values[:, second] - values[:, first])[:, run > 0]
        slopes.append(rise / run[run > 0])
        score += np.sign(rise).sum(axis=1)
        n = len(order)
        variance += n * (n - 1) * (2 * n + 5) / 18
    z = np.maximum(np.abs(score) - 1, 0) / np.sqrt(variance)
    p = np.array([math.erfc(each / math.sqrt(2)) for each in z])
    return np.median(np.concatenate(slopes, axis=1), axis=1), p


def _of_means(
    logs: Array, n_old: int, terms: Terms, *, alpha: float, seed: int
) -> tuple[float, float]:
    """All shifts of log values that the test of means does not reject."""
    is_new = np.arange(logs.shape[1]) >= n_old
    centre = float(logs[0, n_old:].mean() - logs[0, :n_old].mean())
    spread = Spread.of(logs, n_old)
    reach = float(spread.reach(alpha)[0])

    def kept(distance: float) -> bool:
        """Beyond `reach` Welch's test rejects: only the arrangements are to be asked."""
        moved = logs - (centre + distance) * is_new
        return bool(_arranged(np.zeros(1), moved, n_old, seed, alpha)[0] > alpha)

    if logs.shape[1] > permutation.LARGE or not terms.arranged[0]:
        return centre - reach, centre + reach
    reach = max(reach, _LEAST)
    return centre - _edge(kept, -reach), centre + _edge(kept, reach)


def _of_ranks(
    logs: Array, n_old: int, pairs: Differences, terms: Terms, *, alpha: float, seed: int
) -> tuple[float, float]:
    """All shifts of log values that the test of ranks does not reject."""
    low, high = pairs.interval(alpha, seed=seed)
    bounded = bool(terms.tied[0] | terms.lightly[0] | terms.guarded[0])
    if not bounded or not math.isfinite(low + high) or logs.shape[1] > permutation.LARGE:
        return low, high
    is_new = np.arange(logs.shape[1]) >= n_old
    centre = pairs.median

    def kept(distance: float) -> bool:
        moved = logs - (centre + distance) * is_new
        return bool(ranks_p(moved, n_old, terms, seed=seed, up_to=alpha)[0] > alpha)

    below, above = max(centre - low, _LEAST), max(high - centre, _LEAST)
    return centre - _end(kept, -below), centre + _end(kept, above)


def _end(kept: Callable[[float], bool], first: float) -> float:
    """How far from the centre the last shift that is kept lies: from `first` on, or before it."""
    near, far = 0.0, first * (1 - 1e-6)
    if kept(far):
        return _edge(kept, first)
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (middle, far) if kept(middle) else (near, middle)
    return abs(far)


def _overruled(
    logs: Array, n_old: int, found: tuple[float, float], alpha: float
) -> tuple[float, float]:
    """The interval with the shifts beside it at which an arm seems to have two modes."""
    if not math.isfinite(found[0] + found[1]):
        return found
    is_new = np.arange(logs.shape[1]) >= n_old
    size = max(float(np.ptp(logs[0])), _LEAST)
    beside = np.linspace(0.0, size, _BESIDE)[1:]
    low, high = found
    for sign in (-1.0, 1.0):
        places = (low if sign < 0 else high) + sign * beside
        moved = logs - places[:, np.newaxis] * is_new
        kept = np.flatnonzero(folded_p(moved, n_old) > alpha)
        if len(kept) and kept[0] < _BESIDE // 8:
            ends = np.flatnonzero(np.diff(kept) > 1)
            last = kept[ends[0]] if len(ends) else kept[-1]
            low, high = (places[last], high) if sign < 0 else (low, places[last])
    return float(low), float(high)


def _edge(kept: Callable[[float], bool], first: float) -> float:
    """How far from the centre, from `first` on, the last shift that is kept lies."""
    near, far = first * (1 - 1e-9), first * (1 + 1e-6)
    for _ in range(8):
        if not kept(far):
            break
        near, far = far, 2 * far
    else:
        return math.inf
    if abs(near) < abs(first):
        return abs(first)
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (middle, far) if kept(middle) else (near, middle)
    return abs(far)


def _meeting(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """What two intervals share; all that either holds where they share nothing."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    if low <= high:
        return low, high
    return min(one[0], other[0]), max(one[1], other[1])


def _estimate(logs: Array, n_old: int, candidates: Sequence[float], seed: int) -> float:
    """Of the tests' estimates the one that the other test objects to least."""
    is_new = np.arange(logs.shape[1]) >= n_old
    moved = np.stack([logs[0] - each * is_new for each in candidates])
    difference = moved[:, n_old:].mean(axis=1) - moved[:, :n_old].mean(axis=1)
    objection = np.minimum(
        Spread.of(moved, n_old).p_values(difference),
        ranks.p_values(moved, n_old, seed=seed),
    )
    return candidates[int(np.argmax(objection))]
