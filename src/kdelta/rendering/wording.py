# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes in words: "2.22 times the instructions (more work)", never a bare sign; and the first
sentence of a mail and of a page: the operation, its size and what it rests on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kdelta.analysis.claims import Claim, Headline
from kdelta.analysis.explanation import Explanation, FunctionDelta, Presence, once
from kdelta.analysis.resemblance import akin, name_words, near
from kdelta.ladder.evidence import ITERATION
from kdelta.ladder.ladders import Rung
from kdelta.metric import Grade, number
from kdelta.rendering.times import scale
from kdelta.sample import TOTAL
from kdelta.table.columns import short
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.workload import Scenario, Workload

_TWICE = 1.995  # from here on "times" reads better than percent

# What a verdict of a grade rests on, for who has never seen one.
TRUST = {
    Grade.EXACT_PATH: "counted exactly, under emulation; how long it takes was not measured",
    Grade.GUEST_TIME: "timed in KVM guests",
    Grade.HOST_TIME: "timed on a machine that is itself a guest, or may be",
    Grade.METAL_TIME: "timed on real hardware",
}
_MOST_NAMED = 0.5  # share of the difference from which one function is named beside it
_NAME = 40
_WORDS = 2  # that two names have in common
# A summary that names its call, or begins with the name of a request: others tell of memory.
_CALL = re.compile(r"\w\(|^[A-Z]+_[A-Z]")
# Titles that name a set of operations: what each is stands in its scenario.
_SETS = re.compile(r"loops|controls|a process or")


def change(ratio: float | None, what: str) -> str:
    """How much more or less: "2.22 times the instructions", "3.1 % fewer instructions".

    what: "instructions" or "time".
    """
    if ratio is None:
        return f"{what} where there were none"
    if ratio >= _TWICE:
        return f"{ratio:.2f} times the {what}"
    percent = (
        f"{100 * abs(ratio - 1):.2g}" if abs(ratio - 1) < 0.1 else f"{100 * abs(ratio - 1):.0f}"
    )
    if ratio == 1:
        return f"the same {what}"
    less = "fewer" if what.endswith("s") else "less"
    return f"{percent} % {'more' if ratio > 1 else less} {what}"


def against(ratio: float | None, what: str, old: str) -> str:
    """The same in a sentence: "3.1 % fewer instructions than on 6.12"."""
    joined = "than" if ratio is not None and ratio < _TWICE and ratio != 1 else "as"
    if ratio is not None and ratio >= _TWICE:
        return f"{change(ratio, what)} that it takes on {old}"
    return f"{change(ratio, what)} {joined} on {old}"


def effort(found: Comparison, *, timed: bool) -> str:
    """A verdict in words that need no convention."""
    what = "time" if timed else "work"
    return {
        Verdict.REGRESSION: f"more {what}",
        Verdict.IMPROVEMENT: f"less {what}",
        Verdict.SAME: f"the same {what}",
        Verdict.UNDECIDED: "undecided",
        Verdict.INVALID: "cannot be compared",
    }[found.verdict]


def more(delta: float) -> str:
    """A difference in words: "368.1 more", "22.0 fewer", "as many"."""
    if not delta:
        return "as many"
    return f"{number(abs(delta))} {'more' if delta > 0 else 'fewer'}"


class Named(Protocol):
    """What belongs to a scenario."""

    @property
    def workload(self) -> str:
        """Its name."""

    @property
    def scenario(self) -> str:
        """Its name."""


def first_sentence(found: Claim, head: Headline, workloads: Mapping[str, Workload]) -> str:
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


def first_of_counts(found: Explanation, point: str, workloads: Mapping[str, Workload]) -> str:
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
    if row.delta / explained.delta < _MOST_NAMED:
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
