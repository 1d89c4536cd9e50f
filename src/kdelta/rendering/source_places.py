# SPDX-License-Identifier: GPL-2.0-or-later
"""Any view of functions with where each begins in the source, old and new: `explain --lines`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.disassembly.addr2line import SourceLine
from kdelta.rendering.formats import Cell
from kdelta.table.columns import ABSENT, Column, Line, Tone, paragraph, short, table_lines

_NAME_WIDTH = 40
_FUNCTION = "function"
# How a cell of a column names functions.
_NAMING: dict[str, Callable[[str], list[str]]] = {
    _FUNCTION: lambda cell: [cell],
    "where": str.split,
    "probe": lambda cell: [cell.partition("(")[0]],
}
Places = tuple[SourceLine | None, SourceLine | None]


@dataclass(frozen=True, slots=True)
class Placed:
    """What a view of rendering prints of `found`, and where its functions begin.

    functions: name -> line in the old and in the new kernel, None where it is not known.  missing:
    why, sentences.
    """

    view: Any
    found: object
    functions: Mapping[str, Places]
    missing: tuple[str, ...]


def show(placed: Placed, **choice: Any) -> list[Line]:
    """The view as text, then a row for each function."""
    lines: list[Line] = [*placed.view.show(placed.found, **choice), ()]
    known = _known(placed)
    if known:
        columns = [Column(_FUNCTION, [short(name, _NAME_WIDTH) for name, _ in known])]
        for head, side in (("begins at, old", 0), ("new", 1)):
            columns.append(Column(head, [text(own[side]) or ABSENT for _, own in known]))
        lines += table_lines(columns)
    for sentence in placed.missing:
        lines += paragraph(f"{sentence}.", Tone.WARN)
    return lines


def document(placed: Placed) -> tuple[str, dict[str, Any]]:
    """See formats.View: the view's, with the lines of functions by name."""
    kind, told = placed.view.document(placed.found)
    lines = {name: dict(zip(("old", "new"), own, strict=True)) for name, own in _known(placed)}
    return kind, {**told, "lines": lines, "missing": list(placed.missing)}


def table(placed: Placed) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """The view's rows, with two columns more: where what is in its column of functions begins."""
    head, rows = placed.view.table(placed.found)
    at = next(at for at, name in enumerate(head) if name in _NAMING)
    return (*head, "old_source", "new_source"), [
        (*row, *_sources(placed, _NAMING[head[at]](str(row[at] or "")))) for row in rows
    ]


def _sources(placed: Placed, names: Sequence[str]) -> Iterator[str | None]:
    """Of the old and the new kernel the known places of functions, blanks between."""
    for side in (0, 1):
        own = (placed.functions[name][side] for name in names if name in placed.functions)
        yield " ".join(text(one) for one in own if one) or None


def text(place: SourceLine | None) -> str:
    """A place in words, "" for none."""
    return f"{place.file or '?'}:{place.line or '?'}" if place else ""


def _known(placed: Placed) -> list[tuple[str, Places]]:
    return [(name, own) for name, own in placed.functions.items() if any(own)]
