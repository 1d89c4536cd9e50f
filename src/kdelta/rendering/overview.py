# SPDX-License-Identifier: GPL-2.0-or-later
"""A matrix at one glance: a scenario's kernels against the points, values and no verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kdelta.analysis.findings import Ladder, Rung
from kdelta.rendering.columns import (
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

_HEAD_WIDTH = 28
Number = Callable[[float], str]


def overview(ladders: Sequence[Ladder], number: Number) -> Iterator[Line]:
    """Per scenario a table, kernels by points; nothing for a run of one point."""
    groups: dict[tuple[str, str], list[Ladder]] = {}
    for ladder in ladders:
        groups.setdefault((ladder.workload, ladder.scenario), []).append(ladder)
    for (workload, scenario), group in groups.items():
        if len(group) < 2:
            continue
        operation = next((ladder.operation for ladder in group if ladder.operation), "operation")
        yield ()
        yield from paragraph(f"{workload}:{scenario}: instructions per {operation}", Tone.BOLD)
        yield from _tables(group, number)
        yield from paragraph(
            "points of the matrix side by side; kernels are compared within a point only, below",
            Tone.FAINT,
        )


def _tables(group: Sequence[Ladder], number: Number) -> Iterator[Line]:
    labels = [rung.arm for rung in group[0].rungs]
    names = Column("kernel", tuple(Span(label, Tone.BOLD) for label in shortened(labels, 20)))
    columns = [
        Column(
            short(ladder.point, _HEAD_WIDTH),
            tuple(_value(rung, number) for rung in ladder.rungs),
            right=True,
        )
        for ladder in group
    ]
    if columns:
        yield from tables_that_fit([names], columns)


def _value(rung: Rung, number: Number) -> Span:
    if rung.total is None:
        return Span("skip" if rung.skipped else ABSENT, Tone.FAINT)
    return Span(number(rung.total.per_operation))
