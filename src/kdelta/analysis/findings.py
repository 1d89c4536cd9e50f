# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis stage: a stored run -> Report.  All that the renderers may read.

A pure function of the record: another threshold needs no new measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from kdelta.analysis import metrics
from kdelta.analysis.methods import method_of
from kdelta.analysis.metrics import FigureTable, MetricTable
from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import M, ScenarioEvidence, gathered
from kdelta.ladder.ladders import RunLadders, of_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(RunLadders[M]):
    """Everything that a run shows.

    metrics: what workloads told beside their phases; figures: what the study wants to know of
    functions.
    """

    metrics: tuple[MetricTable, ...]
    figures: tuple[FigureTable, ...]


def report(
    record: RunRecord,
    *,
    step_percent: float | None = None,
    known: Sequence[ScenarioEvidence[Any]] | None = None,
) -> Report[Any]:
    """Analyse a stored run.  step_percent None: the study's own threshold.  known: its evidence."""
    method = method_of(record, step_percent=step_percent)
    every = gathered(record, method) if known is None else known
    found = of_run(record, method, every)
    own = {field.name: getattr(found, field.name) for field in fields(found)}
    return Report(
        **own,
        metrics=metrics.tables(record),
        figures=metrics.figure_tables(record) if method.explains else (),
    )
