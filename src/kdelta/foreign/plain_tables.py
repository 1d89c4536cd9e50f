# SPDX-License-Identifier: GPL-2.0-or-later
"""A table without what was there for the eye, and how one column of it is put for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kdelta.foreign.record import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A table without what was there for the eye.

    doubts: sentences on what cannot be known of how it was written; notes: on what was left out.
    """

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def cells_of(found: Plain, at: int) -> list[str]:
    """The cells of the column at that place."""
    return [line.cells[at] for line in found.lines]


def with_column(
    found: Plain, at: int, names: Sequence[str], made: Sequence[Sequence[str]]
) -> Plain:
    """The table with one column in the place of another, or two."""
    columns = (*found.columns[:at], *names, *found.columns[at + 1 :])
    if len(set(columns)) < len(columns):
        return found
    lines = tuple(
        Line(number=line.number, cells=(*line.cells[:at], *cells, *line.cells[at + 1 :]))
        for line, cells in zip(found.lines, made, strict=True)
    )
    return replace(found, columns=columns, lines=lines)


def each_column(found: Plain, change: Callable[[Plain, int], Plain]) -> Plain:
    """Every column changed, the last one first, so that places stay."""
    for at in reversed(range(len(found.columns))):
        found = change(found, at)
    return found
