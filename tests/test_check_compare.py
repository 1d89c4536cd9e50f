# SPDX-License-Identifier: GPL-2.0-or-later
"""One scenario on two kernels: windows in pairs, and the functions of a difference."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec import structs

from kdelta.analysis.explanation import FunctionDelta, Presence
from kdelta.check import compare
from kdelta.check.compare import WindowPairs, _effect, window_pairs
from kdelta.check.page import Effect
from kdelta.journal.artifacts import TrialDetails
from kdelta.metric import Better
from kdelta.probes.memory import EVERYWHERE, What
from kdelta.probes.sharing import FETCHED, SharingRow
from kdelta.sample import ExactData, MetricValue, Outcome, PhaseCounts, StateField, TrialResult
from kdelta.verdict.comparison import Verdict
from run_records import result_of
from test_check_decision import kernel, tree

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


def counted(*lines: float, user: int = 1, rows: tuple[SharingRow, ...] = ()) -> compare.Counted:
    """So many lines an operation, by seed; below 0: that trial was lost."""
    counts = structs.replace(phase((0,) * 62, layouts=62), user=(user,) * 62)
    state = (StateField(when="before", name="threads", value="2", want="2"),)
    first, *more = (
        structs.replace(
            result_of(0), data=ExactData(phases=(counts,)), state=state,
            metrics=(MetricValue(name=FETCHED, unit="1", value=each, better=Better.LOWER),),
        ) if each >= 0 else TrialResult(outcome=Outcome.GUEST_ERROR, reasons=("Oops",))
        for each in lines
    )  # fmt: skip
    return compare.Counted(
        scenario="turns:dup", kernel=kernel(tree("the base")), result=first, more=tuple(more),
        told=TrialDetails(sharing={"write": rows}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "change", "why"),
    [
        ((3, 3, 3), (5, 5, 5), Effect.MORE, ""),
        ((0, 0, 0), (1, 1, 1), Effect.MORE, ""),
        ((3, 3, 3), (3, 3, 3), Effect.EQUAL, ""),
        ((2, 3, 4), (1, 2, 3), Effect.LESS, ""),  # by one in each seed
        ((2, 3, 2), (3, 2, 4), Effect.SPREAD, "its seeds differ by"),
        ((2, 3, 4), (3, 2, 4), Effect.SPREAD, "+0, and its seeds differ by"),
        ((3, 3, 3), (5, 5, -1), Effect.OPEN, "the base: Oops"),
    ],
)
def test_lines_are_compared_by_seeds_whatever_the_path(
    old: tuple[float, ...], new: tuple[float, ...], change: Effect, why: str
) -> None:
    lock, two = "mm_struct.mmap_lock", 2 * 62 * 465
    rows = tuple(SharingRow(name, What.SLAB, lock, two, two, 0, 0) for name in (EVERYWHERE, "f"))
    found = compare.path_row(counted(*old), counted(*new, user=2, rows=rows), 1.0)
    assert found.change is change
    assert why in found.reason
    named = [(part.function, part.delta) for part in found.functions]
    assert named == ([(f"new: {lock}, written in f()", 2.0)] if change.moved else [])
    assert not change.moved or (found.percent > 0) is (change is Effect.MORE)


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
    monkeypatch.setattr(compare, "explained", lambda _: found)
    parts = compare._parts(None)  # type: ignore[arg-type]
    assert [(part.function, part.delta) for part in parts] == [
        ("piece", 181.0),
        ("walk", -180.0),
        ("free_a_page (before: free_page)", -18.0),
        ("small_0", 0.2),
        ("1 others", 0.2),
    ]
