# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta bundle merge` prints: one finding of the bundles of several machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from kdelta.analysis.merging import Merged, MergedPair
from kdelta.metric import number, plural
from kdelta.rendering.formats import Cell, picked
from kdelta.rendering.times import ratio
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    paragraph,
    shortened,
    table_lines,
    tables_that_fit,
)
from kdelta.table.counts import times
from kdelta.verdict.comparison import Comparison

_SHOWN = 20
_COMPARISON = ("verdict", "grade", "reasons", "ratio", "low", "high", "p", "alpha", "tolerance")
_HEAD = (
    "scenario", "old", "new", "operation", "machine", "run", "ratio", "low", "high",
    "alpha", "verdict", "grade", "reasons",
)  # fmt: skip


def show(found: Merged) -> list[Line]:
    """The machines, what is equal on them, and the verdicts."""
    lines = list(paragraph(found.title, Tone.BOLD))
    lines += table_lines(
        [
            Column("", (str(at) for at, _ in enumerate(found.machines, start=1)), right=True),
            Column("bundle", shortened([one.name for one in found.machines], 32), Tone.BOLD),
            Column("run", shortened([one.run_id for one in found.machines], 40)),
        ]
    )
    for at, one in enumerate(found.machines, start=1):
        lines += paragraph(f"{at}: {one.told or 'nothing is known of it'}", Tone.FAINT)
    if not found.timed:
        lines += [(), *_counts(found)]
    for reason in found.reasons:
        lines += paragraph(f"differs: {reason}", Tone.WARN)
    if not found.equal and not found.reasons:
        lines += paragraph("nothing that was recorded explains it", Tone.WARN)
    lines += [(), *_pairs(found)]
    for pair in found.pairs:
        told = f"{pair.scenario}, {pair.old} -> {pair.new}: {pair.merged.verdict}"
        text = f"{told}: {'; '.join(pair.merged.reasons)}"
        lines += paragraph(text, VERDICT_TONES[pair.merged.verdict])
    if found.timed:
        told = "the interval is for these machines, each of which is a block"
        lines += paragraph(f"{told}; kernels are compared within a machine alone", Tone.FAINT)
    return lines


def _counts(found: Merged) -> Iterator[Line]:
    equal = sum(one.equal for one in found.counts)
    tone = Tone.GOOD if found.equal else Tone.BAD
    told = f"{equal} of {plural(len(found.counts), 'count')} are equal to the instruction"
    yield from paragraph(f"{told} on all {len(found.machines)} machines.", tone)
    for one in [one for one in found.counts if not one.equal][:_SHOWN]:
        values = ", ".join(ABSENT if v is None else number(v) for v in one.values)
        yield from paragraph(f"{one.scenario}, {one.arm}, {one.phase}: {values}", indent="  ")
    if (more := len(found.counts) - equal - _SHOWN) > 0:
        yield from paragraph(f"and {more} more", indent="  ")


def _pairs(found: Merged) -> Iterator[Line]:
    rows = found.pairs
    shown = ratio if found.timed else _times
    names = [
        Column("scenario", shortened([row.scenario for row in rows], 36), Tone.BOLD),
        Column("old", shortened([row.old for row in rows], 20)),
        Column("new", shortened([row.new for row in rows], 20)),
        Column("verdict", (_verdict(row.merged) for row in rows)),
    ]
    columns = [
        Column("all", (shown(row.merged) for row in rows), Tone.BOLD, right=True),
        *(
            Column(str(at + 1), (_alone(row, at, timed=found.timed) for row in rows), right=True)
            for at in range(len(found.machines))
        ),
    ]
    yield from tables_that_fit(names, columns)


def _alone(row: MergedPair, at: int, *, timed: bool) -> str:
    return (ratio if timed else _times)(row.each[at])


def _times(found: Comparison | None) -> str:
    return times(found.ratio if found else None)


def _verdict(found: Comparison) -> Span:
    return Span(found.verdict, VERDICT_TONES[found.verdict])


def document(found: Merged) -> tuple[str, object]:
    """See formats.View."""
    pairs = [
        {
            **picked(pair, ("scenario", "old", "new", "operation")),
            "merged": picked(pair.merged, _COMPARISON),
            "each": [picked(one, _COMPARISON) if one else None for one in pair.each],
        }
        for pair in found.pairs
    ]
    names = ("timed", "title", "machines", "counts", "equal", "reasons")
    return "merge", {**picked(found, names), "pairs": pairs}


def table(found: Merged) -> tuple[Sequence[str], Iterator[Sequence[Cell]]]:
    """A row for each pair and machine; before them that of all, without a machine."""
    return _HEAD, (row for pair in found.pairs for row in _rows(found, pair))


def _rows(found: Merged, pair: MergedPair) -> Iterator[Sequence[Cell]]:
    own = ((pair.merged, None), *zip_longest(pair.each, found.machines))
    for one, machine in own:
        if one is None:
            continue
        yield (
            pair.scenario, pair.old, pair.new, pair.operation,
            *((machine.name, machine.run_id) if machine else ("", "")),
            one.ratio, one.low, one.high, one.alpha, one.verdict, one.grade,
            "; ".join(one.reasons),
        )  # fmt: skip
