# SPDX-License-Identifier: GPL-2.0-or-later
"""What the same run says on several machines."""

from __future__ import annotations

from collections.abc import Iterator

from kdelta.analysis.merging import Merged
from kdelta.metric import number, plural
from kdelta.rendering.formats import picked
from kdelta.rendering.times import ratio
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Tone,
    paragraph,
    shortened,
    table_lines,
    tables_that_fit,
    verdict_span,
)
from kdelta.table.counts import times
from kdelta.verdict.comparison import Comparison

_SHOWN = 20
_FIELDS = ("verdict", "grade", "reasons", "ratio", "low", "high", "p", "alpha", "tolerance")


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
        equal, tone = sum(one.equal for one in found.counts), Tone.GOOD if found.equal else Tone.BAD
        told = f"{equal} of {plural(len(found.counts), 'count')} are equal to the instruction"
        lines += [(), *paragraph(f"{told} on all {len(found.machines)} machines.", tone)]
        for row in [row for row in found.counts if not row.equal][:_SHOWN]:
            values = ", ".join(ABSENT if v is None else number(v) for v in row.values)
            lines += paragraph(f"{row.scenario}, {row.arm}, {row.phase}: {values}", indent="  ")
        if (more := len(found.counts) - equal - _SHOWN) > 0:
            lines += paragraph(f"and {more} more", indent="  ")
    for reason in found.reasons:
        lines += paragraph(f"differs: {reason}", Tone.WARN)
    if not found.equal and not found.reasons:
        lines += paragraph("nothing that was recorded explains it", Tone.WARN)
    lines += [(), *_pairs(found)]
    for pair in found.pairs:
        verdict, reasons = pair.merged.verdict, "; ".join(pair.merged.reasons)
        told = f"{pair.scenario}, {pair.old} -> {pair.new}: {verdict}: {reasons}"
        lines += paragraph(told, VERDICT_TONES[verdict])
    return lines


def _pairs(found: Merged) -> Iterator[Line]:
    def shown(one: Comparison | None) -> str:
        return ratio(one) if found.timed else times(one.ratio if one else None)

    rows = found.pairs
    names = [
        Column("scenario", shortened([row.scenario for row in rows], 36), Tone.BOLD),
        Column("old", shortened([row.old for row in rows], 20)),
        Column("new", shortened([row.new for row in rows], 20)),
        Column("verdict", (verdict_span(row.merged) for row in rows)),
    ]
    columns = [
        Column("all", (shown(row.merged) for row in rows), Tone.BOLD, right=True),
        *(
            Column(str(at + 1), (shown(row.each[at]) for row in rows), right=True)
            for at in range(len(found.machines))
        ),
    ]
    yield from tables_that_fit(names, columns)


def document(found: Merged) -> tuple[str, object]:
    """See formats.View."""
    pairs = [
        {
            **picked(pair, ("scenario", "old", "new", "operation")),
            "merged": picked(pair.merged, _FIELDS),
            "each": [picked(one, _FIELDS) if one else None for one in pair.each],
        }
        for pair in found.pairs
    ]
    names = ("timed", "title", "machines", "counts", "equal", "reasons")
    return "merge", {**picked(found, names), "pairs": pairs}
