# SPDX-License-Identifier: GPL-2.0-or-later
"""One scenario on two kernels: windows in pairs, and code that moved between functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kdelta.analysis.explanation import FunctionDelta, Presence, once
from kdelta.check.compare import WindowPairs, _effect, netted, window_pairs
from kdelta.check.page import Effect
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
    found = window_pairs([phase(FORK, "fork"), phase(COPY)], [phase(FORK, "fork"), phase(longer)])
    assert found == WindowPairs(difference=3720, deviation=0)
    assert found.clear


def test_windows_that_take_another_way_are_not_clear() -> None:
    found = window_pairs([phase(FORK)], [phase(FORK[4:] + FORK[:4])])
    assert found is not None
    assert not found.clear


def test_no_difference_is_not_clear() -> None:
    found = window_pairs([phase(FORK)], [phase(FORK)])
    assert found == WindowPairs(difference=0, deviation=0)
    assert not found.clear


def test_one_odd_pair_is_left_out_and_disturbed_ones_are() -> None:
    longer = [count + 100 for count in COPY]
    longer[2] += 5000
    found = window_pairs([phase(COPY)], [phase(tuple(longer))])
    assert found == WindowPairs(difference=100, deviation=0)
    longer[3] += 5000
    switched = (False, False, True, True, False, False, False, False)
    assert not window_pairs([phase(COPY)], [phase(tuple(longer))]).clear  # type: ignore[union-attr]
    found = window_pairs([phase(COPY)], [phase(tuple(longer), switched=switched)])
    assert found == WindowPairs(difference=100, deviation=0)


@pytest.mark.parametrize(
    "other",
    [
        phase(COPY[1:]), phase(COPY, "another"), phase(COPY, layouts=2),
        phase(COPY, switched=(True,) * 6 + (False,) * 2),
    ],
)  # fmt: skip
def test_what_has_no_pairs_says_nothing(other: PhaseCounts) -> None:
    assert window_pairs([phase(COPY)], [other]) is None


@pytest.mark.parametrize(
    ("pair", "change"),
    [
        (None, Effect.SPREAD),
        (WindowPairs(difference=3720, deviation=0), Effect.MORE),
        (WindowPairs(difference=3720, deviation=2000), Effect.SPREAD),
        (
            WindowPairs(difference=-3720, deviation=0),
            Effect.SPREAD,
        ),  # the windows that stand say else
    ],
)
def test_pairs_decide_what_lies_within_the_spread(pair: WindowPairs | None, change: Effect) -> None:
    assert _effect(Verdict.SAME, 4054.787, 4062.845, 12.86, pair)[0] is change


def row(function: str, old: int | None, new: int | None) -> FunctionDelta:
    return FunctionDelta(
        function=function, old=old, new=new, delta=(new or 0) - (old or 0), share=None,
        calls_old=1, calls_new=1,
        status=Presence.NEW if old is None else Presence.VANISHED if new is None else Presence.BOTH,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        # a loop became a function of its own; two; and another name
        ([row("walk", 1000, 100), row("piece", None, 905)], [("piece with walk", 5)]),
        ([row("walk", 1000, 0), row("one", None, 500), row("two", None, 530)],
         [("walk with two, one", 30)]),
        ([row("was", 400, None), row("is_now", None, 400)], []),
        # a check went from the caller into what it calls
        ([row("caller", 20, 18), row("callee", 5, 7), row("third", 1, 4)], [("third", 3)]),
        # what does not cancel stays: two functions that change for two reasons
        ([row("a", 100, 190), row("b", 100, 20)], [("a", 90), ("b", -80)]),
        ([row("a", 500, None), row("b", None, 100)], [("a", -500), ("b", 100)]),
        ([row("same", 7, 7)], []),
        # what cancels best is a move, whatever is larger: 6.17's mprotect()
        ([row("commit", None, 328), row("change", 270, 0), row("range", None, 238)],
         [("commit", 328), ("change with range", -32)]),
    ],
)  # fmt: skip
def test_what_cancels_is_one(rows: list[FunctionDelta], told: list[tuple[str, int]]) -> None:
    found = netted(rows)
    assert [(part.name, part.delta) for part in found] == told
    assert sum(part.delta for part in found) == sum(one.delta for one in rows)


def test_a_function_of_another_name_is_no_move_and_its_code_is_in_no_other() -> None:
    """As in the sentence of `explain`: 300 of the same name, not 390 into what is new beside it."""
    rows = [row("free_page", 390, None), row("free_a_page", None, 300), row("other", None, 385)]
    renamed = replace(rows[1], was="free_page", old=390, delta=-90, status=Presence.BOTH)
    single = once(rows, [renamed])
    assert [each.function for each in single] == ["other", "free_a_page"]
    found = [(part.name, part.delta) for part in netted(single)]
    assert found == [("other", 385), ("free_a_page (before: free_page)", -90)]


def test_many_functions_are_netted_soon() -> None:
    rows = [row(f"new_{n}", None, 1000 + n) for n in range(300)]
    rows += [row(f"old_{n}", 3000 + 7 * n, None) for n in range(300)]
    assert sum(part.delta for part in netted(rows)) == sum(one.delta for one in rows)
