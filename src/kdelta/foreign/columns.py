# SPDX-License-Identifier: GPL-2.0-or-later
"""The columns of a table as they stand: what their cells hold, and how they hang together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from kdelta.foreign.record import SourceFile

_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][-+]?\d{1,4})?%?\Z", re.ASCII)
_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d{1,4})?\Z", re.ASCII)
_PLAIN = re.compile(r"[-+]?\d+(?:,\d+)?(?:[eE][-+]?\d{1,4})?\Z", re.ASCII)
_APART = re.compile(r"[;|\s]+")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}\Z", re.ASCII)
_LIST = re.compile(
    r"\[?\s*[-+]?\d[\d.eE+-]*(?:(?:[;|\s]+|,\s*)[-+]?\d[\d.eE+-]*)+\s*\]?\Z", re.ASCII
)
# Not lists: 1,234,567 is one number with separators, and 1.234,5 may be one.
_ONE_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|[\d.]+,\d+)\Z", re.ASCII)
_COUNTED = re.compile(r"(?P<word>\D*?)(?P<number>\d{1,6})\Z", re.ASCII)


class Holds(StrEnum):
    """What the cells of a column hold."""

    NOTHING = "nothing"
    NUMBERS = "numbers"
    LISTS = "lists"
    TEXT = "text"


@dataclass(frozen=True)
class Cells:
    """A column: its name and its cells, with "" for what is missing."""

    name: str
    texts: tuple[str, ...]

    @cached_property
    def distinct(self) -> tuple[str, ...]:
        """The different cells that are not empty, in the order of the table."""
        return tuple(dict.fromkeys(text for text in self.texts if text))

    @cached_property
    def holds(self) -> Holds:
        """What all of its cells hold; a few that are no number do not make a column of text."""
        if not self.distinct:
            return Holds.NOTHING
        numbers = sum(bool(_NUMBER.match(text)) for text in self.distinct)
        lists = sum(
            bool(_LIST.match(text)) and not _ONE_NUMBER.match(text) for text in self.distinct
        )
        commas = any(text.count(",") > 1 for text in self.distinct)
        if lists and lists + numbers == len(self.distinct) and (lists > numbers or commas):
            return Holds.LISTS
        return Holds.NUMBERS if 2 * numbers > len(self.distinct) else Holds.TEXT

    @property
    def constant(self) -> bool:
        """True for at most one value."""
        return len(self.distinct) <= 1

    @cached_property
    def whole(self) -> bool:
        """True when every cell is a whole number from 0."""
        return all(text.isdecimal() for text in self.distinct)

    @property
    def rises(self) -> bool:
        """True when every number is above the one before: the clock on the wall, not a time."""
        if self.holds is not Holds.NUMBERS or len(self.distinct) < max(4, len(self.texts)):
            return False
        try:
            numbers = [float(text) for text in self.texts]
        except ValueError:
            return False
        return all(one < other for one, other in pairwise(numbers))

    @cached_property
    def counts_up(self) -> bool:
        """True for 1, 2, 3 ... or r0, r1, r2 ...: at least two, and none left out."""
        found = [_COUNTED.match(text) for text in self.distinct]
        if len(found) < 2 or not all(found) or len({one["word"] for one in found if one}) != 1:
            return False
        numbers = sorted(int(one["number"]) for one in found if one)
        return numbers[0] in (0, 1) and numbers == list(
            range(numbers[0], numbers[0] + len(numbers))
        )


@dataclass(frozen=True)
class Columns:
    """All columns of a table by name.

    decimal: the sign before decimals; doubtful: 1,234 may be 1234 or 1.234.
    """

    cells: dict[str, Cells]
    rows: int
    decimal: str
    doubtful: str = ""

    def determined(self, by: Sequence[str], column: str) -> bool:
        """True when rows that are equal in `by` are equal in `column`."""
        seen: dict[tuple[str, ...], str] = {}
        keys = (
            zip(*(self.cells[name].texts for name in by), strict=True) if by else ((),) * self.rows
        )
        return all(
            seen.setdefault(key, text) == text
            for key, text in zip(keys, self.cells[column].texts, strict=True)
            if text
        )

    def groups(self, by: Sequence[str]) -> list[list[int]]:
        """The rows (from 0) that are equal in all of these columns."""
        found: dict[tuple[str, ...], list[int]] = {}
        for at in range(self.rows):
            found.setdefault(tuple(self.cells[name].texts[at] for name in by), []).append(at)
        return list(found.values())

    def once_in_each(self, by: Sequence[str], column: str) -> bool:
        """True when no value of `column` stands twice in rows that are equal in `by`."""
        texts = self.cells[column].texts
        return all(
            max(Counter(texts[at] for at in group).values()) == 1 for group in self.groups(by)
        )

    def crosses(self, by: str, column: str) -> bool:
        """True when at least two values of `column` are met in at least two values of `by`."""
        met: dict[str, set[str]] = {}
        for one, other in zip(self.cells[by].texts, self.cells[column].texts, strict=True):
            if other:
                met.setdefault(other, set()).add(one)
        return sum(len(arms) > 1 for arms in met.values()) > 1

    def balanced(self, by: str, column: str) -> bool:
        """True when every value of `column` is met in every value of `by`, equally often."""
        pairs = Counter(zip(self.cells[by].texts, self.cells[column].texts, strict=True))
        full = len(self.cells[by].distinct) * len(self.cells[column].distinct)
        return len(pairs) == full and len(set(pairs.values())) == 1

    def named(self, wanted: Callable[[Cells], bool]) -> list[str]:
        """The columns for which `wanted` holds, in the order of the table."""
        return [name for name, cells in self.cells.items() if wanted(cells)]


def columns_of(source: SourceFile, missing: Collection[str]) -> Columns:
    """The columns of a loaded table."""
    texts = zip(*(line.cells for line in source.lines), strict=True) if source.lines else ()
    cells = {
        name: Cells(name, tuple("" if text in missing else text for text in column))
        for name, column in zip(source.columns, texts, strict=False)
    }
    for name in source.columns:
        cells.setdefault(name, Cells(name, ()))
    commas = [text for column in cells.values() for text in column.distinct if _COMMA.match(text)]
    # 44,12; 43,9: a list that something else separates, of numbers with a comma before decimals.
    lists = (
        [part for part in _APART.split(text.strip("[](){} ")) if part]
        for column in cells.values()
        for text in column.distinct
        if "," in text
    )
    commas += [
        part
        for each in lists
        if len(each) > 1 and all(map(_PLAIN.match, each))
        for part in each
        if _COMMA.match(part)
    ]
    if not commas:
        return Columns(cells, len(source.lines), ".")
    doubt = ""
    if all(_THOUSANDS.match(text) for text in commas):
        doubt = f"{commas[0]} may be {commas[0].replace(',', '')} or {commas[0].replace(',', '.')}"
        doubt += ', which decimal = "," reads; for the other write it without the comma'
    for column in cells.values():
        if any(_COMMA.match(t) for t in column.distinct) and any("." in t for t in column.distinct):
            doubt = f"column {column.name} has numbers with a comma and with a point"
    return Columns(cells, len(source.lines), ",", doubt)
