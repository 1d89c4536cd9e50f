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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
_RATES = ("items_per_second", "bytes_per_second")
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """A value of one run, or a mean; None: it is not said.  scale: from its unit to `unit`."""

    name: str
    unit: str
    better: Better
    group: Pairs
    scale: float = 1.0
    value: Any = None
    mean: Any = None
    sd: Any = None
    n: Any = None
    failure: str = ""


def is_hyperfine(found: Mapping[str, Any]) -> bool:
    """True for an object with results that have a command and a mean."""
    results = found.get("results")
    return (
        isinstance(results, list)
        and bool(results)
        and all(isinstance(one, dict) and {"command", "mean"} <= one.keys() for one in results)
    )


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
        raise SpecError(
            "times and exit_codes are no lists of one length", place=place, action=_AGAIN
        )
    for at, (value, code) in enumerate(zip(times, codes or [0] * len(times), strict=True)):
        if code == 0:
            yield json_number(value, place, f"times[{at}]"), ""
        else:
            yield None, "a signal ended it" if code is None else f"exit code {code}"


def read_google_benchmark(sources: Sources, labels: Labels, mapping: Declared | None) -> Contents:
    """The repetitions of files, or what sums them up.  Raises SpecError."""
    return _read(sources, labels, mapping, _google_benchmark)


def read_fio(sources: Sources, labels: Labels, mapping: Declared | None) -> Contents:
    """The jobs of files, one run each.  Raises SpecError."""
    return _read(sources, labels, mapping, _fio)


def _read(
    sources: Sources,
    labels: Labels,
    mapping: Declared | None,
    figures: Callable[[Mapping[str, Any], str], Iterator[_Figure]],
) -> Contents:
    found = Collected(mapping)
    for number, source in sources:
        for one in figures(json_object(source.text, source.name), source.name):
            found.judged(one.name, one.unit, one.better, source.name)
            key = (number, 1, labels[number], one.name)
            if one.mean is not None:
                mean, sd = (
                    _said(value, source.name, one.name, one.scale) for value in (one.mean, one.sd)
                )
                n = one.n if isinstance(one.n, int) else None
                found.summary(*key, group=one.group, mean=mean, sd=sd, ok=n)
                continue
            value = None
            if not one.failure:
                value = json_number(one.value, source.name, one.name) * one.scale
            found.value(*key, value, group=one.group, failure=one.failure)
    return found.contents(None)


def _benchmarks(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = found.get("benchmarks")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _google_benchmark(found: Mapping[str, Any], place: str) -> Iterator[_Figure]:
    """Each repetition; where only its sums are there, mean, standard deviation and count."""
    runs = _benchmarks(found)
    single = [one for one in runs if one.get("run_type", "iteration") == "iteration"]
    for one in single:
        failure = str(one.get("error_message") or "failed") if one.get("error_occurred") else ""
        for name, unit, better, scale in _figures(one, place):
            yield _Figure(
                name=name,
                unit=unit,
                better=better,
                scale=scale,
                group=_benchmark(one),
                value=one.get(name),
                failure=failure,
            )
    if single:
        return
    spreads = {one.get("run_name"): one for one in runs if one.get("aggregate_name") == "stddev"}
    for one in runs:
        if one.get("aggregate_name") == "mean":
            other = spreads.get(one.get("run_name"), {})
            for name, unit, better, scale in _figures(one, place):
                yield _Figure(
                    name=name,
                    unit=unit,
                    better=better,
                    scale=scale,
                    group=_benchmark(one),
                    mean=one.get(name),
                    sd=other.get(name),
                    n=one.get("repetitions"),
                )


def _figures(one: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, Better, float]]:
    """(name, unit, direction, scale) of what a benchmark has.  Raises SpecError for its unit."""
    unit = str(one.get("time_unit", "ns"))
    if unit not in _NS:
        raise SpecError(
            f"time_unit is {quoted(unit)}", place=place, action="known: " + ", ".join(_NS)
        )
    for name in ("real_time", "cpu_time"):
        if name in one:
            yield name, "ns", Better.LOWER, _NS[unit]
    for name in _RATES:
        if name in one:
            yield name, f"{name.partition('_')[0]}/s", Better.HIGHER, 1.0


def _benchmark(one: Mapping[str, Any]) -> Pairs:
    group = [("benchmark", str(one.get("run_name") or one.get("name", "")))]
    return (*group, *((("threads", str(one["threads"])),) if "threads" in one else ()))


def _fio(found: Mapping[str, Any], _place: str) -> Iterator[_Figure]:
    """Each job and direction that moved bytes; jobs of one name run beside each other."""
    counts: Counter[Pairs] = Counter()
    for job in found["jobs"]:
        options = below(found, "global options") | below(job, "job options")
        said = [("jobname", str(job.get("jobname", "")))]
        said += [(key, str(options[key])) for key in _FIO_OPTIONS if key in options]
        counts[tuple(said)] += 1
        if (count := counts[tuple(said)]) > 1:
            said.append(("job", str(count)))
        failure = f"error {job['error']}" if job.get("error") else ""
        for direction in ("read", "write", "trim"):
            part = below(job, direction)
            if part.get("total_ios") or part.get("io_bytes"):
                yield from _fio_direction(part, (*said, ("direction", direction)), failure)


def _fio_direction(part: Mapping[str, Any], group: Pairs, failure: str) -> Iterator[_Figure]:
    """KiB/s and IOPS; latencies in ns, before fio 3 in us."""
    for name, unit in (("iops", "IO/s"), ("bw", "KiB/s")):
        if name in part:
            yield _Figure(
                name=name,
                unit=unit,
                better=Better.HIGHER,
                group=group,
                value=part[name],
                failure=failure,
            )
    for kind in ("slat", "clat", "lat"):
        for key, scale in ((f"{kind}_ns", 1.0), (kind, _NS["us"])):
            times = below(part, key)
            tails = below(times, "percentile")
            named = [(kind, times["mean"])] if times.get("mean") else []
            named += [
                (f"{kind} p{tail.rstrip('0').rstrip('.')}", tails[tail])
                for tail in _FIO_TAILS
                if tail in tails
            ]
            for name, value in named:
                yield _Figure(
                    name=name,
                    unit="ns",
                    better=Better.LOWER,
                    scale=scale,
                    group=group,
                    value=value,
                    failure=failure,
                )
