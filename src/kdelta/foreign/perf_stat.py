# SPDX-License-Identifier: GPL-2.0-or-later
"""What `perf stat -x SEP` writes: value, unit, event, and with -r the scatter in percent.

A file is an arm, or its folder is where several files lie in each; what perf wrote of one command
is a run, also when several were appended to one file.  Intervals (-I) are of one run, and nothing
says whether less in a second is better.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kdelta.errors import SpecError
from kdelta.foreign.record import Contents, ForeignReading, Pairs, Published, SourceFile, each_arm
from kdelta.foreign.tables import TableCell
from kdelta.metric import Assume, Better, Metric
from kdelta.printable import printable

_LINE = re.compile(
    r"(?:\s*(?P<time>\d+\.\d+)[,;|\t]\s*)?"
    r"(?:(?P<cpu>(?:CPU|S|N)\d[\w-]*)(?P<cut>[,;|\t]))?"
    r"(?P<value>-?\d+(?:\.\d+)?|<not counted>|<not supported>)(?P<sep>[,;|\t])"
    r"(?P<unit>[A-Za-z/]*)(?P=sep)(?P<event>[A-Za-z][^,;|\t]*)(?P=sep)(?P<rest>.*)\Z"
)
_SCATTER = re.compile(r"\d+(?:\.\d+)?%")
_LOWER = re.compile(
    r"(?:task-clock|cpu-clock|duration_time|user_time|system_time|cycles|instructions|ref-cycles"
    r"|cpu-cycles|.*(?:misses|faults|switches|migrations|stalls|stalled-cycles\S*))(?::\w+)?\Z"
)


def looks_like(text: str) -> bool:
    """True when the first line that is no remark is one of perf's."""
    lines = (line for line in text[:65536].splitlines() if line.strip() and line[0] != "#")
    return bool(_LINE.match(next(lines, "")))


def is_cost(event: str) -> bool:
    """True for an event of which fewer are better, where the work is the same."""
    return bool(_LOWER.match(event))


def read(
    sources: Sequence[tuple[int, SourceFile]], texts: Sequence[str], labels: Mapping[int, str]
) -> Contents:
    """The counts of all files.  Raises SpecError.  labels: what names the arm of a source."""
    readings: list[ForeignReading] = []
    published: list[Published] = []
    metrics: dict[str, Metric] = {}
    left: dict[str, None] = {}
    counts: Counter[tuple[str, Pairs, str]] = Counter()
    begun: set[tuple[int, str]] = set()  # intervals of one file are of one run
    folders = _folders(sources)
    for (number, source), text in zip(sources, texts, strict=True):
        arm = folders.get(number, labels[number])
        for at, found in _lines(source.name, text):
            name = found["event"]
            if not _LOWER.match(name):
                left[name] = None
                continue
            unit = found["unit"] or "events"
            # So much in a second is neither good nor bad: the work is not the same.
            better = Better.NONE if found["time"] else Better.LOWER
            metrics[name] = Metric(name=name, unit=unit, better=better, assume=Assume.NOTHING)
            group: Pairs = (("cpu", found["cpu"]),) if found["cpu"] else ()
            missing = found["value"].startswith("<")
            cell = TableCell(found["value"], source.name, at, name)
            if _SCATTER.match(found["rest"]) and not missing:
                mean = cell.number()
                published.append(
                    Published(source=number, line=at, arm=arm, metric=name, group=group, mean=mean)
                )
                continue
            if not found["time"] or (number, name) not in begun:
                counts[arm, group, name] += 1
            begun.add((number, name))
            count = counts[arm, group, name]
            readings.append(
                ForeignReading(
                    source=number,
                    line=at,
                    arm=arm,
                    metric=name,
                    value=None if missing else cell.number(),
                    failure=found["value"].strip("<>") if missing else "",
                    replicate=f"{arm} r{count}",
                    group=group,
                    round=count,
                )
            )
    return Contents(
        metrics=tuple(metrics.values()),
        readings=tuple(readings),
        published=tuple(published),
        arms=each_arm(readings, None),
        notes=tuple(
            f"{printable(name, 60)} is kept and not judged, no direction is known for it"
            for name in left
        ),
    )


def _folders(sources: Sequence[tuple[int, SourceFile]]) -> dict[int, str]:
    """The folder of each source, where at least two folders hold the files."""
    found = {number: source.name.split("/")[:-1] for number, source in sources}
    names = {number: folders[-1] if folders else "" for number, folders in found.items()}
    several = len(set(names.values())) > 1 and all(names.values())
    return names if several and len(names) > len(set(names.values())) else {}


def _lines(name: str, text: str) -> Iterator[tuple[int, re.Match[str]]]:
    for at, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.match(line)
        if not found:
            raise SpecError(
                "not what perf stat -x writes: value, unit, event",
                place=f"{name}: line {at}",
                action="leave out what perf did not write",
            )
        yield at, found
