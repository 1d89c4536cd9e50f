# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs print that move data or build: STREAM, usemem, dd, dbench, YCSB, iperf3, kernbench.

A record is a figure, with unit and direction.  A text is of a program only by lines that no other
prints; what a program says of failures is its status.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from kdelta.foreign.numerals import POWERED
from kdelta.foreign.records import Numbered, Record
from kdelta.metric import Better

Lines = Sequence[tuple[int, str]]

_STREAM_HEAD = re.compile(r"Function\s+(?:Best )?Rate (?:\(MB/s\)|MB/s)\s+Avg time\s")
_STREAM = re.compile(
    rf"(?P<function>Copy|Scale|Add|Triad):\s+(?P<rate>{POWERED})\s+(?P<time>{POWERED})"
    rf"\s+{POWERED}\s+{POWERED}\s*\Z"
)
_USEMEM = re.compile(r"\s*\d+ bytes / \d+ usecs = (?P<rate>\d+) KB/s\s*\Z")
_STREAM_FAILED = re.compile(r"\s*Failed Validation\b")
_DD = re.compile(
    rf"(?P<bytes>\d+) bytes (?:\([^)]*\) )?copied, (?P<seconds>{POWERED}) s(?:econds)?,"
    r" \S+ ?[kMGT]?i?B/s\s*\Z"
)
_DBENCH = re.compile(
    rf"Throughput (?P<rate>{POWERED}) MB/sec\s+(?:(?P<clients>\d+) clients\s+)?(?P<procs>\d+) procs"
)
_DBENCH_HEAD = re.compile(r"\s*Operation\s+Count\s+AvgLat\s+MaxLat\s*\Z")
_OPERATION = re.compile(rf"\s*(?P<name>[A-Za-z]\w*)\s+\d+\s+(?P<mean>{POWERED})\s+{POWERED}\s*\Z")
_YCSB = re.compile(rf"\[(?P<what>[\w-]+)\], (?P<name>[^,]+), (?P<value>{POWERED})\s*\Z")
_YCSB_LATENCY = re.compile(
    r"(?:(?P<mean>Average)|(?P<at>\d+(?:\.\d+)?)(?:th)?Percentile)Latency\((?P<unit>[mun]s)\)"
)
_YCSB_ASIDE = re.compile(r"OVERALL|CLEANUP|TOTAL_\w+|.*-FAILED")
_IPERF = re.compile(
    rf"\[ *(?P<stream>SUM|\d+)\](?:\[\w+-\w\])? +0\.00-\d+\.\d+ +sec .*?"
    rf"(?P<rate>{POWERED}) (?P<prefix>[KMG]?)bits/sec .*?\b(?P<end>sender|receiver)\s*\Z"
)
_IN_BITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_KERNBENCH = re.compile(
    r"Average (?P<load>\w+) [Ll]oad(?: -j ?(?P<jobs>\d*))? Run \(std deviation\):\s*\Z"
)
_KERNBENCH_RUNS = re.compile(r"Performing (?P<runs>\d+) runs of")
_KERNBENCH_KERNEL = re.compile(r"(?:Kernel )?(?P<kernel>[2-9]\.\d+[\w.+-]*)\s*\Z")
_KERNBENCH_TIME = re.compile(
    rf"(?P<name>Elapsed|User|System) Time\s+(?P<mean>{POWERED}) \((?P<sd>{POWERED})\)\s*\Z"
)


def stream(lines: Lines) -> Iterator[Numbered]:
    """Best rate and average time of each of the four; one whose results are wrong has failed."""
    said: Record = {}
    rows: list[Numbered] = []
    for number, line in lines:
        if _STREAM_HEAD.match(line):
            yield from rows
            said, rows = {"status": "ok"}, []
        elif said and (found := _STREAM.match(line)):
            each = said | {"function": found["function"]}
            rows.append((number, _figure(each, "best rate", "MB/s", Better.HIGHER, found["rate"])))
            rows.append((number, _figure(each, "mean time", "s", Better.LOWER, found["time"])))
        elif _STREAM_FAILED.match(line):
            rows = [(at, row | {"status": "failed"}) for at, row in rows]
    yield from rows


def usemem(lines: Lines) -> Iterator[Numbered]:
    """The rate of each task, as vm-scalability's cases print it."""
    for number, line in lines:
        if found := _USEMEM.fullmatch(line):
            yield number, _figure({}, "throughput", "KB/s", Better.HIGHER, found["rate"])


def dd(lines: Lines) -> Iterator[Numbered]:
    """Seconds for so many bytes: the rate is printed with two or three digits only."""
    for number, line in lines:
        if found := _DD.match(line.strip()):
            said = {"bytes": found["bytes"]}
            yield number, _figure(said, "copy time", "s", Better.LOWER, found["seconds"])


def dbench(lines: Lines) -> Iterator[Numbered]:
    """The throughput of the whole run, and the average latency of each operation, in ms."""
    if not any(_DBENCH.match(line) for _, line in lines):
        return
    rows: list[Numbered] = []
    listed = False
    for number, line in lines:
        if _DBENCH_HEAD.match(line):
            rows, listed = [], True
        elif whole := _DBENCH.match(line):
            said = {"clients": whole["clients"] or whole["procs"]}
            rate = _figure({}, "throughput", "MB/s", Better.HIGHER, whole["rate"])
            yield from ((at, row | said) for at, row in [*rows, (number, rate)])
            rows, listed = [], False
        elif listed and (found := _OPERATION.match(line)):
            each = {"operation": found["name"]}
            rows.append((number, _figure(each, "latency", "ms", Better.LOWER, found["mean"])))


def ycsb(lines: Lines) -> Iterator[Numbered]:
    """Operations a second, and of each operation the average latency and its percentiles."""
    reports: list[list[tuple[int, re.Match[str]]]] = []
    for number, line in lines:
        if found := _YCSB.match(line):
            begins = (found["what"], found["name"]) == ("OVERALL", "RunTime(ms)")
            if begins or not reports:
                reports.append([])
            reports[-1].append((number, found))
    for report in reports:
        failed = any(_ycsb_failed(found) for _, found in report)
        said = {"status": "failed" if failed else "ok"}
        for number, found in report:
            if row := _ycsb_figure(found):
                yield number, row | said


def _ycsb_failed(found: re.Match[str]) -> bool:
    wrong = found["name"].startswith("Return=") and found["name"] != "Return=OK"
    wrong |= found["what"].endswith("-FAILED") and found["name"] == "Operations"
    return wrong and float(found["value"]) > 0


def _ycsb_figure(found: re.Match[str]) -> Record | None:
    if (found["what"], found["name"]) == ("OVERALL", "Throughput(ops/sec)"):
        return _figure({}, "throughput", "ops/s", Better.HIGHER, found["value"])
    cut = _YCSB_LATENCY.fullmatch(found["name"])
    if cut is None or _YCSB_ASIDE.fullmatch(found["what"]):
        return None
    said = {"operation": found["what"].lower()} | ({"percentile": cut["at"]} if cut["at"] else {})
    name = "mean latency" if cut["mean"] else "latency at percentile"
    return _figure(said, name, cut["unit"], Better.LOWER, found["value"])


def iperf3(lines: Lines) -> Iterator[Numbered]:
    """What was sent and received in each whole test, of several streams their sum; no intervals."""
    reports: list[list[tuple[int, re.Match[str]]]] = [[]]
    for number, line in lines:
        if line.startswith("[ ID]"):
            reports.append([])
        elif cut := _IPERF.match(line.strip()):
            reports[-1].append((number, cut))
    for number, cut in (one for report in reports for one in _summed(report)):
        bits = f"{Decimal(cut['rate']) * _IN_BITS[cut['prefix']]:f}"
        name = "sent bits" if cut["end"] == "sender" else "received bits"
        yield number, _figure({}, name, "bit/s", Better.HIGHER, bits)


def _summed(report: list[tuple[int, re.Match[str]]]) -> list[tuple[int, re.Match[str]]]:
    """The sums of a report; of one stream there is none, and it stands for itself."""
    return [one for one in report if one[1]["stream"] == "SUM"] or report


def kernbench(lines: Lines) -> Iterator[Numbered]:
    """Mean and standard deviation of the times of each load of kernbench's own report."""
    if not any(_KERNBENCH.match(line) for _, line in lines):
        return
    said: Record = {}
    load: Record = {}
    for number, line in lines:
        if head := _KERNBENCH.match(line):
            load = {"load": head["load"].lower(), "jobs": head["jobs"] or ""}
        elif runs := _KERNBENCH_RUNS.match(line):
            said["n"] = runs["runs"]
        elif kernel := _KERNBENCH_KERNEL.match(line):
            said["kernel"] = kernel["kernel"]
        elif load and (found := _KERNBENCH_TIME.match(line)):
            row = said | load | {"metric": f"{found['name'].lower()} time", "unit": "s"}
            row |= {"better": Better.LOWER.value, "mean": found["mean"], "sd": found["sd"]}
            yield number, row


def _figure(said: Record, metric: str, unit: str, better: Better, value: str) -> Record:
    return {**said, "metric": metric, "unit": unit, "better": better.value, "value": value}
