# SPDX-License-Identifier: GPL-2.0-or-later
"""How two arms scatter, and what that costs and allows each test of their difference.

All of it is the same for arms that are moved, so it says nothing of the difference itself: values
are held against their own arm alone.  Thresholds were chosen in bench/power.py, by the level.

numpy (extra `time`) is imported here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kdelta.stats import ranks

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# What asking both tests costs each: bench/power.py says that this much is enough.  Ranks cost less:
# where they are needed, with heavy tails, the test of means hardly ever rejects.
MEANS_BESIDE_RANKS = 1.15
RANKS_BESIDE_MEANS = 1.05
# Where tails are heavy ranks cost nothing, and means more, and so where both arms of one size, of
# _TOLD or more, have two modes; where these are fewer, or surely the larger arm is the wider one,
# it is the other way round.  Where so few show two modes each, Welch's test keeps its level by
# itself, and arrangements take a tenth of its power.
HEAVY, _VERY_HEAVY = 0.7, 2.0  # excess of the fourth moment of both arms' values
_OF_HEAVY = (1.3, 1.0)  # prices of means and of ranks
_TWO_MODES = -1.3
_OF_MODES = (1.0, 1.4)
_OF_MANY_MODES = (1.5, 1.0)
_OF_WIDE = (1.02, 2.0)
_LARGER = 1.5  # times the other arm's size
_WIDE_SD, _WIDE_NEAR = 0.5, 0.3  # logs of ratios of standard deviations, and of robust scales
# Where the smaller arm has fewer than FEW: of one size, where one standard deviation is e^1.2 times
# the other; of unlike size, where the larger arm is the wider one, where the smaller one is, and
# where values may have modes.
FEW = ranks.FEW
_OF_UNLIKE, _UNLIKE_SD = (1.1, 1.5), 1.2
_OF_LARGE_WIDE, _LARGE_WIDE_SD = (1.02, 2.0), 0.3
_OF_SMALL_WIDE, _SMALL_WIDE_SD = (1.2, 1.2), 0.5
_OF_FLAT = (1.25, 1.05)
# Less may be two modes, whose means need arrangements: of both arms, and of the larger one.
_EVEN_ENOUGH, _FLAT = -0.9, -1.2
# Of fewer boots all are on one of two equal modes in more than 1 % of sessions (2 / 2^7 = 1.6 %),
# and no test that ever believes them keeps the level.
SHOWN_MODES = 8
# Ranks are not asked where one arm's robust scale is so many times the other's, and so many values
# an arm can tell that.
_FAR_SCALES, _TOLD = 3.0, 12
# Nor where arms of so many are unlike at all, tails not being heavy: Welch's test needs no help,
# and ranks of one arm that is three times as wide are wrong in 1.5 to 2 %.
_UNLIKE_TOLD = 16
# Where one arm has more than twice the other's values nothing is known to be harmless: means are
# arranged, ranks are guarded, whatever the scatter, and both cost.
_TWICE = 2
_OF_BEYOND = (1.3, 1.3)
# Logs of ratios of scales at which arms are unlike, by the standard error of such a log of normal
# values: the less is known, the less is allowed.  Chosen in bench/power.py.
_ALIKE = 4.0  # standard errors of the robust scale,
_MOST = 1.1  # ... and never more than this,
_LESS = 1.8  # ... less this by the square of the standard error
_ALIKE_EVEN = 1.8  # standard errors of sds, where no outlier makes that of the wider arm
_NO_ROOM, _ROOM = 3, 20  # where the smaller arm is the wider, only (its size - 3) / 20 of these
_NEAR = 0.35  # the share of distances of two values that the robust scale covers
_THINNED = 200  # values an arm for what grows with the square
EQUAL = 1e-9  # logs that are equal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """Of each data set, on which terms each test is asked.

    means, ranks: what p is multiplied by; infinite: it is not asked.
    arranged: the test of means is kept in bounds by arrangements.
    tied:     ranks are studentised, since Mann and Whitney's test counts equal values against
              rejecting.
    guarded:  ranks are kept in bounds by sides, or (lightly) by studentised ranks alone.
    """

    means: Array
    ranks: Array
    arranged: Flags
    tied: Flags
    guarded: Flags
    lightly: Flags

    @classmethod
    def of(cls, logs: Array, n_old: int) -> Terms:
        """Of each row of log values (data sets x values), the old arm's first."""
        uneven = 2 * n_old != logs.shape[1]
        tails = excess(logs, n_old)
        same, far = alike(logs, n_old), far_apart(logs, n_old)
        heavy = tails > HEAVY
        wide = _wide_and_large(logs, n_old) & (tails > _EVEN_ENOUGH) & ~heavy
        beyond = np.full(len(logs), _beyond(n_old, logs.shape[1]))
        wide &= ~beyond
        many = min(n_old, logs.shape[1] - n_old) >= _UNLIKE_TOLD
        modes = (tails < _TWO_MODES) & (not uneven)
        cases = [
            (beyond, _OF_BEYOND),
            (far | (many & ~same & ~heavy), (1.0, np.inf)),
            (wide, _OF_WIDE),
            (heavy, _OF_HEAVY),
            (modes, _OF_MODES if n_old < _TOLD else _OF_MANY_MODES),
            *_of_few(logs, n_old, tails),
        ]
        usual = MEANS_BESIDE_RANKS, RANKS_BESIDE_MEANS
        prices = [
            np.select([rows for rows, _ in cases], [both[at] for _, both in cases], usual[at])
            for at in (0, 1)
        ]
        return cls(
            means=prices[0],
            ranks=prices[1],
            arranged=~(wide | (modes & (SHOWN_MODES <= n_old < _TOLD))),
            tied=_tied(logs, n_old),
            guarded=((~same | uneven) & ~heavy) | beyond,
            lightly=(heavy & ~same & (tails <= _VERY_HEAVY)) | beyond,
        )


def _beyond(n_old: int, count: int) -> bool:
    """True of a design in which one arm has more than twice the values of the other."""
    return max(n_old, count - n_old) > _TWICE * min(n_old, count - n_old)


def _of_few(logs: Array, n_old: int, tails: Array) -> list[tuple[Flags, tuple[float, float]]]:
    """What small arms cost where nothing above says it: rows, and prices; the first counts."""
    counts = n_old, int(logs.shape[1]) - n_old
    if min(counts) >= FEW:
        return []
    old, new = logs[:, :n_old], logs[:, n_old:]
    step = np.minimum(_step(old), _step(new)) / 2
    sds = [np.log(np.maximum(arm.std(axis=1, ddof=1), step)) for arm in (old, new)]
    wider = sds[1] - sds[0]
    if counts[0] == counts[1]:
        return [(np.abs(wider) > _UNLIKE_SD, _OF_UNLIKE)]
    large = new if counts[1] > counts[0] else old
    wider = wider if counts[1] > counts[0] else -wider
    return [
        ((wider > _LARGE_WIDE_SD) & (kurtosis(large) > _FLAT), _OF_LARGE_WIDE),
        (wider < -_SMALL_WIDE_SD, _OF_SMALL_WIDE),
        (tails <= _EVEN_ENOUGH, _OF_FLAT),
    ]


def _tied(logs: Array, n_old: int) -> Flags:
    """True where an arm has equal values."""
    gaps = [np.diff(np.sort(arm, axis=1), axis=1) for arm in (logs[:, :n_old], logs[:, n_old:])]
    return np.asarray((np.concatenate(gaps, axis=1) < EQUAL).any(axis=1))


def excess(logs: Array, n_old: int) -> Array:
    """Excess of the fourth moment of both arms' values, each held against its own arm."""
    parts = []
    for arm in (logs[:, :n_old], logs[:, n_old:]):
        sd = arm.std(axis=1, ddof=1, keepdims=True)
        distance = arm - arm.mean(axis=1, keepdims=True)
        parts.append(np.divide(distance, sd, out=np.zeros_like(arm), where=sd > EQUAL))
    return kurtosis(np.concatenate(parts, axis=1))


def _wide_and_large(logs: Array, n_old: int) -> Flags:
    """True where the larger arm surely is the wider one, too: then Welch's test needs no bounds."""
    counts = n_old, int(logs.shape[1]) - n_old
    if max(counts) < _LARGER * min(counts):
        return np.zeros(len(logs), dtype=bool)
    large, small = logs[:, :n_old], logs[:, n_old:]
    if counts[1] > counts[0]:
        large, small = small, large
    step = np.minimum(_step(large), _step(small))
    sds = [np.maximum(arm.std(axis=1, ddof=1), step / 2) for arm in (large, small)]
    near = [np.maximum(near_scale(arm), step) for arm in (large, small)]
    return np.asarray(
        (kurtosis(large) > _FLAT)
        & (np.log(sds[0] / sds[1]) > _WIDE_SD)
        & (np.log(near[0] / near[1]) > _WIDE_NEAR)
    )


def alike(logs: Array, n_old: int) -> npt.NDArray[np.bool_]:
    """For each row whether the arms scatter so much alike that their ranks may be compared.

    By a robust scale, and by standard deviations unless outliers make the larger one.  Less is
    allowed where the smaller arm is the wider one, which ranks forgive least.
    """
    old, new = logs[:, :n_old], logs[:, n_old:]
    counts = n_old, int(logs.shape[1]) - n_old
    error = math.sqrt(sum(1 / (2 * (count - 1)) for count in counts))
    step = np.minimum(_step(old), _step(new))
    near = np.log(np.maximum(near_scale(new), step) / np.maximum(near_scale(old), step))
    sds = np.log(
        np.maximum(new.std(axis=1, ddof=1), step / 2)
        / np.maximum(old.std(axis=1, ddof=1), step / 2)
    )
    wider = np.where(sds > 0, kurtosis(new), kurtosis(old))
    size = np.where(sds > 0, counts[1], counts[0])
    even = wider < np.clip((size - 11) / 4, -0.5, 2.0)
    most = min(_ALIKE * error, _MOST - _LESS * error**2)
    apart = np.abs(near) > most * _room(near, counts)
    apart |= even & (np.abs(sds) > _ALIKE_EVEN * error * _room(sds, counts))
    return np.asarray(~apart)


def far_apart(logs: Array, n_old: int) -> npt.NDArray[np.bool_]:
    """For each row whether one arm scatters so much more that its ranks say nothing of its mean."""
    if min(n_old, logs.shape[1] - n_old) < _TOLD:
        return np.zeros(len(logs), dtype=bool)
    old, new = logs[:, :n_old], logs[:, n_old:]
    step = np.minimum(_step(old), _step(new))
    one, other = (np.maximum(near_scale(arm), step) for arm in (old, new))
    return np.asarray(np.maximum(one, other) > _FAR_SCALES * np.minimum(one, other))


def near_scale(values: Array) -> Array:
    """The distance that 35 % of all pairs of values of a row have at most (after Croux, Rousseeuw).

    Outliers, and the gap between two modes, do not move it.
    """
    ordered = np.sort(values, axis=1)
    ordered = ordered[:, :: max(1, ordered.shape[1] // _THINNED)]
    first, second = np.triu_indices(ordered.shape[1], 1)
    apart = ordered[:, second] - ordered[:, first]
    place = int(_NEAR * apart.shape[1])
    return np.asarray(np.partition(apart, place, axis=1)[:, place])


def _step(values: Array) -> Array:
    """The smallest distance of two different values of each row; 1 where all are equal.

    Values on a lattice scatter by about half a step, also where none left the one of the others.
    """
    gaps = np.diff(np.sort(values, axis=1), axis=1)
    least = np.where(gaps > EQUAL, gaps, np.inf).min(axis=1)
    return np.where(np.isfinite(least), least, 1.0)


def _room(ratio: Array, counts: tuple[int, int]) -> Array:
    """What part is allowed, by which arm is the wider one (by this ratio, new to old)."""
    old, new = counts
    small = min(max(min(counts) - _NO_ROOM, 0) / _ROOM, 1.0)
    return np.where(ratio > 0, small if new < old else 1.0, small if old < new else 1.0)


def kurtosis(values: Array) -> Array:
    """Excess of the fourth moment over that of normal values; 0 without scatter."""
    distance = values - values.mean(axis=1, keepdims=True)
    second = (distance**2).mean(axis=1)
    fourth = (distance**4).mean(axis=1)
    return np.asarray(
        np.divide(fourth, second**2, out=np.full_like(second, 3.0), where=second > 0) - 3
    )
