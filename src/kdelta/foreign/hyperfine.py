# SPDX-License-Identifier: GPL-2.0-or-later
"""hyperfine's --export-json: the times of one or several commands, in seconds.

Of several files each is an arm, and commands are compared with themselves.  In one file the arms
are a parameter that names a kernel or a build, else the commands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kdelta.errors import SpecError
from kdelta.foreign import words
from kdelta.foreign.json_text import json_object
from kdelta.foreign.record import ArmFacts, Contents, ForeignReading, Pairs, Published, SourceFile
from kdelta.foreign.words import Part
from kdelta.metric import Assume, Better, Metric
from kdelta.printable import printable
from kdelta.verdict.series import ReplicateUnit

METRIC = Metric(name="wall time", unit="s", better=Better.LOWER, assume=Assume.NOTHING)


def looks_like(found: Mapping[str, Any]) -> bool:
    """True for an object with results that have a command and a mean."""
    results = found.get("results")
    return (
        isinstance(results, list)
        and bool(results)
        and all(isinstance(one, dict) and {"command", "mean"} <= one.keys() for one in results)
    )


def read(
    sources: Sequence[tuple[int, SourceFile]],
    texts: Sequence[str],  # noqa: ARG001  the sources hold them
    labels: Mapping[int, str],
) -> Contents:
    """The results of files.  Raises SpecError."""
    readings: list[ForeignReading] = []
    published: list[Published] = []
    for number, source in sources:
        found = json_object(source.text, source.name)
        if not looks_like(found):
            raise SpecError(
                "there are no results with a command and a mean",
                place=source.name,
                action="export them with hyperfine --export-json",
            )
        for at, result in enumerate(found["results"]):
            place = f"{source.name}: results[{at}]"
            arm, group = _arm(result, labels[number] if len(sources) > 1 else "")
            values = list(_times(result, place))
            if not values:
                published.append(_published(number, at, arm, group, result, place))
            for turn, (value, why) in enumerate(values, start=1):
                readings.append(
                    ForeignReading(
                        source=number,
                        line=at + 1,
                        arm=arm,
                        metric=METRIC.name,
                        value=value,
                        failure=why,
                        replicate=f"{arm} run {turn}",
                        group=group,
                        round=turn,
                    )
                )
    arms = dict.fromkeys(
        [
            *((item.arm, item.group) for item in readings),
            *((one.arm, one.group) for one in published),
        ]
    )
    return Contents(
        metrics=(METRIC,),
        readings=tuple(readings),
        published=tuple(published),
        arms=tuple(
            ArmFacts(arm=arm, group=group, facts=(), replicate=ReplicateUnit.PROCESS_ROUND)
            for arm, group in arms
        ),
        order=tuple(dict.fromkeys(arm for arm, _ in arms)) if len(sources) == 1 else (),
    )


def _arm(result: Mapping[str, Any], label: str) -> tuple[str, Pairs]:
    command = printable(str(result["command"]), 200)
    given = result.get("parameters") or {}
    parameters = (
        {str(key): str(value) for key, value in given.items()} if isinstance(given, dict) else {}
    )
    named = next((key for key in parameters if words.said(key).part is Part.ARM), None)
    if label or named is None:
        group = tuple((key, value) for key, value in parameters.items())
        return (label, (("command", command), *group)) if label else (command, group)
    group = tuple((key, value) for key, value in parameters.items() if key != named)
    return parameters[named], group


def _times(result: Mapping[str, Any], place: str) -> Iterator[tuple[float | None, str]]:
    times = result.get("times") or []
    codes = result.get("exit_codes") or [0] * len(times)
    if not isinstance(times, list) or not isinstance(codes, list) or len(codes) != len(times):
        raise SpecError(
            "times and exit_codes are no lists of one length",
            place=place,
            action="export the results again",
        )
    for at, (value, code) in enumerate(zip(times, codes, strict=True)):
        yield (None, f"exit code {code}") if code else (_number(value, f"{place}.times[{at}]"), "")


def _number(value: object, place: str) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    if not fine or not math.isfinite(float(value)) or abs(float(value)) > 1e12:  # type: ignore[arg-type]
        text = f"{printable(str(value), 60)} is no time in seconds"
        raise SpecError(text, place=place, action="export the results again")
    return float(value)  # type: ignore[arg-type]


def _published(
    number: int, at: int, arm: str, group: Pairs, result: Mapping[str, Any], place: str
) -> Published:
    def figure(key: str) -> float | None:
        value = result.get(key)
        return None if value is None else _number(value, f"{place}.{key}")

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
