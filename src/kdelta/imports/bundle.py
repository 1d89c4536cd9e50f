# SPDX-License-Identifier: GPL-2.0-or-later
"""The published framework's bundle: raw.csv with what was recorded of the session beside it.

A bundle is a folder.  Its raw.csv has one row for each boot and metric; execution_order.json gives
the real order, pipeline_run_env.json the rules, the versions and the machine.  summary.csv,
summary_counts.json and coverage.summary.csv say again what raw.csv says, and are kept unread.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kdelta.errors import SpecError
from kdelta.imports.files import json_object
from kdelta.imports.record import (
    ArmFacts,
    Contents,
    Pairs,
    PublishedRules,
    SourceFile,
    audited,
    in_order,
    release_key,
)
from kdelta.imports.table import Collected, TableRow, plain_number, rows
from kdelta.metric import Assume, Better, Metric
from kdelta.verdict.series import ReplicateUnit

RAW = "raw.csv"
ORDER = "execution_order.json"
ENVIRONMENT = "pipeline_run_env.json"
FILES = frozenset(
    {RAW, ORDER, ENVIRONMENT, "summary.csv", "summary_counts.json", "coverage.summary.csv"}
)
_COLUMNS = (
    *("profile", "source_file", "entry_profile", "test_kind", "version_family", "exact_version"),
    *("case", "scenario", "metric", "value", "status", "run_id", "failure_reason"),
)
# Times end so, in nanoseconds; every other metric is a field that the framework audited.
_TIMES = {"ns_per_page": "ns/page", "ns_per_1k_pages": "ns/1k-pages", "ns_avg": "ns"}
_MUST = {"expected_match_ratio": "100", "unexpected_results": "0"}
_STAMP = re.compile(r"(?P<suite>.+?)(?:-bench)?-(?P<stamp>\d{8}T\d{6}Z)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What the JSON files say.

    order: suite name -> (sequence, repeat).  profiles: name -> (its rules, repetitions).
    """

    order: Mapping[str, tuple[int, int]]
    facts: Pairs
    group: Pairs
    profiles: Mapping[str, tuple[PublishedRules, int]]


def is_raw(source: SourceFile) -> bool:
    """True for a raw.csv of the framework: its head line has exactly these columns."""
    head = source.text.partition("\n")[0].strip().split(",")
    return source.name.rpartition("/")[2] == RAW and set(head) == set(_COLUMNS)


def read(number: int, raw: SourceFile, members: Mapping[str, SourceFile]) -> Contents:
    """What the bundle in one folder says; members: its files by name.  Raises SpecError."""
    session = _session(members)
    found = list(rows(raw))
    metrics = {name: _metric(name) for row in found if (name := row["metric"].text)}
    failures = _failures(found)
    kept = Collected(None)
    states: dict[tuple[str, Pairs, str], set[str]] = {}
    times: Counter[tuple[str, str]] = Counter()
    refilled = set(_refilled({row["run_id"].text for row in found}, session))
    profile = min({row["profile"].text for row in found} & session.profiles.keys(), default="")
    rules, planned = session.profiles.get(profile, (None, None))
    for row in found:
        arm, name = row["exact_version"].text, row["metric"].text
        if not (arm and name):
            raise row["exact_version" if not arm else "metric"].wrong("a name")
        group, run = _group(row, session), row["run_id"].text
        failure = failures[run]
        if metrics[name] is None:
            if not failure:
                key = (arm, group, name)
                states.setdefault(key, set()).add(plain_number(row["value"].text))
            continue
        times[run, name] += 1
        suite = stamped["suite"] if (stamped := _STAMP.match(run)) else run
        turn = kept.counts[arm, group, name] + 1
        sequence, repeat = session.order.get(suite, (0, turn))
        # A run that stands there twice is no second sample: it is one run counted twice.
        again = f" line {times[run, name]}" if times[run, name] > 1 else ""
        more = {"run": run, "refilled": run in refilled, "group": group, "failure": failure}
        more |= {"position": sequence - 1 if sequence else None, "round": repeat}
        value = None if failure else row["value"].number()
        kept.value(number, row.line, arm, name, value, f"r{repeat:02d}{again}", **more)
    return Contents(
        metrics=tuple(metric for metric in metrics.values() if metric),
        readings=tuple(kept.readings),
        audited=audited(states),
        arms=tuple(_arms(found, session, failures, planned)),
        rules=tuple(
            replace(rules, group=group)
            for group in dict.fromkeys(_group(row, session) for row in found)
            if rules
        ),
        order=tuple(in_order((row["exact_version"].text for row in found), release_key) or ()),
    )


def _metric(name: str) -> Metric | None:
    unit = next((unit for end, unit in _TIMES.items() if f"_{name}".endswith(f"_{end}")), None)
    found = Metric(name=name, unit=unit or "", better=Better.LOWER, assume=Assume.NOTHING)
    return found if unit else None


def _failures(found: Sequence[TableRow]) -> dict[str, str]:
    """Run -> why it does not count; "" for one that does."""
    reasons: dict[str, str] = {}
    for row in found:
        run, name, value = row["run_id"].text, row["metric"].text, row["value"].text
        why = ""
        if row["status"].text != "ok":
            why = row["failure_reason"].text or row["status"].text or "no status"
        elif name in _MUST and plain_number(value) != _MUST[name]:
            why = f"{name} {value}"
        reasons[run] = reasons.get(run, "") or why
    return reasons


def _group(row: TableRow, session: _Session) -> Pairs:
    named = ((name, row[name].text) for name in ("case", "scenario"))
    return (*((name, text) for name, text in named if text), *session.group)


def _session(files: Mapping[str, SourceFile]) -> _Session:
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
    order, profiles = dict(_steps(files.get(ORDER))), dict(_profiles(env))
    return _Session(order=order, facts=tuple(facts), group=tuple(group), profiles=profiles)


def _object(source: SourceFile | None) -> dict[str, Any]:
    return json_object(source.text, source.name) if source else {}


def _part(found: Mapping[str, Any], key: str, empty: Any, place: str) -> Any:
    part = found.get(key, empty)
    if not isinstance(part, type(empty)):
        raise SpecError(f"{key} is not what the framework writes", place=place)
    return part


def _steps(source: SourceFile | None) -> Iterator[tuple[str, tuple[int, int]]]:
    if source is None:
        return
    for at, step in enumerate(_part(_object(source), "steps", [], source.name)):
        try:
            yield str(step["suite_name"]), (int(step["sequence"]), int(step["repeat"]))
        except (KeyError, TypeError, ValueError) as error:
            cause = "a step needs suite_name, sequence and repeat"
            raise SpecError(cause, place=f"{source.name}: steps[{at}]") from error


def _profiles(env: Mapping[str, Any]) -> Iterator[tuple[str, tuple[PublishedRules, int]]]:
    for at, profile in enumerate(_part(env, "profiles", [], ENVIRONMENT)):
        try:
            rules = PublishedRules(
                group=(),
                tolerance=float(profile["tolerance"]),
                max_cv=float(profile["max_cv"]),
                baseline=str(profile["baseline_version"]),
            )
            yield str(profile["name"]), (rules, int(profile["repetitions"]))
        except (KeyError, TypeError, ValueError) as error:
            cause = "a profile needs name, tolerance, max_cv, baseline_version and repetitions"
            raise SpecError(cause, place=f"{ENVIRONMENT}: profiles[{at}]") from error


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
    found: Sequence[TableRow], session: _Session, failures: Mapping[str, str], planned: int | None
) -> Iterator[ArmFacts]:
    """Of every arm and group: what the machine was, and how many of how many runs ended ok."""
    runs: dict[tuple[str, Pairs], dict[str, None]] = {}
    families: dict[tuple[str, Pairs], str] = {}
    for row in found:
        key = (row["exact_version"].text, _group(row, session))
        runs.setdefault(key, {})[row["run_id"].text] = None
        families[key] = row["version_family"].text
    for (arm, group), mine in runs.items():
        lost = sorted({failures[run] for run in mine} - {""})
        details = [("version_family", families[arm, group])]
        details.append(("runs", f"{sum(not failures[run] for run in mine)}/{len(mine)}"))
        details += [("lost_run", "; ".join(lost))] if lost else []
        known = ArmFacts(arm=arm, group=group, facts=session.facts, details=tuple(details))
        yield replace(known, replicate=ReplicateUnit.BOOT, planned=planned)
