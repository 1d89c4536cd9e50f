# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of the figures that workloads tell, as text and CSV; in JSON they are in the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.analysis.metrics import MetricCell, MetricRow, MetricTable
from kdelta.metric import Better
from kdelta.rendering.formats import Cell
from kdelta.table.columns import (
    ABSENT,
    Column,
    Line,
    Tone,
    paragraph,
    short,
    shortened,
    table_lines,
    tables_that_fit,
)

_HEAD = (
    "workload",
    "scenario",
    "point",
    "metric",
    "unit",
    "better",
    "arm",
    "median",
    "minimum",
    "maximum",
    "trials",
    "ratio_first",
    "absent",
)


def show(tables: Sequence[MetricTable]) -> list[Line]:
    """All tables, each after an empty line; no lines when there are none."""
    lines: list[Line] = []
    for table in tables:
        lines += [(), *_table(table)]
    return lines


def table(tables: Sequence[MetricTable]) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each metric and arm."""
    rows: list[tuple[Cell, ...]] = [
        (
            each.workload, each.scenario, each.point,
            row.name, row.unit, row.better, cell.arm,
            cell.median, cell.minimum, cell.maximum, cell.n, cell.ratio,
            "; ".join(cell.absent) or None,
        )
        for each in tables
        for row in each.rows
        for cell in row.cells
    ]  # fmt: skip
    return _HEAD, rows


def _table(table: MetricTable) -> Iterator[Line]:
    at = f", {table.point}" if table.point else ""
    yield from paragraph(f"{table.workload}:{table.scenario}{at}: what it tells", Tone.BOLD)
    if len(table.arms) > 2:
        yield from _by_arm(table)
    else:
        yield from table_lines(_by_metric(table))
    yield from paragraph(_legend(table), Tone.FAINT)
    for text in _absences(table):
        yield from paragraph(f"absent: {text}", Tone.WARN)


def _by_metric(table: MetricTable) -> list[Column]:
    """Metrics below each other: one arm, or old, new and their difference."""
    columns = [
        Column("metric", (_name(row) for row in table.rows), Tone.BOLD),
        *(
            Column(arm, (_value(row.cells[at]) for row in table.rows), right=True)
            for at, arm in enumerate(shortened(table.arms, 24))
        ),
    ]
    if len(table.arms) == 2:
        columns.append(Column("x first", (_ratio(row.cells[1]) for row in table.rows), right=True))
    return columns


def _by_arm(table: MetricTable) -> Iterator[Line]:
    """Arms below each other, as many metrics side by side as fit, in several tables."""
    names = Column("kernel", shortened(table.arms, 24), Tone.BOLD)
    rest = [
        Column(short(_name(row), 40), (_both(cell) for cell in row.cells), right=True)
        for row in table.rows
    ]
    if rest:
        yield from tables_that_fit([names], rest)


def _name(row: MetricRow) -> str:
    return row.name if row.unit == "1" else f"{row.name} ({row.unit})"


def _both(cell: MetricCell) -> str:
    ratio = _ratio(cell)
    return _value(cell) if ratio in (ABSENT, "x1.000") else f"{_value(cell)} {ratio}"


def _value(cell: MetricCell) -> str:
    if cell.median is None or cell.minimum is None or cell.maximum is None:
        return "absent" if cell.absent else ABSENT
    if cell.minimum == cell.maximum:
        return _number(cell.median)
    return f"{_number(cell.median)} [{_number(cell.minimum)}-{_number(cell.maximum)}]"


def _number(value: float) -> str:
    """Whole numbers as they are, others with four significant digits."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.4g}"


def _ratio(cell: MetricCell) -> str:
    return ABSENT if cell.ratio is None else f"x{cell.ratio:.3f}"


def _legend(table: MetricTable) -> str:
    said = ["median over the trials that ended ok, [range] where they differ"]
    if len(table.arms) > 1:
        said.append(f"x: new/old against {table.arms[0]}")
    for better in (Better.LOWER, Better.HIGHER):
        names = dict.fromkeys(_family(row) for row in table.rows if row.better is better)
        if names:
            said.append(f"{better} is better: {', '.join(names)}")
    return "; ".join(said)


def _family(row: MetricRow) -> str:
    return row.name.partition(".")[0]


def _absences(table: MetricTable) -> Iterator[str]:
    """Why metrics are absent, a sentence each reason, naming the metrics and the arms."""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in table.rows:
        missing: dict[str, list[str]] = {}
        for cell in row.cells:
            for reason in cell.absent:
                missing.setdefault(reason, []).append(cell.arm)
        for reason, found in missing.items():
            alike.setdefault((reason, tuple(found)), []).append(row.name)
    for (reason, arms), names in alike.items():
        where = "" if len(arms) == len(table.arms) else f" ({', '.join(arms)})"
        yield f"{', '.join(names)}{where}: {reason}"
