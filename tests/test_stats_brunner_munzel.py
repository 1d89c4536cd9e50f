# SPDX-License-Identifier: GPL-2.0-or-later
"""The test of times: scipy's answers, its level, its interval, and what must not matter to it."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

sys.path.append(str(Path(__file__).resolve().parent.parent / "bench"))

import million
import power
from kdelta.stats.brunner_munzel import (
    MARGIN,
    PERMUTED_UP_TO,
    SHOWN,
    guarded_p,
    least_p,
    p_values,
    shift,
)
from kdelta.stats.timing import ALPHA
from kdelta.verdict.comparison import Verdict
from simulation import Design, Noise, sessions

SEED = 7
PAGE = Path(__file__).resolve().parent.parent / "docs" / "times.md"
NINE = Design(old=9, new=9)
A_B_A = Design(old=18, new=9)


def p_of(old: list[float], new: list[float]) -> float:
    return float(p_values(np.array([[*old, *new]]), len(old), seed=SEED)[0])


def drawn(
    old: int, new: int, *, seed: int, change: float = 1.0, cv: float = 0.02
) -> tuple[list[float], list[float]]:
    values = np.exp(cv * np.random.default_rng(seed).standard_normal(old + new))
    return values[:old].tolist(), (change * values[old:]).tolist()


# ---- against scipy ---------------------------------------------------------------------------


def statistic(x: np.ndarray, y: np.ndarray) -> float:
    """Brunner and Munzel's, of either sign; arms that do not overlap are the most extreme."""
    if x.max() < y.min() or y.max() < x.min():
        return 1e9
    return abs(float(reference.brunnermunzel(x, y, distribution="normal").statistic))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1.0, 2, 3, 4, 5], [6.0, 7, 8, 9, 10]), ([1.0, 5, 9, 11, 4], [2.0, 6, 12, 13, 14]),
        ([1.3, 5.1, 9.7, 11.2, 4.4], [2.5, 6.6, 12.9]), ([1.0, 2, 2, 3, 5], [2.0, 3, 3, 6]),
        ([4.0, 4, 4, 4, 5], [4.0, 5, 5, 4]),
    ],
)  # fmt: skip
def test_p_is_that_of_scipys_permutation_test(old: list[float], new: list[float]) -> None:
    found = reference.permutation_test(
        (np.array(old), np.array(new)), statistic, vectorized=False, n_resamples=np.inf,
        alternative="greater",
    )  # fmt: skip
    assert p_of(old, new) == pytest.approx(found.pvalue)


def test_p_of_many_values_is_scipys() -> None:
    old, new = drawn(40, 33, seed=1, change=1.01)
    assert p_of(old, new) == pytest.approx(reference.brunnermunzel(old, new).pvalue)
    assert p_of([1.0] * 40, [1.0] * 40) == 1.0
    assert p_of([1.0] * 40, [2.0] * 40) < 1e-20


def test_drawn_assignments_come_near_the_whole() -> None:
    """10 : 10 has 184,756: the level at 1 % of the drawn ones is that of a test of ranks alike."""
    p = p_values(np.random.default_rng(SEED).random((4000, 20)), 10, seed=SEED)
    for level in (0.01, 0.05, 0.2):
        assert (p <= level).mean() == pytest.approx(level, abs=4 * math.sqrt(level / 4000))


# ---- level -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("design", "noise"),
    [
        (Design(old=5, new=5), Noise.ONE_BIMODAL_FAR), (Design(old=5, new=5), Noise.NEW_5),
        (Design(old=10, new=5), Noise.NEW_5), (NINE, Noise.NEW_5), (NINE, Noise.ONE_BIMODAL),
        (NINE, Noise.CAUCHY), (NINE, Noise.ONE_STEP), (NINE, Noise.STEEP_DRIFT),
        (A_B_A, Noise.NEW_3), (A_B_A, Noise.ONE_BIMODAL_FAR), (Design(old=60, new=9), Noise.NEW_3),
    ],
)  # fmt: skip
def test_equal_arms_are_rarely_different(design: Design, noise: Noise) -> None:
    count = 4000 if design.count <= PERMUTED_UP_TO else 1000
    generator = np.random.default_rng([SEED, list(Noise).index(noise), design.old])
    if design.old % design.new:  # more than twice as many: no session of rounds
        logs = 0.03 * generator.standard_normal((count, design.count))
        logs[:, design.old :] *= 3
        alarms = (guarded_p(logs, design.old, seed=SEED) <= ALPHA).mean()
    else:
        these = sessions(noise, design=design, count=count, change=0.0, generator=generator)
        alarms = (power.ours(these, SEED) <= ALPHA).mean()
    assert alarms <= power.most(count)


def test_the_table_of_the_document_has_all_cells_and_keeps_the_level() -> None:
    """It is what `bench/power.py --docs` prints: a line for each noise, level first."""
    text = PAGE.read_text().split(power.MARKS[0])[1].split(power.MARKS[1])[0]
    cells = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    rows = {line[1].strip(): line[2:] for line in cells}
    told = re.search(r"(\d+) sessions a level and (\d+) a power, of a lattice a fifth", text)
    assert told
    designs = [*power.EVEN, *power.DOUBLE]
    for design, noise in power.cells():
        level = float(rows[noise][designs.index(design)].split("/")[0])
        count = int(told[2]) // 5 if noise is Noise.LATTICE else int(told[1])
        assert level <= 100 * power.most(count), (design, noise)


# ---- the interval ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "places"), [(6, 6, 9), (9, 9, 9), (9, 9, 2), (18, 9, 9), (40, 40, 9)]
)
def test_the_interval_holds_the_ratios_that_the_test_keeps(old: int, new: int, places: int) -> None:
    """Scale the new arm, and p crosses alpha at the end.  places: of values with ties."""
    was, now = (np.round(each, places) for each in drawn(old, new, seed=1, change=1.2))
    found = shift(was.tolist(), now.tolist(), alpha=0.05, seed=SEED)
    assert found.low <= found.ratio <= found.high
    for end, outward in ((found.low, 1 - 1e-6), (found.high, 1 + 1e-6)):
        outside, inside = (
            shift(was.tolist(), (now / (end * by)).tolist(), alpha=0.05, seed=SEED).p
            for by in (outward, 1 / outward)
        )
        assert outside <= 0.05 < inside


def test_intervals_hold_the_truth() -> None:
    generator = np.random.default_rng(SEED)
    these = sessions(Noise.OUTLIERS, design=NINE, count=100, change=0.05, generator=generator)
    missed = 0
    for row in np.exp(these.logs):
        found = shift(row[:9].tolist(), row[9:].tolist(), alpha=0.05, seed=SEED)
        assert (found.p <= 0.05) == (found.low > 1 or found.high < 1)
        missed += not found.low <= 1.05 <= found.high
    assert missed <= 11  # more has a chance of 1e-2 at 5 %


def test_few_boots_have_a_margin_for_modes_and_many_have_none() -> None:
    """Ranges that do not overlap: 8 boots an arm are told apart where 9 are, less the margin."""
    for each, margin in ((SHOWN - 1, MARGIN), (SHOWN, 0.0)):
        old, new = drawn(each, each, seed=2, change=1.0 + MARGIN / 2, cv=0.001)
        found = shift(old, new, alpha=0.01, seed=SEED)
        assert found.margin == pytest.approx(margin)
        assert (found.p <= 0.01) == (margin == 0.0)
        far = shift(old, [2 * value for value in new], alpha=0.01, seed=SEED)
        assert far.p <= 0.01
        assert far.high / far.low == pytest.approx((1 + margin) ** 2, rel=0.01)


def test_too_few_values_bound_nothing_and_bad_ones_are_refused() -> None:
    few = shift([1.0, 1.1, 1.2, 1.3], [2.0, 2.1, 2.2, 2.3], alpha=0.01, seed=SEED)
    assert (few.low, few.high) == (0.0, math.inf)
    for bad in ([1.0], [1.0, 0.0], [1.0, math.inf]):
        with pytest.raises(ValueError, match="positive"):
            shift(bad, [1.0, 2.0], alpha=0.01, seed=SEED)


@pytest.mark.parametrize(("old", "new"), [(5, 5), (9, 9), (15, 9), (31, 30)])
def test_the_least_p_is_that_of_arms_that_do_not_overlap(old: int, new: int) -> None:
    values = np.log(np.concatenate([np.arange(1, old + 1), 1000 + np.arange(new)]))
    found = float(guarded_p(values[np.newaxis, :], old, seed=SEED)[0])
    assert found == pytest.approx(least_p(old, new), rel=1e-6, abs=1e-12)


# ---- what must not matter --------------------------------------------------------------------

ARMS = st.tuples(*2 * [st.lists(st.integers(900, 1100), min_size=5, max_size=6)])


@settings(max_examples=40)
@given(arms=ARMS, scale=st.integers(1, 1000))
def test_the_unit_does_not_matter(arms: tuple[list[int], list[int]], scale: int) -> None:
    old, new = arms
    one = shift(old, new, alpha=0.01, seed=SEED)
    other = shift([scale * v for v in old], [scale * v for v in new], alpha=0.01, seed=SEED)
    for name in ("ratio", "low", "high", "p"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-9), name


@settings(max_examples=40)
@given(arms=ARMS)
def test_swapped_arms_have_the_inverse_ratio(arms: tuple[list[int], list[int]]) -> None:
    old, new = arms
    there, back = (shift(*pair, alpha=0.01, seed=SEED) for pair in ((old, new), (new, old)))
    assert back.p == pytest.approx(there.p)
    assert back.ratio == pytest.approx(1 / there.ratio, rel=1e-9)
    assert back.low == pytest.approx(1 / there.high, rel=1e-9)
    assert back.high == pytest.approx(1 / there.low, rel=1e-9)


@given(arms=ARMS, power_=st.sampled_from([-1.0, 0.5, 3.0]))
def test_p_is_one_of_ranks(arms: tuple[list[int], list[int]], power_: float) -> None:
    """A monotone scale changes the values, and neither their order nor p."""
    old, new = arms
    logs = np.log(np.array([[*old, *new]], dtype=np.float64))
    one, other = (p_values(each, len(old), seed=SEED)[0] for each in (logs, power_ * logs))
    assert other == pytest.approx(one)


@settings(max_examples=40)
@given(arms=ARMS)
def test_a_larger_change_is_no_less_certain(arms: tuple[list[int], list[int]]) -> None:
    old, new = arms
    seen = [
        shift(old, [value * by for value in new], alpha=0.01, seed=SEED)
        for by in (1.3, 1.6, 2.0)  # beyond all overlap, and the margin
    ]
    assert [each.p for each in seen] == sorted((each.p for each in seen), reverse=True)
    assert [each.low for each in seen] == sorted(each.low for each in seen)


def test_a_million_samples_are_judged() -> None:
    """How long that takes is for bench/million.py to say."""
    found, _ = million.judge_many(1_000_000, 10, SEED)
    assert found.verdict is Verdict.REGRESSION
