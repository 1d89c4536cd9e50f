# SPDX-License-Identifier: GPL-2.0-or-later
"""The published framework's bundle: raw.csv with what was recorded of the session beside it."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kdelta.errors import SpecError
from kdelta.foreign import tidy
from kdelta.foreign.json_text import json_object
from kdelta.foreign.mapping import Mapping
from kdelta.foreign.record import (
    ArmFacts,
    Contents,
    Pairs,
    PublishedRules,
    SourceFile,
    merged,
)
from kdelta.foreign.tables import rows
from kdelta.verdict.series import ReplicateUnit

ORDER = "execution_order.json"
ENVIRONMENT = "pipeline_run_env.json"
_NEEDED = ("exact_version", "metric", "value", "status", "run_id", "failure_reason")
_STAMP = re.compile(r"(?P<suite>.+?)(?:-bench)?-(?P<stamp>\d{8}T\d{6}Z)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What the JSON files say; `order`: suite name -> (sequence, repeat)."""

    order: Dict[str, tuple[int, int]]
    facts: Pairs
    group: Pairs
    profiles: Dict[str, tuple[float, float, str, int]]


def is_bundle(source: SourceFile) -> bool:
    """True for a raw.csv of the framework."""
    return all(name in source.columns for name in _NEEDED)


def read(
    members: Sequence[tuple[int, SourceFile]], raws: Sequence[tuple[int, SourceFile, Mapping]]
) -> Contents:
    """What the bundle in one folder says; `raws` with the mappings of their columns.

    Raises SpecError.
    """
    session = _session({_base(source.name): source for _, source in members})
    return merged(tuple(_raw(number, source, mapping, session) for number, source, mapping in raws))


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _session(files: Dict[str, SourceFile]) -> _Session:
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


def _part(found: Dict[str, Any], key: str, empty: Any, place: str) -> Any:
    part = found.get(key, empty)
    if not isinstance(part, type(empty)):
        raise SpecError(f"{key} is not what the framework writes", place=place)
    return part


def _steps(
    order: Dict[str, Any], source: SourceFile | None
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
    env: Dict[str, Any], source: SourceFile | None
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


def _raw(number: int, source: SourceFile, mapping: Mapping, session: _Session) -> Contents:
    """The table by its mapping, with the place, the round and the boot that the session gives."""
    found = tidy.read(number, source, mapping)
    runs = {row["run_id"].text for row in rows(source)}
    refilled = set(_refilled(runs, session))
    times: Counter[tuple[str, str]] = Counter()
    seen: Counter[tuple[str, str, Pairs]] = Counter()
    readings = []
    for item in found.readings:
        seen[item.arm, item.metric, item.group] += 1
        times[item.run, item.metric] += 1
        count = seen[item.arm, item.metric, item.group]
        sequence, repeat = session.order.get(_suite(item.run), (0, count))
        # A run that stands there twice is no second sample: it is one run counted twice.
        again = f" line {times[item.run, item.metric]}" if times[item.run, item.metric] > 1 else ""
        readings.append(
            msgspec.structs.replace(
                item,
                group=(*item.group, *session.group),
                replicate=f"{item.arm} r{repeat:02d}{again}",
                position=sequence - 1 if sequence else None,
                round=repeat,
                refilled=item.run in refilled,
            )
        )
    return replace(
        found,
        readings=tuple(readings),
        audited=tuple(replace(one, group=(*one.group, *session.group)) for one in found.audited),
        arms=(*_arms(found, source, session), *_runs(found, source, mapping, session)),
        rules=tuple(_rules(source, found, session)),
    )


def _runs(
    found: Contents, source: SourceFile, mapping: Mapping, session: _Session
) -> Iterator[ArmFacts]:
    """Of every arm and group: how many of how many runs ended ok, and why the others did not."""
    runs: dict[tuple[str, Pairs], dict[str, str]] = {}
    for row in rows(source, missing=mapping.missing):
        key = (row["exact_version"].text, (*tidy.group_of(row, mapping), *session.group))
        why = tidy.failure_of(row, mapping)
        runs.setdefault(key, {})[row["run_id"].text] = why
    for item in found.readings:
        if item.failure:
            runs[item.arm, (*item.group, *session.group)][item.run] = item.failure
    for (arm, group), each in runs.items():
        lost = sorted({reason for reason in each.values() if reason})
        count = sum(not reason for reason in each.values())
        facts = [("runs", f"{count}/{len(each)}")]
        facts += [("lost_run", "; ".join(lost))] if lost else []
        yield ArmFacts(arm=arm, group=group, details=tuple(facts))


def _suite(run: str) -> str:
    found = _STAMP.match(run)
    return found["suite"] if found else run


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


def _arms(found: Contents, source: SourceFile, session: _Session) -> Iterator[ArmFacts]:
    planned = _profile(source, session)
    for item in found.arms:
        group = (*item.group, *session.group)
        yield replace(
            item,
            group=group,
            facts=(*session.facts, *item.facts),
            replicate=ReplicateUnit.BOOT,
            planned=planned[3] if planned else None,
        )
    said = {(item.arm, item.group) for item in found.arms}
    for one in found.audited:
        if (one.arm, one.group) not in said:
            said.add((one.arm, one.group))
            group = (*one.group, *session.group)
            yield ArmFacts(
                arm=one.arm, group=group, facts=session.facts, replicate=ReplicateUnit.BOOT
            )


def _profile(source: SourceFile, session: _Session) -> tuple[float, float, str, int] | None:
    names = {row.text("profile") for row in rows(source)}
    return next(
        (session.profiles[name] for name in sorted(names) if name in session.profiles), None
    )


def _rules(source: SourceFile, found: Contents, session: _Session) -> Iterator[PublishedRules]:
    profile = _profile(source, session)
    if profile is None:
        return
    tolerance, max_cv, baseline, _ = profile
    for group in dict.fromkeys((*item.group, *session.group) for item in found.readings):
        yield PublishedRules(group=group, tolerance=tolerance, max_cv=max_cv, baseline=baseline)
