# SPDX-License-Identifier: GPL-2.0-or-later
"""What an UNDECIDED still tells of times: the estimate, what would decide, and what would not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kdelta.metric import Grade
from kdelta.stats import clock
from kdelta.stats.timing import compare, placed, unread
from kdelta.verdict.comparison import Verdict
from kdelta.verdict.series import Boot
from timing_series import arm, noisy

HOST = Grade.HOST_TIME
WILD = [100.0, 101.0, 99.5, 100.3, 1000.0]


@pytest.mark.parametrize(
    ("old", "new", "known"),
    [
        (100.0, 110.0, False),  # whole milliseconds, and ticks of ten of them
        (40.0, 44.0, False),
        (100.0, 100.0, False),
        (100.0, 101.0, True),  # no step but 1 has both
        (3.0, 7.0, True),
    ],
)
def test_of_equal_readings_the_step_is_the_largest_that_they_may_have(
    old: float, new: float, *, known: bool
) -> None:
    found = compare(arm("old", [old] * 9), arm("new", [new] * 9, first=1), grade=HOST)
    assert ("how coarse the clock is" in found.reasons[0]) != known
    assert known or found.verdict is Verdict.UNDECIDED
    assert found.ratio == pytest.approx(new / old)


def test_no_number_of_boots_is_told_where_the_reading_leaves_it_open() -> None:
    found = compare(
        arm("old", [8.0] * 8 + [9.0]), arm("new", [8.0] * 7 + [9.0, 9.0], first=1), grade=HOST
    )
    assert found.verdict is Verdict.UNDECIDED
    assert "a finer clock would decide" in found.reasons[0]
    assert found.more is None


def test_an_interval_that_bounds_nothing_is_none_and_eight_boots_are_told() -> None:
    """It had 65 digits, and more than 1000 boots were said to be needed."""
    old = arm("old", WILD)
    found = compare(old, arm("new", noisy(130, 5, cv=0.01, seed=2), first=1), grade=HOST)
    assert found.verdict is Verdict.UNDECIDED
    assert found.ratio == pytest.approx(1.3, abs=0.03)
    assert found.interval is None
    assert found.more == 3
    assert "too few for an interval" in found.reasons[0]
    assert "at least 8 would" in found.reasons[0]


@pytest.mark.parametrize(("bad", "word"), [(0.0, "times of zero"), (-3.0, "negative times")])
def test_values_that_no_time_has_leave_the_medians(bad: float, word: str) -> None:
    old = arm("old", [100.0, bad, *[100.5] * 4, *[99.5] * 3])
    found = compare(old, arm("new", noisy(130, 9, cv=0.001, seed=1), first=1), grade=HOST)
    assert found.verdict is Verdict.UNDECIDED
    assert word in found.reasons[0]
    assert "by medians +30." in found.reasons[0]
    none = compare(old, arm("new", [bad] * 9, first=1), grade=HOST)
    assert "medians" not in none.reasons[0]


def test_one_negative_sample_is_a_negative_time() -> None:
    """The median of its boot hides it, and the clock is as wrong."""
    old, new = (arm(name, noisy(level, 9, cv=0.01, seed=3)) for name, level in (("a", 1), ("b", 2)))
    first = Boot(label="b r0", position=1, values=(2.0, -0.1, 2.01), round=0)
    found = compare(old, replace(new, boots=(first, *new.boots[1:])), grade=HOST)
    assert found.verdict is Verdict.UNDECIDED
    assert "negative times" in found.reasons[0]


def test_rounds_that_are_all_one_are_no_place_in_the_session() -> None:
    """Rounds within boots number these: all boots were in round 0, and no drift was taken out."""
    generator = np.random.default_rng(4)
    drift = [100 * (1 + 0.01 * at) + float(generator.normal(0, 0.2)) for at in range(12)]
    arms = [arm("old", drift), arm("new", [1.3 * value for value in drift], first=1)]
    same = [replace(a, boots=tuple(replace(b, round=0) for b in a.boots)) for a in arms]
    boots = [boot for a in same for boot in a.valid]
    assert placed(boots, same) == [float(boot.position or 0) for boot in boots]
    low, high = compare(same[0], same[1], grade=HOST).interval or (0.0, math.inf)
    assert high / low < 1.02


def test_values_of_both_arms_show_a_lattice_that_neither_does() -> None:
    """Means of 8 readings of a tick of 4 ms: every half of a millisecond, few of them an arm."""
    old = arm("old", [42.5, 43.0, 41.5, 42.5, 43.5, 42.5, 43.0, 42.5, 43.0])
    new = arm("new", [55.0, 56.5, 56.0, 56.0, 55.5, 56.0, 55.0, 56.5, 56.0], first=1)
    (told,) = (c.sentence for c in compare(old, new, grade=HOST).cautions if c.trap == "lattice")
    assert told.startswith("old, new: all values together lie on a lattice of step 0.5 ns/page")
    fine = arm("new", [*new.values[:-1], 56.1], first=1)
    assert not [c for c in compare(old, fine, grade=HOST).cautions if c.trap == "lattice"]
    still = [arm(name, [level] * 8 + [level + 0.5]) for name, level in (("old", 40), ("new", 50.5))]
    assert unread(still) == 0.0, "three values in all are too few to tell"


def test_a_lattice_of_both_arms_is_in_the_interval() -> None:
    values = ([42.5, 43.0, 42.0, 42.5, 42.5], [55.0, 56.5, 54.5, 57.0, 58.0])
    still = [arm(name, [*([own[0]] * 40), *own]) for name, own in zip("ab", values, strict=True)]
    assert unread(still) == pytest.approx(math.log1p(0.5 / 42.5))


def test_of_two_lattices_the_coarser_one_is_told() -> None:
    """A tick over 32 calls is also one over 1024 pages, whose step hides nothing."""
    values = [math.floor(k * 4_000_250 / 32) for k in (5, 6, 7, 5, 6, 7, 6, 6, 5)]
    found = clock.find_lattice(values)
    assert found is not None
    assert found.step == pytest.approx(4_000_250 / 32)
    assert found.hz == 250
