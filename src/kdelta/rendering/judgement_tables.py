# SPDX-License-Identifier: GPL-2.0-or-later
"""A judgement for programs: JSON and CSV (format 1, docs/foreign.md)."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kdelta.analysis.compat import framework
from kdelta.analysis.judgement import Finding, JudgedPair, Judgement
from kdelta.printable import printable
from kdelta.stats.summary import Summary

FORMAT = 1
_FORMULA = ("=", "+", "-", "@")
_SUMMARY = ("n", "planned", "median", "mean", "sd", "cv", "mad", "minimum", "maximum")
_FRAMEWORK = (
    "value",
    "median_value",
    "stdev_value",
    "cv",
    "mad_value",
    "mad_ratio",
    "classification",
    "status",
    "stable",
    "robust_stable",
    "comparison_reliable",
    "comparison_robust_reliable",
    "label",
)
HEAD = (
    "import",
    "group",
    "metric",
    "unit",
    "better",
    "old_arm",
    "new_arm",
    "control_arm",
    "verdict",
    "grade",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p",
    "alpha",
    "tolerance",
    "mean_ratio",
    "drift",
    "midpoint_ratio",
    "drop_first_midpoint_ratio",
    *(f"{side}_{name}" for side in ("old", "new") for name in _SUMMARY),
    "reasons",
    "warnings",
    *(f"framework_{side}_{name}" for side in ("old", "new") for name in _FRAMEWORK),
)


def judgement_json(found: Judgement) -> str:
    """The judgement as JSON: every field; a bound that is infinite is null."""
    value = {"format": FORMAT, "kind": "judge", **_plain(asdict(found))}
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def judgement_csv(found: Judgement) -> str:
    """One row for each comparison (RFC 4180)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(HEAD)
    for finding in found.findings:
        for pair in finding.pairs:
            writer.writerow([_cell(value) for value in _row(found.name, finding, pair)])
    return text.getvalue()


def _row(name: str, finding: Finding, pair: JudgedPair) -> Iterator[object]:
    found, metric = pair.comparison, finding.metric
    sandwich = found.sandwich
    group = ";".join(f"{key}={text}" for key, text in finding.group)
    yield from (name, group, metric.name, metric.unit, metric.better)
    yield from (pair.old, pair.new, pair.control or "", found.verdict, found.grade)
    yield from (found.ratio, found.low, found.high, found.p, found.alpha, found.tolerance)
    yield found.mean_ratio
    yield from (
        (sandwich.drift, sandwich.midpoint, sandwich.drop_first_midpoint)
        if sandwich
        else (None, None, None)
    )
    yield from _summary(found.old)
    yield from _summary(found.new)
    yield "; ".join(found.reasons)
    yield "; ".join(dict.fromkeys(caution.sentence for caution in finding.cautions))
    for arm in (pair.old, pair.new):
        row = next((row for row in finding.compat.framework if row.arm == arm), None)
        yield from (_framework(row, name) for name in _FRAMEWORK)


def _summary(summary: Summary) -> Iterator[object]:
    yield from (getattr(summary, name) for name in _SUMMARY)


def _framework(row: framework.FrameworkRow | None, name: str) -> str:
    return "" if row is None else row.cell(name)


def _cell(value: object) -> object:
    """A text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, str):
        safe = printable(str(value).strip())
        return f"'{safe}" if safe.startswith(_FORMULA) else safe
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
