# SPDX-License-Identifier: GPL-2.0-or-later
"""The hits of a traced run as text, JSON and CSV: never a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kdelta.analysis.traces import HitsCell, HitsRow, RunTraces, TraceTable
from kdelta.rendering.formats import Cell, picked
from kdelta.table.columns import (
    ABSENT,
    Column,
    Line,
    Tone,
    paragraph,
    short,
    shortened,
    tables_that_fit,
)

_WIDEST = 46
_MOST_KEYS = 24  # values of one watched thing that text lists
_HEAD = (
    "workload", "scenario", "point", "watch", "key", "per", "arm", "fewest", "most",
    "ratio_first", "absent",
)  # fmt: skip
_LEGEND = (
    "Hits are what the kernel's own tracing counted while it disturbed the kernel: they say which"
    " way was taken and how often, never how long it took, and no verdict is made of them."
    " a..b: they differed from run to run, by set-up or other tasks.  The raw output is in the"
    " folder of each trial, tracefs.txt.gz. Durations in it are of an emulated clock, and mean"
    " nothing."
)


def show(found: RunTraces) -> list[Line]:
    """All tables."""
    lines: list[Line] = [*paragraph(f"{found.title} (trace; run {found.run_id})", Tone.BOLD)]
    for table in found.tables:
        lines += [(), *_table(table)]
    return [*lines, (), *paragraph(_LEGEND, Tone.FAINT)]


def _table(table: TraceTable) -> Iterator[Line]:
    at = f", {table.point}" if table.point else ""
    yield from paragraph(f"{table.workload}:{table.scenario}{at}: hits per {table.per}", Tone.BOLD)
    done = ", ".join(f"{one.phase}: {one.operations} x {one.operation}" for one in table.phases)
    if done:
        yield from paragraph(f"an iteration is {done}", Tone.FAINT)
    yield from _hits(table, [row for row in table.rows if not row.whole], "watched")
    graphs = [row for row in table.rows if row.whole]
    for watch in dict.fromkeys(row.watch for row in graphs):
        yield ()
        yield from paragraph(
            f"{watch}: calls below it in one run of the program with one iteration, set-up and"
            " audit included",
        )
        yield from _hits(table, [row for row in graphs if row.watch == watch], "function")
    for text in (*table.doubts, *table.reasons):
        yield from paragraph(text, Tone.WARN)


def _hits(table: TraceTable, every: Sequence[HitsRow], head: str) -> Iterator[Line]:
    rows = list(_listed(every))
    if not rows:
        return
    names = [Column(head, [_name(row) for row in rows])]
    columns = []
    for number, label in enumerate(shortened(table.arms, 24)):
        cells = [row.cells[number] for row in rows]
        columns.append(Column(label, map(_cell, cells), right=True))
        if number:
            columns.append(Column("x first", map(_ratio, cells), right=True))
    yield from tables_that_fit(names, columns)
    if cut := len(every) - len(rows):
        yield from paragraph(f"{cut} more: --csv has them", Tone.FAINT)


def _listed(rows: Sequence[HitsRow]) -> Iterator[HitsRow]:
    """The rows, of each watched thing at most so many values."""
    seen: dict[str, int] = {}
    for row in rows:
        seen[row.watch] = seen.get(row.watch, 0) + 1
        if seen[row.watch] <= _MOST_KEYS + 1:
            yield row


def _name(row: HitsRow) -> str:
    if not row.key:
        return short(row.watch, _WIDEST)
    told = f"  {row.key}" if row.key.startswith("[") else f"  = {row.key}"
    return short(row.key if row.whole else told, _WIDEST)


def _cell(cell: HitsCell) -> str:
    if cell.fewest is None or cell.most is None:
        return ABSENT
    if cell.repeats:
        return _number(cell.fewest)
    return f"{_number(cell.fewest)}..{_number(cell.most)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _ratio(cell: HitsCell) -> str:
    return ABSENT if cell.ratio is None else f"x{cell.ratio:.3f}"


def document(found: RunTraces) -> tuple[str, dict[str, Any]]:
    """See formats.View."""
    return "traces", picked(found, ("run_id", "title", "tables"))


def table(found: RunTraces) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """A row for each watched thing or value, and kernel."""
    return _HEAD, [
        (
            each.workload, each.scenario, each.point, row.watch, row.key,
            "run" if row.whole else each.per, cell.arm, cell.fewest, cell.most,
            cell.ratio, cell.absent or None,
        )
        for each in found.tables
        for row in each.rows
        for cell in row.cells
    ]  # fmt: skip
