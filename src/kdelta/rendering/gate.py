# SPDX-License-Identifier: GPL-2.0-or-later
"""What a gate says of two kernels in every scenario: text, JSON, CSV, and cases for CI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kdelta.analysis.gate import GateCase, GateResult
from kdelta.metric import plural
from kdelta.rendering.formats import COUNTED, Cell, JudgedCase, picked
from kdelta.rendering.sentences import effort
from kdelta.table.columns import (
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    figure,
    paragraph,
    shortened,
    table_lines,
    verdict_span,
)

_HEAD = (
    "run", "baseline_run", "scenario", "old", "new", "operation", "old_value", "new_value",
    "unit", "ratio", "verdict", "grade", "closes", "skipped", "reasons",
)  # fmt: skip


def show(found: GateResult) -> list[Line]:
    """Passed or not, a sentence for whatever is not the same, and a table."""
    lines = list(paragraph(_conclusion(found), Tone.BOLD))
    for warned in found.debugging:
        lines += paragraph(warned, Tone.BAD)
    cases = found.cases
    for case in cases:
        if case.closes or case.open_question:
            text = f"{case.name}: {case.comparison.verdict}: {'; '.join(case.comparison.reasons)}"
            lines += paragraph(text, VERDICT_TONES[case.comparison.verdict])
    lines += [(), *paragraph(f"{found.old} -> {found.new}, {found.unit} per operation")]
    return [
        *lines,
        *table_lines(
            [
                Column("scenario", shortened([case.name for case in cases], 44), Tone.BOLD),
                Column("old", (figure(case.old) for case in cases), right=True),
                Column("new", (figure(case.new) for case in cases), right=True),
                Column("change", (_change(found, case) for case in cases)),
                Column("", map(_verdict, cases)),
            ]
        ),
    ]


def _conclusion(found: GateResult) -> str:
    closing = sum(case.closes for case in found.cases)
    left = sum(case.open_question for case in found.cases)
    if closing:
        worst = max(found.cases, key=lambda case: case.closes and case.comparison.factor)
        if worst.comparison.ratio is None:
            return f"FAIL: {plural(closing, 'scenario')} of {len(found.cases)}."
        return (
            f"FAIL: {plural(closing, 'scenario')} of {len(found.cases)}; {worst.name} went from"
            f" {figure(worst.old)} {found.unit} per {worst.operation} on {found.old} to"
            f" {figure(worst.new)} on {found.new}."
        )
    if not found.cases:
        return "UNDECIDED: nothing was compared; the runs have no scenario in common."
    if found.undecided:
        return f"UNDECIDED: nothing fails, and {plural(left, 'scenario')} cannot be judged."
    return f"PASS: {plural(len(found.cases), 'scenario')}, none to fail on."


def _change(found: GateResult, case: GateCase) -> str:
    if case.skipped:
        return "not supported there"
    ratio = case.comparison.ratio
    words = effort(case.comparison, timed=found.unit != "instructions")
    return words if ratio is None else f"x{ratio:.3f}, {words}"


def _verdict(case: GateCase) -> Span:
    found = Span("skip", Tone.FAINT) if case.skipped else verdict_span(case.comparison)
    return replace(found, text=f"{found.text} FAILS") if case.closes else found


def document(found: GateResult) -> tuple[str, object]:
    """See formats.View."""
    cases = [
        picked(
            case,
            ("name", "operation", "old", "new", "skipped", "closes", "comparison"),
            comparison=picked(case.comparison, COUNTED),
        )
        for case in found.cases
    ]
    names = ("run_id", "baseline_run", "old", "new", "unit", "closed", "undecided", "cases")
    return "gate", picked(found, names, cases=cases)


def table(found: GateResult) -> tuple[Sequence[str], Iterator[Sequence[Cell]]]:
    """See formats.View."""
    rows = (
        (
            found.run_id, found.baseline_run, case.name, found.old, found.new, case.operation,
            case.old, case.new, found.unit, case.comparison.ratio, case.comparison.verdict,
            case.comparison.grade, str(case.closes).lower(), case.skipped,
            "; ".join(case.comparison.reasons),
        )
        for case in found.cases
    )  # fmt: skip
    return _HEAD, rows


def cases(found: GateResult) -> tuple[str, str, Sequence[JudgedCase]]:
    """See formats.View."""
    told = [
        JudgedCase(
            name=case.name,
            values=(figure(case.old), figure(case.new)),
            change=_change(found, case),
            failed=case.closes,
            skipped=case.skipped or (why if case.open_question else ""),
            why=why,
        )
        for case in found.cases
        for why in ("; ".join(case.comparison.reasons),)
    ]
    # What the values are: who reads a comment or a log of CI sees no other word of it.
    per = {case.operation for case in found.cases if case.operation}
    unit = f"{found.unit} per {per.pop() if len(per) == 1 else 'operation'}"
    counted_ones = "path lengths, counted under emulation, and no times."
    means = counted_ones if found.unit == "instructions" else "less is better."
    title = f"kdelta gate: {found.old} to {found.new}"
    return title, f"{_conclusion(found)} Values are {unit}: {means}", told
