# SPDX-License-Identifier: GPL-2.0-or-later
"""A survey as text: the table of all scenarios, then each step with its functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from kdelta.analysis.survey import OpenPair, Survey, SurveyCell, SurveyRow, SurveyStep, quiet
from kdelta.ladder.counts import UNSEEN_PERCENT
from kdelta.metric import number, plural
from kdelta.rendering.explain import sentence
from kdelta.sample import TOTAL
from kdelta.table.columns import (
    ABSENT,
    CROSSED,
    Column,
    Line,
    Span,
    Tone,
    builds_apart,
    paragraph,
    short,
    shortened,
    table_lines,
)
from kdelta.table.ladders import limits_of
from kdelta.verdict.comparison import LEAST_SEEDS

_NAME_WIDTH: Final = 34
_KERNEL_WIDTH: Final = 16
_NOTES = {"skip": Tone.FAINT, "invalid": Tone.WARN, "failed": Tone.BAD, "not run": Tone.WARN}
_SAME = "."
_LAID_OUT = "#"
_UNDECIDED = "?"


def show(found: Survey) -> list[Line]:
    """What `kdelta survey` prints."""
    report = found.report
    lines = list(paragraph(report.title, Tone.BOLD))
    lines += paragraph(
        f"run {report.run_id}, {report.created}, {len(found.rows)} scenarios over"
        f" {len(found.kernels)} kernels, {report.done}/{report.planned} trials done"
    )
    if report.done < report.planned:
        lines += paragraph(f"resume with: kdelta resume {report.run_id}", Tone.WARN)
    lines += [(), *_table(found), *_legend(found), (), *_changes(found)]
    return [*lines, *limits_of(report.limits)]


def _table(found: Survey) -> Iterator[Line]:
    """As many kernels a table as fit; the first column tells counts, the others changes."""
    rows = [row for each in found.rows for row in _rows(each)]
    names = Column("scenario", (short(name, _NAME_WIDTH) for name, _ in rows))
    labels = shortened(found.kernels, _KERNEL_WIDTH)
    columns = [
        Column(
            labels[at] + CROSSED * any(cells[at].crossing for _, cells in rows),
            (_span(cells[at], found.step_percent, first=_is_first(cells, at)) for _, cells in rows),
            right=True,
        )
        for at in range(len(found.kernels))
    ]
    yield from table_lines([names, *columns])


def _rows(row: SurveyRow) -> Iterator[tuple[str, tuple[SurveyCell, ...]]]:
    """A scenario and, below it, the phases that say more."""
    yield _name(row), row.cells
    for phase in row.phases:
        yield f"  {phase.name}", phase.cells


def _name(row: SurveyRow) -> str:
    mark = "~" * row.inexact + _LAID_OUT * (row.layouts > 1)
    return f"{mark}{row.reference} {row.point}".strip()


def _is_first(cells: Sequence[SurveyCell], at: int) -> bool:
    return all(cell.per_operation is None for cell in cells[:at])


def _span(cell: SurveyCell, step_percent: float, *, first: bool) -> Span:
    if cell.per_operation is None:
        return Span(cell.note or ABSENT, _NOTES.get(cell.note, Tone.PLAIN))
    if first:
        return Span(number(cell.per_operation), Tone.BOLD)
    if cell.ratio is None:
        return Span(cell.note or ABSENT, _NOTES.get(cell.note, Tone.PLAIN))
    percent = 100 * (cell.ratio - 1)
    if abs(percent) <= step_percent:
        left_open = cell.signless or (cell.by_hits and not cell.crossing)
        return Span(_SAME + _UNDECIDED, Tone.WARN) if left_open else Span(_SAME, Tone.FAINT)
    if cell.crossing:
        return Span(_percent(cell.ratio) + CROSSED, Tone.WARN)
    if cell.undecided:
        return Span(_percent(cell.ratio) + _UNDECIDED, Tone.WARN)
    return Span(_percent(cell.ratio), Tone.BAD if percent > 0 else Tone.GOOD)


def _percent(ratio: float) -> str:
    return f"x{ratio:.2f}" if ratio >= 2 else f"{100 * (ratio - 1):+.0f}%"


def _legend(found: Survey) -> Iterator[Line]:
    against = " or ".join(sorted({each.baseline for each in found.report.ladders} - {""}))
    before = against or "the kernel before"
    text = (
        "instructions per operation (page, call) in the first kernel with a count, then the"
        f" change from {before}; {_SAME}: at most {found.step_percent:g} %;"
        " skip: not supported there; invalid: page state or environment differ;"
        " ~: a median, the counts hardly repeat"
    )
    if layouts := sorted({row.layouts for row in found.rows} - {1}):
        several = " or ".join(map(str, layouts))
        text += f"; {_LAID_OUT}: the mean over {several} layouts of the kernel's trees and lists"
    if any(row.phases for row in found.rows):
        text += "; below a scenario: its phases that changed where the sum over them did not"
    cells = [cell for row in found.rows for _, cells in _rows(row) for cell in cells]
    known = [c.signless or c.by_hits for c in cells]
    scattered = any(c.undecided > why for c, why in zip(cells, known, strict=True))
    seeds = f" or are of too few seeds (--rounds {LEAST_SEEDS})"
    few = seeds * (found.step_percent < UNSEEN_PERCENT)
    why = [f"the counts scatter too much for it{few}"] * scattered
    why += ["its string instructions handle other bytes"] * any(c.signless for c in cells)
    why += ["other layouts are hit"] * any(c.by_hits for c in cells)
    if why:
        text += f"; {_UNDECIDED}: UNDECIDED, {' or '.join(why)}"
    if apart := _apart(found):
        text += f"; but {', '.join(apart)}: they are of one compiler, what is between is not"
    crossings = dict.fromkeys(
        f"{kernel} ({cell.crossing})"
        for row in found.rows
        for kernel, cell in zip(found.kernels, row.cells, strict=True)
        if cell.crossing
    )
    if crossings:
        text += (
            f"; {CROSSED}: built by another compiler than {before}, so its changes are"
            f" UNDECIDED: {', '.join(crossings)}"
        )
    yield from paragraph(text, Tone.FAINT)
    told = (
        builds_apart(rung.previous, rung.arm, rung.comparison)
        for ladder in found.report.ladders
        for rung in ladder.rungs
        if rung.previous and rung.comparison and rung.comparison.differences
    )
    for line in dict.fromkeys(told):
        yield from paragraph(line, Tone.WARN)


def _apart(found: Survey) -> list[str]:
    """Kernels that are compared with another than the one before, for its compiler's sake."""
    neighbours = (pair for ladder in found.report.ladders for pair in pairwise(ladder.rungs))
    apart = (
        rung for above, rung in neighbours if rung.passed and above.total and not above.skipped
    )
    return list(dict.fromkeys(f"{rung.arm} from {rung.previous}" for rung in apart))


def _changes(found: Survey) -> Iterator[Line]:
    if not found.changes:
        yield from paragraph(f"No step above {found.step_percent:g} %.", Tone.BOLD)
    else:
        count = len(found.changes)
        head = f"{count} step{'s' * (count != 1)} above {found.step_percent:g} %, the largest first"
        yield from paragraph(f"{head}:", Tone.BOLD)
    for change in found.changes:
        yield from _change(change)
    yield from _left_open("the bytes of string instructions", found.signless)
    yield from _left_open("the layouts that are hit", found.by_hits)
    yield from paragraph(
        f"{quiet(found)} of {len(found.rows)} scenarios: no step, all kernels counted."
    )


def _left_open(by: str, pairs: Sequence[OpenPair]) -> Iterator[Line]:
    if pairs:
        yield from paragraph(f"UNDECIDED by {by}, {plural(len(pairs), 'pair')}:", Tone.BOLD)
    for one in pairs:
        yield from paragraph(f"{one.reference}: {one.old} -> {one.new}", Tone.WARN)
        yield from paragraph(f"{one.why}.", indent="  ")


def _change(change: SurveyStep) -> Iterator[Line]:
    explanation = change.explanation
    ratio = explanation.comparison.ratio
    tone = Tone.BAD if (ratio or 1) > 1 else Tone.GOOD
    name = f"{change.reference} {change.point}".strip()
    name += f", {explanation.phase} alone" if explanation.phase != TOTAL else ""
    head = f"{name}: {explanation.old} -> {explanation.new}"
    head += f", x{ratio:.3f}" if ratio else ""
    if change.phases:
        head += f" ({', '.join(f'{phase} x{own:.3f}' for phase, own in change.phases)})"
    if change.hit:
        head += f"; layouts hit: {change.hit[0]} -> {change.hit[1]}"
    yield from paragraph(head, tone)
    yield from paragraph(sentence(explanation), indent="  ")
