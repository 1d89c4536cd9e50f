# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta coverage` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kdelta.analysis.coverage import ChangedFunction, Coverage, Relevance
from kdelta.metric import plural
from kdelta.rendering.formats import Cell, picked
from kdelta.table.columns import Column, Line, Tone, paragraph, short, table_lines

_NAME_WIDTH = 48
_NAMED = 3  # scenarios of a function
_INLINED = "What the compiler inlined is part of its caller, and is not seen as a function."


Found = Coverage | Relevance


def show(found: Found) -> list[Line]:
    """Either of them as text."""
    head = f"run {found.run_id}: "
    if isinstance(found, Relevance):
        return _relevant(found, head)
    head += f"{len(found.functions)} functions of the kernel ran in"
    head += f" {plural(len(found.scenarios), 'scenario')}, on {', '.join(found.kernels)}"
    rows = found.scenarios
    return [
        *paragraph(head, Tone.BOLD),
        *table_lines(
            (
                Column("scenario", [name for name, _, _ in rows]),
                Column("functions", [f"{count:,}" for _, count, _ in rows], right=True),
                Column("in no other", [f"{alone:,}" for _, _, alone in rows], right=True),
            )
        ),
        (),
        *paragraph(f"{_INLINED} --csv has each function with its scenarios."),
    ]


def _relevant(found: Relevance, head: str) -> list[Line]:
    executed = [row for row in found.changed if row.executed]
    silent = [row for row in found.changed if not row.executed]
    head += f"{plural(len(found.changed), 'changed function')}, executed by its scenarios:"
    lines = list(paragraph(f"{head} {len(executed)}", Tone.BOLD))
    if executed:
        lines += table_lines(
            (
                Column("function", [short(row.function, _NAME_WIDTH) for row in executed]),
                Column("file", [row.file for row in executed]),
                Column("scenarios, most instructions first", map(_scenarios, executed)),
            )
        )
    if silent:
        names = ", ".join(f"{row.function} ({row.file})" for row in silent)
        lines += [(), *paragraph(f"Not seen in any of them: {names}. {_INLINED}", Tone.WARN)]
    if found.elsewhere:
        files = ", ".join(found.elsewhere)
        lines += [(), *paragraph(f"Changes outside of functions: {files}.")]
    return lines


def _scenarios(row: ChangedFunction) -> str:
    names = [name for name, _ in row.executed]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def document(found: Found) -> tuple[str, dict[str, Any]]:
    """See formats.View."""
    if isinstance(found, Relevance):
        return "relevant", picked(found, ("run_id", "changed", "elsewhere"))
    return "coverage", picked(found, ("run_id", "kernels", "functions", "scenarios"))


def table(found: Found) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """A row for each function and scenario."""
    if isinstance(found, Relevance):
        return ("file", "function", "scenario", "instructions"), [
            (row.file, row.function, name, insns)
            for row in found.changed
            for name, insns in row.executed or (("", None),)
        ]
    return ("function", "scenario", "instructions"), [
        (row.function, name, insns) for row in found.functions for name, insns in row.scenarios
    ]
