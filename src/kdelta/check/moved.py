# SPDX-License-Identifier: GPL-2.0-or-later
"""Code that moved from one function to another is one part of a difference, not two; pure.

Names are done with here: a function that has another one now is one row (`explanation.once`).  Call
paths would say what moved (`analysis.netting`), and a check counts functions alone.  So only what
nearly cancels is taken for one, the nearest first, and all its names are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from kdelta.analysis.explanation import FunctionDelta, Presence
from kdelta.analysis.resemblance import making_up

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


@dataclass(frozen=True, slots=True, order=True)
class _Move:
    """Places of rows: of one, and of the others that it moved into or came from.

    left: part of it that does not cancel.  The first of several is that of which least is left.
    """

    left: float
    others: int
    place: int
    into: tuple[int, ...]


def netted(rows: Sequence[FunctionDelta]) -> tuple[NettedPart, ...]:
    """The parts of a difference, the largest first; their deltas sum to those of the rows.

    A function that ran under one kernel alone is put to the one of the other sign that it nearly
    cancels with; functions of both kernels are one part where they cancel to the instruction.
    What is 0 is left out.
    """
    changed = (row for row in rows if row.delta)
    left = dict(enumerate(sorted(changed, key=lambda row: (-abs(row.delta), row.function))))
    found: list[NettedPart] = []
    waiting = [move for place in left if (move := _move(place, left))]
    heapify(waiting)
    while waiting:
        move = heappop(waiting)
        if move.place not in left:
            continue
        if not left.keys() >= {*move.into}:
            if again := _move(move.place, left):
                heappush(waiting, again)
            continue
        found.append(_part([left.pop(place) for place in (move.place, *move.into)]))
    found += [_part([row]) for row in left.values()]
    moved = [part for part in found if part.delta]
    return tuple(sorted(moved, key=lambda part: (-abs(part.delta), part.functions)))


def _part(rows: Sequence[FunctionDelta]) -> NettedPart:
    names = (f"{row.function} (before: {row.was})" if row.was else row.function for row in rows)
    return NettedPart(functions=tuple(names), delta=sum(row.delta for row in rows))


def _move(place: int, rows: Mapping[int, FunctionDelta]) -> _Move | None:
    """Where the code of a row moved to or came from, as far as that can be told."""
    row = rows[place]
    opposite = sorted(
        (each.status is Presence.BOTH, at)
        for at, each in rows.items()
        if each.delta * row.delta < 0
    )
    near = [at for _, at in opposite[:_MOST_TRIED]]

    def is_move(chosen: tuple[int, ...], total: int) -> bool:
        rest = abs(abs(row.delta) - total)
        return _is_move(row, [rows[near[at]] for at in chosen], rest)

    sizes = [abs(rows[at].delta) for at in near]
    into = tuple(near[at] for at in making_up(abs(row.delta), sizes, _MOST_INTO, is_move))
    rest = row.delta + sum(rows[at].delta for at in into)
    return _Move(abs(rest / row.delta), len(into), place, into) if into else None


def _is_move(row: FunctionDelta, some: Sequence[FunctionDelta], rest: int) -> bool:
    alone = [each.status is not Presence.BOTH for each in some]
    if row.status is Presence.BOTH and not all(alone):
        return rest == 0 and len(some) == 1
    if row.status is not Presence.BOTH and len(some) > 1 and not any(alone):
        return False  # one that is gone may be inlined into several, but nobody could tell
    return rest <= _LEFT * abs(row.delta)
