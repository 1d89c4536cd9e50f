# SPDX-License-Identifier: GPL-2.0-or-later
"""What known programs print for people, as records: a row for each figure, with unit and direction.

perf stat without -x, mmtests' compare-kernels.sh, stress-ng --metrics, lmbench's summary, and those
of `text_programs`, `throughput_programs`, `server_programs`, `suite_programs`, `kernel_reports`.
Only lines of exactly their form are read; a text without one is none of theirs.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence

from kdelta.foreign import context, kernel_programs, perf_stat, sentences, suite_programs
from kdelta.foreign.kernel_reports import histograms, lkp_mail
from kdelta.foreign.records import Numbered, Record, sections
from kdelta.foreign.server_programs import fio_terse, memtier, mutilate, redis
from kdelta.foreign.text_programs import ab, cyclictest, netperf, passed, schbench, unixbench, wrk
from kdelta.foreign.throughput_programs import dbench, dd, iperf3, kernbench, stream, usemem, ycsb
from kdelta.metric import Better

_PERF = re.compile(
    r"\s*Performance counter stats for (?P<what>.+?)(?: \((?P<runs>\d+) runs\))?:\s*\Z"
)
_EVENT = re.compile(
    r"\s*(?P<value>\d[\d,]*(?:\.\d+)?)\s+(?P<unit>msec|ns|Joules)?\s*(?P<event>[A-Za-z][\w.:/-]*)"
    r"\s*(?:#.*?)?(?:\(\s*\+-\s*(?P<spread>\d+(?:\.\d+)?)%\s*\))?\s*(?:\(\d+(?:\.\d+)?%\))?\s*\Z"
)
_ELAPSED = re.compile(
    r"\s*(?P<value>\d+(?:\.\d+)?)\s+(?:\+-\s*(?P<error>\d+(?:\.\d+)?)\s+)?seconds time elapsed\b"
)
_STRESS = re.compile(
    r"stress-ng: (?:info|metrc):\s+\[\d+\]\s+(?P<name>[a-z][\w-]*)\s+\d+\s+[\d.]+\s+[\d.]+\s+[\d.]+"
    r"\s+(?P<real>[\d.]+)\s+(?P<used>[\d.]+)(?:\s+[\d.]+)*\s*\Z"
)
_COMPARED = re.compile(r"(?P<value>\d+(?:\.\d+)?)\s+[(*]\s*[-+]?\d+(?:\.\d+)?%[)*]")
_STATISTIC = re.compile(r"(?P<name>Amean|Hmean|Gmean|Stddev)\s+(?P<rest>\S.*)\Z")
_MEANS = {"Amean": Better.LOWER, "Hmean": Better.HIGHER}
_SPANS = re.compile(r"-+(?: +-+){2,}\s*\Z")
_TITLE = re.compile(
    r"(?:times? in (?P<time>nano|micro|milli)seconds.*smaller is better"
    r"|in (?P<rate>MB/s).*bigger is better)",
    re.IGNORECASE,
)
_LINE = 4096  # characters of the longest that a program prints
_PREFIXES = {"nano": "ns", "micro": "us", "milli": "ms"}
_Reader = Callable[[Sequence[tuple[int, str]]], Iterator[Numbered]]
_OWN = -2  # all readers but those of sentences, which have titles of their own
_NO_FIGURES = ("host", "os", "mhz", "description", "tlb pages", "cache line bytes", "mem par")


def records_of(text: str) -> list[Numbered]:
    """The records of what a known program printed; none: it is of no such program."""
    every = enumerate(text.splitlines(), start=1)
    lines = [(number, line) for number, line in every if len(line) <= _LINE]
    readers: tuple[_Reader, ...] = (
        *(
            _perf,
            _stress_ng,
            _mmtests,
            _lmbench,
            cyclictest,
            schbench,
            ab,
            wrk,
            netperf,
            unixbench,
            *(stream, usemem, dd, dbench, ycsb, iperf3, kernbench),
            *(redis, memtier, mutilate, fio_terse, lkp_mail, histograms),
            *(suite_programs.phoronix, suite_programs.rust_bench, suite_programs.criterion),
            *(suite_programs.phoronix_run, suite_programs.gnu_time, passed),
            *(kernel_programs.records_of, sentences.operations, sentences.records_of),
        ),
    )
    parts = sections(text)
    if found := next((found for read in readers if (found := _below(parts, read))), []):
        return found
    found = next((found for read in readers[:_OWN] if (found := list(read(lines)))), [])
    if found := _under(lines, found):
        return found
    found = next((found for read in readers[_OWN:] if (found := list(read(lines)))), [])
    return found or list(suite_programs.phoronix_xml(text))


def _under(lines: Sequence[tuple[int, str]], found: list[Numbered]) -> list[Numbered]:
    """The records with what the lines between them say that is not always the same."""
    said = context.before(lines, {number for number, _ in found})
    return [(number, {**said.get(number, {}), **row}) for number, row in found]


def _below(
    parts: Sequence[tuple[Record, Sequence[tuple[int, str]]]], read: _Reader
) -> list[Numbered]:
    """What a program printed below each of several titles, with what these say."""
    found = [(said, _under(lines, list(read(lines)))) for said, lines in parts]
    if sum(bool(rows) for _, rows in found) < 2:
        if read is not sentences.records_of:
            return []
        above = {number: said for said, lines in parts for number, _ in lines}
        whole = list(read([line for _, lines in parts for line in lines]))
        return [(number, above[number] | row) for number, row in whole]
    return [(number, said | row) for said, rows in found for number, row in rows]


def records_of_csv(text: str) -> list[Numbered]:
    """The records of a known program's CSV that is more than one table; none: it is plain."""
    try:
        readers = (
            suite_programs.phoronix_csv,
            suite_programs.hyperfine_csv,
            suite_programs.criterion_csv,
        )
        return next((found for read in readers if (found := list(read(text)))), [])
    except csv.Error:
        return []


def _perf(lines: Sequence[tuple[int, str]]) -> Iterator[Numbered]:
    """Of -r the scatter is that of the mean, in percent; of one run there is none."""
    runs = 0
    for number, line in lines:
        if head := _PERF.match(line):
            runs = int(head["runs"] or 1)
        elif runs and (elapsed := _ELAPSED.match(line)):
            error = float(elapsed["error"]) if elapsed["error"] else None
            yield number, _figure("time elapsed", "s", elapsed["value"], error, runs)
        elif runs and (event := _EVENT.match(line)) and _is_cost(event):
            value = event["value"].replace(",", "")
            spread = event["spread"]
            error = float(spread) / 100 * float(value) if spread else None
            unit = "ms" if event["unit"] == "msec" else event["unit"] or "events"
            yield number, _figure(event["event"], unit, value, error, runs)


def _is_cost(event: re.Match[str]) -> bool:
    return perf_stat.is_cost(event["event"]) or event["unit"] == "Joules"


def _figure(name: str, unit: str, value: str, error: float | None, runs: int) -> Record:
    said = {"metric": name, "unit": unit, "better": Better.LOWER.value}
    if runs < 2 or error is None:
        return said | {"value": value}
    return said | {"mean": value, "sd": f"{error * math.sqrt(runs):.9g}", "n": str(runs)}


def _stress_ng(lines: Sequence[tuple[int, str]]) -> Iterator[Numbered]:
    for number, line in lines:
        if found := _STRESS.match(line):
            yield (
                number,
                {
                    "stressor": found["name"],
                    "bogo-ops-per-second-real-time": found["real"],
                    "bogo-ops-per-second-usr-sys-time": found["used"],
                },
            )


def _mmtests(lines: Sequence[tuple[int, str]]) -> Iterator[Numbered]:
    """Means by arm and case; Amean is of what is better lower, Hmean of what is better higher."""
    rows = [
        (number, found["name"], found["rest"], _COMPARED.findall(found["rest"]))
        for number, line in lines
        if (found := _STATISTIC.match(line.strip())) and _COMPARED.search(found["rest"])
    ]
    if not rows:
        return
    arms = _arms_above(lines, rows[0][0], len(rows[0][3]))
    spreads = {_case(rest): values for _, name, rest, values in rows if name == "Stddev"}
    for number, name, rest, values in rows:
        if name not in _MEANS or len(values) != len(arms):
            continue
        scatter = spreads.get(_case(rest), [])
        for at, (arm, value) in enumerate(zip(arms, values, strict=True)):
            record = {
                "kernel": arm,
                "metric": _case(rest),
                "unit": "as printed",
                "better": _MEANS[name].value,
                "mean": value,
            }
            yield number, record | ({"sd": scatter[at]} if len(scatter) == len(arms) else {})


def _case(rest: str) -> str:
    found = _COMPARED.search(rest)
    return rest[: found.start()].strip() if found else rest


def _arms_above(lines: Sequence[tuple[int, str]], first: int, count: int) -> list[str]:
    """The names above the figures, each cut over one line or two."""
    head = [line.split() for number, line in lines if number < first and line.strip()]
    head = [names for names in head if len(names) == count][-2:]
    return ["-".join(parts) for parts in zip(*head, strict=True)]


def _lmbench(lines: Sequence[tuple[int, str]]) -> Iterator[Numbered]:
    """Tables whose columns are ruled below a head of several lines, under a title with the unit."""
    texts = [line for _, line in lines]
    for at, line in enumerate(texts):
        if not _SPANS.match(line):
            continue
        spans = [found.span() for found in re.finditer(r"-+", line)]
        head, title = _head(texts[:at], spans)
        said = _TITLE.search(title)
        if said is None:
            continue
        unit = _PREFIXES[said["time"].lower()] if said["time"] else said["rate"]
        better = Better.LOWER if said["time"] else Better.HIGHER
        for below in range(at + 1, len(texts)):
            if not texts[below].strip():
                break
            cells = dict(zip(head, _cut(texts[below], spans), strict=True))
            for name, cell in cells.items():
                if name.lower() in _NO_FIGURES or not re.fullmatch(r"\d*\.?\d+\.?", cell):
                    continue
                record = {"Host": cells.get("Host", ""), "kernel": cells.get("OS", "")}
                record |= {"section": title.partition(" - ")[0].strip(), "metric": name}
                record |= {"value": cell.rstrip("."), "unit": unit, "better": better.value}
                yield lines[below][0], record


def _head(above: Sequence[str], spans: Sequence[tuple[int, int]]) -> tuple[list[str], str]:
    """Names of the ruled columns, and the title: what stands above the line over the head."""
    names: list[list[str]] = [[] for _ in spans]
    for at in reversed(range(len(above))):
        line = above[at].strip()
        if not line or set(line) == {"-"}:
            title = above[at - 1] if at else ""
            return [" ".join(filter(None, parts)) for parts in names], title
        for parts, cell in zip(names, _cut(above[at], spans), strict=True):
            parts.insert(0, cell)
    return [" ".join(filter(None, parts)) for parts in names], ""


def _cut(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    return [line[start:end].strip() for start, end in spans]
