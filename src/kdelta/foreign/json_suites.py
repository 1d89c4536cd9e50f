# SPDX-License-Identifier: GPL-2.0-or-later
"""What benchmark suites write as JSON, as records: pytest-benchmark, JMH, Phoronix Test Suite."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from kdelta.foreign.records import Record
from kdelta.metric import Better

_MAX_LIST = 60_000  # characters of a cell; more rounds are rows


def pytest_benchmark(found: Any) -> Iterator[Record]:
    """Seconds of each round where they are kept, else mean, standard deviation and count."""
    if not isinstance(found, dict) or not isinstance(found.get("machine_info"), dict):
        return
    release = found["machine_info"].get("release")
    kernel = {"kernel": release} if isinstance(release, str) else {}
    for one in _objects(found.get("benchmarks")):
        stats = one.get("stats")
        if not isinstance(stats, dict):
            continue
        said = {"benchmark": str(one.get("fullname") or one.get("name", ""))} | kernel
        said |= {"metric": "time", "unit": "s", "better": Better.LOWER.value}
        values = [str(value) for value in _numbers(stats.get("data"))]
        listed = "; ".join(values)
        if values and len(listed) <= _MAX_LIST:
            yield said | {"values": listed}
        elif values:
            yield from (said | {"value": value} for value in values)
        elif _numbers([stats.get("mean")]):
            parts = {"mean": "mean", "stddev": "sd", "rounds": "n"}
            yield said | {to: str(stats[key]) for key, to in parts.items() if key in stats}


def jmh(found: Any) -> Iterator[Record]:
    """The mean of each fork, which is a process of its own; throughput is better higher."""
    for one in _objects(found):
        measured = one.get("primaryMetric")
        if "jmhVersion" not in one or not isinstance(measured, dict):
            continue
        mode = str(one.get("mode", ""))
        said = {"benchmark": str(one.get("benchmark", "")), "mode": mode}
        params = one.get("params")
        if isinstance(params, dict):
            said |= {str(key): str(value) for key, value in params.items()}
        if isinstance(one.get("threads"), int | Decimal):
            said["threads"] = str(one["threads"])
        better = Better.HIGHER if mode == "thrpt" else Better.LOWER
        said |= {"metric": "throughput" if mode == "thrpt" else "time"}
        said |= {"unit": str(measured.get("scoreUnit", "")), "better": better.value}
        said["metric"] += f" ({said['unit']})"  # another of each benchmark
        raw = measured.get("rawData")
        forks = [_numbers(fork) for fork in raw] if isinstance(raw, list) else []
        for round_, fork in enumerate((fork for fork in forks if fork), start=1):
            yield said | {"round": str(round_), "value": f"{sum(fork) / len(fork):.12g}"}


def phoronix(found: Any) -> Iterator[Record]:
    """Each test of result-file-to-json and each system it ran on: all runs, else their mean."""
    results = found.get("results") if isinstance(found, dict) else None
    tests = list(results.values()) if isinstance(results, dict) else []
    for test in _objects(tests):
        better = {"HIB": Better.HIGHER, "LIB": Better.LOWER}.get(str(test.get("proportion")))
        by_system = test.get("results")
        if better is None or not isinstance(by_system, dict) or "scale" not in test:
            continue
        said = {"benchmark": str(test.get("title") or test.get("identifier", ""))}
        said |= {"description": str(test.get("description") or test.get("arguments", ""))}
        said |= {"metric": said["benchmark"], "unit": str(test["scale"]), "better": better.value}
        for system, one in by_system.items():
            figures = one if isinstance(one, dict) else {}
            values = _numbers(figures.get("raw_values")) or _numbers([figures.get("value")])
            yield from (said | {"kernel": system, "value": str(value)} for value in values)


def _objects(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _numbers(found: Any) -> list[Decimal]:
    if not isinstance(found, list):
        return []
    numeric = [one for one in found if isinstance(one, Decimal | int) and not isinstance(one, bool)]
    return [Decimal(one) for one in numeric]
