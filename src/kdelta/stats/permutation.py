# SPDX-License-Identifier: GPL-2.0-or-later
"""How extreme a difference of two means is among the arrangements that chance could have made.

Two kinds of chance, both on Welch's t (so that unequal scatter does not pass for a difference;
Janssen 1997, Chung and Romano 2013):

- which values are called new: right for arms that scatter alike, however they scatter;
- the side of the common centre on which each value fell: right for arms that scatter unlike, each
  symmetrically.  An arm that hardly scatters leaves the decision to the other one's signs, and five
  signs decide nothing.

numpy (extra `time`) is imported here.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float32]

EXACT_LIMIT = 50_000  # so many arrangements are enumerated; 9 against 9 boots has 48620
DRAWS = 19_999  # drawn otherwise; p = (1 + hits) / (1 + draws), Phipson and Smyth 2010
LARGE = 200  # values; from here both distributions are as good as normal
_CELLS = 4_000_000  # of one array, arrangements x data sets
_TIE = 1e-5  # relative; single precision
_FLOOR = 1e-10  # added to variances of values scaled to 1: arms without scatter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrangements:
    """All, or many, of one kind: rows of 0 and 1 (new) or of -1 and 1 (side)."""

    rows: Rows
    exact: bool


def of_arms(values: Array, n_old: int, *, seed: int) -> Array:
    """Per row the share of assignments of values to arms that are more extreme than the one seen.

    The one seen is not counted where all are enumerated: with 5 against 5 it alone is 0.8 %, which
    Welch's test does not need.
    """
    chosen = _assignments(n_old, values.shape[1] - n_old, seed)
    found = np.empty(len(values))
    for part in _parts(len(values), len(chosen.rows)):
        flat = _scaled(values[part], np.median(values[part], axis=1))
        seen = _welch(_seen(n_old, flat.shape[1]), flat, n_old)
        every = _welch(chosen.rows, flat, n_old)
        hits = (every > seen * (1 + _TIE)).sum(axis=0)
        found[part] = hits / len(every) if chosen.exact else (hits + 1) / (len(every) + 1)
    return found


def of_sides(values: Array, n_old: int, *, seed: int) -> Array:
    """Per row the share of sides (all, the one seen too) at least as extreme as those seen.

    The centre is the mean of both arms, weighted by what each one knows of it.
    """
    chosen = _sides(values.shape[1], seed)
    found = np.empty(len(values))
    for part in _parts(len(values), len(chosen.rows)):
        flat = _scaled(values[part], _centre(values[part], n_old))
        seen = _turned(np.ones((1, flat.shape[1]), dtype=np.float32), flat, n_old)
        every = _turned(chosen.rows, flat, n_old)
        # In single precision the sides seen may look less extreme than they are: they count.
        hits = np.maximum((every >= seen * (1 - _TIE)).sum(axis=0), 1)
        found[part] = hits / len(every) if chosen.exact else (hits + 1) / (len(every) + 1)
    return found


def least_p(count: int) -> float:
    """The smallest p that of_sides can have of so many values."""
    return max(2.0 ** (1 - count), 1 / (1 + DRAWS)) if count <= LARGE else 0.0


def _centre(values: Array, n_old: int) -> Array:
    old, new = values[:, :n_old], values[:, n_old:]
    was = old.var(axis=1, ddof=1) / old.shape[1]
    now = new.var(axis=1, ddof=1) / new.shape[1]
    both = was + now
    share = np.divide(now, both, out=np.full_like(both, 0.5), where=both > 0)
    return np.asarray(old.mean(axis=1) * share + new.mean(axis=1) * (1 - share))


def _scaled(values: Array, centre: Array) -> Rows:
    distance = values - centre[:, np.newaxis]
    size = np.abs(distance).max(axis=1, keepdims=True)
    return (distance / np.where(size > 0, size, 1.0)).astype(np.float32)


def _seen(n_old: int, count: int) -> Rows:
    ends = np.array([[0.0, 1.0]], dtype=np.float32)
    return np.repeat(ends, [n_old, count - n_old], axis=1)


def _welch(rows: Rows, flat: Rows, n_old: int) -> Rows:
    """|t| of each assignment (rows x values) of each data set (data sets x values)."""
    n_new = flat.shape[1] - n_old
    squares = flat**2
    new, new_squares = rows @ flat.T, rows @ squares.T
    old, old_squares = flat.sum(axis=1) - new, squares.sum(axis=1) - new_squares
    return _t(old / n_old, new / n_new, old_squares / n_old, new_squares / n_new, n_old, n_new)


def _turned(rows: Rows, flat: Rows, n_old: int) -> Rows:
    """|t| of each set of sides (rows x values) of each data set (data sets x values)."""
    old, new = flat[:, :n_old], flat[:, n_old:]
    return _t(
        np.asarray(rows[:, :n_old] @ old.T / n_old, dtype=np.float32),
        np.asarray(rows[:, n_old:] @ new.T / new.shape[1], dtype=np.float32),
        np.asarray((old**2).mean(axis=1), dtype=np.float32),
        np.asarray((new**2).mean(axis=1), dtype=np.float32),
        n_old,
        new.shape[1],
    )


def _t(old: Rows, new: Rows, old_square: Rows, new_square: Rows, n_old: int, n_new: int) -> Rows:
    variance = np.maximum(old_square - old**2, 0) / (n_old - 1)
    variance += np.maximum(new_square - new**2, 0) / (n_new - 1)
    return np.asarray(np.abs(new - old) / np.sqrt(variance + _FLOOR), dtype=np.float32)


def _parts(count: int, rows: int) -> list[slice]:
    size = max(1, _CELLS // rows)
    return [slice(start, start + size) for start in range(0, count, size)]


@lru_cache(maxsize=8)
def _assignments(n_old: int, n_new: int, seed: int) -> Arrangements:
    count = n_old + n_new
    exact = math.comb(count, n_new) <= EXACT_LIMIT
    if exact:
        chosen = np.array(list(itertools.combinations(range(count), n_new)))
        if n_old == n_new:
            chosen = chosen[chosen[:, 0] > 0]  # the other half are these with the arms swapped
    else:
        generator = np.random.default_rng(seed)
        chosen = np.argsort(generator.random((DRAWS, count)), axis=1)[:, :n_new]
    rows = np.zeros((len(chosen), count), dtype=np.float32)
    np.put_along_axis(rows, chosen, 1, axis=1)
    return Arrangements(rows=rows, exact=exact)


@lru_cache(maxsize=8)
def _sides(count: int, seed: int) -> Arrangements:
    """The side of the first value is left alone: turning all of them changes no |t|."""
    exact = 2 ** (count - 1) <= EXACT_LIMIT
    if exact:
        bits = np.arange(2 ** (count - 1))[:, np.newaxis] >> np.arange(count - 1)
        turned = 1 - 2 * (bits & 1)
    else:
        turned = 1 - 2 * np.random.default_rng(seed).integers(0, 2, (DRAWS, count - 1))
    rows = np.concatenate([np.ones((len(turned), 1)), turned], axis=1)
    return Arrangements(rows=rows.astype(np.float32), exact=exact)
