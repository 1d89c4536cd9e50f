# SPDX-License-Identifier: GPL-2.0-or-later
"""A matrix as one HTML file: the tables, and every listing beside the first row's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.codegen.compare import AlignedRow, compare
from kdelta.codegen.hot import HOT
from kdelta.codegen.predict import LIMITS
from kdelta.codegen.references import told
from kdelta.codegen.table import DUMPS, Cell, CodeTable
from kdelta.rendering.templates import template


def show_html(matrix: CodeTable) -> str:
    """The whole file; its template lies beside this module."""
    return template("codegen_page.html").render(
        matrix=matrix,
        told=told(matrix),
        listings=list(_listings(matrix)),
        dump_kinds=DUMPS,
        hot_from=HOT,
        limits=LIMITS,
    )


def _listings(matrix: CodeTable) -> Iterator[tuple[Sequence[Cell], Sequence[AlignedRow]]]:
    """Each code of a column that differs from the first row's, beside it; that one else."""
    for column in matrix.columns:
        first, *others = matrix.column_of(column)
        letters = matrix.groups(column)
        if first.code is None:
            continue
        shown = {letters[first.row]}
        for cell in others:
            if cell.code is not None and letters[cell.row] not in shown:
                shown.add(letters[cell.row])
                yield (first, cell), compare(first.code, cell.code).rows
        if len(shown) == 1:
            yield (first,), compare(first.code, first.code).rows
