# SPDX-License-Identifier: GPL-2.0-or-later
"""What lkp-tests leaves: matrix.json, and the table of the kernel test robot's mails.

A matrix has a list of values for each statistic, one for each run; the folder names the arm.  The
table has two commits, the parent and the child, and rows of `%stddev  %change  %stddev`.  Neither
says which direction of a statistic is better: a mapping does, for each that is to be judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kdelta.errors import SpecError
from kdelta.imports.files import json_object
from kdelta.imports.mapping import Mapping as Declared
from kdelta.imports.mapping import left_out, settled
from kdelta.imports.record import (
    ArmFacts,
    Contents,
    ImportReading,
    Published,
    Roles,
    SourceFile,
    each_arm,
)
from kdelta.metric import Metric
from kdelta.printable import quoted
from kdelta.verdict.series import ReplicateUnit

FILE = "matrix.json"
_SOURCES = "stats_source"
_INCOMPLETE = "last_state.is_incomplete_run"
_MAX_RUNS = 100_000
_FIGURE = r"\d+(?:\.\d+)?(?:[eE][-+]?\d{1,4})?"
_SCATTER = r"(?:\s*(?:\u00b1|\+-)\s*(?P<sd{0}>\d+(?:\.\d+)?)%)?"
_COMMITS = re.compile(r"(?P<old>[0-9a-f]{12,40})\s+(?P<new>[0-9a-f]{12,40})\s*\Z")
_HEAD = re.compile(r"\s*%stddev\s+%change\s+%stddev\s*\Z")
_ROW = re.compile(
    rf"\s*(?P<old>{_FIGURE}){_SCATTER.format(1)}\s+[-+]\d+(?:\.\d+)?%\s+"
    rf"(?P<new>{_FIGURE}){_SCATTER.format(2)}\s+(?P<name>[A-Za-z][\w.:/+%-]*)\s*\Z"
)
_SETTINGS = re.compile(r"\s+(?P<values>\S+/\S+/\S+)\s*\Z")
_RULE = re.compile(r"={20,}\s*\Z")


def read_matrices(
    sources: Sequence[tuple[int, SourceFile]], labels: Mapping[int, str], mapping: Declared | None
) -> Contents:
    """The runs of matrices, of each statistic that the mapping gives a direction."""
    readings: list[ImportReading] = []
    metrics: dict[str, Metric] = {}
    skipped: dict[str, None] = {}
    arms = []
    for number, source in sources:
        matrix = json_object(source.text, source.name)
        arm = labels[number]
        runs = _runs(matrix, source.name)
        for name, values in matrix.items():
            if name in (_SOURCES, _INCOMPLETE):
                continue
            metric = settled(name, name.rpartition(".")[2], None, mapping)
            if metric is None:
                skipped[name] = None
                continue
            metrics[name] = metric
            readings += _values(number, source.name, arm, metric, values, runs)
        booted = ReplicateUnit.BOOT if _SOURCES in matrix else ReplicateUnit.PROCESS_ROUND
        arms.append(ArmFacts(arm=arm, group=(), replicate=booted, planned=len(runs)))
    return Contents(
        metrics=tuple(metrics.values()),
        readings=tuple(readings),
        arms=tuple(arms),
        notes=left_out(tuple(skipped)),
    )


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
) -> Iterator[ImportReading]:
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
        yield ImportReading(
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


def is_robot_table(text: str) -> bool:
    """True for text with a line of two commits and the robot's head below it."""
    lines = text.splitlines()
    return any(map(_COMMITS.match, lines)) and any(map(_HEAD.match, lines))


def read_robot_table(number: int, source: SourceFile, mapping: Declared | None) -> Contents:
    """Both sides of each row whose statistic the mapping gives a direction: means and deviations.

    The robot shows no deviation where it is small, and not how many runs it had.
    """
    metrics: dict[str, Metric] = {}
    skipped: dict[str, None] = {}
    published: list[Published] = []
    arms: tuple[str, str] | None = None
    settings, ruled, below_head = "", False, False
    for at, line in enumerate(source.text.splitlines(), start=1):
        if _RULE.match(line):
            settings, ruled, below_head = "", True, False
        elif ruled and (found := _SETTINGS.match(line)):
            settings, ruled = found["values"], False
        elif commits := _COMMITS.match(line):
            if arms not in (None, (commits["old"][:12], commits["new"][:12])):
                raise SpecError(
                    "a second pair of commits",
                    place=f"{source.name}: line {at}",
                    action="import one pair at a time",
                )
            arms, below_head = (commits["old"][:12], commits["new"][:12]), False
        elif _HEAD.match(line):
            below_head = True
        elif arms and below_head and (row := _ROW.match(line)):
            name = row["name"]
            metric = settled(name, name.rpartition(".")[2], None, mapping)
            if metric is None:
                skipped[name] = None
                continue
            metrics[name] = metric
            for arm, side, key in ((arms[0], "old", "sd1"), (arms[1], "new", "sd2")):
                mean, percent = float(row[side]), row[key]
                published.append(
                    Published(
                        source=number,
                        line=at,
                        arm=arm,
                        metric=name,
                        group=(("setting", settings),) if settings else (),
                        mean=mean,
                        sd=None if percent is None else mean * float(percent) / 100,
                    )
                )
    return Contents(
        metrics=tuple(metrics.values()),
        published=tuple(published),
        arms=each_arm(published, None),
        order=arms or (),
        roles=Roles(old=arms[0], new=(arms[1],)) if arms else None,
        notes=left_out(tuple(skipped)),
    )
