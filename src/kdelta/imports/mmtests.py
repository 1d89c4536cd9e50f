# SPDX-License-Identifier: GPL-2.0-or-later
"""What mmtests leaves: the logs of kernbench, and the table that compare-kernels.sh prints.

A log is kernbench-JOBS-ITERATION.time, or `time`, with what GNU time printed of each kernel build;
the folder names the arm.  The table has the arms in its head, the first of which is the old one,
and of each operation rows such as Amean and Stddev: summaries, without the values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kdelta.errors import SpecError
from kdelta.imports.mapping import Mapping as Declared
from kdelta.imports.mapping import settled
from kdelta.imports.record import Contents, ImportReading, Pairs, Published, SourceFile, each_arm
from kdelta.metric import Assume, Better, Metric
from kdelta.printable import printable
from kdelta.verdict.series import ReplicateUnit

METRICS = tuple(
    Metric(name=name, unit="s", better=Better.LOWER, assume=Assume.NOTHING)
    for name in ("user", "syst", "elsp")
)
_FILE = re.compile(r"kernbench-(?P<jobs>\d{1,6})-(?P<iteration>\d{1,6})\.time\Z", re.ASCII)
_TIMES = re.compile(
    r"(?P<user>\d{1,9}(?:\.\d+)?)user\s+(?P<syst>\d{1,9}(?:\.\d+)?)system\s+"
    r"(?P<elsp>(?:\d{1,6}:)?\d{1,6}:\d{1,2}(?:\.\d+)?)elapsed\b",
    re.ASCII,
)
# Folders of mmtests' layout that name no arm.
_LAYOUT = re.compile(r"(?:logs|noprofile|fine-profile|kernbench|work|log|iter-\d+)\Z")
_PASS = re.compile(r"iter-\d+\Z")
_ROW = re.compile(
    r"(?P<name>[A-Z][A-Za-z]+(?:-\d+)?)\s+(?P<operation>\S+)(?P<cells>(?:\s+\S.*)?)\Z"
)
_CELL = re.compile(r"\s+(?P<value>-?\d+(?:\.\d+)?|NaN)\s+[(*]\s*-?\d+(?:\.\d+)?%[)*]")
# A mean says its direction: mmtests takes the harmonic one where higher is better.
_MEANS = {"Amean": Better.LOWER, "Hmean": Better.HIGHER}
_SPREADS = {"Amean": "Stddev", "Hmean": "HStddev"}


def is_log(text: str) -> bool:
    """True for text in which GNU time wrote a line."""
    return bool(_TIMES.search(text))


def read_logs(sources: Sequence[tuple[int, SourceFile]], labels: Mapping[int, str]) -> Contents:
    """The times of all logs.  Raises SpecError for a log without one.

    labels: of each source, what names its arm where no folder does.
    """
    readings: list[ImportReading] = []
    counts: Counter[tuple[str, Pairs]] = Counter()
    for number, source in sources:
        readings += _log(number, source, labels[number], counts)
    arms = each_arm(readings, ReplicateUnit.PROCESS_ROUND)
    return Contents(metrics=METRICS, readings=tuple(readings), arms=arms)


def _log(
    number: int, source: SourceFile, label: str, counts: Counter[tuple[str, Pairs]]
) -> Iterator[ImportReading]:
    *folders, base = source.name.split("/")
    file = _FILE.match(base)
    named = [folder for folder in folders if not _LAYOUT.match(folder)]
    arm = named[-1] if named else label
    group: Pairs = (("jobs", file["jobs"]),) if file else ()
    boot_id = "/".join(folder for folder in folders if _PASS.match(folder))
    for at, line in enumerate(source.text.splitlines(), start=1):
        if "elapsed" not in line:
            continue
        found = _TIMES.search(line)
        if not found:
            raise SpecError(
                "an elapsed time that cannot be read",
                place=f"{source.name}: line {at}",
                action="leave out a build that did not end",
            )
        counts[arm, group] += 1
        count = counts[arm, group]
        for metric in METRICS:
            yield ImportReading(
                source=number,
                line=at,
                arm=arm,
                metric=metric.name,
                value=_seconds(found[metric.name]),
                replicate=f"{arm} i{count}",
                group=group,
                round=count,
                boot_id=boot_id,
            )


def _seconds(text: str) -> float:
    """Seconds of 5.67, 1:02.50 (minutes) or 1:02:03 (hours)."""
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + float(part)
    return total


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


def read_comparison(number: int, source: SourceFile, mapping: Declared | None) -> Contents:
    """The means and deviations of a table; the unit of an operation is the mapping's to say.

    Raises SpecError for a row that has not a figure for each arm of the head.
    """
    lines = list(enumerate(source.text.splitlines(), start=1))
    rows = [(at, *found) for at, line in lines if (found := _cells(line))]
    arms = _arms(source, [line for at, line in lines if at < rows[0][0]])
    spreads = {(name, operation): values for _, name, operation, values in rows}
    metrics: dict[str, Metric] = {}
    published = []
    for at, name, operation, values in rows:
        if len(values) != len(arms):
            raise SpecError(
                f"{len(values)} figures for {len(arms)} arms",
                place=f"{source.name}: line {at}",
                action="import the whole table as mmtests printed it",
            )
        if name not in _MEANS:
            continue
        metric = settled(operation, "as mmtests prints it", _MEANS[name], mapping)
        if metric:
            metrics[operation] = metric
        others = spreads.get((_SPREADS[name], operation), ["NaN"] * len(arms))
        for arm, mean, sd in zip(arms, values, others, strict=True):
            published.append(
                Published(
                    source=number,
                    line=at,
                    arm=arm,
                    metric=operation,
                    mean=None if mean == "NaN" else float(mean),
                    sd=None if sd == "NaN" else float(sd),
                )
            )
    return Contents(
        metrics=tuple(metrics.values()),
        published=tuple(published),
        arms=each_arm(published, None),
        order=arms,
    )


def _arms(source: SourceFile, above: Sequence[str]) -> tuple[str, ...]:
    """The arms of the head: one word for each in a line, put together where there are two lines."""
    heads = [line.split() for line in above if line[:1] == " " and line.strip()]
    alike = len({len(words) for words in heads}) == 1
    arms = tuple("-".join(words) for words in zip(*heads, strict=True)) if alike else ()
    if len(set(arms)) != len(arms) or not arms:
        raise SpecError(
            "the head of mmtests' table does not name the arms",
            place=source.name,
            action="import the whole table as mmtests printed it",
        )
    return tuple(printable(arm, 100) for arm in arms)
