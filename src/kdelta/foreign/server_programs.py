# SPDX-License-Identifier: GPL-2.0-or-later
"""What clients of stores and disks print: redis-benchmark, memtier, mutilate, fio's terse lines.

A record is a figure, with unit and direction.  A text is of a program only by lines that no other
prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kdelta.foreign.numerals import PRINTED
from kdelta.foreign.records import Numbered, Record
from kdelta.metric import Better

Lines = Sequence[tuple[int, str]]

_REDIS = re.compile(
    rf"(?P<test>[A-Z][\w ()+.-]*): (?P<rate>{PRINTED}) requests per second"
    rf"(?:, p50=(?P<median>{PRINTED}) msec)?\s*\Z"
)
_REDIS_TEST = re.compile(r"\s*====== (?P<test>\S.*?) ======\s*\Z")
_REDIS_RATE = re.compile(rf"\s*throughput summary: (?P<rate>{PRINTED}) requests per second\s*\Z")
_REDIS_TIMES = ("avg", "min", "p50", "p95", "p99", "max")
_MEMTIER_PART = re.compile(r"(?P<part>ALL STATS|[A-Z]+(?: [A-Z]+)* RESULTS(?: \(\d+ runs\))?)\s*\Z")
# Of several runs the mean of all; the best and the worst are chosen from them.
_MEMTIER_WANTED = ("ALL STATS", "AGGREGATED AVERAGE RESULTS")
_MEMTIER_FIGURES = {
    "Ops/sec": ("operations", "ops/s", Better.HIGHER),
    "Latency": ("mean latency", "ms", Better.LOWER),
    "Avg. Latency": ("mean latency", "ms", Better.LOWER),
}
_MEMTIER_TAIL = re.compile(r"p(?P<at>\d+(?:\.\d+)?) Latency")
_MUTILATE_HEAD = re.compile(r"#type +avg +std +min +(?P<rest>\S.*)\Z")
_MUTILATE_MARK = re.compile(r"(?P<at>\d+)(?:st|nd|rd|th)")
_MUTILATE_TIMES = ("read", "update")
_MUTILATE_RATE = re.compile(rf"Total QPS = (?P<rate>{PRINTED}) \(")
_TERSE = ("3", "4", "5")
_TERSE_FIELDS = 41  # of each direction: bytes, rates, slat, clat, percentiles, lat, bw
_TERSE_FIGURES = (
    (1, "bw", "KiB/s", Better.HIGHER),
    (2, "iops", "IO/s", Better.HIGHER),
    (6, "slat", "us", Better.LOWER),
    (10, "clat", "us", Better.LOWER),
    (34, "lat", "us", Better.LOWER),
)


def redis(lines: Lines) -> Iterator[Numbered]:
    """Requests a second of each test, with the median (-q) or the mean of their latencies."""
    test, times = "", False
    for number, line in lines:
        if found := _REDIS.match(line):
            said = {"test": found["test"]}
            yield number, _figure(said, "requests", "requests/s", Better.HIGHER, found["rate"])
            if found["median"]:
                yield number, _figure(said, "p50 latency", "ms", Better.LOWER, found["median"])
        elif head := _REDIS_TEST.match(line):
            test, times = head["test"], False
        elif test and (found := _REDIS_RATE.match(line)):
            said = {"test": test}
            yield number, _figure(said, "requests", "requests/s", Better.HIGHER, found["rate"])
        elif test and tuple(line.split()) == _REDIS_TIMES:
            times = True
        elif times and len(cells := line.split()) == len(_REDIS_TIMES):
            if re.fullmatch(PRINTED, cells[0]):
                yield number, _figure({"test": test}, "mean latency", "ms", Better.LOWER, cells[0])
            times = False


def memtier(lines: Lines) -> Iterator[Numbered]:
    """Operations a second and latencies of each type; one that did none has no figure."""
    wanted = False
    columns: list[str] = []
    for number, line in lines:
        cells = re.split(r"\s{2,}", line.strip())
        if part := _MEMTIER_PART.match(line.strip()):
            wanted, columns = part["part"].partition(" (")[0] in _MEMTIER_WANTED, []
        elif wanted and cells[0] == "Type" and "Ops/sec" in cells:
            columns = cells
        elif not line.strip():
            columns = []
        elif columns and len(cells) == len(columns) and cells[0].isalpha():
            row = dict(zip(columns, cells, strict=True))
            if float(row["Ops/sec"] if re.fullmatch(PRINTED, row["Ops/sec"]) else 0):
                yield from ((number, one) for one in _memtier_row(row))


def _memtier_row(row: Record) -> Iterator[Record]:
    for name, cell in row.items():
        said = {"operation": row["Type"]}
        metric, unit, better = _MEMTIER_FIGURES.get(name, ("", "", Better.NONE))
        if tail := _MEMTIER_TAIL.fullmatch(name):
            metric, unit, better = f"p{tail['at']} latency", "ms", Better.LOWER
        if metric and re.fullmatch(PRINTED, cell):
            yield _figure(said, metric, unit, better, cell)


def mutilate(lines: Lines) -> Iterator[Numbered]:
    """Mean and percentiles in us of each kind of request that was made, and requests a second."""
    head: list[str] = []
    for number, line in lines:
        cells = line.split()
        if _MUTILATE_HEAD.match(line.strip()):
            head = cells
        elif head and cells and cells[0] in _MUTILATE_TIMES and len(cells) == len(head):
            said = dict(zip(head, cells, strict=True))
            if not re.fullmatch(PRINTED, said["avg"]) or not float(said["avg"]):
                continue  # none was made
            each = {"request": cells[0]}
            yield number, _figure(each, "mean latency", "us", Better.LOWER, said["avg"])
            for name in head:
                if mark := _MUTILATE_MARK.fullmatch(name):
                    of = each | {"percentile": mark["at"]}
                    yield (
                        number,
                        _figure(of, "latency at percentile", "us", Better.LOWER, said[name]),
                    )
        elif head and (found := _MUTILATE_RATE.match(line)):
            yield number, _figure({}, "requests", "requests/s", Better.HIGHER, found["rate"])


def fio_terse(lines: Lines) -> Iterator[Numbered]:
    """Each job and direction that moved bytes, of --minimal; latencies are the means, in us."""
    for number, line in lines:
        cells = line.strip().split(";")
        if cells[0] not in _TERSE or len(cells) < 5 + 2 * _TERSE_FIELDS:
            continue
        if not cells[1].startswith("fio-"):
            continue
        for at, direction in enumerate(("read", "write")):
            start = 5 + at * _TERSE_FIELDS
            part = cells[start : start + _TERSE_FIELDS]
            if not re.fullmatch(r"0*[1-9]\d{0,18}", part[0], re.ASCII):
                continue
            said = {"jobname": cells[2], "direction": direction}
            said["status"] = "ok" if cells[4] == "0" else "failed"
            for place, metric, unit, better in _TERSE_FIGURES:
                if re.fullmatch(PRINTED, part[place]) and float(part[place]):
                    yield number, _figure(said, metric, unit, better, part[place])


def _figure(said: Record, metric: str, unit: str, better: Better, value: str) -> Record:
    return {**said, "metric": metric, "unit": unit, "better": better.value, "value": value}
