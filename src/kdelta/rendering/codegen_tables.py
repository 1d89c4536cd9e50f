# SPDX-License-Identifier: GPL-2.0-or-later
"""A matrix as JSON, format 1: everything that the text shows, and the listings."""

from __future__ import annotations

import json
from typing import Any

from kdelta.codegen.compare import SetChange
from kdelta.codegen.matrix import Cell, Matrix
from kdelta.codegen.predict import LIMITS
from kdelta.disassembly.code import Code

FORMAT = 1


def show_json(matrix: Matrix) -> str:
    """The matrix; null where something is not known."""
    content = {
        "format": FORMAT,
        "function": matrix.function,
        "place": matrix.place,
        "title": matrix.title,
        "rows": list(matrix.rows),
        "columns": list(matrix.columns),
        "compilers": dict(matrix.banners),
        "notes": list(matrix.notes),
        "prediction_limits": LIMITS,
        "cells": [_cell(matrix, cell) for cell in matrix.cells],
    }
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


def _cell(matrix: Matrix, cell: Cell) -> dict[str, Any]:
    row, column = cell.row, cell.column
    return {
        "row": row,
        "column": column,
        "problem": cell.problem or None,
        "same_code": matrix.groups(column).get(row),
        "code": _code(cell.code, cell),
        "cold": _code(cell.cold, None),
        "dump_lines": dict(cell.dumps) or None,
        "calls_changed": _change(matrix.calls_changed(row, column)),
        "data_changed": _change(matrix.data_changed(row, column)),
        "inlined": list(cell.inlined) if cell.inlined is not None else None,
        "inlining_changed": _change(matrix.inlining_changed(row, column)),
        "hot": _hot(cell),
        "predictions": [
            {
                "cpu": p.cpu,
                "cycles_per_pass": round(p.cycles, 4),
                "instructions_per_pass": p.instructions,
                "tool": p.tool,
            }
            for p in cell.predictions
        ],
    }


def _hot(cell: Cell) -> dict[str, Any] | None:
    if cell.hot is None:
        return None
    return {
        "source": cell.hot.source,
        "operation": cell.hot.operation,
        "operations": cell.hot.operations,
        "instructions": sum(cell.hot.counts) + cell.hot.elsewhere,
        "per_operation": round(cell.hot.per_operation, 4),
        "at_patched_addresses": cell.hot.elsewhere,
        "hot_path": list(cell.hot.path),
    }


def _code(code: Code | None, cell: Cell | None) -> dict[str, Any] | None:
    if code is None:
        return None
    hot = cell.hot if cell is not None else None
    return {
        "name": code.name,
        "bytes": code.size,
        "instructions": len(code.instructions),
        "calls": list(code.calls),
        "data": list(code.data),
        "listing": [
            {
                "offset": instruction.offset,
                "bytes": instruction.size,
                "text": instruction.shown,
                "executed": hot.counts[index] if hot is not None else None,
            }
            for index, instruction in enumerate(code.instructions)
        ],
    }


def _change(change: SetChange | None) -> dict[str, dict[str, int]] | None:
    if change is None:
        return None
    return {"added": dict(change.added), "removed": dict(change.removed)}
