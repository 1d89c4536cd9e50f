# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON of Google Benchmark (--benchmark_format=json) and fio (--output-format=json).

A file is an arm, or its folder is where several files lie in each.  Google Benchmark lists its
repetitions, or their mean, deviation and number; a file of fio is one run, and each job and
direction that moved bytes is a setting of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.imports.files import below, json_object
from kdelta.imports.record import Contents, ImportReading, Pairs, Published, SourceFile, each_arm
from kdelta.imports.table import json_number
from kdelta.metric import Assume, Better, Metric

_FIO_OPTIONS = ("rw", "bs", "iodepth", "numjobs", "ioengine")
_FIO_TAILS = ("50.000000", "99.000000", "99.900000")
_RATES = ("items_per_second", "bytes_per_second")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """A value of one run, or a mean; None: it is not said."""

    metric: Metric
    group: Pairs
    value: Any = None
    mean: Any = None
    sd: Any = None
    n: Any = None
    failure: str = ""


def is_google_benchmark(found: Mapping[str, Any]) -> bool:
    """True for an object with a context and benchmarks that have a real_time."""
    return bool(below(found, "context")) and any("real_time" in one for one in _benchmarks(found))


def is_fio(found: Mapping[str, Any]) -> bool:
    """True for an object that names fio's version and its jobs."""
    return isinstance(found.get("fio version"), str) and isinstance(found.get("jobs"), list)


def read_google_benchmark(
    sources: Sequence[tuple[int, SourceFile]], labels: Mapping[int, str]
) -> Contents:
    """The repetitions of files, or what sums them up.  Raises SpecError."""
    return _read(sources, labels, _google_benchmark)


def read_fio(sources: Sequence[tuple[int, SourceFile]], labels: Mapping[int, str]) -> Contents:
    """The jobs of files, one run each.  Raises SpecError."""
    return _read(sources, labels, _fio)


def _read(
    sources: Sequence[tuple[int, SourceFile]],
    labels: Mapping[int, str],
    figures: Callable[[Mapping[str, Any]], Iterator[_Figure]],
) -> Contents:
    readings: list[ImportReading] = []
    published: list[Published] = []
    metrics: dict[str, Metric] = {}
    counts: Counter[tuple[str, Pairs, str]] = Counter()
    for number, source in sources:
        arm = labels[number]
        for one in figures(json_object(source.text, source.name)):
            name = one.metric.name
            metrics[name] = one.metric
            counts[arm, one.group, name] += 1
            count = counts[arm, one.group, name]
            if one.mean is not None:
                published.append(
                    Published(
                        source=number,
                        line=1,
                        arm=arm,
                        metric=name,
                        group=one.group,
                        mean=json_number(one.mean, source.name, name),
                        sd=None if one.sd is None else json_number(one.sd, source.name, name),
                        ok=one.n if isinstance(one.n, int) else None,
                    )
                )
                continue
            readings.append(
                ImportReading(
                    source=number,
                    line=1,
                    arm=arm,
                    metric=name,
                    value=None if one.failure else json_number(one.value, source.name, name),
                    failure=one.failure,
                    replicate=f"{arm} r{count}",
                    group=one.group,
                    round=count,
                )
            )
    return Contents(
        metrics=tuple(metrics.values()),
        readings=tuple(readings),
        published=tuple(published),
        arms=each_arm([*readings, *published], None),
    )


def _metric(name: str, unit: str, better: Better) -> Metric:
    return Metric(name=name, unit=unit, better=better, assume=Assume.NOTHING)


def _benchmarks(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = found.get("benchmarks")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _google_benchmark(found: Mapping[str, Any]) -> Iterator[_Figure]:
    """Each repetition; where only its sums are there, mean, standard deviation and count."""
    runs = _benchmarks(found)
    single = [one for one in runs if one.get("run_type", "iteration") == "iteration"]
    for one in single:
        failure = str(one.get("error_message") or "failed") if one.get("error_occurred") else ""
        for metric in _metrics(one):
            yield _Figure(
                metric=metric, group=_benchmark(one), value=one.get(metric.name), failure=failure
            )
    if single:
        return
    spreads = {one.get("run_name"): one for one in runs if one.get("aggregate_name") == "stddev"}
    for one in runs:
        if one.get("aggregate_name") == "mean":
            other = spreads.get(one.get("run_name"), {})
            for metric in _metrics(one):
                yield _Figure(
                    metric=metric,
                    group=_benchmark(one),
                    mean=one.get(metric.name),
                    sd=other.get(metric.name),
                    n=one.get("repetitions"),
                )


def _metrics(one: Mapping[str, Any]) -> Iterator[Metric]:
    for name in ("real_time", "cpu_time"):
        if name in one:
            yield _metric(name, str(one.get("time_unit", "ns")), Better.LOWER)
    for name in _RATES:
        if name in one:
            yield _metric(name, f"{name.partition('_')[0]}/s", Better.HIGHER)


def _benchmark(one: Mapping[str, Any]) -> Pairs:
    group = [("benchmark", str(one.get("run_name") or one.get("name", "")))]
    return (*group, *((("threads", str(one["threads"])),) if "threads" in one else ()))


def _fio(found: Mapping[str, Any]) -> Iterator[_Figure]:
    """Each job and direction that moved bytes; ns of latency (before fio 3: us), KiB/s and IOPS."""
    for job in found["jobs"]:
        options = below(found, "global options") | below(job, "job options")
        said = [("jobname", str(job.get("jobname", "")))]
        said += [(key, str(options[key])) for key in _FIO_OPTIONS if key in options]
        failure = f"error {job['error']}" if job.get("error") else ""
        for direction in ("read", "write", "trim"):
            part = below(job, direction)
            if part.get("total_ios") or part.get("io_bytes"):
                group = (*said, ("direction", direction))
                for metric, value in _fio_direction(part):
                    yield _Figure(metric=metric, group=group, value=value, failure=failure)


def _fio_direction(part: Mapping[str, Any]) -> Iterator[tuple[Metric, Any]]:
    for name, unit in (("iops", "IO/s"), ("bw", "KiB/s")):
        if name in part:
            yield _metric(name, unit, Better.HIGHER), part[name]
    for kind in ("slat", "clat", "lat"):
        for key, unit in ((f"{kind}_ns", "ns"), (kind, "us")):
            times = below(part, key)
            if times.get("mean"):
                yield _metric(kind, unit, Better.LOWER), times["mean"]
            tails = below(times, "percentile")
            for tail in _FIO_TAILS:
                if tail in tails:
                    name = f"{kind} p{tail.rstrip('0').rstrip('.')}"
                    yield _metric(name, unit, Better.LOWER), tails[tail]
