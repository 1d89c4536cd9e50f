# SPDX-License-Identifier: GPL-2.0-or-later
"""mmtests' kernbench logs: what GNU time printed of each kernel build, in seconds.

A file is kernbench-JOBS-ITERATION.time (any folder names the arm), or one named `time` or *.time
with a line for each iteration.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kdelta.errors import SpecError
from kdelta.foreign.record import Contents, ForeignReading, Pairs, SourceFile, each_arm
from kdelta.metric import Assume, Better, Metric
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


def looks_like(text: str) -> bool:
    """True for text in which GNU time wrote a line."""
    return bool(_TIMES.search(text))


def read(
    sources: Sequence[tuple[int, SourceFile]], texts: Sequence[str], labels: Mapping[int, str]
) -> Contents:
    """The times of all logs.  Raises SpecError for a log without one.

    labels: of each source, what names its arm where no folder does.
    """
    readings: list[ForeignReading] = []
    counts: Counter[tuple[str, Pairs]] = Counter()
    for (number, source), text in zip(sources, texts, strict=True):
        found = list(_log(number, source.name, text, labels[number], counts))
        if not found:
            raise SpecError(
                "no line such as 12.34user 5.67system 0:11.22elapsed",
                place=f"{source.name}: line {len(text.splitlines()) or 1}",
                action="leave out a build that did not end",
            )
        readings += found
    arms = each_arm(readings, ReplicateUnit.PROCESS_ROUND)
    return Contents(metrics=METRICS, readings=tuple(readings), arms=arms)


def _log(
    number: int, name: str, text: str, label: str, counts: Counter[tuple[str, Pairs]]
) -> Iterator[ForeignReading]:
    *folders, base = name.split("/")
    file = _FILE.match(base)
    named = [folder for folder in folders if not _LAYOUT.match(folder)]
    arm = named[-1] if named else label
    group: Pairs = (("jobs", file["jobs"]),) if file else ()
    boot_id = "/".join(folder for folder in folders if _PASS.match(folder))
    for at, line in enumerate(text.splitlines(), start=1):
        if "elapsed" not in line:
            continue
        found = _TIMES.search(line)
        if not found:
            raise SpecError(
                "an elapsed time that cannot be read", place=f"{name}: line {at}, column elapsed"
            )
        counts[arm, group] += 1
        count = counts[arm, group]
        for metric in METRICS:
            yield ForeignReading(
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
