# SPDX-License-Identifier: GPL-2.0-or-later
"""One scenario on two kernels: windows in pairs, and the functions of a difference."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kdelta.analysis.explanation import FunctionDelta, Presence
from kdelta.check import compare
from kdelta.check.compare import WindowPairs, _effect, window_pairs
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
        # The windows that stand say else.
        (WindowPairs(difference=-3720, deviation=0), Effect.SPREAD),
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


def test_functions_are_named_as_they_are_and_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nearly cancels stays two rows; a function of another name is one."""
    rows = [row("walk", 1000, 100), row("piece", None, 905), row("same", 7, 7)]
    rows += [replace(row("free_a_page", 390, 300), was="free_page")]
    rows += [row(f"small_{n}", 10, 11) for n in range(2)]
    rows.sort(key=lambda one: (-abs(one.delta), one.function))
    found = SimpleNamespace(functions=rows, operations=5)
    monkeypatch.setattr(compare, "_explained", lambda _: found)
    parts = compare._parts(None)  # type: ignore[arg-type]
    assert [(part.function, part.delta) for part in parts] == [
        ("piece", 181.0),
        ("walk", -180.0),
        ("free_a_page (before: free_page)", -18.0),
        ("small_0", 0.2),
        ("1 others", 0.2),
    ]
