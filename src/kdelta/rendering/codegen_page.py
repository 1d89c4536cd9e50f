# SPDX-License-Identifier: GPL-2.0-or-later
"""A matrix as one HTML file: the tables, and every listing beside the first row's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.codegen.compare import AlignedRow, compare
from kdelta.codegen.hot import HOT
from kdelta.codegen.predict import ALIKE, LIMITS, alike
from kdelta.codegen.table import DUMPS, Cell, CodeTable, reference_changes
from kdelta.rendering.templates import asset, template


def show_html(matrix: CodeTable) -> str:
    """The whole file; its template lies beside this module."""
    return template("codegen_page.html").render(
        style=asset("codegen_page.css"),
        matrix=matrix,
        told=reference_changes(matrix),
        listings=list(_listings(matrix)),
        dump_kinds=DUMPS,
        hot_from=HOT,
        limits=LIMITS,
        alike=alike([cell.predictions for cell in matrix.cells if cell.predictions]),
        alike_means=ALIKE,
    )


def _listings(
    matrix: CodeTable,
) -> Iterator[tuple[Sequence[Cell], Sequence[AlignedRow], int | None]]:
    """Each code of a column that differs from the first row's, beside it; that one else.

    With the first row of the hot path, None where no run executed it.
    """
    for column in matrix.columns:
        first, *others = matrix.column_of(column)
        letters = matrix.groups(column)
        if first.code is None:
            continue
        shown = {letters[first.row]}
        for cell in others:
            if cell.code is not None and letters[cell.row] not in shown:
                shown.add(letters[cell.row])
                yield _with_hot((first, cell), compare(first.code, cell.code).rows)
        if len(shown) == 1:
            yield _with_hot((first,), compare(first.code, first.code).rows)


def _with_hot(
    cells: Sequence[Cell], rows: Sequence[AlignedRow]
) -> tuple[Sequence[Cell], Sequence[AlignedRow], int | None]:
    for at, row in enumerate(rows):
        for cell, index in zip(cells, (row.left, row.right), strict=False):
            if index is not None and cell.hot is not None and cell.hot.rate(index) >= HOT:
                return cells, rows, at
    return cells, rows, None
