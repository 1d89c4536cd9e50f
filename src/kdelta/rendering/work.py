# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta explain --work`, `--memory` and `--values` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.work import KindDelta, ValueDelta, WorkExplanation
from kdelta.errors import SpecError
from kdelta.rendering.calls import Scale
from kdelta.rendering.explain import PATH_LENGTH, opening, refusal
from kdelta.rendering.formats import Cell, picked
from kdelta.table.columns import Column, Line, Span, Tone, paragraph, short, table_lines

WORK, MEMORY, VALUES = "work", "memory", "values"
_NAME_WIDTH = 32
_LISTED = 24  # values of a histogram in the text
_HEAD = ("group", "kind", "old", "new", "delta", "where")
_NO_MODEL = (
    "Lines and pages are what was asked for; whether a cache had them is for a run on hardware."
)
KINDS = {
    "load": "loads",
    "store": "stores",
    "atomic": "locked or LSE atomics",
    "fence": "fences",
    "serialising": "serialising instructions",
    "tlb": "TLB maintenance",
    "control": "control-register writes",
    "indirect": "indirect branches",
    "division": "divisions",
    "string": "string instructions",
}


@dataclass(frozen=True, slots=True)
class WorkPart:
    """One part of what was found.  part: WORK, MEMORY or VALUES."""

    found: WorkExplanation
    part: str

    @property
    def rows(self) -> tuple[KindDelta, ...]:
        """Its rows.  Raises SpecError where they were not recorded."""
        if self.part == WORK:
            return self.found.work
        if self.found.memory is None:
            raise SpecError(
                "the run did not record which memory is touched",
                action="count again with: kdelta run ... --probe memory",
            )
        return self.found.memory


def show(told: WorkPart) -> list[Line]:
    """The part as text."""
    explanation = told.found.explanation
    lines = opening(explanation)
    if explanation.refused:
        return [*lines, *refusal(explanation)]
    scale = Scale.of(explanation)
    if told.part == VALUES:
        return [*lines, *_histograms(told.found.values)]
    groups = dict.fromkeys(row.group for row in told.rows)
    for group in groups:
        lines += [(), *_table(group, [row for row in told.rows if row.group == group], scale)]
    per = explanation.operation or "operation"
    lines += [(), *paragraph(f"Per {per}; exact counts of one window. {PATH_LENGTH}")]
    return [*lines, *paragraph(_NO_MODEL)] if told.part == MEMORY else lines


def named(row: KindDelta) -> str:
    """A kind in words."""
    return KINDS.get(row.kind, row.kind)


def _table(group: str, rows: Sequence[KindDelta], scale: Scale) -> Iterator[Line]:
    shown = [row for row in rows if row.old or row.new]
    absent = [named(row) for row in rows if not (row.old or row.new)]
    if shown:
        tones = [Tone.PLAIN if row.delta else Tone.FAINT for row in shown]
        texts = (
            (group, [named(row) for row in shown], False),
            ("old", [scale.plain(row.old) for row in shown], True),
            ("new", [scale.plain(row.new) for row in shown], True),
            ("delta", [scale.signed(row.delta) for row in shown], True),
            ("mostly in", [mostly_in(row, scale) for row in shown], False),
        )
        yield from table_lines(
            [Column(head, map(Span, cells, tones), right=right) for head, cells, right in texts]
        )
    if absent:
        yield from paragraph(f"None of either: {', '.join(absent)}.", Tone.FAINT)


def mostly_in(row: KindDelta, scale: Scale) -> str:
    """The functions of a kind's change."""
    told = [(short(name, _NAME_WIDTH), scale.signed(change)) for name, change in row.where[:2]]
    return ", ".join(f"{name} {change}" for name, change in told if change.strip("+-0."))


def _histograms(values: Sequence[ValueDelta]) -> Iterator[Line]:
    if not values:
        raise SpecError(
            "the run read no values of functions",
            action="count again with, for example: kdelta run ... --probe 'FUNCTION(NAME=arg1)'",
        )
    for value in values:
        yield ()
        yield from paragraph(f"{value.probe}: how often each value, per window", Tone.BOLD)
        sides = [side for side in (value.old, value.new) if side]
        for name, side in (("old", value.old), ("new", value.new)):
            if side and side.missing:
                yield from paragraph(f"{name}: {side.missing}")
            elif side and not side.values:
                yield from paragraph(f"{name}: it was not called, or returned by a jump")
        keys = sorted(
            dict.fromkeys(key for side in sides for key in side.values),
            key=lambda key: -max(side.values.get(key, 0) for side in sides),
        )
        if not keys:
            continue
        listed = sorted(keys[:_LISTED], key=int)
        yield from table_lines(
            [
                Column("value", listed, right=True),
                *(
                    Column(name, [_count(side, key) for key in listed], right=True)
                    for name, side in (("old", value.old), ("new", value.new))
                ),
            ]
        )
        others = len(keys) - len(listed) + max(side.others for side in sides)
        if others:
            yield from paragraph(f"and {others} other values", Tone.FAINT)


def _count(side: Any, key: str) -> str:
    return f"{side.values.get(key, 0):,}" if side and not side.missing else "-"


def document(told: WorkPart) -> tuple[str, dict[str, Any]]:
    """See formats.View."""
    explanation = told.found.explanation
    names = ("run_id", "workload", "scenario", "phase", "old", "new", "operation", "operations")
    if told.part == VALUES:
        return VALUES, picked(explanation, (*names, "values"), values=told.found.values)
    rows = [
        picked(row, _HEAD, where=[{"function": name, "delta": n} for name, n in row.where])
        for row in (() if explanation.refused else told.rows)
    ]
    return told.part, picked(explanation, (*names, "refused", "rows"), rows=rows)


def table(told: WorkPart) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each kind, or for each value."""
    if told.part == VALUES:
        return ("probe", "value", "old", "new"), [
            (value.probe, key, *(side.values.get(key, 0) if side else None for side in sides))
            for value in told.found.values
            for sides in [(value.old, value.new)]
            for key in dict.fromkeys(key for side in sides if side for key in side.values)
        ]
    rows = () if told.found.explanation.refused else told.rows
    return _HEAD, [
        (row.group, row.kind, row.old, row.new, row.delta, " ".join(name for name, _ in row.where))
        for row in rows
    ]
