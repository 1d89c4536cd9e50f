# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether two arms may be compared at all: state, facts and identity, before any number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from kdelta.metric import Assume
from kdelta.stats.detectors import duplicate_runs
from kdelta.verdict.comparison import Caution, Trap
from kdelta.verdict.series import Series

UNKNOWN = "unknown"
_NO = frozenset({"0", "n", "no", "off", "false", "disabled", "none", ""})
_INSTRUMENTS = ("coverage", "instrumented", "tracing")
_EMULATORS = frozenset({"tcg"})
# How much was measured may differ between arms, and so may the identity of a boot.
_FREE = frozenset({"operations", "boot_id"})


def obstacles(arms: Sequence[Series]) -> tuple[str, ...]:
    """Sentences that forbid a comparison of these arms; empty: nothing does."""
    found = [text for arm in arms for text in _of_one(arm)]
    for old, new in combinations(arms, 2):
        found += _of_metrics(old, new) + _of_facts(old, new) + _of_states(old, new)
        found += _of_runs(old, new)
    return tuple(dict.fromkeys(found))


def cautions(arms: Sequence[Series]) -> tuple[Caution, ...]:
    """What is not known about state and facts, where that does not forbid the comparison."""
    texts = list(filter(None, map(_unknown_state, arms)))
    unseen = ", ".join(dict.fromkeys(arm.arm for arm in arms if not arm.state))
    texts += [f"{unseen}: the page state was not audited"] if unseen else []
    found = [Caution(trap=Trap.STATE, sentence=text) for text in texts]
    for old, new in combinations(arms, 2):
        for one, other in ((old, new), (new, old)):
            names = sorted(set(dict(one.facts)) - set(dict(other.facts)) - _FREE)
            if names:
                text = f"{', '.join(names)}: known of {one.arm}, not of {other.arm}"
                found.append(Caution(trap=Trap.FACTS, sentence=text))
    return tuple(found)


def _of_one(arm: Series) -> list[str]:
    found = []
    if arm.metric.assume is Assume.EXACT:
        found.append(f"{arm.arm}: {arm.metric.name} is an exact count, not a time")
    asked, seen = arm.fact("requested_cpus"), arm.fact("seen_cpus")
    if asked is not None and seen is not None and asked != seen:
        found.append(f"{arm.arm}: {asked} CPUs were requested and {seen} were seen")
    smp = arm.fact("smp")
    if asked is not None and smp is not None and smp.lower() in _NO:
        found.append(
            f"{arm.arm}: the kernel was built without SMP, so {asked} CPUs is only what was asked"
        )
    found += [
        f"{arm.arm}: measured with {name} on: instrumented runs are never a time"
        for name in _INSTRUMENTS
        if (arm.fact(name) or "").lower() not in _NO
    ]
    if (arm.fact("accelerator") or "").lower() in _EMULATORS:
        found.append(f"{arm.arm}: emulated (tcg): wall-clock time there is never evidence")
    runs = duplicate_runs(arm)
    return found + [f"{arm.arm}: run {run} is counted more than once" for run in runs]


def _of_metrics(old: Series, new: Series) -> list[str]:
    # Of what an arm without any boot would have repeated nothing is known.
    repeated = old.replicate is new.replicate or not (old.boots and new.boots)
    if old.metric == new.metric and repeated:
        return []
    was, now = (f"{arm.metric.name} ({arm.metric.unit}) per {arm.replicate}" for arm in (old, new))
    if was == now:
        was, now = (f"{arm.metric.name}, {arm.metric.better} is better" for arm in (old, new))
    return [f"metrics differ: {was} against {now}"]


def _of_facts(old: Series, new: Series) -> list[str]:
    was, now = dict(old.facts), dict(new.facts)
    names = sorted((was.keys() & now.keys()) - _FREE)
    return [
        f"{name} differs: {was[name]} ({old.arm}) against {now[name]} ({new.arm})"
        for name in names
        if was[name] != now[name]
    ]


def _of_runs(old: Series, new: Series) -> list[str]:
    """A run under two arms has one name and the same values; names alone may be numbers."""
    was = {(boot.run, boot.values) for boot in old.valid if boot.run}
    shared = dict.fromkeys(boot.run for boot in new.valid if (boot.run, boot.values) in was)
    return [f"run {run} is counted for {old.arm} and for {new.arm}" for run in shared]


def _of_states(old: Series, new: Series) -> list[str]:
    was, now = dict(old.state), dict(new.state)
    return [
        f"page state differs: {name} {was[name]} ({old.arm}) against {now[name]} ({new.arm})"
        for name in sorted(was.keys() & now.keys())
        if was[name] != now[name] and UNKNOWN not in (was[name], now[name])
    ]


def _unknown_state(arm: Series) -> str:
    names = [name for name, value in arm.state if value == UNKNOWN]
    return f"{arm.arm}: page state unknown: {', '.join(names)}" if names else ""
