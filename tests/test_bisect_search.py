# SPDX-License-Identifier: GPL-2.0-or-later
"""The search finds every step, in as few measurements as halving takes, whatever is skipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdelta.bisect.search import Ask, Found, Likeness, Mark, locate, next_step

GOOD, BAD, SKIP = Mark.GOOD, Mark.BAD, Mark.SKIP
POSITIVE = st.floats(1, 1e9)


def searched(
    count: int, truth: Callable[[int], Mark], weights: Sequence[float] | None = None
) -> tuple[Found, list[int]]:
    """The result over a history, and the points asked for between the ends."""
    marks: dict[int, Mark] = {}
    asked: list[int] = []
    for _ in range(count + 1):
        step = next_step(marks, weights or [1.0] * (count - 1))
        if isinstance(step, Found):
            return step, [point for point in asked if point not in (0, count - 1)]
        assert step.point not in marks, "asked twice"
        if len(asked) < 2:
            assert step.point == (0, count - 1)[len(asked)], "the ends come first"
        asked.append(step.point)
        marks[step.point] = truth(step.point)
    raise AssertionError("it does not end")


def most(count: int) -> int:
    return math.ceil(math.log2(count - 1)) if count > 2 else 0


@given(st.data(), st.integers(2, 300))
def test_every_step_is_found_in_as_few_as_halving_takes(data: st.DataObject, count: int) -> None:
    bad = data.draw(st.integers(1, count - 1))
    found, asked = searched(count, lambda point: GOOD if point < bad else BAD)
    assert (found.good, found.bad, found.skipped) == (bad - 1, bad, ())
    assert len(asked) <= most(count)


@given(st.data(), st.integers(2, 120))
def test_weights_never_cost_a_measurement(data: st.DataObject, count: int) -> None:
    bad = data.draw(st.integers(1, count - 1))
    weight = st.one_of(st.just(0.0), st.floats(0, 1e6))
    weights = data.draw(st.lists(weight, min_size=count - 1, max_size=count - 1))
    found, asked = searched(count, lambda point: GOOD if point < bad else BAD, weights)
    assert (found.good, found.bad) == (bad - 1, bad)
    assert len(asked) <= most(count)


@given(st.data(), st.integers(3, 120))
def test_skips_leave_a_range_that_holds_the_step(data: st.DataObject, count: int) -> None:
    bad = data.draw(st.integers(1, count - 1))
    skips = data.draw(st.sets(st.integers(1, count - 2)))

    def truth(point: int) -> Mark:
        return SKIP if point in skips else GOOD if point < bad else BAD

    found, asked = searched(count, truth)
    assert found.good == max(point for point in range(bad) if point not in skips)
    assert found.bad == min(point for point in range(bad, count) if point not in skips)
    assert found.skipped == tuple(range(found.good + 1, found.bad))
    assert set(found.skipped) <= skips
    decided = [point for point in asked if point not in skips]
    assert len(decided) <= len(asked) <= len(decided) + len(skips)


def test_a_run_of_broken_points_is_left_quickly() -> None:
    broken = range(100, 156)

    def truth(point: int) -> Mark:
        return SKIP if point in broken else GOOD if point < 30 else BAD

    found, asked = searched(257, truth)
    assert (found.good, found.bad) == (29, 30)
    assert sum(point in broken for point in asked) <= 5


@given(st.data(), st.integers(4, 60))
def test_what_is_promised_at_each_ask_holds(data: st.DataObject, count: int) -> None:
    bad = data.draw(st.integers(1, count - 1))
    marks: dict[int, Mark] = {}
    promised = []
    while isinstance(step := next_step(marks, [1.0] * (count - 1)), Ask):
        promised.append(step.left)
        marks[step.point] = GOOD if step.point < bad else BAD
    assert all(left >= len(promised) - at for at, left in enumerate(promised))
    assert promised == sorted(promised, reverse=True)


@given(st.data(), st.integers(2, 60))
def test_any_history_ends_in_one_of_its_changes(data: st.DataObject, count: int) -> None:
    middle = st.lists(st.sampled_from([GOOD, BAD, SKIP]), min_size=count - 2, max_size=count - 2)
    history = [GOOD, *data.draw(middle), BAD]
    found, _ = searched(count, history.__getitem__)
    assert history[found.good] is GOOD
    assert history[found.bad] is BAD
    assert all(history[point] is SKIP for point in found.skipped)


def test_weights_lead_to_the_likely_gap_first() -> None:
    # Four likely gaps among 20 unlikely ones in front: within the 4 or 5 of halving, it takes 2.
    weights = [0.01] * 6 + [1.0] * 4 + [0.01] * 6
    _, asked = searched(17, lambda point: GOOD if point < 9 else BAD, weights)
    assert asked[0] == 8
    assert len(asked) <= 4


@pytest.mark.parametrize(
    ("count", "marks"),
    [(1, {}), (4, {0: BAD}), (4, {0: GOOD, 3: GOOD}), (4, {3: SKIP}), (4, {4: BAD}),
     (4, {-1: GOOD})],
)  # fmt: skip
def test_what_is_no_search_is_refused(count: int, marks: dict[int, Mark]) -> None:
    with pytest.raises(ValueError, match=r"must be|ends"):
        next_step(marks, [1.0] * (count - 1))


@pytest.mark.parametrize(
    ("value", "standing", "nearer", "beyond"),
    [
        (301.7, Likeness.SAME, Mark.GOOD, False), (310.0, Likeness.SAME, Mark.GOOD, False),
        (669.8, Likeness.DIFFERENT, Mark.BAD, False), (692.2, Likeness.DIFFERENT, Mark.BAD, False),
        (440.0, Likeness.UNKNOWN, Mark.GOOD, False), (460.0, Likeness.UNKNOWN, Mark.BAD, False),
        (900.0, Likeness.UNKNOWN, Mark.BAD, True), (150.0, Likeness.UNKNOWN, Mark.GOOD, True),
    ],
)  # fmt: skip
def test_places_between_301_and_669(
    value: float,
    standing: Likeness,
    nearer: Mark,
    beyond: bool,  # noqa: FBT001
) -> None:
    found = locate(value, good=301.7, bad=669.8)
    assert (found.likeness, found.nearer, found.beyond) == (standing, nearer, beyond)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_places_do_not_depend_on_the_direction(value: float, good: float, bad: float) -> None:
    if abs(math.log(bad / good)) < 1e-6:
        return
    there, back = locate(value, good=good, bad=bad), locate(value, good=bad, bad=good)
    assert there.position + back.position == pytest.approx(1, abs=1e-3)
    if all(abs(there.position - edge / 3) > 1e-3 for edge in (-1, 1, 2, 4)):
        opposite = dict(
            zip(Likeness, (Likeness.DIFFERENT, Likeness.SAME, Likeness.UNKNOWN), strict=True)
        )
        assert back.likeness is opposite[there.likeness]


def test_spread_that_reaches_another_third_leaves_it_unknown() -> None:
    assert locate(120, good=100, bad=200).likeness is Likeness.SAME
    assert locate(120, good=100, bad=200, spread=20).likeness is Likeness.UNKNOWN
    assert locate(120, good=100, bad=200, spread=5).likeness is Likeness.SAME
    assert locate(150, good=100, bad=1000, spread=500).likeness is Likeness.UNKNOWN


@pytest.mark.parametrize(("value", "good", "bad"), [(0, 1, 2), (1, 0, 2), (1, 2, 2), (-1, 1, 2)])
def test_what_has_no_position_is_refused(value: float, good: float, bad: float) -> None:
    with pytest.raises(ValueError, match="positions"):
        locate(value, good=good, bad=bad)
