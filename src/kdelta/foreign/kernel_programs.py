# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests of the kernel and small tools print, as records: a figure each, unit and direction.

perf bench futex and epoll, hackbench, gup_test, kernel selftests, ebizzy, kcbench, zsh's time,
hyperfine, openssl speed, 7z b, ping, systemd-analyze.  Only lines of exactly their form are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kdelta.foreign.numerals import PRINTED
from kdelta.foreign.records import Numbered, Record
from kdelta.metric import Better

Lines = Sequence[tuple[int, str]]

_BENCH = re.compile(r"# Running '?(?P<name>[\w/-]+)'? benchmark:")
_HACKBENCH = re.compile(
    r"Running in (?P<mode>process|threaded) mode with (?P<groups>\d+) groups using \d+ file"
    r" descriptors each \(== \d+ tasks\)"
)
_HACKBENCH_TIME = re.compile(rf"Time: (?P<value>{PRINTED})")
_AVERAGED = re.compile(rf"Averaged (?P<value>{PRINTED}) operations/sec \(\+- {PRINTED}%\)")
_FUTEX = re.compile(
    rf"(?:Wokeup|Requeued) \d+ of \d+ threads in (?P<value>{PRINTED}) ms \(\+-{PRINTED}%\)"
)
_GUP = re.compile(r"#?\s*(?P<kind>[A-Z_]+): Time: get:(?P<get>\d+) put:(?P<put>\d+) us")
_TAP = re.compile(
    r"(?P<bad>not )?ok \d+ (?:- )?(?P<name>\S.*?)\s*# ?time[ =:]*"
    rf"(?P<value>{PRINTED})\s*(?P<unit>ns|us|ms|s|secs?|seconds)\Z"
)
_EBIZZY = re.compile(r"(?P<value>\d+) records/s\b.*")
_KCBENCH = re.compile(
    rf"Run \d+ \(-j (?P<jobs>\d+)\):\s+(?P<value>{PRINTED}) seconds / {PRINTED} kernels/hour\b.*"
)
_ZSH = re.compile(
    rf"(?P<what>\S.*?)\s+(?P<user>{PRINTED})s user (?P<sys>{PRINTED})s system \d+% cpu "
    rf"(?:(?P<minutes>\d+):)?(?P<total>{PRINTED}) total"
)
_HYPER = re.compile(r"Benchmark (?:#?\d+): (?P<what>\S.*)")
_HYPER_TIME = re.compile(
    rf"Time \(mean \u00b1 \u03c3\):\s+(?P<mean>{PRINTED}) (?P<unit>ns|\u00b5s|us|ms|s)"
    rf" \u00b1\s+(?P<sd>{PRINTED}) (?P=unit)\b.*"
)
_HYPER_RUNS = re.compile(r"Range \(min \u2026 max\):.*?\s(?P<n>\d+) runs")
_SWITCH_HEAD = re.compile(rf"\"size=(?P<size>\w+) ovr={PRINTED}")
_SWITCH = re.compile(rf"(?P<tasks>\d+) (?P<value>{PRINTED})")
_SAMPLE = re.compile(
    rf"(?P<name>[A-Za-z_:]\w*)\{{(?P<labels>[^}}]*)\}} (?P<value>{PRINTED}(?:e[-+]?\d+)?)"
)
_LABEL = re.compile(r"(\w+)=\"([^\"]*)\"")
_OPENSSL_HEAD = re.compile(r"type\s+(?P<sizes>\d+ bytes(?:\s+\d+ bytes)+)")
_OPENSSL = re.compile(rf"(?P<name>[A-Za-z][\w()./ -]*?)(?P<rates>(?:\s+{PRINTED}k)+)")
_SEVEN_HEAD = "Dict     Speed Usage    R/U Rating  |      Speed Usage    R/U Rating"
_SEVEN = re.compile(
    r"(?P<dict>\d\d):\s+(?P<packed>\d+)\s+\d+\s+\d+\s+\d+\s+\|\s+(?P<unpacked>\d+)\s+\d+\s+\d+\s+\d+"
)


_PING = re.compile(
    rf"(?:rtt|round-trip) min/avg/max/(?:mdev|stddev) = {PRINTED}/(?P<avg>{PRINTED})/\S+ ms\b.*"
)
_STARTUP = re.compile(r"(?:(?P<kernel>\S+): +)?Startup finished in (?P<parts>[^=]+?)(?: = .*)?")
_STAGE = re.compile(rf"(?:(?P<min>\d+)min )?(?P<value>{PRINTED})(?P<unit>m?s) \((?P<name>\w+)\)")


def records_of(lines: Lines) -> Iterator[Numbered]:
    """The records of the first of these programs that printed the text."""
    for read in (
        _perf_bench,
        _hackbench,
        _gup,
        _tap,
        _ebizzy,
        _kcbench,
        _zsh,
        _hyperfine,
        _openssl,
        _seven,
        _switches,
        _prometheus,
        _ping,
        _startup,
    ):
        if found := list(read([(number, line.strip()) for number, line in lines])):
            yield from found
            return


def _perf_bench(lines: Lines) -> Iterator[Numbered]:
    said: Record = {}
    for number, line in lines:
        if head := _BENCH.fullmatch(line):
            said = {"benchmark": head["name"]}
        elif found := _AVERAGED.match(line):
            yield number, _figure(said, "operations", "ops/s", Better.HIGHER, found["value"])
        elif found := _FUTEX.match(line):
            yield number, _figure(said, "wakeup time", "ms", Better.LOWER, found["value"])


def _hackbench(lines: Lines) -> Iterator[Numbered]:
    """Seconds of a run, which it prints without a unit below what it was asked for."""
    said: Record = {}
    for number, line in lines:
        if head := _HACKBENCH.fullmatch(line):
            said = head.groupdict()
        elif said and (found := _HACKBENCH_TIME.fullmatch(line)):
            yield number, _figure(said, "time", "s", Better.LOWER, found["value"])


def _gup(lines: Lines) -> Iterator[Numbered]:
    for number, line in lines:
        if found := _GUP.match(line):
            for key in ("get", "put"):
                said = {"command": found["kind"]}
                yield number, _figure(said, f"{key} time", "us", Better.LOWER, found[key])


def _tap(lines: Lines) -> Iterator[Numbered]:
    for number, line in lines:
        if found := _TAP.fullmatch(line):
            said = {"test": found["name"], "status": "failed" if found["bad"] else "ok"}
            unit = "s" if found["unit"][:2] == "se" else found["unit"]
            yield number, _figure(said, "time", unit, Better.LOWER, found["value"])


def _ebizzy(lines: Lines) -> Iterator[Numbered]:
    """Records a second; the real time below it was set, and user and sys are shares of it."""
    for number, line in lines:
        if found := _EBIZZY.fullmatch(line):
            yield number, _figure({}, "records", "records/s", Better.HIGHER, found["value"])


def _kcbench(lines: Lines) -> Iterator[Numbered]:
    for number, line in lines:
        if found := _KCBENCH.fullmatch(line):
            said = {"jobs": found["jobs"]}
            yield number, _figure(said, "build time", "s", Better.LOWER, found["value"])


def _zsh(lines: Lines) -> Iterator[Numbered]:
    for number, line in lines:
        if found := _ZSH.fullmatch(line):
            said = {"command": found["what"]}
            total = f"{60 * int(found['minutes'] or 0) + float(found['total']):.10g}"
            for key, value in (("real", total), ("user", found["user"]), ("sys", found["sys"])):
                yield number, _figure(said, key, "s", Better.LOWER, value)


def _hyperfine(lines: Lines) -> Iterator[Numbered]:
    """Mean, standard deviation and number of runs of each command; its JSON has the runs."""
    command, at = "", 0
    row: Record = {}
    for number, line in lines:
        if head := _HYPER.fullmatch(line):
            command, row = head["what"], {}
        elif found := _HYPER_TIME.fullmatch(line):
            at, row = number, {"command": command, "metric": "time", "unit": found["unit"]}
            row |= {"better": Better.LOWER.value, "mean": found["mean"], "sd": found["sd"]}
        elif row and (runs := _HYPER_RUNS.match(line)):
            yield at, row | {"n": runs["n"]}
            row = {}


def _openssl(lines: Lines) -> Iterator[Numbered]:
    """Thousands of bytes a second of each algorithm and size of block."""
    sizes: list[str] = []
    for number, line in lines:
        if head := _OPENSSL_HEAD.fullmatch(line):
            sizes = re.findall(r"\d+", head["sizes"])
        elif sizes and (found := _OPENSSL.fullmatch(line)):
            rates = re.findall(PRINTED, found["rates"])
            for size, rate in zip(sizes, rates, strict=False):
                said = {"algorithm": found["name"].strip(), "bytes": size}
                yield number, _figure(said, "throughput", "kB/s", Better.HIGHER, rate)


def _switches(lines: Lines) -> Iterator[Numbered]:
    """lat_ctx of lmbench: microseconds of a switch, by size and number of processes."""
    size = ""
    for number, line in lines:
        if head := _SWITCH_HEAD.fullmatch(line):
            size = head["size"]
        elif size and (found := _SWITCH.fullmatch(line)):
            said = {"size": size, "processes": found["tasks"]}
            yield number, _figure(said, "context switch", "us", Better.LOWER, found["value"])


def _prometheus(lines: Lines) -> Iterator[Numbered]:
    """Samples of Prometheus: the metrics of equal labels are one row."""
    rows: dict[str, tuple[int, Record]] = {}
    for number, line in lines:
        if found := _SAMPLE.fullmatch(line):
            _, row = rows.setdefault(
                found["labels"], (number, dict(_LABEL.findall(found["labels"])))
            )
            row[found["name"]] = found["value"]
    yield from rows.values()


def _ping(lines: Lines) -> Iterator[Numbered]:
    """The mean time of an answer."""
    for number, line in lines:
        if found := _PING.fullmatch(line):
            yield number, _figure({}, "round trip avg", "ms", Better.LOWER, found["avg"])


def _startup(lines: Lines) -> Iterator[Numbered]:
    """The stages of a boot as systemd-analyze tells them: kernel, initrd, userspace."""
    for number, line in lines:
        if head := _STARTUP.fullmatch(line):
            said = {"kernel": head["kernel"]} if head["kernel"] else {}
            for stage in _STAGE.finditer(head["parts"]):
                part = float(stage["value"]) / (1000 if stage["unit"] == "ms" else 1)
                value = f"{60 * int(stage['min'] or 0) + part:.10g}"
                name = f"startup {stage['name']}"
                yield number, _figure(said, name, "s", Better.LOWER, value)


def _seven(lines: Lines) -> Iterator[Numbered]:
    """Compressing and decompressing, KiB/s of each size of dictionary; ratings are made of them."""
    if not any(line == _SEVEN_HEAD for _, line in lines):
        return
    for number, line in lines:
        if found := _SEVEN.fullmatch(line):
            for key, what in (("packed", "compressing"), ("unpacked", "decompressing")):
                said = {"dictionary": found["dict"]}
                yield number, _figure(said, what, "KiB/s", Better.HIGHER, found[key])


def _figure(said: Record, metric: str, unit: str, better: Better, value: str) -> Record:
    return {**said, "metric": metric, "unit": unit, "better": better.value, "value": value}
