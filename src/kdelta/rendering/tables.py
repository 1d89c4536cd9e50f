# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings for programs: JSON and CSV, both described in docs/method.md (format 1)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from kdelta.analysis.audit import Audit
from kdelta.analysis.evidence import Measure
from kdelta.analysis.explanation import Explanation, FunctionDelta
from kdelta.analysis.findings import Ladder, Report, Rung
from kdelta.printable import printable
from kdelta.sample import TOTAL

FORMAT = 1
_FORMULA = ("=", "+", "-", "@")
Cell = str | int | float | None

_SHOW_HEAD = (
    "run",
    "workload",
    "scenario",
    "point",
    "arm",
    "release",
    "package",
    "phase",
    "operation",
    "operations",
    "instructions",
    "instructions_user",
    "instructions_kernel",
    "per_operation",
    "location",
    "share",
    "windows",
    "minimum",
    "maximum",
    "deviation",
    "trials",
    "trials_agreeing",
    "trials_range",
    "first",
    "ratio_first",
    "previous",
    "ratio_previous",
    "state",
    "trials_ok",
    "trials_planned",
    "verdict",
    "grade",
    "reasons",
)
_EXPLAIN_HEAD = (
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


def show_json(report: Report) -> str:
    """The report as JSON, format 1, every field of Report and what it holds."""
    return _json({"format": FORMAT, "kind": "show", **_plain(asdict(report))})


def explain_json(explanation: Explanation) -> str:
    """The explanation as JSON, format 1, every field of Explanation and what it holds."""
    return _json({"format": FORMAT, "kind": "explain", **_plain(asdict(explanation))})


def audit_json(audit: Audit) -> str:
    """The audit as JSON, format 1, every field of Audit and what it holds."""
    return _json({"format": FORMAT, "kind": "audit", **_plain(asdict(audit))})


def show_csv(report: Report) -> str:
    """One row for each scenario, kernel and phase, the sum of the phases last (RFC 4180)."""
    rows: list[Sequence[Cell]] = []
    for ladder in report.ladders:
        for rung in ladder.rungs:
            measures = (*rung.phases, rung.total) if rung.total else (None,)
            rows += [_show_row(report, ladder, rung, measure) for measure in measures]
    return csv_text(_SHOW_HEAD, rows)


def explain_csv(explanation: Explanation) -> str:
    """One row for each function, the others and the sum last (RFC 4180).

    A refused comparison is one row with its verdict and reasons and no function.
    """
    if explanation.refused:
        return csv_text(
            _EXPLAIN_HEAD, [_explain_row(explanation, "", "", (None,) * 4, (None,) * 2)]
        )
    rows = [_function_row(explanation, row) for row in explanation.functions]
    rest = explanation.rest
    if rest and rest.count:
        others = (rest.old, rest.new, rest.delta, rest.share)
        name = f"[other {rest.count} functions]"
        rows.append(_explain_row(explanation, name, "", others, (None, None)))
    share = 100.0 if explanation.delta else None
    sums = (explanation.old_value, explanation.new_value, explanation.delta, share)
    rows.append(_explain_row(explanation, "[sum]", "", sums, (None, None)))
    return csv_text(_EXPLAIN_HEAD, rows)


def _show_row(
    report: Report, ladder: Ladder, rung: Rung, measure: Measure | None
) -> tuple[Cell, ...]:
    comparison = rung.comparison
    phase = measure.phase if measure else TOTAL
    ratios = rung.ratio(phase)
    counts: tuple[Cell, ...] = (None,) * 14
    if measure:
        counts = (
            measure.operation,
            measure.operations,
            measure.value,
            measure.user,
            measure.kernel,
            measure.per_operation,
            measure.kind,
            measure.share,
            measure.windows,
            measure.minimum,
            measure.maximum,
            measure.deviation,
            measure.trials,
            measure.agree,
        )
    # The verdict is on the sum of the phases, so only that row carries it.
    verdict = comparison if phase == TOTAL else None
    return (
        report.run_id,
        ladder.workload,
        ladder.scenario,
        ladder.point,
        rung.arm,
        rung.release,
        rung.version,
        phase,
        *counts,
        measure.trials_range if measure else None,
        rung.first,
        ratios.first,
        rung.previous,
        ratios.previous,
        rung.state,
        rung.ok,
        rung.planned,
        verdict.verdict if verdict else None,
        verdict.grade if verdict else None,
        "; ".join(verdict.reasons) if verdict else None,
    )


def _function_row(explanation: Explanation, row: FunctionDelta) -> tuple[Cell, ...]:
    counts = (row.old, row.new, row.delta, row.share)
    calls = (row.calls_old, row.calls_new)
    return _explain_row(explanation, row.function, row.status, counts, calls)


def _explain_row(
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


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Rows under their head as CSV (RFC 4180), safe to open in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_cell(cell) for cell in row])
    return text.getvalue()


def _cell(cell: Cell) -> str | int | float:
    """A text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        safe = printable(str(cell).strip())
        return f"'{safe}" if safe.startswith(_FORMULA) else safe
    return cell


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Findings with the per-operation figures added wherever a window's value stands."""
    if isinstance(value, dict):
        found = {key: _plain(inner) for key, inner in value.items()}
        if "value" in found and "operations" in found:
            found["per_operation"] = found["value"] / found["operations"]
        return found
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
