# SPDX-License-Identifier: GPL-2.0-or-later
"""What a function calls, refers to and has inlined, in words, for all columns of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kdelta.codegen.compare import SetChange
from kdelta.codegen.table import CodeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The same words for some columns: the first row's calls, and what is other in the others."""

    columns: tuple[str, ...]
    first: str
    calls: tuple[str, ...]
    others: tuple[tuple[str, str], ...]  # row, words


def told(table: CodeTable) -> tuple[Told, ...]:
    """Columns of which the same is to be said are together, in their order."""
    found: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[str]] = {}
    for column in table.columns:
        first = table.cell(table.rows[0], column)
        if first.code is not None:
            calls = tuple(sorted(set(first.code.calls)))
            others = tuple((row, _words(table, row, column)) for row in table.rows[1:])
            found.setdefault((calls, others), []).append(column)
    return tuple(
        Told(columns=tuple(columns), first=table.rows[0], calls=calls, others=others)
        for (calls, others), columns in found.items()
    )


def _words(table: CodeTable, row: str, column: str) -> str:
    changes = {
        "calls": table.calls_changed(row, column),
        "data": table.data_changed(row, column),
        "inlined": table.inlining_changed(row, column),
    }
    known = {what: change for what, change in changes.items() if change is not None}
    same = [what for what, change in known.items() if change.nothing]
    parts = [f"the same {', '.join(same)}"] if same else []
    parts += [
        f"{what} {' '.join(_names(change))}" for what, change in known.items() if not change.nothing
    ]
    return "; ".join(parts) or "no code"


def _names(change: SetChange) -> Iterator[str]:
    for sign, names in (("+", change.added), ("-", change.removed)):
        for name, count in names:
            yield f"{sign}{name}" if count == 1 else f"{sign}{name} (x{count})"
