# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings of the time instrument for programs: JSON and CSV (format 1)."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict

from kdelta.analysis.times import TimedReport
from kdelta.printable import printable
from kdelta.rendering.tables import FORMAT

_HEAD = (
    "run",
    "workload",
    "scenario",
    "point",
    "arm",
    "control",
    "release",
    "phase",
    "unit",
    "median",
    "mean",
    "sd",
    "cv",
    "mad",
    "minimum",
    "maximum",
    "valid",
    "planned",
    "replicate",
    "ratio_first",
    "low",
    "high",
    "alpha",
    "verdict",
    "grade",
    "reasons",
)


def show_json(report: TimedReport) -> str:
    """The whole report; names are those of kdelta.analysis.times, "format" is 1."""
    content = {"format": FORMAT, "kind": "show-time", **asdict(report)}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def show_csv(report: TimedReport) -> str:
    """RFC 4180 with a head: a row per arm and phase, the verdict in the row of the total."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_HEAD)
    for ladder in report.ladders:
        for arm in ladder.arms:
            for name, summary in arm.phases:
                found = arm.comparison if name == "total" else None
                writer.writerow(
                    [
                        *(report.run_id, ladder.workload, ladder.scenario, ladder.point),
                        *(_text(arm.arm), int(arm.control), _text(arm.release), name),
                        *(f"ns/{ladder.operation}", summary.median, summary.mean, summary.sd),
                        *(summary.cv, summary.mad, summary.minimum, summary.maximum),
                        *(summary.n, summary.planned, summary.replicate),
                        *((found.ratio, found.low, found.high) if found else ("", "", "")),
                        *((found.alpha, found.verdict) if found else ("", "")),
                        *((found.grade, "; ".join(found.reasons)) if found else ("", "")),
                    ]
                )
    return out.getvalue()


def _text(value: str) -> str:
    """Printable, and no formula for a spreadsheet."""
    clean = printable(value)
    return f"'{clean}" if clean.startswith(("=", "+", "-", "@")) else clean
