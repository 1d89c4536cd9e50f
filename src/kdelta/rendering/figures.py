# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of the figures that a study asks for, as text and CSV; in JSON they are in the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.analysis.metrics import FigureCell, FigureRow, FigureTable
from kdelta.rendering.formats import Cell
from kdelta.table.columns import (
    ABSENT,
    Column,
    Line,
    Span,
    Tone,
    paragraph,
    short,
    shortened,
    tables_that_fit,
)

_HEAD = ("workload", "scenario", "point", "figure", "arm", "value", "absent")


def show(tables: Sequence[FigureTable]) -> list[Line]:
    """A table for each scenario, its arms at all points below each other; no lines for none."""
    groups: dict[tuple[str, str], list[FigureTable]] = {}
    for table in tables:
        groups.setdefault((table.workload, table.scenario), []).append(table)
    lines: list[Line] = []
    for (workload, scenario), group in groups.items():
        lines += [(), *paragraph(f"{workload}:{scenario}: figures of the study", Tone.BOLD)]
        lines += _group(group)
    if groups:
        lines += [(), *_legend(next(iter(groups.values()))[0])]
    return lines


def table(tables: Sequence[FigureTable]) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each figure and arm."""
    rows: list[tuple[Cell, ...]] = [
        (
            each.workload, each.scenario, each.point,
            row.name, cell.arm, cell.value, cell.absent or None,
        )
        for each in tables
        for row in each.rows
        for cell in row.cells
    ]  # fmt: skip
    return _HEAD, rows


def _group(group: Sequence[FigureTable]) -> Iterator[Line]:
    arms = [(table.point, arm) for table in group for arm in table.arms]
    names = [Column("kernel", shortened([arm for _, arm in arms], 24), Tone.BOLD)]
    if any(point for point, _ in arms):
        names.append(Column("machine", (short(point, 28) for point, _ in arms)))
    rest = [_column(group, at) for at in range(len(group[0].rows))]
    if rest:
        yield from tables_that_fit(names, rest)
    for text in _absences(group):
        yield from paragraph(f"absent: {text}", Tone.FAINT)


def _column(group: Sequence[FigureTable], at: int) -> Column:
    cells = tuple(_value(cell) for table in group for cell in table.rows[at].cells)
    return Column(short(group[0].rows[at].name, 40), cells, right=True)


def _value(cell: FigureCell) -> Span:
    if cell.value is None:
        return Span(ABSENT, Tone.FAINT)
    whole = cell.value == round(cell.value)
    return Span(f"{cell.value:,.0f}" if whole or cell.value >= 1e4 else f"{cell.value:,.4g}")


def _absences(group: Sequence[FigureTable]) -> Iterator[str]:
    """Why figures are absent, a sentence for each reason; alike for all figures of an arm: once."""
    alike: dict[str, dict[str, set[str]]] = {}
    for table in group:
        for row in table.rows:
            for cell in row.cells:
                if cell.absent:
                    arm = f"{cell.arm} {table.point}".strip()
                    alike.setdefault(cell.absent, {}).setdefault(arm, set()).add(row.name)
    every = {row.name for row in group[0].rows}
    for reason, arms in alike.items():
        names = set().union(*arms.values())
        which = "" if names == every else f"{', '.join(sorted(names))}: "
        yield f"{which}{', '.join(arms)}: {reason}"


def _legend(table: FigureTable) -> Iterator[Line]:
    """What the figures mean, where the study says it."""
    said: list[FigureRow] = [row for row in table.rows if row.what]
    for row in said:
        yield from paragraph(f"{row.name}: {' '.join(row.what.split())}", Tone.FAINT, indent="")
