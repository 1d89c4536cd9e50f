# SPDX-License-Identifier: GPL-2.0-or-later
"""What more known programs print: cyclictest, schbench, ab, wrk, netperf, UnixBench, time.

A record is a figure, with unit and direction.  A text is of a program only by lines that no other
prints; what a program says of failed requests is its status.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from kdelta.foreign.numerals import PRINTED
from kdelta.foreign.records import Numbered, Record
from kdelta.metric import Better

Lines = Sequence[tuple[int, str]]

_CYCLIC = re.compile(
    r"T:\s*(?P<thread>\d+)\s*\(\s*\d+\)\s*P:\s*\d+\s*I:\s*\d+\s*C:\s*\d+\s*Min:\s*-?\d+\s*"
    r"Act:\s*-?\d+\s*Avg:\s*(?P<avg>\d+)\s*Max:\s*(?P<max>\d+)"
)
_SCHBENCH = re.compile(
    r"(?:(?P<what>\w+) Latencies percentiles \((?P<unit>[mun]?)secs?\)"
    r"|RPS percentiles \(requests\)) runtime (?P<runtime>\d+)"
)
_PERCENTILE = re.compile(rf"\s*\*?\s*(?P<at>{PRINTED})th:\s+(?P<value>\d+)\b")
_RPS = re.compile(rf"average rps:\s*(?P<value>{PRINTED})")
_AB = {
    "rate": re.compile(rf"Requests per second:\s+(?P<value>{PRINTED}) \[#/sec\]"),
    "time": re.compile(rf"Time per request:\s+(?P<value>{PRINTED}) \[ms\] \(mean\)\s*\Z"),
    "failed": re.compile(r"Failed requests:\s+(?P<value>\d+)"),
    "clients": re.compile(r"Concurrency Level:\s+(?P<value>\d+)"),
}
_WRK = {
    "rate": re.compile(rf"Requests/sec:\s+(?P<value>{PRINTED})"),
    "time": re.compile(rf"\s+Latency\s+(?P<value>{PRINTED})(?P<unit>us|ms|s)\s"),
    "failed": re.compile(r"\s+Non-2xx or 3xx responses:\s+(?P<value>\d+)"),
    "lost": re.compile(
        r"\s+Socket errors:\s+(?P<value>connect \d+, read \d+, write \d+, timeout \d+)"
    ),
    "clients": re.compile(r"\s+\d+ threads? and (?P<value>\d+) connections"),
}
_IN_US = {"us": 0, "ms": 3, "s": 6}
_NETPERF = re.compile(r"(?:MIGRATED )?(?P<test>(?:TCP|UDP|SCTP)[A-Z_ /]+?) TEST from ")
_NET_BEHIND = re.compile(r"% [A-Z]|\S+")
_NET_UNIT = re.compile(r"(?P<unit>10\^\d+\s?bits/sec|per sec|KBytes/sec)")
_UNIX = re.compile(
    rf"(?P<name>\S.*?)\s{{2,}}(?P<value>{PRINTED}) (?P<unit>[A-Za-z]+)\s+"
    rf"\({PRINTED} s, \d+ samples\)"
)
_UNIX_INDEX = re.compile(
    rf"(?P<name>\S.*?)\s{{2,}}{PRINTED}\s+(?P<value>{PRINTED})\s+(?P<index>{PRINTED})\s*\Z"
)
_UNIX_HEAD = re.compile(
    r"\s*(?:System Benchmarks )?(?:Partial )?Index(?: Values)?\s+BASELINE\s+RESULT"
)
_PASSED = re.compile(
    r"(?P<kind>real|user|sys)\s+(?:(?P<minutes>\d+)m)?(?P<seconds>\d+(?:\.\d+)?)s?", re.ASCII
)
_MEASURED = re.compile(r"\d\.\d|[:=]\s*\d|\d\s*(?:[nmu\u00b5]?s|secs?|\w*/\w+|%)(?!\w)")
_TITLED = re.compile(r"\s*(?:#+|=+|-+|\*+|>+)\s*\S")
_COPIES = re.compile(r".*running (?P<copies>\d+) parallel cop(?:y|ies) of tests")
_UNIX_OS = re.compile(r"\s*OS: GNU/Linux -- (?P<kernel>\S+)")


def cyclictest(lines: Lines) -> Iterator[Numbered]:
    """Average and worst latency of each thread; -N prints ns and says so nowhere."""
    for number, line in lines:
        if found := _CYCLIC.match(line.strip()):
            for key in ("avg", "max"):
                said = {"thread": found["thread"]}
                name = f"latency {key}"
                yield number, _figure(said, name, "as printed", Better.LOWER, found[key])


def schbench(lines: Lines) -> Iterator[Numbered]:
    """The percentiles of each whole run: reports of a shorter runtime are of its beginning."""
    blocks: list[tuple[re.Match[str], int, list[Numbered]]] = []
    rates: list[Numbered] = []
    for number, line in lines:
        if head := _SCHBENCH.match(line):
            blocks.append((head, int(head["runtime"]), []))
        elif blocks and (found := _PERCENTILE.match(line)):
            said = {"percentile": found["at"]}
            above, _, rows = blocks[-1]
            name, unit, better = "rps at percentile", "requests/s", Better.HIGHER
            if above["what"]:
                name, unit = f"{above['what'].lower()} latency", f"{above['unit']}s"
                better = Better.LOWER
            rows.append((number, _figure(said, name, unit, better, found["value"])))
        elif blocks and (found := _RPS.match(line)):
            rates.append((number, _figure({}, "rps", "requests/s", Better.HIGHER, found["value"])))
    whole = max((runtime for _, runtime, _ in blocks), default=0)
    for _, runtime, rows in blocks:
        if runtime == whole:
            yield from rows
    yield from rates


def ab(lines: Lines) -> Iterator[Numbered]:
    """Requests a second and the mean time of one."""
    yield from _server(lines, _AB, "Time taken for tests:")


def wrk(lines: Lines) -> Iterator[Numbered]:
    """Requests a second and their mean latency."""
    yield from _server(lines, _WRK, "Thread Stats")


def netperf(lines: Lines) -> Iterator[Numbered]:
    """Throughput of a stream, or transactions a second."""
    test, unit, behind = "", "", 0
    for number, line in lines:
        cells = line.split()
        if head := _NETPERF.match(line):
            test, unit = head["test"].strip(), ""
        elif test and (said := _NET_UNIT.search(line)):
            unit = said["unit"].replace(" ", "").replace("persec", "transactions/s")
            behind = len(_NET_BEHIND.findall(line, said.end()))  # -c -C: % S, us/Tr
        elif test and unit and len(cells) > 4 and all(re.fullmatch(PRINTED, c) for c in cells):
            # More such lines are more runs: -P 0 leaves out the head line.
            at = len(cells) - 1 - behind
            where = {"test": test, "sizes": "/".join(cells[: at - 1])}
            yield number, _figure(where, "throughput", unit, Better.HIGHER, cells[at])


def unixbench(lines: Lines) -> Iterator[Numbered]:
    """What each test did in a second or a minute; the indices are made of these.

    Where only the table of indices is left, its results, whose units it does not print.
    """
    detailed = any(_UNIX.match(line) for _, line in lines)
    listed = False
    said: Record = {}
    for number, line in lines:
        if system := _UNIX_OS.match(line):
            said["kernel"] = system["kernel"]
        elif copies := _COPIES.match(line):
            said["copies"] = copies["copies"]
        elif found := _UNIX.match(line):
            # Each test has a unit of its own: lps, lpm, KBps, MWIPS.
            yield number, _figure(said, found["name"], found["unit"], Better.HIGHER, found["value"])
        elif _UNIX_HEAD.match(line):
            listed = not detailed
        elif listed and (row := _UNIX_INDEX.match(line)):
            yield number, _figure(said, row["name"], "as printed", Better.HIGHER, row["value"])
        else:
            listed = listed and bool(line.strip())


def passed(lines: Lines) -> Iterator[Numbered]:
    """What `time` prints of each command: real, user, sys, in this order."""
    texts = [(n, line) for n, line in lines if line.strip() and not _TITLED.match(line)]
    found = [(number, _PASSED.fullmatch(line.strip())) for number, line in texts]
    kinds = [cut["kind"] for _, cut in found if cut]
    between = [line for (_, line), (_, cut) in zip(texts, found, strict=True) if not cut]
    if any(map(_MEASURED.search, between)) or kinds != ["real", "user", "sys"] * (len(kinds) // 3):
        return
    for number, cut in found:
        if cut:
            seconds = 60 * int(cut["minutes"] or 0) + Decimal(cut["seconds"])
            yield number, _figure({}, cut["kind"], "s", Better.LOWER, str(seconds))


def _server(lines: Lines, wanted: dict[str, re.Pattern[str]], sign: str) -> Iterator[Numbered]:
    """What a client of a web server printed, one report below another."""
    if not any(sign in line for _, line in lines):
        return
    said: dict[str, str] = {}
    rows: list[Numbered] = []
    for number, line in lines:
        key, found = next(
            ((key, hit) for key, each in wanted.items() if (hit := each.match(line))), ("", None)
        )
        if found is None:
            continue
        if key in said:
            yield from _with(rows, said)
            said, rows = {}, []
        said[key] = found["value"]
        if key == "rate":
            rows.append(
                (number, _figure({}, "requests", "requests/s", Better.HIGHER, found["value"]))
            )
        elif key == "time":
            value, unit = found["value"], "ms"
            if printed := found.groupdict().get("unit"):  # of each run another
                value, unit = f"{Decimal(value).scaleb(_IN_US[printed]):f}", "us"
            rows.append((number, _figure({}, "latency", unit, Better.LOWER, value)))
    yield from _with(rows, said)


def _with(rows: Sequence[Numbered], said: dict[str, str]) -> Iterator[Numbered]:
    lost = any(word not in ("", "0") for word in re.split(r"\D+", said.get("lost", "")))
    failed = lost or said.get("failed", "0") != "0"
    about = {"status": "failed" if failed else "ok"}
    about |= {"clients": said["clients"]} if "clients" in said else {}
    yield from ((number, row | about) for number, row in rows)


def _figure(said: Record, metric: str, unit: str, better: Better, value: str) -> Record:
    return {**said, "metric": metric, "unit": unit, "better": better.value, "value": value}
