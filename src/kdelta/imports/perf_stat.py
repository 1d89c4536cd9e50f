# SPDX-License-Identifier: GPL-2.0-or-later
"""What `perf stat -x SEP` and `perf stat -j` write: value, unit, event; with -r the mean of runs.

A file is an arm, or its folder is where several files lie in each; an event that stands again is
of another run.  perf's times are better when they are less; of every other event the mapping says
the direction.  Intervals (-I) are parts of one run and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kdelta.errors import SpecError
from kdelta.imports.declared import Collected, Labels, Sources
from kdelta.imports.files import parsed_json
from kdelta.imports.mapping import Mapping
from kdelta.imports.record import Contents, Pairs, SourceFile
from kdelta.imports.table import TableCell
from kdelta.metric import Better

# Between CPU and value stands, of cores and sockets, how many CPUs were added up.  An event of a
# PMU has its terms between slashes, separated by commas.
_LINE = re.compile(
    r"(?P<time>\s*\d+\.\d+[,;|\t]\s*)?"
    r"(?:(?P<cpu>(?:CPU|S|N|D)\d[\w-]*)(?P<cut>[,;|\t])(?:\d+(?P=cut))?)?"
    r"(?P<value>-?\d+(?:\.\d+)?|<not counted>|<not supported>)(?P<sep>[,;|\t])"
    r"(?P<unit>[A-Za-z/]*)(?P=sep)(?P<event>[A-Za-z](?:/[^/]*/|[^,;|\t/])*)(?P=sep)(?P<rest>.*)\Z"
)
_SCATTER = re.compile(r"\d+(?:\.\d+)?%")
_TIMES = frozenset({"duration_time", "task-clock", "cpu-clock", "user_time", "system_time"})
_PARTS = ("cpu", "core", "socket", "die", "node", "thread")
_INTERVAL = "an interval of perf stat -I, which is part of one run"


class _Event(NamedTuple):
    """One line; averaged: perf ran the command several times and prints the mean."""

    line: int
    name: str
    unit: str
    value: str
    group: Pairs
    averaged: bool


def is_separated(text: str) -> bool:
    """True when the first line that is no remark is one of `perf stat -x`."""
    lines = (line for line in text[:65536].splitlines() if line.strip() and line[0] != "#")
    return bool(_LINE.match(next(lines, "")))


def is_json(first: object) -> bool:
    """True for the first object of `perf stat -j`."""
    return isinstance(first, dict) and {"counter-value", "event"} <= first.keys()


def read(sources: Sources, labels: Labels, mapping: Mapping | None) -> Contents:
    """The events of all files.  Raises SpecError."""
    found = Collected(mapping)
    for number, source in sources:
        for event in _events(source):
            better = Better.LOWER if event.name.partition(":")[0] in _TIMES else None
            place = f"{source.name}: line {event.line}"
            if not found.judged(event.name, event.unit or "events", better, place):
                continue
            cell = TableCell(event.value, source.name, event.line, event.name)
            value = None if event.value.startswith("<") else cell.number()
            key = (number, event.line, labels[number], event.name)
            if event.averaged and value is not None:
                found.summary(*key, group=event.group, mean=value)
            else:
                failure = event.value.strip("<>") if value is None else ""
                found.value(*key, value, group=event.group, failure=failure)
    return found.contents(None)


def _events(source: SourceFile) -> Iterator[_Event]:
    as_json = source.text.lstrip()[:1] == "{"
    for at, line in enumerate(source.text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            yield _object(line, at, source.name) if as_json else _cut(line, at, source.name)


def _cut(line: str, at: int, name: str) -> _Event:
    found = _LINE.match(line)
    if not found:
        raise _wrong("not what perf stat -x writes: value, unit, event", name, at)
    if found["time"]:
        raise _wrong(_INTERVAL, name, at)
    group = (("cpu", found["cpu"]),) if found["cpu"] else ()
    averaged = bool(_SCATTER.match(found["rest"]))
    return _Event(at, found["event"], found["unit"], found["value"], group, averaged)


def _object(line: str, at: int, name: str) -> _Event:
    found = parsed_json(line, name, at, as_written=True)
    if not is_json(found):
        raise _wrong("not what perf stat -j writes: counter-value and event", name, at)
    if "interval" in found:
        raise _wrong(_INTERVAL, name, at)
    unit, value = str(found.get("unit") or ""), str(found["counter-value"])
    group = tuple((part, str(found[part])) for part in _PARTS if part in found)
    return _Event(at, str(found["event"]), unit, value, group, "variance" in found)


def _wrong(cause: str, name: str, at: int) -> SpecError:
    action = "import what perf stat wrote of whole runs, and nothing else"
    return SpecError(cause, place=f"{name}: line {at}", action=action)
