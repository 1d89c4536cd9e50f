# SPDX-License-Identifier: GPL-2.0-or-later
"""The declared formats: how each is recognised by what only it has, and what is taken of it.

A file is an arm, or its folder is where several files lie in each, unless the format names arms.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

from kdelta.errors import SpecError
from kdelta.imports.files import below, json_object, parsed_json
from kdelta.imports.record import (
    ArmFacts,
    Contents,
    Pairs,
    PublishedRules,
    Roles,
    SourceFile,
    audited,
    in_order,
    release_key,
)
from kdelta.imports.table import (
    Collected,
    Labels,
    Sources,
    TableCell,
    TableRow,
    json_number,
    one_table,
    plain_number,
    rows,
)
from kdelta.metric import Assume, Better, Metric, ReplicateUnit
from kdelta.printable import printable, quoted

# ---- JSON of hyperfine (--export-json), Google Benchmark (--benchmark_format=json), fio ----------

# Of one file of hyperfine the commands are the arms; it lists the times of each.  Google Benchmark
# has its repetitions, or their mean, deviation and number.  A file of fio (--output-format=json) is
# one run, and each job and direction that moved bytes is a setting of its own.  Times of the last
# two, which come in several units, are kept in ns.

WALL = "wall time"
_AGAIN = "export the results again with hyperfine --export-json"
_FIO_OPTIONS = ("rw", "bs", "iodepth", "numjobs", "ioengine")
_FIO_TAILS = ("50.000000", "99.000000", "99.900000")
_GOOGLE_SPREAD = "stddev"
_GOOGLE_RATES = ("items_per_second", "bytes_per_second")
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def is_hyperfine(found: Mapping[str, Any]) -> bool:
    """True for an object with results that have a command and a mean."""
    results = found.get("results")
    listed = results if isinstance(results, list) else []
    fits = [isinstance(one, dict) and {"command", "mean"} <= one.keys() for one in listed]
    return bool(fits) and all(fits)


def is_google_benchmark(found: Mapping[str, Any]) -> bool:
    """True for an object with a context and benchmarks that have a real_time."""
    return bool(below(found, "context")) and any("real_time" in one for one in _google_runs(found))


def is_fio(found: Mapping[str, Any]) -> bool:
    """True for an object that names fio's version and its jobs."""
    jobs = found.get("jobs")
    named = isinstance(found.get("fio version"), str) and isinstance(jobs, list)
    return named and all(isinstance(job, dict) for job in jobs or ())


def read_hyperfine(sources: Sources, labels: Labels, found: Collected) -> Contents:
    """The times of every command, in seconds.  Raises SpecError."""
    for number, source in sources:
        for at, result in enumerate(json_object(source.text, source.name)["results"]):
            place = f"{source.name}: results[{at}]"
            command, given = printable(str(result["command"]), 200), below(result, "parameters")
            pairs = (("command", command), *((key, str(value)) for key, value in given.items()))
            label = labels[number] if len(sources) > 1 else ""
            arm, group = (label, pairs) if label else (command, ())
            found.judged(WALL, "s", Better.LOWER, place)
            values = list(_hyperfine_times(result, place))
            key = (number, at + 1, arm, WALL)
            for turn, (value, why) in enumerate(values, start=1):
                run = f"{source.name} result {at + 1} run {turn}"
                found.value(*key, value, run, group=group, failure=why, round=turn)
            if not values:
                mean, median, sd = (
                    _said(result.get(name), place, name) for name in ("mean", "median", "stddev")
                )
                found.summary(*key, group=group, mean=mean, median=median, sd=sd)
    return found.contents(ReplicateUnit.PROCESS_ROUND)


def _said(value: object, place: str, name: str, scale: float = 1.0) -> float | None:
    return None if value is None else json_number(value, place, name) * scale


def _hyperfine_times(result: Mapping[str, Any], place: str) -> Iterator[tuple[float | None, str]]:
    """(time, why there is none); a command that a signal ended has no exit code."""
    times, codes = result.get("times") or [], result.get("exit_codes")
    alike = isinstance(times, list) and isinstance(codes or [], list)
    if not alike or (codes and len(codes) != len(times)):
        cause = "times and exit_codes are no lists of one length"
        raise SpecError(cause, place=place, action=_AGAIN)
    for at, (value, code) in enumerate(zip(times, codes or [0] * len(times), strict=True)):
        if code == 0:
            yield json_number(value, place, f"times[{at}]"), ""
        else:
            yield None, "a signal ended it" if code is None else f"exit code {code}"


def read_google_benchmark(sources: Sources, labels: Labels, found: Collected) -> Contents:
    """The repetitions of files; where only their sums are there, mean, deviation and count."""
    for number, source in sources:
        place, runs = source.name, _google_runs(json_object(source.text, source.name))
        single = [one for one in runs if one.get("run_type", "iteration") == "iteration"]
        means = [one for one in runs if one.get("aggregate_name") == "mean"]
        spreads = {
            one.get("run_name"): one for one in runs if one.get("aggregate_name") == _GOOGLE_SPREAD
        }
        for one in single or means:
            failure = str(one.get("error_message") or "failed") if one.get("error_occurred") else ""
            named = ("benchmark", str(one.get("run_name") or one.get("name") or ""))
            threads = [("threads", str(one["threads"]))] if "threads" in one else []
            group, n = (named, *threads), one.get("repetitions")
            for name, unit, better, scale in _google_figures(one, place):
                found.judged(name, unit, better, place)
                key = (number, 1, labels[number], name)
                value = None if failure else json_number(one.get(name), place, name) * scale
                if single:
                    found.value(*key, value, group=group, failure=failure)
                    continue
                sd = _said(spreads.get(one.get("run_name"), {}).get(name), place, name, scale)
                ok = n if isinstance(n, int) else None
                found.summary(*key, group=group, mean=value, sd=sd, ok=ok)
    return found.contents(None)


def _google_runs(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = found.get("benchmarks")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _google_figures(one: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, Better, float]]:
    """(name, unit, direction, scale) of what a benchmark has.  Raises SpecError for its unit."""
    unit = str(one.get("time_unit", "ns"))
    if unit not in _NS:
        cause = f"time_unit is {quoted(unit)}"
        raise SpecError(cause, place=place, action="known: " + ", ".join(_NS))
    for name in ("real_time", "cpu_time"):
        if name in one:
            yield name, "ns", Better.LOWER, _NS[unit]
    for name in _GOOGLE_RATES:
        if name in one:
            yield name, f"{name.partition('_')[0]}/s", Better.HIGHER, 1.0


def read_fio(sources: Sources, labels: Labels, found: Collected) -> Contents:
    """Each job and direction that moved bytes; jobs of one name ran beside each other."""
    for number, source in sources:
        counts: Counter[Pairs] = Counter()
        report = json_object(source.text, source.name)
        for job in report["jobs"]:
            options = below(report, "global options") | below(job, "job options")
            said = [("jobname", str(job.get("jobname", "")))]
            said += [(key, str(options[key])) for key in _FIO_OPTIONS if key in options]
            counts[tuple(said)] += 1
            if (count := counts[tuple(said)]) > 1:
                said.append(("job", str(count)))
            failure = f"error {job['error']}" if job.get("error") else ""
            for way in ("read", "write", "trim"):
                group = (*said, ("direction", way))
                for name, unit, value, scale in _fio_direction(below(job, way)):
                    better = Better.LOWER if unit == "ns" else Better.HIGHER
                    found.judged(name, unit, better, source.name)
                    kept = None if failure else json_number(value, source.name, name) * scale
                    arm = labels[number]
                    found.value(number, 1, arm, name, kept, group=group, failure=failure)
    return found.contents(None)


def _fio_direction(part: Mapping[str, Any]) -> Iterator[tuple[str, str, Any, float]]:
    """(name, unit, value, scale): KiB/s and IOPS; latencies, which are in us before fio 3."""
    if not (part.get("total_ios") or part.get("io_bytes")):
        return
    for name, unit in (("iops", "IO/s"), ("bw", "KiB/s")):
        if name in part:
            yield name, unit, part[name], 1.0
    for kind in ("slat", "clat", "lat"):
        for key, scale in ((f"{kind}_ns", 1.0), (kind, _NS["us"])):
            times = below(part, key)
            tails = below(times, "percentile")
            if times.get("mean"):
                yield kind, "ns", times["mean"], scale
            for tail in _FIO_TAILS:
                if tail in tails:
                    yield f"{kind} p{tail.rstrip('0').rstrip('.')}", "ns", tails[tail], scale


# ---- the Go benchmark format: https://github.com/golang/proposal, 14313-benchmark-format ---------

# A configuration line `arm: NAME` names the arm of what follows, else the file's name does; after
# `boot: LABEL` or the comment `# boot: LABEL`, lines of one label are samples of one boot.

_GO_PREFIX = "Benchmark"
# Verbose runs print a name alone before its result; other words begin with a small letter.
_GO_RESULT = re.compile(rf"{_GO_PREFIX}(?![a-z])\S*[ \t]+\S")
_GO_KEY = re.compile(r"(?P<key>[^\sA-Z:][^\sA-Z:]*):(?:[ \t]+(?P<value>.*))?\Z")
# What the units of the testing package mean without a Unit line (golang.org/x/perf/benchfmt).
_GO_UNITS = {
    **dict.fromkeys(("ns/op", "sec/op", "B/op", "allocs/op"), Better.LOWER),
    **dict.fromkeys(("MB/s", "B/s"), Better.HIGHER),
}


def is_benchfmt(text: str) -> bool:
    """True when a line begins as a result of this format does."""
    return bool(re.search(rf"^{_GO_PREFIX}\S*[ \t]+\d+[ \t]+\S+[ \t]+\S", text, re.MULTILINE))


def read_benchfmt(sources: Sources, labels: Labels, found: Collected) -> Contents:
    """The results of files; unit metadata holds for all of them.  Raises SpecError."""
    units: dict[str, dict[str, str]] = {}
    for _, source in sources:
        _go_metadata(source.name, source.text, units)
    for number, source in sources:
        config: dict[str, str] = {}
        for at, line in enumerate(source.text.splitlines(), start=1):
            if _GO_RESULT.match(line):
                arm, boot = config.get("arm", labels[number]), config.get("boot", "")
                for unit, value, group in _go_figures(source.name, at, line):
                    said, place = units.get(unit, {}), f"{source.name}: line {at}"
                    better = Better(said["better"]) if "better" in said else _GO_UNITS.get(unit)
                    assume = Assume(said.get("assume", Assume.NOTHING))
                    if found.judged(unit, unit, better, place, assume):
                        found.value(number, at, arm, unit, value, boot, group=group, boot_id=boot)
            elif named := _GO_KEY.match(line.removeprefix("# ")):
                config[named["key"]] = (named["value"] or "").strip()
    boots: dict[tuple[str, Pairs], bool] = {}
    for item in found.readings:
        key = (item.arm, item.group)
        boots[key] = boots.get(key, True) and bool(item.boot_id)
    arms = (
        ArmFacts(arm=arm, group=group, replicate=ReplicateUnit.BOOT if named else None)
        for (arm, group), named in boots.items()
    )
    return found.contents(None, arms=tuple(arms))


def _go_metadata(name: str, text: str, units: dict[str, dict[str, str]]) -> None:
    allowed: dict[str, list[str]] = {"better": [Better.LOWER, Better.HIGHER], "assume": [*Assume]}
    for number, line in enumerate(text.splitlines(), start=1):
        word, *fields = line.split() or [""]
        if word != "Unit":
            continue
        place = f"{name}: line {number}"
        if not fields:
            raise SpecError("a Unit line without a unit", place=place)
        for field in fields[1:]:
            key, sign, value = field.partition("=")
            if not (key and sign):
                raise SpecError(f"{quoted(field)} is not key=value", place=place)
            if key in allowed and value not in allowed[key]:
                wanted = " or ".join(allowed[key])
                raise SpecError(f"{key} is {quoted(value)}, not {wanted}", place=place)
            have = units.setdefault(fields[0], {}).setdefault(key, value)
            if have != value:
                raise SpecError(f"{key} of {fields[0]} was {have} before", place=place)


def _go_figures(name: str, at: int, line: str) -> Iterator[tuple[str, float, Pairs]]:
    cells = line.split()
    title = cells[0].removeprefix(_GO_PREFIX)
    if len(cells) < 4 or len(cells) % 2:
        cause = "a result needs a name, a count, and pairs of value and unit"
        raise SpecError(cause, place=f"{name}: line {at}")
    TableCell(cells[1], name, at, "iterations").integer()
    group = (("benchmark", title),) if title else ()
    for value, unit in zip(cells[2::2], cells[3::2], strict=True):
        yield unit, TableCell(value, name, at, unit).number(), group


# ---- `perf stat -x SEP` and `perf stat -j`: value, unit, event; with -r the mean of runs ---------

# An event that stands again is of another run.  perf's times are better when they are less; of
# every other event the mapping says the direction.  Intervals (-I) are parts of one run: refused.

# Between CPU and value stands, of cores and sockets, how many CPUs were added up.  An event of a
# PMU has its terms between slashes, separated by commas.
_PERF_LINE = re.compile(
    r"(?P<time>\s*\d+\.\d+[,;|\t]\s*)?"
    r"(?:(?P<cpu>(?:CPU|S|N|D)\d[\w-]*)(?P<cut>[,;|\t])(?:\d+(?P=cut))?)?"
    r"(?P<value>-?\d+(?:\.\d+)?|<not counted>|<not supported>)(?P<sep>[,;|\t])"
    r"(?P<unit>[A-Za-z/]*)(?P=sep)(?P<event>[A-Za-z](?:/[^/]*/|[^,;|\t/])*)(?P=sep)(?P<rest>.*)\Z"
)
_PERF_SCATTER = re.compile(r"\d+(?:\.\d+)?%")
_PERF_TIMES = frozenset({"duration_time", "task-clock", "cpu-clock", "user_time", "system_time"})
_PERF_PARTS = ("cpu", "core", "socket", "die", "node", "thread")
_INTERVAL = "an interval of perf stat -I, which is part of one run"


class _PerfEvent(NamedTuple):
    """One line; averaged: perf ran the command several times and prints the mean."""

    line: int
    name: str
    unit: str
    value: str
    group: Pairs
    averaged: bool


def is_separated(text: str) -> bool:
    """True when the first line that is no remark is one of `perf stat -x`."""
    lines = (line for line in text[:65536].splitlines() if line.strip() and line[0] != "#")
    return bool(_PERF_LINE.match(next(lines, "")))


def is_perf_json(first: object) -> bool:
    """True for the first object of `perf stat -j`."""
    return isinstance(first, dict) and {"counter-value", "event"} <= first.keys()


def read_perf_stat(sources: Sources, labels: Labels, found: Collected) -> Contents:
    """The events of all files.  Raises SpecError."""
    for number, source in sources:
        as_json = source.text.lstrip()[:1] == "{"
        lines = enumerate(source.text.splitlines(), start=1)
        for at, line in ((at, line) for at, line in lines if line.strip() and line[0] != "#"):
            event = (_perf_object if as_json else _perf_separated)(line, at, source.name)
            better = Better.LOWER if event.name.partition(":")[0] in _PERF_TIMES else None
            place = f"{source.name}: line {event.line}"
            if not found.judged(event.name, event.unit or "events", better, place):
                continue
            cell = TableCell(event.value, source.name, event.line, event.name)
            value = None if event.value.startswith("<") else cell.number()
            key = (number, event.line, labels[number], event.name)
            if event.averaged and value is not None:
                found.summary(*key, group=event.group, mean=value)
            else:
                failure = event.value.strip("<>") if value is None else ""
                found.value(*key, value, group=event.group, failure=failure)
    return found.contents(None)


def _perf_separated(line: str, at: int, name: str) -> _PerfEvent:
    found = _PERF_LINE.match(line)
    if not found:
        raise _no_perf_stat("not what perf stat -x writes: value, unit, event", name, at)
    if found["time"]:
        raise _no_perf_stat(_INTERVAL, name, at)
    group = (("cpu", found["cpu"]),) if found["cpu"] else ()
    averaged = bool(_PERF_SCATTER.match(found["rest"]))
    return _PerfEvent(at, found["event"], found["unit"], found["value"], group, averaged)


def _perf_object(line: str, at: int, name: str) -> _PerfEvent:
    found = parsed_json(line, name, at, as_written=True)
    if not is_perf_json(found):
        raise _no_perf_stat("not what perf stat -j writes: counter-value and event", name, at)
    if "interval" in found:
        raise _no_perf_stat(_INTERVAL, name, at)
    unit, value = str(found.get("unit") or ""), str(found["counter-value"])
    group = tuple((part, str(found[part])) for part in _PERF_PARTS if part in found)
    return _PerfEvent(at, str(found["event"]), unit, value, group, "variance" in found)


def _no_perf_stat(cause: str, name: str, at: int) -> SpecError:
    action = "import what perf stat wrote of whole runs, and nothing else"
    return SpecError(cause, place=f"{name}: line {at}", action=action)


# ---- mmtests: the logs of kernbench, and the table that compare-kernels.sh prints ----------------

# A log is kernbench-JOBS-ITERATION.time, or `time`, with what GNU time printed of each build.  The
# table has the arms in its head, the first of which is the old one, and of each operation rows such
# as Amean and Stddev: summaries, without the values.

_GNU_NAMES = ("user", "syst", "elsp")
_KERNBENCH = re.compile(r"kernbench-(?P<jobs>\d{1,6})-(?P<iteration>\d{1,6})\.time\Z", re.ASCII)
_GNU_TIME = re.compile(
    r"(?P<user>\d{1,9}(?:\.\d+)?)user\s+(?P<syst>\d{1,9}(?:\.\d+)?)system\s+"
    r"(?P<elsp>(?:\d{1,6}:)?\d{1,6}:\d{1,2}(?:\.\d+)?)elapsed\b",
    re.ASCII,
)
# What GNU time writes before the times of a command that did not succeed.
_GNU_FAILED = re.compile(r"Command (?:exited with non-zero status|terminated by signal) \d+\s*\Z")
# Folders of mmtests' layout that name no arm; all passes, iter-N, are of one boot.
_LAYOUT = re.compile(r"(?:logs|noprofile|fine-profile|kernbench|work|log|iter-\d+)\Z")
_MM_ROW = re.compile(
    r"(?P<name>[A-Z][A-Za-z]+(?:-\d+)?)\s+(?P<operation>\S+)(?P<cells>(?:\s+\S.*)?)\Z"
)
_MM_CELL = re.compile(
    r"\s+(?P<value>-?\d+(?:\.\d+)?|NaN)\s+[(*]\s*(?i:-?\d+(?:\.\d+)?|-?inf|-?nan)%[)*]"
)
# A mean says its direction: mmtests takes the harmonic one where higher is better.
_MM_MEANS = {"Amean": Better.LOWER, "Hmean": Better.HIGHER}
_MM_SPREADS = {"Amean": "Stddev", "Hmean": "HStddev"}


def is_log(text: str) -> bool:
    """True for text in which GNU time wrote a line."""
    return "elapsed" in text and bool(_GNU_TIME.search(text))


def read_logs(sources: Sources, labels: Labels, found: Collected) -> Contents:
    """The times of all logs.  Raises SpecError for a log without one."""
    for number, source in sources:
        *folders, base = source.name.split("/")
        file = _KERNBENCH.match(base)
        named = [folder for folder in folders if not _LAYOUT.match(folder)]
        arm = named[-1] if named else labels[number]
        group: Pairs = (("jobs", file["jobs"]),) if file else ()
        failure = ""
        for at, line in enumerate(source.text.splitlines(), start=1):
            if ended := _GNU_FAILED.match(line):
                failure = ended[0].strip()
            if "elapsed" not in line:
                continue
            times = _GNU_TIME.search(line)
            if not times:
                cause = "an elapsed time that cannot be read"
                place = f"{source.name}: line {at}"
                raise SpecError(cause, place=place, action="leave out a build that did not end")
            for name in _GNU_NAMES:
                found.judged(name, "s", Better.LOWER, source.name)
                value = None if failure else _seconds(times[name])
                found.value(number, at, arm, name, value, group=group, failure=failure)
            failure = ""
    return found.contents(ReplicateUnit.PROCESS_ROUND)


def _seconds(text: str) -> float:
    """Seconds of 5.67, 1:02.50 (minutes) or 1:02:03 (hours)."""
    return reduce(lambda total, part: total * 60 + float(part), text.split(":"), 0.0)


def is_comparison(text: str) -> bool:
    """True for a table of compare-kernels.sh: it has a row of means with their percentages."""
    return any(_mm_row(line) for line in text.splitlines() if line.startswith(tuple(_MM_MEANS)))


def _mm_row(line: str) -> tuple[str, str, list[float | None]] | None:
    """(statistic, operation, a figure for each arm) of a row; None for any other line."""
    row = _MM_ROW.match(line.rstrip())
    if not row:
        return None
    texts = (cell["value"] for cell in _MM_CELL.finditer(row["cells"]))
    values = [None if text == "NaN" else float(text) for text in texts]
    rest = _MM_CELL.sub("", row["cells"]).strip()
    return (row["name"], row["operation"], values) if values and not rest else None


def read_comparison(sources: Sources, _labels: Labels, found: Collected) -> Contents:
    """The means and deviations of a table; their unit is the mapping's.  Raises SpecError."""
    number, source = one_table(sources)
    lines = list(enumerate(source.text.splitlines(), start=1))
    rows = [(at, *cut) for at, line in lines if (cut := _mm_row(line))]
    # One word for each arm in a line, put together where there are two lines.
    above = [line for at, line in lines if at < rows[0][0]]
    heads = [line.split() for line in above if line[:1] == " " and line.strip()]
    alike = len({len(words) for words in heads}) == 1
    names = ["-".join(words) for words in zip(*heads, strict=True)] if alike else []
    if len(set(names)) != len(names) or not names:
        cause = "the head of mmtests' table does not name the arms"
        action = "import the whole table as mmtests printed it"
        raise SpecError(cause, place=source.name, action=action)
    arms = tuple(printable(name, 100) for name in names)
    spreads = {(name, operation): values for _, name, operation, values in rows}
    for at, name, operation, values in rows:
        place = f"{source.name}: line {at}"
        if len(values) != len(arms):
            cause = f"{len(values)} figures for {len(arms)} arms"
            action = "import the whole table as mmtests printed it"
            raise SpecError(cause, place=place, action=action)
        if name not in _MM_MEANS:
            continue
        if operation in found.metrics:
            cause = f"a second mean of {printable(operation, 60)}"
            raise SpecError(cause, place=place, action="import the tables one by one")
        found.judged(operation, "as mmtests prints it", _MM_MEANS[name], place)
        others = spreads.get((_MM_SPREADS[name], operation), [None] * len(arms))
        for arm, mean, sd in zip(arms, values, others, strict=True):
            found.summary(number, at, arm, operation, mean=mean, sd=sd)
    return found.contents(None, order=arms)


# ---- lkp-tests: matrix.json, and the table of the kernel test robot's mails ----------------------

# A matrix has a list of values for each statistic, one for each run.  The table has two commits,
# the parent and the child, and rows of `%stddev  %change  %stddev`.  Neither says which direction
# of a statistic is better: a mapping does, for each that is to be judged.

MATRIX = "matrix.json"
_LKP_RUNS = "stats_source"
_LKP_INCOMPLETE = "last_state.is_incomplete_run"
_LKP_MOST = 100_000
_ROBOT_COMMITS = re.compile(
    r"\s*(?P<old>v\d\S{1,38}|[0-9a-f]{12,40})\s+(?P<new>[0-9a-f]{12,40})\s*\Z"
)
ROBOT_HEAD = re.compile(r"\s*%stddev\s+%change\s+%stddev\s*\Z")
# The sign before a deviation is whatever a mail's encoding left of it.
_ROBOT_SIDE = (
    r"(?P<SIDE>-?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,4})?)"
    r"(?:\s*(?:[\u00c2\ufffd]?[^\w\s.%+-]|\+-)\s*(?P<SIDE_sd>\d+(?:\.\d+)?)%)?"
)
# A change of points is one of a share in percent.
ROBOT_ROW = re.compile(
    rf"\s*{_ROBOT_SIDE.replace('SIDE', 'old')}\s+"
    r"(?P<change>[-+]\d{1,15}(?:\.\d+)?(?:e[-+]?\d\d?)?)(?P<percent>%?)"
    rf"\s+{_ROBOT_SIDE.replace('SIDE', 'new')}\s+(?P<name>[A-Za-z][\w.:/+%-]{{0,299}})\s*\Z"
)
_ROBOT_SETTINGS = re.compile(r"\s+(?P<values>\S.*/.*/.*\S)\s*\Z")
_ROBOT_RULE = re.compile(r"={20,}\s*\Z")


def read_matrices(sources: Sources, labels: Labels, found: Collected) -> Contents:
    """The runs of matrices, of each statistic that the mapping gives a direction."""
    arms = []
    for number, source in sources:
        matrix = json_object(source.text, source.name)
        arm = labels[number]
        runs = _lkp_runs(matrix, source.name)
        for name, values in matrix.items():
            unit = name.rpartition(".")[2]
            if name not in (_LKP_RUNS, _LKP_INCOMPLETE) and found.judged(
                name, unit, None, source.name
            ):
                place = f"{source.name}: {name}"
                if not isinstance(values, list) or len(values) > len(runs):
                    raise SpecError(f"it is no list of at most {len(runs)} values", place=place)
                for at, (run, complete) in enumerate(runs):
                    value, failure = None, "" if complete else "lkp marked the run incomplete"
                    if at < len(values) and values[at] is not None:
                        value = json_number(values[at], place, f"run {at + 1}")
                    elif complete:
                        failure = "no value"
                    key, kept = (number, at + 1, arm, name), None if failure else value
                    found.value(*key, kept, f"run {at}", failure=failure, round=at, run=run)
        booted = ReplicateUnit.BOOT if _LKP_RUNS in matrix else ReplicateUnit.PROCESS_ROUND
        arms.append(ArmFacts(arm=arm, group=(), replicate=booted, planned=len(runs)))
    return found.contents(None, arms=tuple(arms))


def _lkp_runs(matrix: Mapping[str, Any], name: str) -> tuple[tuple[str, bool], ...]:
    """(identity, complete) of each run; without their names as many as a list has values."""
    longest = max((len(each) for each in matrix.values() if isinstance(each, list)), default=0)
    sources = matrix.get(_LKP_RUNS, [str(at) for at in range(longest)] if longest > 1 else None)
    if not isinstance(sources, list) or not 0 < len(sources) <= _LKP_MOST:
        action = "import the matrix.json that lkp made of several runs, not that of one"
        raise SpecError(f"{_LKP_RUNS} is no list of runs", place=name, action=action)
    marks = matrix.get(_LKP_INCOMPLETE, [])
    if not isinstance(marks, list):
        raise SpecError(f"{_LKP_INCOMPLETE} is no list", place=name)
    return tuple(
        ("/".join(str(source).split("/")[-3:-1]) or str(source), marks[at : at + 1] != [1])
        for at, source in enumerate(sources)
    )


def is_robot_table(text: str) -> bool:
    """True for text with a line of two commits and the robot's head below it."""
    lines = text.splitlines()
    return any(map(_ROBOT_COMMITS.match, lines)) and any(map(ROBOT_HEAD.match, lines))


def read_robot_table(sources: Sources, _labels: Labels, found: Collected) -> Contents:
    """Means and deviations of both sides of each row whose statistic has a direction."""
    number, source = one_table(sources)
    arms: tuple[str, ...] | None = None
    settings, ruled, below_head = "", False, False
    for at, line in enumerate(source.text.splitlines(), start=1):
        place = f"{source.name}: line {at}"
        if _ROBOT_RULE.match(line):
            settings, ruled, below_head = "", True, False
        elif ruled and (named := _ROBOT_SETTINGS.match(line)):
            settings, ruled = named["values"], False
        elif commits := _ROBOT_COMMITS.match(line):
            pair = tuple(commit[:12] for commit in commits.groups())
            if arms not in (None, pair):
                action = "import one pair at a time"
                raise SpecError("a second pair of commits", place=place, action=action)
            arms, below_head = pair, False
        elif ROBOT_HEAD.match(line):
            below_head = True
        elif arms and below_head and (row := ROBOT_ROW.match(line)):
            name = row["name"]
            if row["percent"] and found.judged(name, name.rpartition(".")[2], None, place):
                group = (("setting", settings),) if settings else ()
                for arm, side in zip(arms, ("old", "new"), strict=True):
                    mean = TableCell(row[side], source.name, at, name).number()
                    percent = row[f"{side}_sd"]
                    sd = None if percent is None else abs(mean) * float(percent) / 100
                    found.summary(number, at, arm, name, group=group, mean=mean, sd=sd)
    roles = Roles(old=arms[0], new=(arms[1],)) if arms else None
    return found.contents(None, order=arms or (), roles=roles)


# ---- the published framework's bundle: raw.csv with what was recorded of the session beside it ---

# A bundle is a folder.  Its raw.csv has a row for each boot and metric, execution_order.json the
# real order, pipeline_run_env.json the rules, the versions and the machine.  The other files say
# again what raw.csv says, and are kept unread.


RAW = "raw.csv"
ORDER = "execution_order.json"
ENVIRONMENT = "pipeline_run_env.json"
BUNDLE_FILES = frozenset(
    {RAW, ORDER, ENVIRONMENT, "summary.csv", "summary_counts.json", "coverage.summary.csv"}
)
_COLUMNS = (
    *("profile", "source_file", "entry_profile", "test_kind", "version_family", "exact_version"),
    *("case", "scenario", "metric", "value", "status", "run_id", "failure_reason"),
)
# Times end so, in nanoseconds; every other metric is a field that the framework audited.
_BUNDLE_TIMES = {"ns_per_page": "ns/page", "ns_per_1k_pages": "ns/1k-pages", "ns_avg": "ns"}
_MUST = {"expected_match_ratio": "100", "unexpected_results": "0"}
_STAMP = re.compile(r"(?P<suite>.+?)(?:-bench)?-(?P<stamp>\d{8}T\d{6}Z)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What the JSON files say.  order: suite -> (sequence, repeat); profiles: by name."""

    order: Mapping[str, tuple[int, int]]
    facts: Pairs
    group: Pairs
    profiles: Mapping[str, tuple[PublishedRules, int]]


def is_raw(source: SourceFile) -> bool:
    """True for a raw.csv of the framework: its head line has exactly these columns."""
    head = source.text.partition("\n")[0].strip().split(",")
    return source.name.rpartition("/")[2] == RAW and set(head) == set(_COLUMNS)


def read_bundle(number: int, raw: SourceFile, members: Mapping[str, SourceFile]) -> Contents:
    """What the bundle in one folder says; members: its files by name.  Raises SpecError."""
    session = _session(members)
    found = list(rows(raw))
    metrics = {name: _bundle_metric(name) for row in found if (name := row["metric"].text)}
    failures = _bundle_failures(found)
    kept = Collected(None)
    states: dict[tuple[str, Pairs, str], set[str]] = {}
    times: Counter[tuple[str, str]] = Counter()
    refilled = set(_refilled({row["run_id"].text for row in found}, session))
    profile = min({row["profile"].text for row in found} & session.profiles.keys(), default="")
    rules, planned = session.profiles.get(profile, (None, None))
    for row in found:
        arm, name = row["exact_version"].text, row["metric"].text
        if not (arm and name):
            raise row["exact_version" if not arm else "metric"].wrong("a name")
        group, run = _bundle_group(row, session), row["run_id"].text
        failure = failures[run]
        if metrics[name] is None:
            if not failure:
                key = (arm, group, name)
                states.setdefault(key, set()).add(plain_number(row["value"].text))
            continue
        times[run, name] += 1
        suite = stamped["suite"] if (stamped := _STAMP.match(run)) else run
        turn = kept.counts[arm, group, name] + 1
        sequence, repeat = session.order.get(suite, (0, turn))
        # A run that stands there twice is no second sample: it is one run counted twice.
        again = f" line {times[run, name]}" if times[run, name] > 1 else ""
        more = {"run": run, "refilled": run in refilled, "group": group, "failure": failure}
        more |= {"position": sequence - 1 if sequence else None, "round": repeat}
        value = None if failure else row["value"].number()
        kept.value(number, row.line, arm, name, value, f"r{repeat:02d}{again}", **more)
    return Contents(
        metrics=tuple(metric for metric in metrics.values() if metric),
        readings=tuple(kept.readings),
        audited=audited(states),
        arms=tuple(_bundle_arms(found, session, failures, planned)),
        rules=tuple(
            replace(rules, group=group)
            for group in dict.fromkeys(_bundle_group(row, session) for row in found)
            if rules
        ),
        order=tuple(in_order((row["exact_version"].text for row in found), release_key) or ()),
    )


def _bundle_metric(name: str) -> Metric | None:
    unit = next(
        (unit for end, unit in _BUNDLE_TIMES.items() if f"_{name}".endswith(f"_{end}")), None
    )
    found = Metric(name=name, unit=unit or "", better=Better.LOWER, assume=Assume.NOTHING)
    return found if unit else None


def _bundle_failures(found: Sequence[TableRow]) -> dict[str, str]:
    """Run -> why it does not count; "" for one that does."""
    reasons: dict[str, str] = {}
    for row in found:
        run, name, value = row["run_id"].text, row["metric"].text, row["value"].text
        why = ""
        if row["status"].text != "ok":
            why = row["failure_reason"].text or row["status"].text or "no status"
        elif name in _MUST and plain_number(value) != _MUST[name]:
            why = f"{name} {value}"
        reasons[run] = reasons.get(run, "") or why
    return reasons


def _bundle_group(row: TableRow, session: _Session) -> Pairs:
    named = ((name, row[name].text) for name in ("case", "scenario"))
    return (*((name, text) for name, text in named if text), *session.group)


def _session(files: Mapping[str, SourceFile]) -> _Session:
    env = _bundle_object(files.get(ENVIRONMENT))
    facts: list[tuple[str, str]] = []
    group: list[tuple[str, str]] = []
    settings = _bundle_part(env, "environment", {}, ENVIRONMENT)
    for key, fact, dimension in (
        ("QEMU_SMP", "requested_cpus", "cpu"),
        ("QEMU_MEM_MB", "requested_memory_mib", "memory_mib"),
    ):
        if settings.get(key):
            facts.append((fact, str(settings[key])))
            group.append((dimension, str(settings[key])))
    if "coverage_enabled" in env or "performance_clean" in env:
        traced = bool(env.get("coverage_enabled")) or not env.get("performance_clean", True)
        facts.append(("coverage", "yes" if traced else "no"))
        group += [("coverage", "yes")] if traced else []
    order, profiles = dict(_bundle_steps(files.get(ORDER))), dict(_bundle_profiles(env))
    return _Session(order=order, facts=tuple(facts), group=tuple(group), profiles=profiles)


def _bundle_object(source: SourceFile | None) -> dict[str, Any]:
    return json_object(source.text, source.name) if source else {}


def _bundle_part(found: Mapping[str, Any], key: str, empty: Any, place: str) -> Any:
    part = found.get(key, empty)
    if not isinstance(part, type(empty)):
        raise SpecError(f"{key} is not what the framework writes", place=place)
    return part


def _bundle_steps(source: SourceFile | None) -> Iterator[tuple[str, tuple[int, int]]]:
    for at, step in enumerate(_bundle_part(_bundle_object(source), "steps", [], ORDER)):
        try:
            yield str(step["suite_name"]), (int(step["sequence"]), int(step["repeat"]))
        except (KeyError, TypeError, ValueError) as error:
            cause = "a step needs suite_name, sequence and repeat"
            raise SpecError(cause, place=f"{ORDER}: steps[{at}]") from error


def _bundle_profiles(env: Mapping[str, Any]) -> Iterator[tuple[str, tuple[PublishedRules, int]]]:
    for at, profile in enumerate(_bundle_part(env, "profiles", [], ENVIRONMENT)):
        try:
            rules = PublishedRules(
                group=(),
                tolerance=float(profile["tolerance"]),
                max_cv=float(profile["max_cv"]),
                baseline=str(profile["baseline_version"]),
            )
            yield str(profile["name"]), (rules, int(profile["repetitions"]))
        except (KeyError, TypeError, ValueError) as error:
            cause = "a profile needs name, tolerance, max_cv, baseline_version and repetitions"
            raise SpecError(cause, place=f"{ENVIRONMENT}: profiles[{at}]") from error


def _refilled(runs: set[str], session: _Session) -> Iterator[str]:
    """Runs whose time stamp is later than that of most runs that the plan puts after them."""
    planned = sorted(
        (session.order[found["suite"]][0], found["stamp"], run)
        for run in runs
        if (found := _STAMP.match(run)) and found["suite"] in session.order
    )
    later: list[str] = []
    for _, stamp, run in reversed(planned):
        if 2 * bisect_left(later, stamp) > len(later):
            yield run
        insort(later, stamp)


def _bundle_arms(
    found: Sequence[TableRow], session: _Session, failures: Mapping[str, str], planned: int | None
) -> Iterator[ArmFacts]:
    """Of every arm and group: what the machine was, and how many of how many runs ended ok."""
    runs: dict[tuple[str, Pairs], dict[str, None]] = {}
    families: dict[tuple[str, Pairs], str] = {}
    for row in found:
        key = (row["exact_version"].text, _bundle_group(row, session))
        runs.setdefault(key, {})[row["run_id"].text] = None
        families[key] = row["version_family"].text
    for (arm, group), mine in runs.items():
        ok = f"{sum(not failures[run] for run in mine)}/{len(mine)}"
        details = (("version_family", families[arm, group]), ("runs", ok))
        known = ArmFacts(arm=arm, group=group, facts=session.facts, details=details)
        yield replace(known, replicate=ReplicateUnit.BOOT, planned=planned)
