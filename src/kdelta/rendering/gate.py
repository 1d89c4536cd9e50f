# SPDX-License-Identifier: GPL-2.0-or-later
"""What a gate says of two kernels in every scenario: text, JSON, CSV, JUnit, KTAP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kdelta.analysis.gate import GateCase, GateResult
from kdelta.metric import plural
from kdelta.printable import printable
from kdelta.rendering.formats import COUNTED, Cell, picked
from kdelta.rendering.sentences import effort
from kdelta.table.columns import (
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    figure,
    first_that_fits,
    paragraph,
    shortened,
    verdict_span,
)

_NAME_WIDTHS = (44, 32, 20)
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
            text = f"{case.name}: {case.comparison.verdict}: {case.why}"
            lines += paragraph(text, VERDICT_TONES[case.comparison.verdict])
    lines += [(), *paragraph(f"{found.old} -> {found.new}, {found.unit} per operation")]
    columns = [
        Column("old", (figure(case.old) for case in cases), right=True),
        Column("new", (figure(case.new) for case in cases), right=True),
        Column("change", (_change(found, case) for case in cases)),
        Column("", map(_verdict, cases)),
    ]
    named = (shortened([case.name for case in cases], width) for width in _NAME_WIDTHS)
    tables = [[Column("scenario", names, Tone.BOLD), *columns] for names in named]
    return [*lines, *first_that_fits(tables)]


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
        apart = next((c.comparison.crossing for c in found.cases if c.open_question), "")
        why = f", as the builds differ ({apart})" * bool(apart)
        return f"UNDECIDED: nothing fails, and {plural(left, 'scenario')} cannot be judged{why}."
    return f"PASS: {plural(len(found.cases), 'scenario')}, none to fail on."


def _change(found: GateResult, case: GateCase) -> str:
    if case.skipped:
        return "not supported there"
    ratio = case.comparison.ratio
    words = effort(case.comparison.verdict, timed=found.unit != "instructions")
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
            case.why,
        )
        for case in found.cases
    )  # fmt: skip
    return _HEAD, rows


def _told_to_ci(found: GateResult) -> tuple[str, str]:
    """A title, and the conclusion with what the values are: a log of CI has no other word of it."""
    per = {case.operation for case in found.cases if case.operation}
    unit = f"{found.unit} per {per.pop() if len(per) == 1 else 'operation'}"
    counted_ones = "path lengths, counted under emulation, and no times."
    means = counted_ones if found.unit == "instructions" else "less is better."
    title = f"kdelta gate: {found.old} to {found.new}"
    return title, f"{_conclusion(found)} Values are {unit}: {means}"


def _left_out(case: GateCase) -> str:
    """Why a case says nothing, "" where it does."""
    return case.skipped or (case.why if case.open_question else "")


def _junit(found: GateResult) -> str:
    """Printable alone: XML has no way to write control characters, nor halves of a pair."""
    title, conclusion = _told_to_ci(found)
    failures = sum(case.closes for case in found.cases)
    skips = sum(bool(_left_out(case)) for case in found.cases)
    counts = {"tests": f"{len(found.cases)}", "failures": f"{failures}", "skipped": f"{skips}"}
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    suite = Element("testsuite", {"name": printable(title)} | counts)
    for case in found.cases:
        one = SubElement(suite, "testcase", classname="kdelta.gate", name=printable(case.name))
        change = _change(found, case)
        if case.closes:
            failure = SubElement(one, "failure", message=printable(change))
            failure.text = printable(case.why)
        elif why := _left_out(case):
            SubElement(one, "skipped", message=printable(why))
        said = f"{figure(case.old)} -> {figure(case.new)}: {change}"
        SubElement(one, "system-out").text = printable(said)
    SubElement(suite, "system-out").text = printable(conclusion)
    indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suite, encoding="unicode")}\n'


def _ktap(found: GateResult) -> str:
    title, conclusion = _told_to_ci(found)
    lines = ["KTAP version 1", f"# {title}", f"1..{len(found.cases)}"]
    for at, case in enumerate(found.cases, start=1):
        name = case.name.replace("#", "")
        if case.closes:
            lines.append(f"# {_change(found, case)}: {case.why}")
        why = _left_out(case)
        skip = f" # SKIP {why.replace('#', '')}" if why else ""
        lines.append(f"{'not ok' if case.closes else 'ok'} {at} {name}{skip}")
    lines.append(f"# {conclusion}")
    return "".join(f"{printable(line)}\n" for line in lines)


# What `kdelta gate` prints for CI: by option, what help calls it and how it is written.
FOR_CI: dict[str, tuple[str, Callable[[GateResult], str]]] = {
    "junit": ("JUnit's XML", _junit),
    "ktap": ("KTAP (docs.kernel.org)", _ktap),
}
