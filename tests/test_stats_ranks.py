# SPDX-License-Identifier: GPL-2.0-or-later
"""Ranks of small arms: orders with one count are told apart, and the level is kept exactly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kdelta.stats import ranks
from kdelta.stats.ranks import Differences


def every_order(n_old: int, n_new: int) -> ranks.Array:
    """Values 0, 1, 2 ... in all ways in which they fall to two arms, the old arm's first."""
    count = n_old + n_new
    rows = [
        [at for at in range(count) if at not in chosen] + list(chosen)
        for chosen in itertools.combinations(range(count), n_new)
    ]
    return np.asarray(rows, dtype=np.float64)


@pytest.mark.parametrize(("n_old", "n_new"), [(5, 5), (7, 5), (8, 6)])
def test_of_all_orders_no_more_are_below_a_level_than_it_says(n_old: int, n_new: int) -> None:
    rows = every_order(n_old, n_new)
    p = ranks.p_values(rows, n_old, seed=1)
    for level in np.unique(p[p <= 0.05]):
        assert np.mean(p <= level) <= level * (1 + 1e-9)


def test_orders_of_one_count_have_p_between_those_of_their_neighbours() -> None:
    rows = every_order(6, 6)
    p = ranks.p_values(rows, 6, seed=1)
    above = rows[:, 6:].sum(axis=1) - 15
    counts = np.minimum(above, 36 - above)
    whole = ranks.chance(6, 6, counts)
    assert np.all(p <= whole)
    fine = (counts > 0) & (p < whole)
    assert fine.any()
    assert np.all(p[fine] > ranks.chance(6, 6, counts[fine] - 1))


def test_more_of_the_level_is_used_than_by_counts_alone() -> None:
    """9 against 9: counts alone reject 0.78 % at 1 %."""
    rows = np.random.default_rng(3).random((20_000, 18))
    p = ranks.p_values(rows, 9, seed=1)
    left = ranks.chance(9, 9, np.array([11.0]))[0]
    assert left == pytest.approx(0.0078, abs=1e-4)
    assert 0.0078 < np.mean(p <= 0.01) < 0.012


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_is_what_the_test_does_not_reject(seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal(18)
    low, high = Differences.of(values, 9).interval(0.01, seed=1)
    for edge, inside in ((low, 1e-6), (high, -1e-6)):
        for beside, kept in ((inside, True), (-inside, False)):
            moved = values.copy()
            moved[9:] -= edge + beside
            p = ranks.p_values(moved[np.newaxis, :], 9, seed=1)[0]
            assert (p > 0.01) == kept


def test_equal_values_are_not_told_apart() -> None:
    values = np.array([[1.0, 2, 3, 4, 5, 5.5, 6, 7, 8, 9]])
    tied = values.copy()
    tied[0, 5] = 5.0
    whole = ranks.chance(5, 5, np.array([1.0]))[0]
    assert ranks.p_values(values, 5, seed=1)[0] == pytest.approx(2 / 252)
    assert ranks.p_values(tied, 5, seed=1)[0] == pytest.approx(whole)


def test_large_arms_are_judged_by_counts_alone() -> None:
    rows = np.random.default_rng(5).random((50, 30))
    above = (rows[:, 15:, np.newaxis] > rows[:, np.newaxis, :15]).sum(axis=(1, 2))
    expected = ranks.chance(15, 15, np.minimum(above, 225 - above).astype(np.float64))
    assert ranks.p_values(rows, 15, seed=1) == pytest.approx(expected)
