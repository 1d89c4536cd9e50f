# SPDX-License-Identifier: GPL-2.0-or-later
"""What a function calls, refers to and has inlined, in words, for all columns of a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kdelta.codegen.compare import SetChange
from kdelta.codegen.matrix import Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The same words for some columns: the first row's calls, and what is other in the others."""

    columns: tuple[str, ...]
    first: str
    calls: tuple[str, ...]
    others: tuple[tuple[str, str], ...]  # row, words


def told(matrix: Matrix) -> tuple[Told, ...]:
    """Columns of which the same is to be said are together, in their order."""
    found: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[str]] = {}
    for column in matrix.columns:
        first = matrix.cell(matrix.rows[0], column)
        if first.code is not None:
            calls = tuple(sorted(set(first.code.calls)))
            others = tuple((row, _words(matrix, row, column)) for row in matrix.rows[1:])
            found.setdefault((calls, others), []).append(column)
    return tuple(
        Told(columns=tuple(columns), first=matrix.rows[0], calls=calls, others=others)
        for (calls, others), columns in found.items()
    )


def _words(matrix: Matrix, row: str, column: str) -> str:
    changes = {
        "calls": matrix.calls_changed(row, column),
        "data": matrix.data_changed(row, column),
        "inlined": matrix.inlining_changed(row, column),
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
