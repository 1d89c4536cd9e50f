# SPDX-License-Identifier: GPL-2.0-or-later
"""What tools of the kernel's own developers print: mails of the test robot, histograms of traces.

A record is a figure, with unit and direction.  A text is of a program only by lines that no other
prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kdelta.foreign import lkp
from kdelta.foreign.arms import is_version, side
from kdelta.foreign.numerals import POWERED
from kdelta.foreign.records import Numbered, Record
from kdelta.metric import Better

Lines = Sequence[tuple[int, str]]

_SCATTER = r"(?:\s*(?:\u00b1|\+-)\s*(?P<sd{0}>\d+(?:\.\d+)?)%)?"
_COMMITS = re.compile(r"(?P<old>[0-9a-f]{12,40})\s+(?P<new>[0-9a-f]{12,40})\s*\Z")
_STDDEV = re.compile(r"\s*%stddev\s+%change\s+%stddev\s*\Z")
_LKP_ROW = re.compile(
    rf"\s*(?P<old>{POWERED}){_SCATTER.format(1)}\s+(?:[-+]\d+(?:\.\d+)?%?\s+)?"
    rf"(?P<new>{POWERED}){_SCATTER.format(2)}\s+(?P<name>[A-Za-z][\w.:/+%-]*)\s*\Z"
)
_LKP_SETTINGS = re.compile(r"\s+(?P<values>\S+/\S+/\S+)\s*\Z")
_RULE = re.compile(r"\s*={20,}\s*\Z")
_MAP = re.compile(r"(?P<map>@\w*(?:\[[^\]]*\])?): *\Z")
_BUCKET = re.compile(
    r"(?P<bucket>(?:\[|\(\.\.\., )-?\d+[KMGTP]?(?:, (?:-?\d+[KMGTP]?|\.\.\.)\)|\]|\))) +"
    r"(?P<count>\d+) \|[@ ]*\|\s*\Z"
)
_KEYED = re.compile(r"(?P<map>@\w*)\[(?P<key>[^\]]*)\]")
_TRIGGER = re.compile(r"#\s*trigger info: hist:")
_HITS = re.compile(r"\{(?P<keys>[^{}]+)\}\s*hitcount:\s*(?P<hits>\d+)\b")


def lkp_mail(lines: Lines) -> Iterator[Numbered]:
    """Both halves of each line with a known direction; no scatter is shown where it is small."""
    arms: tuple[str, str] | None = None
    settings, ruled, comparing = "", False, False
    for number, line in lines:
        if _RULE.match(line):
            arms, settings, ruled, comparing = None, "", True, False
        elif ruled and (found := _LKP_SETTINGS.match(line)):
            settings, ruled = found["values"], False
        elif commits := _COMMITS.match(line):
            arms, comparing = (commits["old"][:12], commits["new"][:12]), False
        elif arms and _STDDEV.match(line):
            comparing = True
        elif arms and comparing and (row := _LKP_ROW.match(line)):
            metric = lkp.metric_of(row["name"])
            if metric is None:
                continue
            said = {"metric": metric.name, "unit": metric.unit, "better": metric.better.value}
            said |= {"setting": settings} if settings else {}
            for arm, role, value, sd in (
                (arms[0], "parent", row["old"], row["sd1"]),
                (arms[1], "child", row["new"], row["sd2"]),
            ):
                yield number, _summary(said | {"kernel": f"{role} {arm}"}, value, sd)


def _summary(said: Record, mean: str, percent: str | None) -> Record:
    if percent is None:
        return said | {"mean": mean}
    return said | {"mean": mean, "sd": f"{float(mean) * float(percent) / 100:.6g}"}


def histograms(lines: Lines) -> Iterator[Numbered]:
    """Hits in each bucket of bpftrace's histograms, or of each key of ftrace's; none is better."""
    name, trigger = "", False
    for number, line in lines:
        text = line.strip()
        if found := _MAP.match(text):
            name = found["map"]
        elif name and (bucket := _BUCKET.match(text)):
            yield number, _hits(name, bucket["bucket"], bucket["count"])
        elif _TRIGGER.match(text):
            trigger = True
        elif trigger and (hit := _HITS.match(text)):
            keys = " ".join(hit["keys"].split())
            yield number, _hits(keys.partition(":")[0], keys, hit["hits"])
        elif not name or not text:
            name = ""


def _hits(name: str, bucket: str, count: str) -> Record:
    said = {"metric": f"hits of {name}", "unit": "events", "better": Better.NONE.value}
    if (keyed := _KEYED.fullmatch(name)) and (is_version(keyed["key"]) or side(keyed["key"])):
        said |= {"metric": f"hits of {keyed['map']}", "kernel": keyed["key"]}
    return said | {"bucket": bucket, "value": count}
