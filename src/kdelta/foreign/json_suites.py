# SPDX-License-Identifier: GPL-2.0-or-later
"""What benchmark suites of languages write as JSON, as records: pytest-benchmark and JMH."""

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


def _objects(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _numbers(found: Any) -> list[Decimal]:
    if not isinstance(found, list):
        return []
    numeric = [one for one in found if isinstance(one, Decimal | int) and not isinstance(one, bool)]
    return [Decimal(one) for one in numeric]
