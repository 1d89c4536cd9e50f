# SPDX-License-Identifier: GPL-2.0-or-later
"""What differs between two listings of one function, side by side.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from kdelta.disassembly.code import Code


class Change(StrEnum):
    """How the two sides of a row relate."""

    EQUAL = "equal"
    TARGET = "target"  # the same branch, to places that do not correspond
    CHANGED = "changed"
    LEFT = "left"  # only there
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedRow:
    """One row: indices of the instructions side by side, None where a side has none."""

    change: Change
    left: int | None
    right: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Two listings side by side."""

    rows: tuple[AlignedRow, ...]

    @property
    def equal(self) -> bool:
        """True when the code is the same."""
        return all(row.change is Change.EQUAL for row in self.rows)

    @property
    def counts(self) -> Counter[Change]:
        """Rows by how they relate."""
        return Counter(row.change for row in self.rows)

    def hunks(self, context: int) -> Iterator[tuple[AlignedRow, ...]]:
        """Stretches of rows around the differences, with so many equal rows on each side."""
        wanted = [False] * len(self.rows)
        for at, row in enumerate(self.rows):
            if row.change is not Change.EQUAL:
                for near in range(max(0, at - context), min(len(wanted), at + context + 1)):
                    wanted[near] = True
        begin: int | None = None
        for at, want in enumerate([*wanted, False]):
            if want and begin is None:
                begin = at
            elif not want and begin is not None:
                yield self.rows[begin:at]
                begin = None


def compare(left: Code, right: Code) -> Alignment:
    """Align two listings; branches inside count as equal when their targets are aligned."""
    ours = [instruction.text for instruction in left.instructions]
    theirs = [instruction.text for instruction in right.instructions]
    pairs = tuple(_pairs(ours, theirs))
    across = {a: b for a, b, same in pairs if a is not None and b is not None and same}
    rows = []
    for a, b, same in pairs:
        if a is None or b is None:
            change = Change.RIGHT if a is None else Change.LEFT
        elif not same:
            change = Change.CHANGED
        else:
            to, other = left.instructions[a].to, right.instructions[b].to
            fits = to is None or other == across.get(to)
            change = Change.EQUAL if fits else Change.TARGET
        rows.append(AlignedRow(change=change, left=a, right=b))
    return Alignment(rows=tuple(rows))


def _pairs(
    ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[tuple[int | None, int | None, bool]]:
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    for tag, a, end_a, b, end_b in matcher.get_opcodes():
        both = min(end_a - a, end_b - b)
        for step in range(both):
            yield a + step, b + step, tag == "equal"
        for at in range(a + both, end_a):
            yield at, None, False
        for at in range(b + both, end_b):
            yield None, at, False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetChange:
    """What one side has more of than the other: names with how many times more."""

    added: tuple[tuple[str, int], ...]
    removed: tuple[tuple[str, int], ...]

    @property
    def nothing(self) -> bool:
        """True when both have the same."""
        return not self.added and not self.removed


def changed_names(before: Sequence[str], after: Sequence[str]) -> SetChange:
    """Difference of two collections of names, repetitions counted."""
    old, new = Counter(before), Counter(after)
    return SetChange(
        added=tuple(sorted((new - old).items())), removed=tuple(sorted((old - new).items()))
    )
