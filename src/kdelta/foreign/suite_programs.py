# SPDX-License-Identifier: GPL-2.0-or-later
"""What suites and timers print: the Phoronix Test Suite, benches of Rust, Criterion, GNU time.

A record is a figure, with unit and direction.  A text is of a program only by lines that no other
prints.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from xml.etree import ElementTree

from kdelta.foreign import words
from kdelta.foreign.numerals import PRINTED
from kdelta.foreign.records import Numbered, Record
from kdelta.metric import Better

Lines = Sequence[tuple[int, str]]

_PTS_SCALE = re.compile(r"(?P<unit>\S.*?) [<>] (?P<which>Higher|Lower) Is Better\s*\Z")
_PTS_ROW = re.compile(rf"(?P<name>\S.*?) \.+ (?P<value>{PRINTED}) \|=*\s*\Z")
_PTS_TITLE = re.compile(r"(?P<test>\S.*) \((?P<unit>[^()]+)\)\Z")
_PTS_SETTING = re.compile(r"(?P<name>[A-Z]\S[^:]*(?:: .*)?):")
_PTS_AVERAGE = re.compile(rf"Average: {PRINTED} (?P<unit>\S.*)")
_PTS_WAYS = {"HIB": Better.HIGHER, "LIB": Better.LOWER}
_PTS_CELL = re.compile(r",\"?(?:HIB|LIB)(?:/LIB)?\"?,")
_RUST = re.compile(
    r"test (?P<name>\S.*?)\s+\.\.\. bench:\s+(?P<value>\d[\d,]*(?:\.\d+)?) ns/iter \(\+/- "
)
_CRITERION = re.compile(
    rf"(?P<name>\S.*?)?\s*time:\s+\[{PRINTED} \w+ (?P<value>{PRINTED}) (?P<unit>\w{{1,2}})"
    rf" {PRINTED} \w+\]\s*\Z"
)
_IN_NS = {"ps": -3, "ns": 0, "us": 3, "\u00b5s": 3, "\u03bcs": 3, "ms": 6, "s": 9}
_GNU_FIGURES = {
    "User time (seconds)": "user",
    "System time (seconds)": "system",
    "Elapsed (wall clock) time (h:mm:ss or m:ss)": "elapsed",
}
_GNU = re.compile(r"(?P<key>[A-Z][\w ()/:]*?): (?P<value>\S.*)\Z")
_CLOCK = re.compile(r"(?:(?P<h>\d{1,6}):)?(?:(?P<m>\d{1,6}):)?(?P<s>\d+(?:\.\d+)?)", re.ASCII)
_CRITERION_RAW = [
    *("group", "function", "value", "throughput_num", "throughput_type"),
    *("sample_measured_value", "unit", "iteration_count"),
]
_HYPERFINE = ["command", "mean", "stddev", "median", "user", "system", "min", "max"]


def phoronix(lines: Lines) -> Iterator[Numbered]:
    """The text of a result: below title, settings and scale a bar for each system."""
    above: list[str] = []
    test, unit, better = "", "", Better.NONE
    for number, line in lines:
        if not line.strip():
            above, test = [], ""
        elif scale := _PTS_SCALE.match(line):
            test, unit = " - ".join(above), scale["unit"]
            better = _PTS_WAYS[f"{scale['which'][0]}IB"]
        elif test and (row := _PTS_ROW.match(line)):
            yield number, _figure({"kernel": row["name"]}, test, unit, better, row["value"])
        else:
            above.append(line.strip())


def phoronix_csv(text: str) -> Iterator[Numbered]:
    """The results of its CSV: a row for each test with HIB or LIB, a column for each system.

    The systems stand above them, behind two cells that say nothing, or HIB/LIB.
    """
    if not _PTS_CELL.search(text):
        return
    systems: list[str] = []
    reader = csv.reader(io.StringIO(text))
    for cells in reader:
        blank = not any(cell.strip() for cell in cells[:2])
        if len(cells) > 2 and (cells[1].strip() == "HIB/LIB" or blank):
            systems = [cell.strip() for cell in cells[2:]]
        elif systems and len(cells) == len(systems) + 2 and cells[1].strip() in _PTS_WAYS:
            title = _PTS_TITLE.match(cells[0].strip())
            test, unit = (title["test"], title["unit"]) if title else (cells[0].strip(), "")
            better = _PTS_WAYS[cells[1].strip()]
            for system, cell in zip(systems, cells[2:], strict=True):
                if re.fullmatch(PRINTED, cell.strip()):
                    said = {"kernel": system}
                    yield reader.line_num, _figure(said, test, unit, better, cell.strip())


def phoronix_xml(text: str) -> Iterator[Numbered]:
    """Each run of each result of a composite.xml; one with a document type is none of its own."""
    if "<PhoronixTestSuite>" not in text[:4096] or "<!DOCTYPE" in text or "<!ENTITY" in text:
        return
    try:
        root = ElementTree.fromstring(text)  # noqa: S314  no entity is defined in it
    except ElementTree.ParseError:
        return
    for at, result in enumerate(root.iter("Result"), start=1):
        title = f"{result.findtext('Title', '')} - {result.findtext('Description', '')}".strip(" -")
        better = _PTS_WAYS.get(result.findtext("Proportion", "").strip(), Better.NONE)
        unit = result.findtext("Scale", "").strip()
        if not title or not unit:
            continue  # a graph of a sensor
        for entry in result.iter("Entry"):
            said = {"kernel": entry.findtext("Identifier", "").strip()}
            runs = entry.findtext("RawString") or entry.findtext("Value") or ""
            for run, value in enumerate(runs.split(":"), start=1):
                if re.fullmatch(PRINTED, value.strip()):
                    each = said | {"round": str(run)}
                    yield at, _figure(each, title, unit, better, value.strip())


def phoronix_run(lines: Lines) -> Iterator[Numbered]:
    """What the suite prints as it runs: below settings each run, then average and unit."""
    test = ""
    runs: list[tuple[int, str]] = []
    for number, line in lines:
        text = line.strip()
        if setting := _PTS_SETTING.fullmatch(text):
            test, runs = setting["name"], []
        elif re.fullmatch(PRINTED, text) and test:
            runs.append((number, text))
        elif runs and (average := _PTS_AVERAGE.fullmatch(text)):
            unit = words.said(average["unit"])
            better = unit.better or Better.NONE
            for run, (at, value) in enumerate(runs, start=1):
                said = {"test": test, "round": str(run)}
                yield at, _figure(said, "result", unit.unit or average["unit"], better, value)
            test, runs = "", []


def rust_bench(lines: Lines) -> Iterator[Numbered]:
    """The median of each bench; beside it stands the range of its samples, no deviation."""
    for number, line in lines:
        if found := _RUST.match(line):
            said = {"benchmark": found["name"]}
            value = found["value"].replace(",", "")
            yield number, _figure(said, "time", "ns", Better.LOWER, value)


def criterion(lines: Lines) -> Iterator[Numbered]:
    """The estimate of each benchmark, between the ends of its interval."""
    above = ""
    for number, line in lines:
        if (found := _CRITERION.match(line)) and found["unit"] in _IN_NS:
            said = {"benchmark": found["name"] or above}
            value = f"{Decimal(found['value']).scaleb(_IN_NS[found['unit']]):f}"
            yield number, _figure(said, "time", "ns", Better.LOWER, value)
        elif line.strip() and not line[0].isspace():
            above = line.strip()


def gnu_time(lines: Lines) -> Iterator[Numbered]:
    """Elapsed, user and system time of each command that `time -v` reports."""
    rows: list[Numbered] = []
    said: Record = {}
    for number, line in lines:
        found = _GNU.match(line.strip())
        if found is None:
            continue
        if found["key"] == "Command being timed":
            yield from ((at, row | said) for at, row in rows)
            rows, said = [], {"command": found["value"].strip('"'), "status": "ok"}
        elif said and found["key"] == "Exit status":
            said["status"] = "ok" if found["value"].strip() == "0" else "failed"
        elif said and found["key"] in _GNU_FIGURES and (cut := _CLOCK.fullmatch(found["value"])):
            name = _GNU_FIGURES[found["key"]]
            rows.append((number, _figure({}, name, "s", Better.LOWER, _seconds(cut))))
    yield from ((at, row | said) for at, row in rows)


def _seconds(cut: re.Match[str]) -> str:
    """Of 1:23.5 and 1:02:03: what stands alone before seconds are minutes."""
    hours, minutes = (cut["h"], cut["m"]) if cut["m"] else (None, cut["h"])
    return str(3600 * int(hours or 0) + 60 * int(minutes or 0) + Decimal(cut["s"]))


def hyperfine_csv(text: str) -> Iterator[Numbered]:
    """Mean and deviation of each command; how many runs there were it does not tell."""
    if not text.startswith(",".join(_HYPERFINE)):
        return
    reader = csv.reader(io.StringIO(text))
    columns = next(reader, [])
    settings = columns[len(_HYPERFINE) :]
    if not all(name.startswith("parameter_") for name in settings):
        return
    for cells in reader:
        if len(cells) != len(columns):
            continue
        row = dict(zip(columns, cells, strict=True))
        said = {name.removeprefix("parameter_"): row[name] for name in settings}
        said |= {"command": row["command"], "metric": "time", "unit": "s", "better": "lower"}
        yield reader.line_num, said | {"mean": row["mean"], "sd": row["stddev"]}


def criterion_csv(text: str) -> Iterator[Numbered]:
    """Criterion's raw.csv: each sample is the time of so many iterations, told for one here."""
    reader = csv.reader(io.StringIO(text))
    if next(reader, []) != _CRITERION_RAW:
        return
    for cells in reader:
        row = dict(zip(_CRITERION_RAW, cells, strict=False))
        value, count = row.get("sample_measured_value", ""), row.get("iteration_count", "")
        if not re.fullmatch(PRINTED, value) or not re.fullmatch(r"[1-9]\d{0,15}", count):
            continue
        said = {name: row[name] for name in ("group", "function", "value") if row[name]}
        each = {f"parameter {name}" if name == "value" else name: said[name] for name in said}
        per = f"{Decimal(value) / int(count):.9g}"
        yield reader.line_num, _figure(each, "time", row["unit"], Better.LOWER, per)


def _figure(said: Record, metric: str, unit: str, better: Better, value: str) -> Record:
    return {**said, "metric": metric, "unit": unit, "better": better.value, "value": value}
