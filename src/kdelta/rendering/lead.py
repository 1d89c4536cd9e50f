# SPDX-License-Identifier: GPL-2.0-or-later
"""The first sentence of a mail and of a page: the operation, its size and what it rests on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kdelta.analysis.claims import Claim, Headline
from kdelta.analysis.explanation import Explanation, FunctionDelta, Presence, once
from kdelta.analysis.resemblance import akin, name_words, near
from kdelta.ladder.evidence import ITERATION
from kdelta.ladder.ladders import Rung
from kdelta.metric import number
from kdelta.rendering.times import scale
from kdelta.rendering.wording import TRUST, change, effort, more
from kdelta.sample import TOTAL
from kdelta.table.columns import short
from kdelta.workload import Scenario, Workload

_MOST = 0.5  # share of the difference from which one function is named beside it
_NAME = 40
_WORDS = 2  # that two names have in common
# A summary that names its call, or begins with the name of a request: others tell of memory.
_CALL = re.compile(r"\w\(|^[A-Z]+_[A-Z]")
# Titles that name a set of operations: what each is stands in its scenario.
_SETS = re.compile(r"loops|controls|a process or")


class Named(Protocol):
    """What belongs to a scenario."""

    @property
    def workload(self) -> str:
        """Its name."""

    @property
    def scenario(self) -> str:
        """Its name."""


def sentence(found: Claim, head: Headline, workloads: Mapping[str, Workload]) -> str:
    """What was done, from how much to how much, and how that is known."""
    step, ladder = head.step, head.ladder
    divisor, unit = scale([ladder]) if found.timed else (1.0, "instructions")
    was, now = (_value(each / divisor, found) for each in (step.old_value, step.new_value))
    work = "" if found.timed else f", which is {effort(step.comparison, timed=False)}"
    return (
        f"{subject(ladder, ladder.point, workloads)} went from {was} {unit} per"
        f" {per(step.operation)} on {step.old} to {now} on {step.new}:"
        f" {change(step.comparison.ratio, noun(found))}{work} ({TRUST[ladder.grade]})."
    )


def of_counts(found: Explanation, point: str, workloads: Mapping[str, Workload]) -> str:
    """The same of a step between two kernels of a lab, where all is counted."""
    was, now = (
        "no" if value is None else number(value / found.operations)
        for value in (found.old_value, found.new_value)
    )
    phase = "" if found.phase == TOTAL else f", phase {found.phase}"
    return (
        f"{subject(found, point, workloads)}{phase} went from {was} instructions per"
        f" {per(found.operation)} on {found.old} to {now} on {found.new}:"
        f" {change(found.comparison.ratio, 'instructions')}, which is"
        f" {effort(found.comparison, timed=False)}."
    )


def subject(named: Named, point: str, workloads: Mapping[str, Workload]) -> str:
    """What a scenario does, as a sentence begins with it.  point: of a study's matrix."""
    return _capital(operation(named, workloads)) + (f" ({point})" if point else "")


def largest(found: Claim) -> str:
    """The function that most of a difference of counts is in; nothing where there is none."""
    explained = found.explanation
    if explained is None or explained.refused or not explained.delta:
        return ""
    rows = once(explained.functions, explained.renamed)
    row = max(rows, key=lambda one: one.delta / (explained.delta or 1))
    if row.delta / explained.delta < _MOST:
        return ""
    if _elsewhere(row, rows):
        return ""
    told = {
        Presence.NEW: f", which {explained.old} does not execute",
        Presence.VANISHED: f", which {explained.new} does not execute",
    }
    return (
        f"Most of it is in {short(row.function, _NAME)}{told.get(row.status, '')}:"
        f" {more(row.delta / explained.operations)} per {per(explained.operation)}."
    )


def _elsewhere(row: FunctionDelta, rows: Iterable[FunctionDelta]) -> bool:
    """True where a function that the other kernel alone executes may be what became of this one.

    Its name is of mostly the same words, or of some of them and it is called as often.
    """
    other = {Presence.NEW: Presence.VANISHED, Presence.VANISHED: Presence.NEW}.get(row.status)
    calls = row.calls_old or row.calls_new or 0
    words = name_words(row.function)
    return any(
        akin(each.function, row.function)
        or (
            len(words & name_words(each.function)) >= _WORDS
            and near(calls, each.calls_old or each.calls_new or 0)
        )
        for each in rows
        if each.status is other
    )


def operation(ladder: Named, workloads: Mapping[str, Workload]) -> str:
    """What a scenario does in words; its name where its workload is not known here."""
    workload = workloads.get(ladder.workload)
    scenario = scenario_of(ladder, workloads)
    if workload is None or scenario is None:
        return f"{ladder.workload}:{ladder.scenario}"
    if _CALL.search(scenario.summary) or is_set(workload):
        return scenario.summary
    title = re.split(r":|, by ", workload.title)[0]
    return f"{title} ({scenario.summary})"


def is_set(workload: Workload) -> bool:
    """True for a workload whose scenarios have only their form in common: each has its own path."""
    return _SETS.match(workload.title) is not None


def scenario_of(ladder: Named, workloads: Mapping[str, Workload]) -> Scenario | None:
    """The scenario as its workload has it here."""
    workload = workloads.get(ladder.workload)
    every = workload.scenarios if workload else ()
    return next((one for one in every if one.name == ladder.scenario), None)


def per(operation: str) -> str:
    """What a value is per."""
    return "iteration" if operation == ITERATION else operation


def releases(found: Claim) -> tuple[str, str] | None:
    """The tags of two releases that differ in time; None for trees, patches and files."""
    if found.headline is None or found.timed:
        return None
    old, new = (series(rung) for rung in found.headline.rungs)
    tags = old != new and all(re.match(r"v\d", each) for each in (old, new))
    plain = all(rung.version for rung in found.headline.rungs)
    return (old, new) if tags and plain else None


def series(rung: Rung[Any]) -> str:
    """The v6.17 of 6.17.13; of anything else its name."""
    match = re.match(r"(\d+\.\d+)(?:[.+~-]|$)(?:.*?(-?rc\d+))?", rung.release)
    return (
        f"v{match[1]}{(match[2] or '').replace('rc', '-rc').replace('--', '-')}"
        if match
        else rung.arm
    )


def noun(found: Claim) -> str:
    """What there is more or less of."""
    return "time" if found.timed else "instructions"


def _capital(text: str) -> str:
    """A sentence's begin; the name of a call stays as it is."""
    return text if re.match(r"\w+\(|\w+:", text) else text[:1].upper() + text[1:]


def _value(value: float, found: Claim) -> str:
    return f"{value:.3f}" if found.timed and value < 100 else number(value)
