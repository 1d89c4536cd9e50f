# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures that workloads tell beside their phases, by arm; they are told and never judged."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import points
from kdelta.metric import Better
from kdelta.sample import ArmRecord, MetricValue, Outcome, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCell:
    """One metric of one arm over its trials that ended ok.

    median, minimum, maximum: of the n trials that have a value, None without any; ratio: of the
    median to the first arm's, None where there is no such ratio; absent: why trials have no value.
    Neither a value nor a reason: no trial told it.
    """

    arm: str
    median: float | None
    minimum: float | None
    maximum: float | None
    n: int
    ratio: float | None
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric over the arms of its table, in their order."""

    name: str
    unit: str
    better: Better
    cells: tuple[MetricCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """All metrics of one scenario at one point of the study's matrix ("" without one)."""

    workload: str
    scenario: str
    point: str
    arms: tuple[str, ...]
    rows: tuple[MetricRow, ...]

    def row(self, name: str) -> MetricRow | None:
        """The metric of that name."""
        return next((row for row in self.rows if row.name == name), None)


def tables(record: RunRecord) -> tuple[MetricTable, ...]:
    """The tables of a run, in the order of its matrix and of its scenarios' names."""
    found = []
    for point, part in points(record):
        names = sorted({(trial.workload, trial.scenario) for trial in part.trials})
        for workload, scenario in names:
            own = [t for t in part.trials if (t.workload, t.scenario) == (workload, scenario)]
            rows = _rows(part.arms, own)
            if rows:
                found.append(
                    MetricTable(
                        workload=workload,
                        scenario=scenario,
                        point=point,
                        arms=tuple(arm.label for arm in part.arms),
                        rows=rows,
                    )
                )
    return tuple(found)


def _rows(arms: Sequence[ArmRecord], trials: Sequence[TrialRecord]) -> tuple[MetricRow, ...]:
    """In the order in which the program tells them; what belongs to a family stays together."""
    told: dict[str, dict[int, list[MetricValue]]] = {}
    for trial in trials:
        if trial.result and trial.result.outcome is Outcome.OK:
            for metric in trial.result.metrics:
                told.setdefault(metric.name, {}).setdefault(trial.arm, []).append(metric)
    families = list(dict.fromkeys(_family(name) for name in told))
    ordered = sorted(told, key=lambda name: families.index(_family(name)))
    return tuple(_row(name, arms, told[name]) for name in ordered)


def _family(name: str) -> str:
    return name.partition(".")[0]


def _row(name: str, arms: Sequence[ArmRecord], told: dict[int, list[MetricValue]]) -> MetricRow:
    example = next(iter(told.values()))[0]
    medians = [_median(told.get(arm.index, [])) for arm in arms]
    cells = []
    for arm, median in zip(arms, medians, strict=True):
        values = _values(told.get(arm.index, []))
        absent = [one.absent for one in told.get(arm.index, []) if one.value is None]
        cells.append(
            MetricCell(
                arm=arm.label,
                median=median,
                minimum=min(values, default=None),
                maximum=max(values, default=None),
                n=len(values),
                ratio=median / medians[0] if median is not None and medians[0] else None,
                absent=tuple(dict.fromkeys(absent)),
            )
        )
    return MetricRow(name=name, unit=example.unit, better=example.better, cells=tuple(cells))


def _values(told: Sequence[MetricValue]) -> list[float]:
    return [one.value for one in told if one.value is not None]


def _median(told: Sequence[MetricValue]) -> float | None:
    values = _values(told)
    return statistics.median(values) if values else None
