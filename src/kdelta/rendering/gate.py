# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta gate` prints: text, JSON, CSV, and cases for CI (formats.CASES)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.analysis.gate import GateCase, GateResult
from kdelta.metric import number, plural
from kdelta.rendering.formats import COUNTED, Cell, JudgedCase, picked
from kdelta.rendering.wording import effort
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
)

_HEAD = (
    "run", "baseline_run", "scenario", "old", "new", "operation", "old_value", "new_value",
    "unit", "ratio", "verdict", "grade", "closes", "skipped", "reasons",
)  # fmt: skip


def show(found: GateResult) -> list[Line]:
    """A table, and a sentence for whatever is not the same."""
    lines = list(paragraph(f"{found.old} -> {found.new}, {found.unit} per operation", Tone.BOLD))
    cases = found.cases
    lines += table_lines(
        [
            Column("scenario", shortened([case.name for case in cases], 44), Tone.BOLD),
            Column("old", (_value(case.old) for case in cases), right=True),
            Column("new", (_value(case.new) for case in cases), right=True),
            Column("change", (_change(found, case) for case in cases)),
            Column("", (_verdict(case) for case in cases)),
        ]
    )
    for case in cases:
        if case.closes or case.open_question:
            text = f"{case.name}: {case.comparison.verdict}: {'; '.join(case.comparison.reasons)}"
            lines += paragraph(text, VERDICT_TONES[case.comparison.verdict])
    return [*lines, (), *paragraph(conclusion(found), Tone.BOLD)]


def conclusion(found: GateResult) -> str:
    """Whether it may go in."""
    closing = sum(case.closes for case in found.cases)
    left = sum(case.open_question for case in found.cases)
    if closing:
        return f"Closed by {plural(closing, 'scenario')} of {len(found.cases)}."
    if not found.cases:
        return "Nothing was compared: the runs have no scenario in common."
    if found.undecided:
        return f"Undecided: nothing closes it, and {plural(left, 'scenario')} cannot be judged."
    return f"Open: {plural(len(found.cases), 'scenario')}, none to fail on."


def _value(value: float | None) -> str:
    return ABSENT if value is None else number(value)


def _change(found: GateResult, case: GateCase) -> str:
    if case.skipped:
        return "not supported there"
    ratio = case.comparison.ratio
    words = effort(case.comparison, timed=found.unit != "instructions")
    return words if ratio is None else f"x{ratio:.3f}, {words}"


def _verdict(case: GateCase) -> Span:
    if case.skipped:
        return Span("skip", Tone.FAINT)
    tone = VERDICT_TONES[case.comparison.verdict]
    return Span(f"{case.comparison.verdict}{' FAILS' if case.closes else ''}", tone)


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
    return _HEAD, (_row(found, case) for case in found.cases)


def _row(found: GateResult, case: GateCase) -> tuple[Cell, ...]:
    comparison = case.comparison
    return (
        found.run_id, found.baseline_run, case.name, found.old, found.new, case.operation,
        case.old, case.new, found.unit, comparison.ratio, comparison.verdict,
        comparison.grade, str(case.closes).lower(), case.skipped,
        "; ".join(comparison.reasons),
    )  # fmt: skip


def cases(found: GateResult) -> tuple[str, str, Sequence[JudgedCase]]:
    """See formats.CaseView."""
    told = [
        JudgedCase(
            name=case.name,
            values=(_value(case.old), _value(case.new)),
            change=_change(found, case),
            failed=case.closes,
            skipped=case.skipped
            or ("; ".join(case.comparison.reasons) if case.open_question else ""),
            why="; ".join(case.comparison.reasons),
        )
        for case in found.cases
    ]
    title = f"kdelta gate: {found.old} to {found.new}"
    return title, f"{conclusion(found)} {_measured(found)}", told


def _measured(found: GateResult) -> str:
    """What the values are: who reads a comment or a log of CI sees no other word of it."""
    per = {case.operation for case in found.cases if case.operation}
    unit = f"{found.unit} per {per.pop() if len(per) == 1 else 'operation'}"
    return f"Values are {unit}: " + (
        "path lengths, counted under emulation, and no times."
        if found.unit == "instructions"
        else "less is better."
    )
