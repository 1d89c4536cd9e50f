# SPDX-License-Identifier: GPL-2.0-or-later
"""What known programs write as JSON, as records: a row for each figure, with unit and direction.

fio, cyclictest, iperf3, perf stat -j, Google Benchmark, Criterion, and those of `json_suites`.
A program is known by what only it writes; what a figure was measured at becomes columns, and a
program that names the kernel which it ran on is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from kdelta.foreign import json_suites, perf_stat
from kdelta.foreign.records import Record
from kdelta.metric import Better

_FIO_OPTIONS = ("rw", "bs", "iodepth", "numjobs", "ioengine")
_FIO_TAILS = ("50.000000", "99.000000", "99.900000")
_BENCHMARK_RATES = ("items_per_second", "bytes_per_second")


def records_of(found: Any) -> list[Record]:
    """The records of what a known program wrote; none: it is of no such program."""
    readers: tuple[Callable[[Any], Iterator[Record]], ...] = (
        *(_fio, _cyclictest, _iperf, _perf_stat, _google_benchmark, _criterion),
        *(json_suites.pytest_benchmark, json_suites.jmh, json_suites.phoronix),
    )
    return next((made for read in readers if (made := list(read(found)))), [])


def _figure(
    said: Mapping[str, str], metric: str, unit: str, better: Better, **figures: Any
) -> Iterator[Record]:
    """One row, where there is a number; figures: value, or mean and what is known beside it."""
    known = {key: str(value) for key, value in figures.items() if _number(value) is not None}
    if {"value", "mean"} & known.keys():
        yield {**said, "metric": metric, "unit": unit, "better": better.value, **known}


def _number(found: Any) -> Decimal | int | None:
    numeric = isinstance(found, Decimal | int) and not isinstance(found, bool)
    return found if numeric else None


def _object(found: Any, *keys: str) -> dict[str, Any]:
    """What lies below these keys; empty where it is no object."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _objects(found: Any, key: str) -> list[dict[str, Any]]:
    listed = found.get(key) if isinstance(found, dict) else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _texts(found: Mapping[str, Any], keys: Sequence[str]) -> dict[str, str]:
    return {key: str(found[key]) for key in keys if isinstance(found.get(key), str | int)}


def _fio(found: Any) -> Iterator[Record]:
    """Each job and direction that moved bytes; ns of latency (before fio 3: us), KiB/s and IOPS."""
    if not isinstance(found, dict) or not isinstance(found.get("fio version"), str):
        return
    options = _object(found, "global options")
    for job in _objects(found, "jobs"):
        said = {"jobname": str(job.get("jobname", ""))}
        said |= _texts(options | _object(job, "job options"), _FIO_OPTIONS)
        error = _number(job.get("error")) or 0
        said["status"] = "failed" if error else "ok"
        for direction in ("read", "write", "trim"):
            part = _object(job, direction)
            if not (_number(part.get("total_ios")) or _number(part.get("io_bytes"))):
                continue
            yield from _fio_direction(said | {"direction": direction}, part)


def _fio_direction(said: Record, part: Mapping[str, Any]) -> Iterator[Record]:
    yield from _figure(said, "iops", "IO/s", Better.HIGHER, value=part.get("iops"))
    yield from _figure(said, "bw", "KiB/s", Better.HIGHER, value=part.get("bw"))
    for kind in ("slat", "clat", "lat"):
        for key, unit in ((f"{kind}_ns", "ns"), (kind, "us")):
            times = _object(part, key)
            mean = times.get("mean") if _number(times.get("mean")) else None
            yield from _figure(said, kind, unit, Better.LOWER, value=mean)
            tails = _object(times, "percentile")
            for tail in _FIO_TAILS:
                name = f"{kind} p{tail.rstrip('0').rstrip('.')}"
                yield from _figure(said, name, unit, Better.LOWER, value=tails.get(tail))


def _cyclictest(found: Any) -> Iterator[Record]:
    """Each thread's average and worst latency; ns where it says so, else us."""
    threads = _object(found, "thread")
    if "rt_test_version" not in (found if isinstance(found, dict) else {}) or not threads:
        return
    unit = "ns" if found.get("resolution_in_ns") else "us"
    said = _texts(_object(found, "sysinfo"), ("release",))
    kernel = {"kernel": said["release"]} if "release" in said else {}
    failed = _number(found.get("return_code")) or 0
    status = {"status": "failed" if failed else "ok"}
    for number, thread in threads.items():
        if isinstance(thread, dict):
            each = kernel | {"thread": str(number)} | status
            for key in ("avg", "max"):
                name = f"latency {key}"
                yield from _figure(each, name, unit, Better.LOWER, value=thread.get(key))


def _iperf(found: Any) -> Iterator[Record]:
    """What was sent and received in the whole test; its intervals are no runs."""
    end, start = _object(found, "end"), _object(found, "start")
    if not end or not start or "intervals" not in found:
        return
    said = _texts(_object(start, "test_start"), ("protocol", "num_streams", "reverse", "blksize"))
    words = str(start.get("system_info", "")).split()
    if words[:1] == ["Linux"] and len(words) > 2:
        said["kernel"] = words[2]
    for key, name in (("sum_sent", "sent"), ("sum_received", "received"), ("sum", "all")):
        rate = _object(end, key).get("bits_per_second")
        yield from _figure(said, f"{name} bits", "bit/s", Better.HIGHER, value=rate)
    jitter = _object(end, "sum").get("jitter_ms")
    yield from _figure(said, "jitter", "ms", Better.LOWER, value=jitter)


def _perf_stat(found: Any) -> Iterator[Record]:
    """One event, of a line: of several runs the mean, of one its value; no time series (-I)."""
    if not isinstance(found, dict) or not {"counter-value", "event"} <= found.keys():
        return
    event, text = found["event"], str(found["counter-value"])
    if "interval" in found or not isinstance(event, str) or not perf_stat.is_cost(event):
        return
    said = _texts(found, ("cpu", "core", "socket", "die", "node", "thread"))
    try:
        value = Decimal(text)
    except ArithmeticError:
        return  # <not counted>
    key = "mean" if "variance" in found else "value"
    unit = str(found.get("unit") or "events")
    yield from _figure(said, event, unit, Better.LOWER, **{key: value})


def _google_benchmark(found: Any) -> Iterator[Record]:
    """Each repetition; where only its sums are there, mean, standard deviation and count."""
    runs = [one for one in _objects(found, "benchmarks") if "real_time" in one]
    if "context" not in (found if isinstance(found, dict) else {}) or not runs:
        return
    single = [one for one in runs if one.get("run_type", "iteration") == "iteration"]
    for one in single:
        said = _benchmark(one)
        for name in ("real_time", "cpu_time"):
            unit = str(one.get("time_unit", "ns"))
            yield from _figure(said, name, unit, Better.LOWER, value=one.get(name))
        for name in _BENCHMARK_RATES:
            unit = f"{name.partition('_')[0]}/s"
            yield from _figure(said, name, unit, Better.HIGHER, value=one.get(name))
    if single:
        return
    spreads = {
        str(one.get("run_name")): one for one in runs if one.get("aggregate_name") == "stddev"
    }
    for one in runs:
        if one.get("aggregate_name") == "mean":
            other = spreads.get(str(one.get("run_name")), {})
            for name in ("real_time", "cpu_time"):
                figures = {"mean": one.get(name), "sd": other.get(name)}
                figures["n"] = one.get("repetitions")
                unit = str(one.get("time_unit", "ns"))
                yield from _figure(_benchmark(one), name, unit, Better.LOWER, **figures)


def _benchmark(one: Mapping[str, Any]) -> Record:
    said = {"benchmark": str(one.get("run_name") or one.get("name", ""))}
    said |= _texts(one, ("threads",))
    return said | {"status": "failed" if one.get("error_occurred") else "ok"}


def _criterion(found: Any) -> Iterator[Record]:
    """Mean and standard deviation of a benchmark's estimates, in ns."""
    if not {"mean", "median", "std_dev"} <= (found.keys() if isinstance(found, dict) else set()):
        return
    mean = _object(found, "mean").get("point_estimate")
    sd = _object(found, "std_dev").get("point_estimate")
    yield from _figure({}, "time", "ns", Better.LOWER, mean=mean, sd=sd)
