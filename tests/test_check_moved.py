# SPDX-License-Identifier: GPL-2.0-or-later
"""Code that moved between functions is one part of a difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kdelta.analysis.explanation import FunctionDelta, Presence, once
from kdelta.check.moved import netted


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
        (
            [row("walk", 1000, 0), row("one", None, 500), row("two", None, 530)],
            [("walk with two, one", 30)],
        ),
        ([row("was", 400, None), row("is_now", None, 400)], []),
        # a check went from the caller into what it calls
        ([row("caller", 20, 18), row("callee", 5, 7), row("third", 1, 4)], [("third", 3)]),
        # what does not cancel stays: two functions that change for two reasons
        ([row("a", 100, 190), row("b", 100, 20)], [("a", 90), ("b", -80)]),
        ([row("a", 500, None), row("b", None, 100)], [("a", -500), ("b", 100)]),
        ([row("same", 7, 7)], []),
        # what cancels best is a move, whatever is larger: 6.17's mprotect()
        (
            [row("commit", None, 328), row("change", 270, 0), row("range", None, 238)],
            [("commit", 328), ("change with range", -32)],
        ),
    ],
)
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
