# SPDX-License-Identifier: GPL-2.0-or-later
"""lkp-tests' matrix.json: statistic -> its value in each run; the folder names the arm."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kdelta.errors import SpecError
from kdelta.foreign.json_text import json_object
from kdelta.foreign.record import ArmFacts, Contents, ForeignReading, SourceFile
from kdelta.metric import Assume, Better, Metric
from kdelta.printable import quoted
from kdelta.verdict.series import ReplicateUnit

FILE = "matrix.json"
_SOURCES = "stats_source"
_INCOMPLETE = "last_state.is_incomplete_run"
_MAX_RUNS = 100_000
# lkp keeps directions in a list of its own; these endings say theirs.
_HIGHER = re.compile(r"(?:throughput|score|_ops|ops_per_sec|_per_sec|_MBps|bandwidth)\Z", re.I)
_LOWER = re.compile(
    r"(?:elapsed_time(?:\.max)?|_time|latency(?:_\w+)?|latency_ns|_ns|_us|_ms)\Z", re.I
)


def read(sources: Sequence[tuple[int, SourceFile]], known: Mapping[str, Metric]) -> Contents:
    """The runs of matrices; `known`: metrics whose unit and direction the user gave."""
    readings: list[ForeignReading] = []
    metrics: dict[str, Metric] = {}
    skipped: dict[str, int] = {}
    arms = []
    for number, source in sources:
        matrix = json_object(source.text, source.name)
        arm = _arm(source.name)
        runs = _runs(matrix, source.name)
        for name, values in matrix.items():
            metric = known.get(name) or metric_of(name)
            if name in (_SOURCES, _INCOMPLETE) or metric is None:
                skipped[source.name] = skipped.get(source.name, 0) + 1
                continue
            metrics[name] = metric
            readings += _values(number, source.name, arm, metric, values, runs)
        booted = ReplicateUnit.BOOT if _SOURCES in matrix else ReplicateUnit.PROCESS_ROUND
        arms.append(ArmFacts(arm=arm, group=(), facts=(), replicate=booted, planned=len(runs)))
    notes = tuple(
        f"{name}: {count} statistics are kept and not judged, no direction is known for them"
        for name, count in skipped.items()
    )
    return Contents(
        metrics=tuple(metrics.values()), readings=tuple(readings), arms=tuple(arms), notes=notes
    )


def _arm(name: str) -> str:
    parts = name.split("/")
    return parts[-2] if len(parts) > 1 else parts[0].partition(".")[0]


def metric_of(name: str) -> Metric | None:
    """What a statistic is by its name; None: nothing says which direction is better."""
    if name.startswith(("perf-", "proc-vmstat", "meminfo", "slabinfo", "sched_debug")):
        return None
    better = (
        Better.HIGHER if _HIGHER.search(name) else Better.LOWER if _LOWER.search(name) else None
    )
    if better is None:
        return None
    return Metric(name=name, unit=name.rpartition(".")[2], better=better, assume=Assume.NOTHING)


def _runs(matrix: Mapping[str, Any], name: str) -> tuple[tuple[str, bool], ...]:
    """(identity, complete) of each run; without their names as many as a list has values."""
    longest = max((len(each) for each in matrix.values() if isinstance(each, list)), default=0)
    sources = matrix.get(_SOURCES, [str(at) for at in range(longest)] if longest > 1 else None)
    if not isinstance(sources, list) or not 0 < len(sources) <= _MAX_RUNS:
        raise SpecError(
            f"{_SOURCES} is no list of runs",
            place=name,
            action="import the matrix.json that lkp made of several runs, not that of one",
        )
    marks = matrix.get(_INCOMPLETE, [])
    if not isinstance(marks, list):
        raise SpecError(f"{_INCOMPLETE} is no list", place=name)
    return tuple(
        ("/".join(str(source).split("/")[-3:-1]) or str(source), marks[at : at + 1] != [1])
        for at, source in enumerate(sources)
    )


def _values(
    number: int,
    name: str,
    arm: str,
    metric: Metric,
    values: Any,
    runs: Sequence[tuple[str, bool]],
) -> Iterator[ForeignReading]:
    place = f"{name}: {metric.name}"
    if not isinstance(values, list) or len(values) > len(runs):
        raise SpecError(f"it is no list of at most {len(runs)} values", place=place)
    for at, (run, complete) in enumerate(runs):
        value = values[at] if at < len(values) else None
        if value is not None and (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise SpecError(f"{quoted(str(value))} is not a number", place=f"{place}[{at}]")
        used = complete and value is not None
        yield ForeignReading(
            source=number,
            line=at + 1,
            arm=arm,
            metric=metric.name,
            value=float(value) if used and value is not None else None,
            failure="" if used else "no value" if complete else "lkp marked the run incomplete",
            replicate=f"{arm} run {at}",
            round=at,
            run=run,
        )
