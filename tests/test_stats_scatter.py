# SPDX-License-Identifier: GPL-2.0-or-later
"""How arms scatter decides on which terms each test is asked, and never where the arms are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kdelta.stats import ranks
from kdelta.stats.scatter import MEANS_BESIDE_RANKS, RANKS_BESIDE_MEANS, Terms
from kdelta.stats.shift import batch_p_values, shift

SEED = 11
ROWS = 40


def drawn(old: int, new: int, kind: str = "normal") -> np.ndarray:
    generator = np.random.default_rng([SEED, old, new])
    made = generator.standard_normal((ROWS, old + new))
    if kind == "heavy":
        made = generator.standard_t(1, (ROWS, old + new))
    if kind == "wide":
        made[:, :old] *= 5
    if kind == "tied":
        made = np.round(made)
    return np.asarray(0.03 * made)


@pytest.mark.parametrize("kind", ["normal", "heavy", "wide", "tied"])
def test_where_the_arms_are_changes_no_terms(kind: str) -> None:
    logs = drawn(18, 9, kind)
    moved = logs + 0.25 * (np.arange(27) >= 18)
    one, other = Terms.of(logs, 18), Terms.of(moved, 18)
    for name in ("means", "ranks", "arranged", "tied", "guarded", "lightly"):
        assert (getattr(one, name) == getattr(other, name)).all(), name


def test_a_larger_arm_that_scatters_more_leaves_it_to_welch() -> None:
    assert (~Terms.of(drawn(18, 9, "wide"), 18).arranged).mean() > 0.7
    assert Terms.of(drawn(9, 9, "wide"), 9).arranged.mean() > 0.9
    assert Terms.of(drawn(18, 9), 18).arranged.mean() > 0.9


@pytest.mark.parametrize("each", [7, 8, 11, 12])
def test_two_modes_in_so_few_boots_leave_it_to_welch(each: int) -> None:
    generator = np.random.default_rng(SEED)
    sides = np.where(generator.random((2000, 2 * each)) < 0.5, 0.04, -0.04)
    terms = Terms.of(sides + 0.01 * generator.standard_normal(sides.shape), each)
    shown = 8 <= each < 12
    assert ((~terms.arranged).mean() > 0.5) == shown
    assert terms.arranged.all() != shown


def test_heavy_tails_make_ranks_cheap() -> None:
    terms = Terms.of(drawn(18, 9, "heavy"), 18)
    assert (terms.ranks == 1.0).mean() > 0.8
    usual = Terms.of(drawn(18, 9), 18)
    assert np.median(usual.means) == MEANS_BESIDE_RANKS
    assert np.median(usual.ranks) == RANKS_BESIDE_MEANS


def test_studentised_ranks_are_exact_for_arms_that_are_alike() -> None:
    """5 against 5: of all orders those that do not overlap are 2 of 252; and no p is too small."""
    apart = np.array([[1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
    assert ranks.studentised_p(apart, 5, seed=1)[0] == pytest.approx(2 / math.comb(10, 5))
    p = ranks.studentised_p(np.random.default_rng(SEED).random((4000, 10)), 5, seed=1)
    for level in (0.01, 0.05, 0.2):
        assert (p <= level).mean() <= level + 3 * math.sqrt(level / 4000)


def test_equal_values_count_half() -> None:
    same = np.array([[1.0, 1, 2, 2, 3, 1, 1, 2, 2, 3]])
    assert ranks.studentised_p(same, 5, seed=1)[0] == 1.0
    values = drawn(18, 9, "tied")
    first, again = (ranks.studentised_p(values, 18, seed=3) for _ in range(2))
    assert (first == again).all()


@pytest.mark.parametrize("kind", ["tied", "heavy", "wide"])
def test_an_interval_ends_where_its_test_does(kind: str) -> None:
    for row in drawn(10, 9, kind)[:4]:
        values = np.exp(row)
        found = shift(values[:10].tolist(), values[10:].tolist(), alpha=0.01, seed=SEED)
        outside = [found.low * 0.99, found.high * 1.01]
        tried = np.stack([row - math.log(at) * (np.arange(19) >= 10) for at in outside])
        assert (batch_p_values(tried, n_old=10, seed=SEED) <= 0.01).all()
