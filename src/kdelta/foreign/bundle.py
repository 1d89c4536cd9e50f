# SPDX-License-Identifier: GPL-2.0-or-later
"""The published framework's bundle: raw.csv with what was recorded of the session beside it."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kdelta.errors import SpecError
from kdelta.foreign import columns
from kdelta.foreign.points import plain_number
from kdelta.foreign.record import (
    ArmFacts,
    Contents,
    ForeignReading,
    Pairs,
    PublishedRules,
    SourceFile,
    audited,
    merged,
)
from kdelta.foreign.tables import TableRow, json_object, rows
from kdelta.metric import Metric
from kdelta.stats.series import ReplicateUnit

ORDER = "execution_order.json"
ENVIRONMENT = "pipeline_run_env.json"
_NEEDED = ("exact_version", "metric", "value", "status", "run_id", "failure_reason")
_STAMP = re.compile(r"(?P<suite>.+?)(?:-bench)?-(?P<stamp>\d{8}T\d{6}Z)\Z")
_OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What the JSON files say; `order`: suite name -> (sequence, repeat)."""

    order: Mapping[str, tuple[int, int]]
    facts: Pairs
    group: Pairs
    profiles: Mapping[str, tuple[float, float, str, int]]


def is_bundle(source: SourceFile) -> bool:
    """True for a raw.csv of the framework."""
    return all(name in source.columns for name in _NEEDED)


def read(sources: Sequence[tuple[int, SourceFile]]) -> Contents:
    """What the bundle in one folder says.  Raises SpecError."""
    session = _session({_base(source.name): source for _, source in sources})
    raws = [(number, source) for number, source in sources if is_bundle(source)]
    return merged(tuple(_raw(number, source, session) for number, source in raws))


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _session(files: Mapping[str, SourceFile]) -> _Session:
    order = _object(files.get(ORDER))
    env = _object(files.get(ENVIRONMENT))
    facts: list[tuple[str, str]] = []
    group: list[tuple[str, str]] = []
    settings = _part(env, "environment", {}, ENVIRONMENT)
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
    return _Session(
        order=dict(_steps(order, files.get(ORDER))),
        facts=tuple(facts),
        group=tuple(group),
        profiles=dict(_profiles(env, files.get(ENVIRONMENT))),
    )


def _object(source: SourceFile | None) -> dict[str, Any]:
    return json_object(source.text, source.name) if source else {}


def _part(found: Mapping[str, Any], key: str, empty: Any, place: str) -> Any:
    part = found.get(key, empty)
    if not isinstance(part, type(empty)):
        raise SpecError(f"{key} is not what the framework writes", place=place)
    return part


def _steps(
    order: Mapping[str, Any], source: SourceFile | None
) -> Iterator[tuple[str, tuple[int, int]]]:
    if source is None:
        return
    for at, step in enumerate(_part(order, "steps", [], source.name)):
        try:
            yield str(step["suite_name"]), (int(step["sequence"]), int(step["repeat"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(
                "a step needs suite_name, sequence and repeat", place=f"{source.name}: steps[{at}]"
            ) from error


def _profiles(
    env: Mapping[str, Any], source: SourceFile | None
) -> Iterator[tuple[str, tuple[float, float, str, int]]]:
    if source is None:
        return
    for at, profile in enumerate(_part(env, "profiles", [], source.name)):
        try:
            yield (
                str(profile["name"]),
                (
                    float(profile["tolerance"]),
                    float(profile["max_cv"]),
                    str(profile["baseline_version"]),
                    int(profile["repetitions"]),
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(
                "a profile needs name, tolerance, max_cv, baseline_version and repetitions",
                place=f"{source.name}: profiles[{at}]",
            ) from error


def _raw(number: int, source: SourceFile, session: _Session) -> Contents:
    readings: list[ForeignReading] = []
    times: Counter[tuple[str, str]] = Counter()
    metrics: dict[str, Metric] = {}
    states: dict[tuple[str, Pairs, str], set[str]] = {}
    runs_of: dict[tuple[str, Pairs], dict[str, str]] = {}
    seen: dict[tuple[str, str, Pairs], int] = {}
    groups: dict[tuple[str, Pairs], str] = {}
    runs = {row["run_id"].text for row in rows(source)}
    refilled = set(_refilled(runs, session))
    for row in rows(source):
        name, arm = row["metric"].text, row["exact_version"].text
        group = (*_dimensions(row), *session.group)
        groups[arm, group] = row.text("profile")
        runs_of.setdefault((arm, group), {})[row["run_id"].text] = _failure(row)
        metric = columns.metric_of(name)
        if metric is None:
            if row["value"].text:
                states.setdefault((arm, group, name), set()).add(plain_number(row["value"].text))
            continue
        metrics[name] = metric
        seen[arm, name, group] = seen.get((arm, name, group), 0) + 1
        reading = _reading(number, row, group, session, seen[arm, name, group], refilled)
        # A run that stands there twice is no second sample: it is one run counted twice.
        times[reading.run, name] += 1
        again = times[reading.run, name]
        if again > 1:
            reading = msgspec.structs.replace(
                reading, replicate=f"{reading.replicate} line {again}"
            )
        readings.append(reading)
    return Contents(
        metrics=tuple(metrics.values()),
        readings=tuple(readings),
        audited=audited(states),
        arms=(*_arms(groups, session, rows(source)), *_runs(runs_of)),
        rules=tuple(_rules(groups, session)),
    )


def _failure(row: TableRow) -> str:
    """Why a run has no value; "" for one that ended ok."""
    if row["status"].text == _OK:
        return ""
    return row["failure_reason"].text or row["status"].text or "no reason given"


def _runs(runs_of: Mapping[tuple[str, Pairs], Mapping[str, str]]) -> Iterator[ArmFacts]:
    for (arm, group), runs in runs_of.items():
        lost = sorted({reason for reason in runs.values() if reason})
        count = sum(not reason for reason in runs.values())
        facts = [("runs", f"{count}/{len(runs)}")]
        facts += [("lost_run", "; ".join(lost))] if lost else []
        yield ArmFacts(arm=arm, group=group, facts=tuple(facts))


def _dimensions(row: TableRow) -> Pairs:
    return tuple((name, row[name].text) for name in ("scenario", "case") if row.text(name))


def _suite(run: str) -> str:
    found = _STAMP.match(run)
    return found["suite"] if found else run


def _reading(
    number: int, row: TableRow, group: Pairs, session: _Session, count: int, refilled: set[str]
) -> ForeignReading:
    ok = row["status"].text == _OK
    if ok and not row["value"].text:
        raise row["value"].wrong("a number, and the status is ok")
    run = row["run_id"].text
    sequence, repeat = session.order.get(_suite(run), (0, count))
    return ForeignReading(
        source=number,
        line=row.line,
        arm=row["exact_version"].text,
        metric=row["metric"].text,
        value=row["value"].number() if ok else None,
        failure=_failure(row),
        replicate=f"{row['exact_version'].text} r{repeat:02d}",
        group=group,
        position=sequence - 1 if sequence else None,
        round=repeat,
        run=run,
        refilled=run in refilled,
    )


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


def _arms(
    groups: Mapping[tuple[str, Pairs], str], session: _Session, found: Iterator[TableRow]
) -> Iterator[ArmFacts]:
    families = {row["exact_version"].text: row.text("version_family") for row in found}
    for (arm, group), profile in groups.items():
        facts = (*session.facts, ("version_family", families[arm]))
        planned = session.profiles[profile][3] if profile in session.profiles else None
        yield ArmFacts(
            arm=arm, group=group, facts=facts, replicate=ReplicateUnit.BOOT, planned=planned
        )


def _rules(groups: Mapping[tuple[str, Pairs], str], session: _Session) -> Iterator[PublishedRules]:
    for group, profile in {group: profile for (_, group), profile in groups.items()}.items():
        if profile in session.profiles:
            tolerance, max_cv, baseline, _ = session.profiles[profile]
            yield PublishedRules(group=group, tolerance=tolerance, max_cv=max_cv, baseline=baseline)
