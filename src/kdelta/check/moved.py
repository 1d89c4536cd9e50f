# SPDX-License-Identifier: GPL-2.0-or-later
"""Code that moved from one function to another is one part of a difference, not two; pure.

Call paths would say what calls what (`analysis.netting`); a check counts functions alone.  So only
what nearly cancels is taken for one, and all its names are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from kdelta.analysis.explanation import FunctionDelta, Presence

_LEFT = 0.25  # part of what moved that may be left over where a function is new or vanished
_MOST_TRIED = 8  # functions that code of one may have moved into, in sets of
_MOST_INTO = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NettedPart:
    """Functions whose code is one.  delta: of all together, in instructions per window."""

    functions: tuple[str, ...]
    delta: int

    @property
    def name(self) -> str:
        """How a table calls it."""
        first, *others = self.functions
        return f"{first} with {', '.join(others)}" if others else first


def netted(rows: Sequence[FunctionDelta]) -> tuple[NettedPart, ...]:
    """The parts of a difference, the largest first; their deltas sum to those of the rows.

    A function that ran under one kernel alone is put to the one of the other sign that it nearly
    cancels with; functions of both kernels are one part where they cancel to the instruction.
    What is 0 is left out.
    """
    left = {row.function: row for row in rows if row.delta}
    found: list[NettedPart] = []
    for row in sorted(left.values(), key=lambda row: (-abs(row.delta), row.function)):
        if row.function not in left:
            continue
        others = _cancelling(row, list(left.values()))
        one = (row, *others)
        for each in one:
            del left[each.function]
        names = tuple(each.function for each in one)
        found.append(NettedPart(functions=names, delta=sum(each.delta for each in one)))
    moved = [part for part in found if part.delta]
    return tuple(sorted(moved, key=lambda part: (-abs(part.delta), part.functions)))


def _cancelling(row: FunctionDelta, rows: Sequence[FunctionDelta]) -> tuple[FunctionDelta, ...]:
    """The functions that the row's code moved into or came from; () for none."""
    opposite = [each for each in rows if each.delta * row.delta < 0]
    opposite.sort(key=lambda each: (each.status is Presence.BOTH, -abs(each.delta), each.function))
    fitting = [
        some
        for count in range(1, _MOST_INTO + 1)
        for some in combinations(opposite[:_MOST_TRIED], count)
        if _is_move(row, some)
    ]
    return min(fitting, key=lambda some: (_rest(row, some), len(some)), default=())


def _rest(row: FunctionDelta, some: Sequence[FunctionDelta]) -> int:
    return abs(row.delta + sum(each.delta for each in some))


def _is_move(row: FunctionDelta, some: Sequence[FunctionDelta]) -> bool:
    rest = _rest(row, some)
    alone = [each.status is not Presence.BOTH for each in some]
    if row.status is Presence.BOTH and not all(alone):
        return rest == 0 and len(some) == 1
    if row.status is not Presence.BOTH and len(some) > 1 and not any(alone):
        return False  # one that is gone may be inlined into several, but nobody could tell
    return rest <= _LEFT * abs(row.delta)
