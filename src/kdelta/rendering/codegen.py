# SPDX-License-Identifier: GPL-2.0-or-later
"""A matrix and its differences side by side, as text; with listings, as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kdelta.codegen.table import Cell, Change, CodeTable, compare, hunks, reference_changes
from kdelta.disassembly.code import Code
from kdelta.rendering.formats import picked
from kdelta.table.columns import ABSENT, Column, Line, Span, Tone, paragraph, short, tables_that_fit

_NAME = 34
_SIDE = 47
_CONTEXT = 2  # equal rows around a difference


def show(matrix: CodeTable) -> Iterator[Line]:
    """The tables: sizes and equal code, references."""
    yield (Span(f"{matrix.function}", Tone.BOLD), Span(f"  {matrix.place}"))
    if matrix.title:
        yield (Span(matrix.title, Tone.FAINT),)
    for column in matrix.columns:
        if matrix.banners.get(column):
            yield (Span(f"{column}: {matrix.banners[column]}", Tone.FAINT),)
    yield ()
    title = "Bytes/instructions; the same letter in a column is the same code, normalised"
    yield from paragraph(title, Tone.BOLD)
    columns = [
        Column(name, (_size(matrix, matrix.cell(row, name)) for row in matrix.rows), right=True)
        for name in matrix.columns
    ]
    yield from tables_that_fit([Column("", (short(row, _NAME) for row in matrix.rows))], columns)
    yield ()
    told = reference_changes(matrix)
    if told:
        yield from paragraph("Calls and data", Tone.BOLD)
    for (called, others), compilers in told.items():
        calls = ", ".join(called) or "nothing"
        yield from paragraph(f"{', '.join(compilers)}: {matrix.rows[0]} calls {calls}")
        for row, words in others:
            yield from paragraph(f"{row}: {words}", indent="  ")
    yield ()
    for cell in matrix.cells:
        if cell.problem:
            where = f"{cell.row} {cell.column}".strip()
            yield from paragraph(f"{where}: {cell.problem}", Tone.WARN)
    for note in matrix.notes:
        yield from paragraph(note, Tone.FAINT)


def _size(matrix: CodeTable, cell: Cell) -> str:
    if cell.code is None:
        return ABSENT
    cold = f"+{cell.cold.size}" if cell.cold else ""
    letter = matrix.groups(cell.column)[cell.row]
    return f"{cell.code.size}{cold}/{len(cell.code.instructions)} {letter}"


def differences(left: Cell, right: Cell) -> Iterator[Line]:
    """Two cells side by side where they differ.  ~: the same branch to another place."""
    if left.code is None or right.code is None:
        return
    heads = [f"{cell.row} {cell.column}".strip() for cell in (left, right)]
    found = compare(left.code, right.code)
    counts = Counter(row.change for row in found)
    yield (Span(f"{heads[0]}  |  {heads[1]}", Tone.BOLD),)
    if counts[Change.EQUAL] == len(found):
        yield (Span("the same code"),)
        return
    yield (
        Span(
            f"{counts[Change.EQUAL]} rows equal, {counts[Change.CHANGED]} changed (!), "
            f"{counts[Change.TARGET]} with another target (~), "
            f"{counts[Change.LEFT]} only left (<), {counts[Change.RIGHT]} only right (>)"
        ),
    )
    for hunk in hunks(found, _CONTEXT):
        for row in hunk:
            tone = Tone.FAINT if row.change is Change.EQUAL else Tone.PLAIN
            yield (
                Span(_side(left, row.left), tone),
                Span(f" {row.change} ", Tone.WARN),
                Span(_side(right, row.right), tone),
            )
        yield (Span("..", Tone.FAINT),)


def _side(cell: Cell, index: int | None) -> str:
    if index is None or cell.code is None:
        return " " * _SIDE
    text = f"{index:4d} {cell.code.instructions[index].shown}"
    return short(text, _SIDE).ljust(_SIDE)


def document(matrix: CodeTable) -> tuple[str, dict[str, Any]]:
    """See formats.View: all that the text shows, and the listings."""
    return "codegen", {
        **picked(matrix, ("function", "place", "title", "rows", "columns")),
        "compilers": matrix.banners,
        "notes": matrix.notes,
        "cells": [_cell_data(matrix, cell) for cell in matrix.cells],
    }


def _cell_data(matrix: CodeTable, cell: Cell) -> dict[str, Any]:
    row, column = cell.row, cell.column
    return {
        "row": row,
        "column": column,
        "problem": cell.problem or None,
        "same_code": matrix.groups(column).get(row),
        "code": _code(cell.code),
        "cold": _code(cell.cold),
        "calls_changed": matrix.changed(row, column, "calls"),
        "data_changed": matrix.changed(row, column, "data"),
    }


def _code(code: Code | None) -> dict[str, Any] | None:
    if code is None:
        return None
    return {
        "name": code.name,
        "bytes": code.size,
        "instructions": len(code.instructions),
        "calls": code.calls,
        "data": code.data,
        "listing": [
            {"offset": instruction.offset, "bytes": instruction.size, "text": instruction.shown}
            for instruction in code.instructions
        ],
    }
