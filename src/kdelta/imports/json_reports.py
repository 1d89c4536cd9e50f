# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON of hyperfine (--export-json), Google Benchmark (--benchmark_format=json) and fio.

A file is an arm, or its folder is where several files lie in each; of one file of hyperfine the
commands are the arms.  hyperfine lists the times of each command; Google Benchmark its repetitions,
or their mean, deviation and number.  A file of fio (--output-format=json) is one run, and each job
and direction that moved bytes is a setting of its own.  Times of Google Benchmark and fio, which
come in several units, are kept in ns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kdelta.errors import SpecError
from kdelta.imports.declared import Collected, Labels, Sources
from kdelta.imports.files import below, json_object
from kdelta.imports.mapping import Mapping as Declared
from kdelta.imports.record import Contents, Pairs
from kdelta.imports.table import json_number
from kdelta.metric import Better
from kdelta.printable import printable, quoted
from kdelta.verdict.series import ReplicateUnit

WALL = "wall time"
_AGAIN = "export the results again with hyperfine --export-json"
_FIO_OPTIONS = ("rw", "bs", "iodepth", "numjobs", "ioengine")
_FIO_TAILS = ("50.000000", "99.000000", "99.900000")
_SPREAD = "stddev"
_RATES = ("items_per_second", "bytes_per_second")
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def is_hyperfine(found: Mapping[str, Any]) -> bool:
    """True for an object with results that have a command and a mean."""
    results = found.get("results")
    listed = results if isinstance(results, list) else []
    fits = [isinstance(one, dict) and {"command", "mean"} <= one.keys() for one in listed]
    return bool(fits) and all(fits)


def is_google_benchmark(found: Mapping[str, Any]) -> bool:
    """True for an object with a context and benchmarks that have a real_time."""
    return bool(below(found, "context")) and any("real_time" in one for one in _benchmarks(found))


def is_fio(found: Mapping[str, Any]) -> bool:
    """True for an object that names fio's version and its jobs."""
    jobs = found.get("jobs")
    named = isinstance(found.get("fio version"), str) and isinstance(jobs, list)
    return named and all(isinstance(job, dict) for job in jobs or ())


def read_hyperfine(sources: Sources, labels: Labels, mapping: Declared | None) -> Contents:
    """The times of every command, in seconds.  Raises SpecError."""
    found = Collected(mapping)
    for number, source in sources:
        for at, result in enumerate(json_object(source.text, source.name)["results"]):
            place = f"{source.name}: results[{at}]"
            arm, group = _command(result, labels[number] if len(sources) > 1 else "")
            found.judged(WALL, "s", Better.LOWER, place)
            values = list(_times(result, place))
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


def _command(result: Mapping[str, Any], label: str) -> tuple[str, Pairs]:
    command = printable(str(result["command"]), 200)
    group = tuple((key, str(value)) for key, value in below(result, "parameters").items())
    return (label, (("command", command), *group)) if label else (command, ())


def _times(result: Mapping[str, Any], place: str) -> Iterator[tuple[float | None, str]]:
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


def read_google_benchmark(sources: Sources, labels: Labels, mapping: Declared | None) -> Contents:
    """The repetitions of files; where only their sums are there, mean, deviation and count."""
    found = Collected(mapping)
    for number, source in sources:
        place, runs = source.name, _benchmarks(json_object(source.text, source.name))
        single = [one for one in runs if one.get("run_type", "iteration") == "iteration"]
        means = [one for one in runs if one.get("aggregate_name") == "mean"]
        spreads = {one.get("run_name"): one for one in runs if one.get("aggregate_name") == _SPREAD}
        for one in single or means:
            failure = str(one.get("error_message") or "failed") if one.get("error_occurred") else ""
            group, n = _benchmark(one), one.get("repetitions")
            for name, unit, better, scale in _figures(one, place):
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


def _benchmarks(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = found.get("benchmarks")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _figures(one: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, Better, float]]:
    """(name, unit, direction, scale) of what a benchmark has.  Raises SpecError for its unit."""
    unit = str(one.get("time_unit", "ns"))
    if unit not in _NS:
        cause = f"time_unit is {quoted(unit)}"
        raise SpecError(cause, place=place, action="known: " + ", ".join(_NS))
    for name in ("real_time", "cpu_time"):
        if name in one:
            yield name, "ns", Better.LOWER, _NS[unit]
    for name in _RATES:
        if name in one:
            yield name, f"{name.partition('_')[0]}/s", Better.HIGHER, 1.0


def _benchmark(one: Mapping[str, Any]) -> Pairs:
    group = [("benchmark", str(one.get("run_name") or one.get("name", "")))]
    return (*group, *((("threads", str(one["threads"])),) if "threads" in one else ()))


def read_fio(sources: Sources, labels: Labels, mapping: Declared | None) -> Contents:
    """Each job and direction that moved bytes; jobs of one name ran beside each other."""
    found = Collected(mapping)
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
