# SPDX-License-Identifier: GPL-2.0-or-later
"""Which side of a change a value is on, and when neither may be said."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdelta.bisect.search import Likeness, Mark, locate

POSITIVE = st.floats(1, 1e9)


@pytest.mark.parametrize(
    ("value", "standing", "nearer", "beyond"),
    [
        (301.7, Likeness.SAME, Mark.GOOD, False),
        (310.0, Likeness.SAME, Mark.GOOD, False),
        (669.8, Likeness.DIFFERENT, Mark.BAD, False),
        (692.2, Likeness.DIFFERENT, Mark.BAD, False),
        (440.0, Likeness.UNKNOWN, Mark.GOOD, False),
        (460.0, Likeness.UNKNOWN, Mark.BAD, False),
        (900.0, Likeness.UNKNOWN, Mark.BAD, True),
        (150.0, Likeness.UNKNOWN, Mark.GOOD, True),
    ],
)
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


@given(POSITIVE, POSITIVE)
def test_the_ends_are_like_themselves(good: float, bad: float) -> None:
    if good == bad:
        return
    assert locate(good, good=good, bad=bad).likeness is Likeness.SAME
    assert locate(bad, good=good, bad=bad).likeness is Likeness.DIFFERENT


def test_spread_that_reaches_another_third_leaves_it_unknown() -> None:
    assert locate(120, good=100, bad=200).likeness is Likeness.SAME
    assert locate(120, good=100, bad=200, spread=20).likeness is Likeness.UNKNOWN
    assert locate(120, good=100, bad=200, spread=5).likeness is Likeness.SAME
    assert locate(150, good=100, bad=1000, spread=500).likeness is Likeness.UNKNOWN


@pytest.mark.parametrize(("value", "good", "bad"), [(0, 1, 2), (1, 0, 2), (1, 2, 2), (-1, 1, 2)])
def test_what_has_no_position_is_refused(value: float, good: float, bad: float) -> None:
    with pytest.raises(ValueError, match="positions"):
        locate(value, good=good, bad=bad)
