# SPDX-License-Identifier: GPL-2.0-or-later
"""Sides decided from simulated times: rarely wrong, and no more blocks than it takes."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from kdelta.bisect.side import Block, Scatter, Side, weigh

BUDGET = 20
ALPHA = 0.02


def blocks(
    chance: random.Random,
    *,
    position: float,
    width: float = 0.3,
    sd: float = 0.03,
    count: int = BUDGET,
    drift: float = 0.0,
    wild: float = 0.0,
) -> list[Block]:
    """Log-normal times of ends `width` apart; drift: of all three from first to last block."""

    def reading(at: int, place: float) -> float:
        moved = drift * at / BUDGET + chance.gauss(0, sd)
        moved += chance.uniform(0, 1) if chance.random() < wild else 0
        return 100 * math.exp(place * width + moved)

    return [
        Block(good=reading(at, 0), point=reading(at, position), bad=reading(at, 1))
        for at in range(count)
    ]


def decided(every: list[Block], scatter: Scatter | None = None) -> tuple[Side, int]:
    for count in range(5, len(every) + 1):
        found = weigh(every[:count], budget=BUDGET, alpha=ALPHA, scatter=scatter)
        if not found.more:
            return found.side, count
    raise AssertionError("the budget is spent and it asks for more")


@pytest.mark.parametrize(("position", "wanted"), [(0.0, Side.GOOD), (1.0, Side.BAD)])
@pytest.mark.parametrize("drift", [0.0, 0.5])
def test_the_side_is_right_and_soon_known(position: float, wanted: Side, drift: float) -> None:
    chance = random.Random(f"{position} {drift}")  # noqa: S311
    seen: Counter[Side] = Counter()
    spent = 0
    for _ in range(200):
        side, count = decided(blocks(chance, position=position, drift=drift))
        seen[side] += 1
        spent += count
    assert seen[wanted] >= 198
    assert spent / 200 < 8


def test_the_wrong_side_is_as_rare_as_promised_however_often_one_looks() -> None:
    # In the middle either side is wrong: the chance to name one is what alpha bounds.
    chance = random.Random("middle")  # noqa: S311
    seen = Counter(decided(blocks(chance, position=0.5))[0] for _ in range(1000))
    assert seen[Side.GOOD] + seen[Side.BAD] <= 40
    assert seen[Side.UNDECIDED] >= 960


def test_scatter_that_hides_the_change_is_undecided_not_wrong() -> None:
    chance = random.Random("noisy")  # noqa: S311
    seen = Counter(decided(blocks(chance, position=1.0, width=0.02, sd=0.1))[0] for _ in range(300))
    assert seen[Side.GOOD] <= 6
    assert seen[Side.UNDECIDED] > 200


def test_wild_values_do_not_lead_to_the_wrong_side() -> None:
    chance = random.Random("wild")  # noqa: S311
    seen = Counter(decided(blocks(chance, position=0.0, wild=0.1))[0] for _ in range(300))
    assert seen[Side.BAD] <= 6


def test_a_small_change_takes_more_blocks_than_a_large_one() -> None:
    chance = random.Random("sizes")  # noqa: S311
    spent = [
        sum(decided(blocks(chance, position=0.0, width=width))[1] for _ in range(60))
        for width in (0.5, 0.08)
    ]
    assert spent[0] < spent[1]


def test_earlier_points_make_it_sure_sooner() -> None:
    chance = random.Random("pooled")  # noqa: S311
    known = Scatter()
    for _ in range(6):
        known = known.plus(blocks(chance, position=0.0, count=8))
    assert known.freedom == 42
    assert math.sqrt(known.squares / known.freedom) == pytest.approx(0.03 * 1.22, rel=0.3)
    alone = pooled = 0
    for _ in range(100):
        every = blocks(chance, position=1.0, width=0.13)
        alone += decided(every)[1]
        pooled += decided(every, known)[1]
    assert pooled < alone


def test_the_position_is_estimated() -> None:
    chance = random.Random("place")  # noqa: S311
    found = weigh(blocks(chance, position=0.25), budget=BUDGET, alpha=ALPHA)
    assert found.position == pytest.approx(0.25, abs=0.1)
    assert found.error == pytest.approx(0.03 * 1.22 / math.sqrt(BUDGET) / 0.3, rel=0.5)


def test_a_change_for_the_better_has_sides_too() -> None:
    chance = random.Random("down")  # noqa: S311
    assert decided(blocks(chance, position=1.0, width=-0.3))[0] is Side.BAD
    assert decided(blocks(chance, position=0.0, width=-0.3))[0] is Side.GOOD


def test_fewer_than_five_blocks_decide_nothing() -> None:
    every = [Block(good=100, point=200, bad=200)] * 4
    found = weigh(every, budget=BUDGET, alpha=ALPHA)
    assert (found.side, found.more, found.p) == (Side.UNDECIDED, True, None)
    assert weigh(every, budget=4, alpha=ALPHA).more is False


def test_times_without_any_scatter() -> None:
    every = [Block(good=100, point=200, bad=200)] * 5
    assert weigh(every, budget=BUDGET, alpha=ALPHA).side is Side.BAD


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        Block(good=1.0, point=bad, bad=2.0)


def test_a_budget_that_is_spent_is_refused() -> None:
    with pytest.raises(ValueError, match="budget"):
        weigh([Block(good=1, point=1, bad=2)] * 6, budget=5, alpha=ALPHA)
