# SPDX-License-Identifier: GPL-2.0-or-later
"""hyperfine's --export-json: the times of one or several commands, in seconds.

Of several files each is an arm, and commands are compared with themselves.  In one file the
commands are the arms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kdelta.errors import SpecError
from kdelta.imports.files import below, json_object
from kdelta.imports.record import Contents, ImportReading, Pairs, Published, SourceFile, each_arm
from kdelta.imports.table import json_number
from kdelta.metric import Assume, Better, Metric
from kdelta.printable import printable
from kdelta.verdict.series import ReplicateUnit

METRIC = Metric(name="wall time", unit="s", better=Better.LOWER, assume=Assume.NOTHING)
_AGAIN = "export the results again with hyperfine --export-json"


def is_hyperfine(found: Mapping[str, Any]) -> bool:
    """True for an object with results that have a command and a mean."""
    results = found.get("results")
    return (
        isinstance(results, list)
        and bool(results)
        and all(isinstance(one, dict) and {"command", "mean"} <= one.keys() for one in results)
    )


def read(sources: Sequence[tuple[int, SourceFile]], labels: Mapping[int, str]) -> Contents:
    """The results of files.  Raises SpecError."""
    readings: list[ImportReading] = []
    published: list[Published] = []
    for number, source in sources:
        found = json_object(source.text, source.name)
        for at, result in enumerate(found["results"]):
            place = f"{source.name}: results[{at}]"
            arm, group = _arm(result, labels[number] if len(sources) > 1 else "")
            values = list(_times(result, place))
            if not values:
                published.append(_published(number, at, arm, group, result, place))
            for turn, (value, why) in enumerate(values, start=1):
                readings.append(
                    ImportReading(
                        source=number,
                        line=at + 1,
                        arm=arm,
                        metric=METRIC.name,
                        value=value,
                        failure=why,
                        replicate=f"{arm} {source.name} run {turn}",
                        group=group,
                        round=turn,
                    )
                )
    return Contents(
        metrics=(METRIC,),
        readings=tuple(readings),
        published=tuple(published),
        arms=each_arm([*readings, *published], ReplicateUnit.PROCESS_ROUND),
    )


def _arm(result: Mapping[str, Any], label: str) -> tuple[str, Pairs]:
    command = printable(str(result["command"]), 200)
    group = tuple((key, str(value)) for key, value in below(result, "parameters").items())
    return (label, (("command", command), *group)) if label else (command, ())


def _times(result: Mapping[str, Any], place: str) -> Iterator[tuple[float | None, str]]:
    times = result.get("times") or []
    codes = result.get("exit_codes") or [0] * len(times)
    if not isinstance(times, list) or not isinstance(codes, list) or len(codes) != len(times):
        raise SpecError(
            "times and exit_codes are no lists of one length", place=place, action=_AGAIN
        )
    for at, (value, code) in enumerate(zip(times, codes, strict=True)):
        if code:
            yield None, f"exit code {code}"
        else:
            yield json_number(value, place, f"times[{at}]"), ""


def _published(
    number: int, at: int, arm: str, group: Pairs, result: Mapping[str, Any], place: str
) -> Published:
    def figure(key: str) -> float | None:
        value = result.get(key)
        return None if value is None else json_number(value, place, key)

    return Published(
        source=number,
        line=at + 1,
        arm=arm,
        metric=METRIC.name,
        group=group,
        mean=figure("mean"),
        median=figure("median"),
        sd=figure("stddev"),
    )
