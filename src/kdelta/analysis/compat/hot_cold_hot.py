# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of task hot2 as the mail that proposed the workload laid it out.

Of "Improve khugepaged scan logic", v8: four figures of the last task on khugepaged's list, without
and with the series.  Below them stand the passes that an exact run counts instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from kdelta.analysis.metrics import MetricCell, MetricRow, MetricTable

_WORKLOAD = "khugepaged"
_HOT2 = (
    ("total_access_time", "total accesses time", "{:.2f} sec"),
    ("cycles_per_access", "cycles per access", "{:.2f}"),
    ("throughput", "Throughput", "{:.2f} M/sec"),
    ("dtlb_load_misses", "dTLB-load-misses", "{:.0f}"),
)
_COUNTED = (
    ("passes.hot2", "passes until huge", "{:.0f}"),
    ("idle_passes", "passes of an idle scan", "{:.0f}"),
)
_STEPPED = "khugepaged is stepped and emulated here; hot_cold_hot_128m takes times on hardware"


def lines(table: MetricTable) -> list[str]:
    """The table of the first and the last arm that have figures; empty for another workload."""
    if table.workload != _WORKLOAD or not any(table.row(name) for name, _, _ in _COUNTED + _HOT2):
        return []
    old, new = _ends(table)
    known = [entry for entry in _COUNTED if table.row(entry[0])]
    entries = [*_HOT2, *known]
    cells = [
        [
            label,
            *(_text(table.row(name), arm, form) for arm in (old, new)),
            _delta(table.row(name), old, new),
        ]
        for name, label, form in entries
    ]
    rows = [["task hot2", table.arms[old], table.arms[new], "delta"], *cells]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    drawn = ["| " + " | ".join(_padded(row, widths)) + " |" for row in rows]
    drawn.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return drawn


def missing(table: MetricTable) -> str:
    """Why figures that the table has a line for were not told at all; "" when they were."""
    labels = [label for name, label, _ in _HOT2 if table.row(name) is None]
    return f"{', '.join(labels)}: {_STEPPED}" if labels else ""


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text.ljust(width) for text, width in zip(row, widths, strict=True)]


def _ends(table: MetricTable) -> tuple[int, int]:
    """The first and the last arm with any figure; of one arm, that one twice."""
    known = [
        at
        for at in range(len(table.arms))
        if any(row.cells[at].median is not None for row in table.rows)
    ]
    return (known[0], known[-1]) if known else (0, len(table.arms) - 1)


def _cell(row: MetricRow | None, arm: int) -> MetricCell | None:
    return row.cells[arm] if row else None


def _text(row: MetricRow | None, arm: int, form: str) -> str:
    cell = _cell(row, arm)
    return "absent" if cell is None or cell.median is None else form.format(cell.median)


def _delta(row: MetricRow | None, old: int, new: int) -> str:
    before, after = _cell(row, old), _cell(row, new)
    if before is None or after is None or old == new:
        return "-"
    if not before.median or after.median is None:
        return "-"
    return f"{100 * (after.median - before.median) / before.median:+.2f}%"
