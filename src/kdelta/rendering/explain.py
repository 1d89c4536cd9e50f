# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta explain` prints: the functions of a difference, as text, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from kdelta.analysis.explanation import Explanation, FunctionDelta, Presence, Rest, StringBytes
from kdelta.metric import decimals, number
from kdelta.rendering.formats import COUNTED, Cell, picked
from kdelta.rendering.wording import more
from kdelta.sample import TOTAL
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    builds_apart,
    paragraph,
    short,
    table_lines,
)
from kdelta.verdict.comparison import Verdict

PATH_LENGTH = "This is path length. Whether it costs time is for a timing run on real hardware."
_NAME_WIDTH = 40
_BYTES = "bytes by string instructions"
_HEAD = (
    "run",
    "workload",
    "scenario",
    "phase",
    "old_arm",
    "new_arm",
    "verdict",
    "grade",
    "function",
    "status",
    "operation",
    "operations",
    "old",
    "new",
    "delta",
    "old_per_operation",
    "new_per_operation",
    "delta_per_operation",
    "share_percent",
    "calls_old",
    "calls_new",
    "reasons",
)


def opening(explanation: Explanation, sentences: Sequence[str] = ()) -> list[Line]:
    """What is compared, the verdict on it, and the difference in a few sentences."""
    lines = list(paragraph(_heading(explanation), Tone.BOLD))
    per = f"per {explanation.operation}" if explanation.operation else "per operation"
    lines += paragraph(
        f"instructions retired by the guest, user + kernel, {per}; path length, never a time"
    )
    comparison = explanation.comparison
    claim = f"{comparison.verdict} ({comparison.grade}): {'; '.join(comparison.reasons)}"
    lines += [(), *paragraph(claim, VERDICT_TONES[comparison.verdict])]
    if comparison.differences:
        told = builds_apart(explanation.old, explanation.new, comparison)
        lines += paragraph(told, Tone.WARN)
    for copy in explanation.copies:
        lines += paragraph(copy, Tone.FAINT)
    if comparison.verdict is Verdict.INVALID and not explanation.refused:
        lines += paragraph("shown by --force: INVALID, no claim rests on this table", Tone.BAD)
    if sentences:
        lines += [(), *paragraph(" ".join(sentences))]
    return lines


def show(explanation: Explanation, *, sentences: Sequence[str] = ()) -> list[Line]:
    """What `kdelta explain` prints; sentences: with which it begins."""
    lines = opening(explanation, sentences)
    if explanation.refused:
        return [*lines, *refusal(explanation)]
    if not sentences:
        lines += paragraph(sentence(explanation))
    lines += [(), *_functions(explanation), ()]
    names = (row.function for row in explanation.functions)
    lines += paragraph(renamed(explanation, names), Tone.FAINT)
    for name, clones in explanation.folded:
        lines += paragraph(f"{name}: includes {', '.join(clones)}", Tone.FAINT)
    return [*lines, *paragraph(PATH_LENGTH)]


def renamed(explanation: Explanation, listed: Iterable[str]) -> str:
    """Which two of the listed functions are taken for one; "" where none are."""
    names = set(listed)
    parts = [
        f"{short(row.function, _NAME_WIDTH)} was {short(row.was, _NAME_WIDTH)}"
        f" ({more(row.delta / explanation.operations)})"
        for row in explanation.renamed
        if {row.function, row.was} & names
    ]
    return f"Taken for one, by name and number of calls: {', '.join(parts)}." if parts else ""


def refusal(explanation: Explanation) -> Iterator[Line]:
    """Why nothing is ranked."""
    if explanation.comparison.verdict is Verdict.INVALID:
        yield from paragraph("No function is ranked; --force ranks them, marked INVALID.")
    else:
        yield from paragraph("There is nothing to rank.")


def _heading(explanation: Explanation) -> str:
    phase = "all phases" if explanation.phase == TOTAL else f"phase {explanation.phase}"
    return (
        f"{explanation.workload}:{explanation.scenario}, {phase}:"
        f" {explanation.old} -> {explanation.new} (run {explanation.run_id})"
    )


def sentence(explanation: Explanation) -> str:
    """The difference in one sentence of words, functions with their change per operation."""
    if explanation.delta is None or explanation.old_value is None or explanation.new_value is None:
        return "Nothing can be said of the functions."
    scale = explanation.operations
    change = (
        f"{number(explanation.old_value / scale)} -> {number(explanation.new_value / scale)}"
        f" instructions per {explanation.operation} ({_signed(explanation.delta, explanation)})"
    )
    if not explanation.delta:
        return f"{change}: the totals are equal."
    parts = [
        f"{', '.join(_named(row, explanation) for row in rows)} {direction}"
        for rows, direction in ((explanation.rising, "up"), (explanation.falling, "down"))
        if rows
    ]
    return f"{change}: {'; '.join(parts) or 'no function stands out'}."


def _named(row: FunctionDelta, explanation: Explanation) -> str:
    of_what = " of the difference" if row in (*explanation.rising, *explanation.falling)[:1] else ""
    share = f", {row.share:.0f} %{of_what}" if row.share is not None else ""
    return f"{called(row)} ({_signed(row.delta, explanation)}{share})"


def called(row: FunctionDelta) -> str:
    """A function in a sentence: its name, and what it was called before."""
    before = f" (before: {short(row.was, _NAME_WIDTH)})" if row.was else ""
    return f"{short(row.function, _NAME_WIDTH)}{before}"


def _signed(delta: int, explanation: Explanation) -> str:
    return _fixed(delta, explanation, sign="+") if delta else "0"


def _fixed(count: int, explanation: Explanation, sign: str = "") -> str:
    """A count per operation, in the same decimals throughout one explanation."""
    per_operation = max(explanation.old_value or 0, explanation.new_value or 0)
    places = decimals(per_operation / explanation.operations)
    return f"{count / explanation.operations:{sign}.{places}f}"


def _functions(explanation: Explanation) -> Iterator[Line]:
    """The ranking, then a row for the functions not listed, then the sum; last what is no count."""
    rows: list[FunctionDelta | Rest] = list(explanation.functions)
    rest = explanation.rest
    if rest and rest.count:
        rows.append(rest)
    total = explanation.delta or 0
    rows.append(
        Rest(
            count=0,
            old=explanation.old_value or 0,
            new=explanation.new_value or 0,
            delta=sum(row.delta for row in rows),
            share=100 * sum(row.delta for row in rows) / total if total else None,
        )
    )
    table = [_function_cells(row, explanation) for row in rows]
    if explanation.strings:
        table.append(_string_cells(explanation.strings, explanation))
    heads = ("function", "old", "new", "delta", "share %", "calls old", "calls new", "status")
    columns = [
        Column(head, cells, right=0 < at < len(heads) - 1)
        for at, (head, cells) in enumerate(zip(heads, zip(*table, strict=True), strict=True))
    ]
    yield from table_lines(columns)


def _function_cells(row: FunctionDelta | Rest, explanation: Explanation) -> tuple[Span, ...]:
    if isinstance(row, Rest):
        name = f"other {row.count} functions" if row.count else "sum"
        tone, calls, status = Tone.BOLD, (ABSENT, ABSENT), ""
    else:
        name, status = short(row.function, _NAME_WIDTH), row.status
        tone = Tone.WARN if row.status is not Presence.BOTH else Tone.PLAIN
        calls = (_calls(row.calls_old, explanation), _calls(row.calls_new, explanation))
    cells = (
        name,
        ABSENT if row.old is None else _fixed(row.old, explanation),
        ABSENT if row.new is None else _fixed(row.new, explanation),
        _signed(row.delta, explanation),
        ABSENT if row.share is None else f"{row.share:.1f}",
        *calls,
        status,
    )
    return tuple(Span(cell, tone) for cell in cells)


def _string_cells(strings: StringBytes, explanation: Explanation) -> tuple[Span, ...]:
    """Bytes beside the instructions: their share is of nothing, and nothing calls them."""
    old, new = (_fixed(count, explanation) for count in (strings.old, strings.new))
    cells = (_BYTES, old, new, _signed(strings.delta, explanation), *(ABSENT,) * 3, "")
    return tuple(Span(cell, Tone.FAINT) for cell in cells)


def _calls(calls: int | None, explanation: Explanation) -> str:
    if calls is None:
        return ABSENT
    per_operation = calls / explanation.operations
    if 0 < per_operation < 0.0005:
        return "<0.001"
    return f"{per_operation:.3f}" if per_operation < 1000 else f"{per_operation:.0f}"


def document(explanation: Explanation) -> tuple[str, dict[str, Any]]:
    """See formats.View: every field of Explanation and what it holds."""
    names = [field.name for field in fields(explanation)]
    comparison = picked(explanation.comparison, COUNTED)
    return "explain", picked(explanation, names, comparison=comparison)


def table(explanation: Explanation) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each function, the others and the sum last, and bytes by string instructions.

    A refused comparison is one row with its verdict and reasons and no function.
    """
    if explanation.refused:
        return _HEAD, [_row(explanation, "", "", (None,) * 4, (None,) * 2)]
    rows = [_function_row(explanation, row) for row in explanation.functions]
    rest = explanation.rest
    if rest and rest.count:
        others = (rest.old, rest.new, rest.delta, rest.share)
        name = f"[other {rest.count} functions]"
        rows.append(_row(explanation, name, "", others, (None, None)))
    share = 100.0 if explanation.delta else None
    sums = (explanation.old_value, explanation.new_value, explanation.delta, share)
    rows.append(_row(explanation, "[sum]", "", sums, (None, None)))
    if strings := explanation.strings:
        counts = (strings.old, strings.new, strings.delta, None)
        rows.append(_row(explanation, f"[{_BYTES}]", "", counts, (None, None)))
    return _HEAD, rows


def _function_row(explanation: Explanation, row: FunctionDelta) -> tuple[Cell, ...]:
    counts = (row.old, row.new, row.delta, row.share)
    calls = (row.calls_old, row.calls_new)
    return _row(explanation, row.function, row.status, counts, calls)


def _row(
    explanation: Explanation,
    function: str,
    status: str,
    counts: tuple[int | None, int | None, int | None, float | None],
    calls: tuple[int | None, int | None],
) -> tuple[Cell, ...]:
    scale = explanation.operations
    *totals, share = counts
    return (
        explanation.run_id,
        explanation.workload,
        explanation.scenario,
        explanation.phase,
        explanation.old,
        explanation.new,
        explanation.comparison.verdict,
        explanation.comparison.grade,
        function,
        status,
        explanation.operation,
        scale,
        *totals,
        *(None if count is None else count / scale for count in totals),
        share,
        *calls,
        "; ".join(explanation.comparison.reasons),
    )
