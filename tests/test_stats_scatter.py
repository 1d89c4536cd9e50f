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


def uneven(old: int, new: int, count: int, kind: str) -> np.ndarray:
    """Sessions of equal arms, each symmetric about the same centre, that scatter unlike."""
    generator = np.random.default_rng([SEED, old, new, len(kind)])
    logs = 0.01 * generator.standard_normal((count, old + new))
    if kind == "modes":
        logs[:, old:] += np.where(generator.random((count, new)) < 0.5, 0.05, -0.05)
    if kind == "tails":
        logs = 0.03 * generator.standard_t(2, (count, old + new))
        logs[:, old:] *= 3
    return logs


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [(16, 16, "modes"), (20, 20, "modes"), (30, 10, "tails")],
)
def test_unlike_arms_outside_of_the_table_are_rarely_different(
    old: int, new: int, kind: str
) -> None:
    """The table of the docs has no 16 boots of both, and no more than twice as many of one."""
    count = 3000
    p = batch_p_values(uneven(old, new, count, kind), n_old=old, seed=SEED, up_to=0.02)
    assert (p <= 0.01).mean() <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / count)


def test_so_many_boots_that_scatter_unlike_leave_it_to_the_means() -> None:
    """Ranks of arms one of which is three times as wide are wrong in 1.5 to 2 % at 20 : 20."""
    for each, asked in ((15, True), (16, False), (20, False)):
        logs = drawn(each, each)
        logs[:, :each] *= 2.5
        assert np.isfinite(Terms.of(logs, each).ranks).mean() > 0.6 or not asked
        assert np.isinf(Terms.of(logs, each).ranks).mean() > 0.9 or asked


@pytest.mark.parametrize("kind", ["normal", "heavy", "wide", "tied"])
def test_more_than_twice_as_many_boots_are_guarded_whatever_they_are(kind: str) -> None:
    beyond, twice = Terms.of(drawn(30, 10, kind), 30), Terms.of(drawn(20, 10, kind), 20)
    assert (beyond.arranged & beyond.guarded & beyond.lightly).all()
    assert (beyond.means == 1.3).all()
    assert (beyond.ranks == 1.3).all()
    assert not (twice.arranged & twice.guarded & twice.lightly).all()


@pytest.mark.parametrize("below", [0, 1, 2])
def test_beside_values_that_are_all_equal_the_others_have_their_sides_alone(below: int) -> None:
    """Of ten boots one is on one side in 2.1 % of tosses; ranks and means saw 1 % in that."""
    sides = np.array([0.011, 0.004, *np.linspace(0.02, 0.03, 8)])
    sides[:below] *= -0.5
    p = batch_p_values(np.concatenate([np.zeros(10), sides])[np.newaxis, :], n_old=10, seed=SEED)
    assert (p[0] > 0.01) == (below > 0)
