# SPDX-License-Identifier: GPL-2.0-or-later
"""What mmtests leaves: the logs of kernbench, and the table that compare-kernels.sh prints.

A log is kernbench-JOBS-ITERATION.time, or `time`, with what GNU time printed of each kernel build;
the folder names the arm.  The table has the arms in its head, the first of which is the old one,
and of each operation rows such as Amean and Stddev: summaries, without the values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce

from kdelta.errors import SpecError
from kdelta.imports.declared import Collected, Labels, Sources, one_table
from kdelta.imports.mapping import Mapping as Declared
from kdelta.imports.record import Contents, Pairs, SourceFile
from kdelta.metric import Better
from kdelta.printable import printable
from kdelta.verdict.series import ReplicateUnit

_NAMES = ("user", "syst", "elsp")
_FILE = re.compile(r"kernbench-(?P<jobs>\d{1,6})-(?P<iteration>\d{1,6})\.time\Z", re.ASCII)
_TIMES = re.compile(
    r"(?P<user>\d{1,9}(?:\.\d+)?)user\s+(?P<syst>\d{1,9}(?:\.\d+)?)system\s+"
    r"(?P<elsp>(?:\d{1,6}:)?\d{1,6}:\d{1,2}(?:\.\d+)?)elapsed\b",
    re.ASCII,
)
# What GNU time writes before the times of a command that did not succeed.
_FAILED = re.compile(r"Command (?:exited with non-zero status|terminated by signal) \d+\s*\Z")
# Folders of mmtests' layout that name no arm.
_LAYOUT = re.compile(r"(?:logs|noprofile|fine-profile|kernbench|work|log|iter-\d+)\Z")
_PASS = re.compile(r"iter-\d+\Z")
_ROW = re.compile(
    r"(?P<name>[A-Z][A-Za-z]+(?:-\d+)?)\s+(?P<operation>\S+)(?P<cells>(?:\s+\S.*)?)\Z"
)
_CELL = re.compile(
    r"\s+(?P<value>-?\d+(?:\.\d+)?|NaN)\s+[(*]\s*(?i:-?\d+(?:\.\d+)?|-?inf|-?nan)%[)*]"
)
# A mean says its direction: mmtests takes the harmonic one where higher is better.
_MEANS = {"Amean": Better.LOWER, "Hmean": Better.HIGHER}
_SPREADS = {"Amean": "Stddev", "Hmean": "HStddev"}


def is_log(text: str) -> bool:
    """True for text in which GNU time wrote a line."""
    return "elapsed" in text and bool(_TIMES.search(text))


def read_logs(sources: Sources, labels: Labels, mapping: Declared | None) -> Contents:
    """The times of all logs.  Raises SpecError for a log without one."""
    found = Collected(mapping)
    for number, source in sources:
        _log(found, number, source, labels[number])
    return found.contents(ReplicateUnit.PROCESS_ROUND)


def _log(found: Collected, number: int, source: SourceFile, label: str) -> None:
    *folders, base = source.name.split("/")
    file = _FILE.match(base)
    named = [folder for folder in folders if not _LAYOUT.match(folder)]
    arm = named[-1] if named else label
    group: Pairs = (("jobs", file["jobs"]),) if file else ()
    boot_id = "/".join(folder for folder in folders if _PASS.match(folder))
    failure = ""
    for at, line in enumerate(source.text.splitlines(), start=1):
        if ended := _FAILED.match(line):
            failure = ended[0].strip()
        if "elapsed" not in line:
            continue
        times = _TIMES.search(line)
        if not times:
            cause = "an elapsed time that cannot be read"
            place = f"{source.name}: line {at}"
            raise SpecError(cause, place=place, action="leave out a build that did not end")
        for name in _NAMES:
            found.judged(name, "s", Better.LOWER, source.name)
            value = None if failure else _seconds(times[name])
            found.value(number, at, arm, name, value, group=group, failure=failure, boot_id=boot_id)
        failure = ""


def _seconds(text: str) -> float:
    """Seconds of 5.67, 1:02.50 (minutes) or 1:02:03 (hours)."""
    return reduce(lambda total, part: total * 60 + float(part), text.split(":"), 0.0)


def is_comparison(text: str) -> bool:
    """True for a table of compare-kernels.sh: it has a row of means with their percentages."""
    return any(_cells(line) for line in text.splitlines() if line.startswith(tuple(_MEANS)))


def _cells(line: str) -> tuple[str, str, list[str]] | None:
    """(statistic, operation, a figure for each arm) of a row; None for any other line."""
    row = _ROW.match(line.rstrip())
    if not row:
        return None
    values = [cell["value"] for cell in _CELL.finditer(row["cells"])]
    rest = _CELL.sub("", row["cells"]).strip()
    return (row["name"], row["operation"], values) if values and not rest else None


def read_comparison(sources: Sources, _labels: Labels, mapping: Declared | None) -> Contents:
    """The means and deviations of a table; their unit is the mapping's.  Raises SpecError."""
    number, source = one_table(sources)
    found = Collected(mapping)
    lines = list(enumerate(source.text.splitlines(), start=1))
    rows = [(at, *cut) for at, line in lines if (cut := _cells(line))]
    arms = _arms(source, [line for at, line in lines if at < rows[0][0]])
    spreads = {(name, operation): values for _, name, operation, values in rows}
    for at, name, operation, values in rows:
        place = f"{source.name}: line {at}"
        if len(values) != len(arms):
            cause = f"{len(values)} figures for {len(arms)} arms"
            action = "import the whole table as mmtests printed it"
            raise SpecError(cause, place=place, action=action)
        if name not in _MEANS:
            continue
        if operation in found.metrics:
            cause = f"a second mean of {printable(operation, 60)}"
            raise SpecError(cause, place=place, action="import the tables one by one")
        found.judged(operation, "as mmtests prints it", _MEANS[name], place)
        others = spreads.get((_SPREADS[name], operation), ["NaN"] * len(arms))
        for arm, mean, sd in zip(arms, values, others, strict=True):
            found.summary(number, at, arm, operation, mean=_figure(mean), sd=_figure(sd))
    return found.contents(None, order=arms)


def _figure(text: str) -> float | None:
    return None if text == "NaN" else float(text)


def _arms(source: SourceFile, above: Sequence[str]) -> tuple[str, ...]:
    """The arms of the head: one word for each in a line, put together where there are two lines."""
    heads = [line.split() for line in above if line[:1] == " " and line.strip()]
    alike = len({len(words) for words in heads}) == 1
    arms = tuple("-".join(words) for words in zip(*heads, strict=True)) if alike else ()
    if len(set(arms)) != len(arms) or not arms:
        cause = "the head of mmtests' table does not name the arms"
        action = "import the whole table as mmtests printed it"
        raise SpecError(cause, place=source.name, action=action)
    return tuple(printable(arm, 100) for arm in arms)
