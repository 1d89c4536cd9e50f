# SPDX-License-Identifier: GPL-2.0-or-later
"""Windows of two kernels in pairs: a difference that each pair has is one, however far they lie."""

from __future__ import annotations

import pytest

from kdelta.check.comparing import _change
from kdelta.check.page import Effect
from kdelta.check.pairs import Paired, paired
from kdelta.sample import PhaseCounts
from kdelta.verdict.comparison import Verdict

# A write that copies a page, 465 a window, on two kernels of which one takes 8 more a page.
FORK = (110521, 110539, 112153, 113525, 110539, 110539, 110539, 110539)
COPY = (1276373, 1276383, 1276363, 1276363, 1276383, 1276373, 1276363, 1276383)


def phase(
    counts: tuple[int, ...], name: str = "write", switched: tuple[bool, ...] = (), layouts: int = 1
) -> PhaseCounts:
    return PhaseCounts(
        phase=name, operations=465, operation="page", user=(7,) * len(counts), kernel=counts,
        switched=switched, layouts=layouts,
    )  # fmt: skip


def test_a_difference_of_each_pair_is_clear_among_windows_that_differ_by_more() -> None:
    longer = tuple(count + 8 * 465 for count in COPY)
    found = paired([phase(FORK, "fork"), phase(COPY)], [phase(FORK, "fork"), phase(longer)])
    assert found == Paired(difference=3720, deviation=0)
    assert found.clear


def test_windows_that_take_another_way_are_not_clear() -> None:
    found = paired([phase(FORK)], [phase(FORK[4:] + FORK[:4])])
    assert found is not None
    assert not found.clear


def test_no_difference_is_not_clear() -> None:
    found = paired([phase(FORK)], [phase(FORK)])
    assert found == Paired(difference=0, deviation=0)
    assert not found.clear


def test_one_odd_pair_is_left_out_and_disturbed_ones_are() -> None:
    longer = [count + 100 for count in COPY]
    longer[2] += 5000
    found = paired([phase(COPY)], [phase(tuple(longer))])
    assert found == Paired(difference=100, deviation=0)
    longer[3] += 5000
    switched = (False, False, True, True, False, False, False, False)
    assert not paired([phase(COPY)], [phase(tuple(longer))]).clear  # type: ignore[union-attr]
    found = paired([phase(COPY)], [phase(tuple(longer), switched=switched)])
    assert found == Paired(difference=100, deviation=0)


@pytest.mark.parametrize(
    "other",
    [
        phase(COPY[1:]),
        phase(COPY, "another"),
        phase(COPY, layouts=2),
        phase(COPY, switched=(True,) * 6 + (False,) * 2),
    ],
)
def test_what_has_no_pairs_says_nothing(other: PhaseCounts) -> None:
    assert paired([phase(COPY)], [other]) is None


@pytest.mark.parametrize(
    ("pair", "change"),
    [
        (None, Effect.SPREAD),
        (Paired(difference=3720, deviation=0), Effect.MORE),
        (Paired(difference=3720, deviation=2000), Effect.SPREAD),
        (Paired(difference=-3720, deviation=0), Effect.SPREAD),  # the windows that stand say else
    ],
)
def test_pairs_decide_what_lies_within_the_spread(pair: Paired | None, change: Effect) -> None:
    assert _change(Verdict.SAME, 4054.787, 4062.845, 12.86, pair)[0] is change
