# SPDX-License-Identifier: GPL-2.0-or-later
"""The answers beside the data: a run folder that a stranger can read without kdelta."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kdelta.analysis import explanation, findings
from kdelta.analysis.traces import traced
from kdelta.errors import StoreError
from kdelta.files import write_aside
from kdelta.journal.run import RunRecord
from kdelta.rendering import explain, figures, metrics, show, traces
from kdelta.rendering.formats import LEFT, written
from kdelta.table.columns import plain

TOP = 15  # functions that a text lists unless asked for more


def write_answers(record: RunRecord, folder: Path) -> None:
    """Write show.{txt,json,csv}, metrics.csv and explain-OLD-NEW.{txt,json,csv} into a run folder.

    There is one explanation for the largest step of each scenario that has one; those of an
    earlier state of the run are removed.  Each file is replaced whole.  Raises StoreError when
    the folder cannot be written.
    """
    files = dict(answers(record))
    try:
        for name, content in files.items():
            write_aside(folder / name, content.encode())
        for stale in folder.glob("explain-*"):
            if stale.suffix[1:] in ("txt", *LEFT) and stale.name not in files:
                stale.unlink()
    except OSError as error:
        raise StoreError(
            f"the answers cannot be written: {error.strerror or error}",
            place=str(folder),
            action=f"the measurements are kept; print them with: kdelta show {record.run_id}",
        ) from error


def answers(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Every answer beside a run: name and content."""
    if seen := traced(record):
        yield "show.txt", plain(traces.show(seen))
        yield from _written("show", traces, seen)
        return
    report = findings.report(record)
    yield "show.txt", plain(show.show(report))
    yield from _written("show", show, report)
    if report.metrics:  # they are in show.txt and show.json, too
        yield "metrics.csv", written("csv", metrics, report.metrics)
    if report.figures:
        yield "figures.csv", written("csv", figures, report.figures)
    for ladder in report.ladders:
        if not ladder.steps or not report.explains:
            continue
        step = ladder.steps[0]
        scenario = f"{ladder.workload}:{ladder.scenario}"
        found, short = (
            explanation.explain(
                record, step.old, step.new, scenario=scenario, point=ladder.point or None, top=top
            )
            for top in (None, TOP)
        )
        prefix = f"{ladder.scenario}-" if len(report.ladders) > 1 else ""
        prefix += f"{ladder.point}-" if ladder.point else ""
        name = _file_name(f"explain-{prefix}{step.old}-{step.new}")
        yield f"{name}.txt", plain(explain.show(short))
        yield from _written(name, explain, found)


def _written(name: str, view: object, found: object) -> Iterator[tuple[str, str]]:
    """A file for each of the formats beside text that lie there."""
    for form in LEFT:
        yield f"{name}.{form}", written(form, view, found)


def _file_name(name: str) -> str:
    """Labels may hold what a file name must not ("/", control characters)."""
    return re.sub(r"[^A-Za-z0-9._+~-]", "_", name)[:200]
