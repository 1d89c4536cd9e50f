# SPDX-License-Identifier: GPL-2.0-or-later
"""What lkp-tests leaves: matrix.json, and the table of the kernel test robot's mails.

A matrix has a list of values for each statistic, one for each run; the folder names the arm.  The
table has two commits, the parent and the child, and rows of `%stddev  %change  %stddev`.  Neither
says which direction of a statistic is better: a mapping does, for each that is to be judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kdelta.errors import SpecError
from kdelta.imports.declared import Collected, Labels, Sources, one_table
from kdelta.imports.files import json_object
from kdelta.imports.mapping import Mapping as Declared
from kdelta.imports.record import ArmFacts, Contents, Roles
from kdelta.imports.table import TableCell, json_number
from kdelta.verdict.series import ReplicateUnit

FILE = "matrix.json"
_SOURCES = "stats_source"
_INCOMPLETE = "last_state.is_incomplete_run"
_MAX_RUNS = 100_000
_FIGURE = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,4})?"
_SCATTER = r"(?:\s*(?:\u00b1|\+-)\s*(?P<sd{0}>\d+(?:\.\d+)?)%)?"
_COMMITS = re.compile(r"(?P<old>[0-9a-f]{12,40})\s+(?P<new>[0-9a-f]{12,40})\s*\Z")
_HEAD = re.compile(r"\s*%stddev\s+%change\s+%stddev\s*\Z")
_ROW = re.compile(
    rf"\s*(?P<old>{_FIGURE}){_SCATTER.format(1)}\s+[-+]\d+(?:\.\d+)?(?:e[-+]?\d+)?%\s+"
    rf"(?P<new>{_FIGURE}){_SCATTER.format(2)}\s+(?P<name>[A-Za-z][\w.:/+%-]*)\s*\Z"
)
_SETTINGS = re.compile(r"\s+(?P<values>\S+/\S+/\S+)\s*\Z")
_RULE = re.compile(r"={20,}\s*\Z")


def read_matrices(sources: Sources, labels: Labels, mapping: Declared | None) -> Contents:
    """The runs of matrices, of each statistic that the mapping gives a direction."""
    found = Collected(mapping)
    arms = []
    for number, source in sources:
        matrix = json_object(source.text, source.name)
        arm = labels[number]
        runs = _runs(matrix, source.name)
        for name, values in matrix.items():
            unit = name.rpartition(".")[2]
            if name not in (_SOURCES, _INCOMPLETE) and found.judged(name, unit, None, source.name):
                _values(found, (number, source.name, arm, name), values, runs)
        booted = ReplicateUnit.BOOT if _SOURCES in matrix else ReplicateUnit.PROCESS_ROUND
        arms.append(ArmFacts(arm=arm, group=(), replicate=booted, planned=len(runs)))
    return found.contents(None, arms=tuple(arms))


def _runs(matrix: Mapping[str, Any], name: str) -> tuple[tuple[str, bool], ...]:
    """(identity, complete) of each run; without their names as many as a list has values."""
    longest = max((len(each) for each in matrix.values() if isinstance(each, list)), default=0)
    sources = matrix.get(_SOURCES, [str(at) for at in range(longest)] if longest > 1 else None)
    if not isinstance(sources, list) or not 0 < len(sources) <= _MAX_RUNS:
        action = "import the matrix.json that lkp made of several runs, not that of one"
        raise SpecError(f"{_SOURCES} is no list of runs", place=name, action=action)
    marks = matrix.get(_INCOMPLETE, [])
    if not isinstance(marks, list):
        raise SpecError(f"{_INCOMPLETE} is no list", place=name)
    return tuple(
        ("/".join(str(source).split("/")[-3:-1]) or str(source), marks[at : at + 1] != [1])
        for at, source in enumerate(sources)
    )


def _values(
    found: Collected, key: tuple[int, str, str, str], values: Any, runs: Sequence[tuple[str, bool]]
) -> None:
    """Keep the values of a (source, its name, arm, metric)."""
    number, name, arm, metric = key
    place = f"{name}: {metric}"
    if not isinstance(values, list) or len(values) > len(runs):
        raise SpecError(f"it is no list of at most {len(runs)} values", place=place)
    for at, (run, complete) in enumerate(runs):
        value, failure = None, "no value" if complete else "lkp marked the run incomplete"
        if at < len(values) and values[at] is not None:
            value = json_number(values[at], place, f"run {at + 1}")
        if complete and value is not None:
            failure = ""
        value, said = None if failure else value, {"failure": failure, "round": at, "run": run}
        found.value(number, at + 1, arm, metric, value, f"run {at}", **said)


def is_robot_table(text: str) -> bool:
    """True for text with a line of two commits and the robot's head below it."""
    lines = text.splitlines()
    return any(map(_COMMITS.match, lines)) and any(map(_HEAD.match, lines))


def read_robot_table(sources: Sources, _labels: Labels, mapping: Declared | None) -> Contents:
    """Means and deviations of both sides of each row whose statistic has a direction."""
    number, source = one_table(sources)
    found = Collected(mapping)
    arms: tuple[str, ...] | None = None
    settings, ruled, below_head = "", False, False
    for at, line in enumerate(source.text.splitlines(), start=1):
        place = f"{source.name}: line {at}"
        if _RULE.match(line):
            settings, ruled, below_head = "", True, False
        elif ruled and (named := _SETTINGS.match(line)):
            settings, ruled = named["values"], False
        elif commits := _COMMITS.match(line):
            pair = tuple(commit[:12] for commit in commits.groups())
            if arms not in (None, pair):
                action = "import one pair at a time"
                raise SpecError("a second pair of commits", place=place, action=action)
            arms, below_head = pair, False
        elif _HEAD.match(line):
            below_head = True
        elif arms and below_head and (row := _ROW.match(line)):
            name = row["name"]
            if found.judged(name, name.rpartition(".")[2], None, place):
                group = (("setting", settings),) if settings else ()
                for arm, side, key in ((arms[0], "old", "sd1"), (arms[1], "new", "sd2")):
                    mean, percent = TableCell(row[side], source.name, at, name).number(), row[key]
                    sd = None if percent is None else abs(mean) * float(percent) / 100
                    found.summary(number, at, arm, name, group=group, mean=mean, sd=sd)
    roles = Roles(old=arms[0], new=(arms[1],)) if arms else None
    return found.contents(None, order=arms or (), roles=roles)
