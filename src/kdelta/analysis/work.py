# SPDX-License-Identifier: GPL-2.0-or-later
"""A difference by kinds of work, by memory touched and by values that functions had; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kdelta.analysis.explanation import Explanation, base_name
from kdelta.journal.artifacts import Histogram, TrialDetails
from kdelta.probes.memory import EVERYWHERE, MemoryRow, What
from kdelta.probes.work import Kind, WorkRow

_NAMED = 3  # functions that a kind's change is mostly in


class Called(StrEnum):
    """What a kernel asks of itself by calling a function; where one is inlined it is not seen."""

    FAULT = "page faults"
    IPI = "interrupts sent"
    RESCHED = "cond_resched()"
    RCU = "calls of RCU"
    LOCK = "calls of locks"


_FUNCTIONS = {
    Called.FAULT: r"asm_exc_page_fault|do_mem_abort",
    Called.IPI: r"(x2apic|default|native|apic)_send_\w*(IPI|ipi)\w*|native_smp_send_reschedule"
    r"|smp_cross_call|gic_ipi_send\w*",
    Called.RESCHED: r"_?_?(dynamic_)?cond_resched",
    Called.RCU: r"__rcu_read_(un)?lock|call_rcu(_hurry)?|kvfree_call_rcu|synchronize_rcu\w*",
    Called.LOCK: r"_raw_(spin|read|write)_(try)?(un)?lock\w*|mutex_(try)?(un)?lock\w*"
    r"|(up|down)_(read|write)\w*",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDelta:
    """A kind of work or of memory, in executions, calls or lines per window.

    where: functions whose own changed most, with the change.
    """

    group: str
    kind: str
    old: int
    new: int
    where: tuple[tuple[str, int], ...]

    @property
    def delta(self) -> int:
        """New - old."""
        return self.new - self.old


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDelta:
    """A value of a function: histograms of old and new, in reads per window; None: not asked."""

    probe: str
    old: Histogram | None
    new: Histogram | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkExplanation:
    """What an explanation's windows did.  memory: None where it was not recorded."""

    explanation: Explanation
    work: tuple[KindDelta, ...] = ()
    memory: tuple[KindDelta, ...] | None = None
    values: tuple[ValueDelta, ...] = ()


Side = Sequence[tuple[TrialDetails, str]]
"""What trials told, and of which of their phases: the windows of one kernel."""


def compared(found: Explanation, old: Side, new: Side) -> WorkExplanation:
    """Compare what the windows of two kernels did; found: with all functions."""
    if found.refused:
        return WorkExplanation(explanation=found)
    sides = old, new
    work = [
        _by_kind(row for told, phase in side for row in told.work.get(phase, ())) for side in sides
    ]
    told = [one.memory for side in sides for one, _ in side]
    return WorkExplanation(
        explanation=found,
        work=(
            *(_kind("work", kind, *(side.get(kind, Counter()) for side in work)) for kind in Kind),
            *(_calls(found, kind) for kind in Called),
        ),
        memory=None if None in told else tuple(_memory(old, new)),
        values=tuple(_values(old, new)),
    )


def _by_kind(rows: Iterable[WorkRow]) -> dict[Kind, Counter[str]]:
    found: dict[Kind, Counter[str]] = {}
    for row in rows:
        found.setdefault(row.kind, Counter())[base_name(row.function)] += row.count
    return found


def _kind(group: str, kind: str, old: Mapping[str, int], new: Mapping[str, int]) -> KindDelta:
    changes = {name: new.get(name, 0) - old.get(name, 0) for name in {*old, *new}}
    ranked = sorted(changes.items(), key=lambda row: (-abs(row[1]), row[0]))
    return KindDelta(
        group=group,
        kind=kind,
        old=sum(old.values()),
        new=sum(new.values()),
        where=tuple((name, change) for name, change in ranked if change)[:_NAMED],
    )


def _calls(found: Explanation, kind: Called) -> KindDelta:
    pattern = re.compile(_FUNCTIONS[kind])
    rows = [row for row in found.functions if pattern.fullmatch(row.function)]
    old = {row.function: row.calls_old or 0 for row in rows}
    new = {row.function: row.calls_new or 0 for row in rows}
    return _kind("calls", kind, old, new)


def _memory(old: Side, new: Side) -> Iterable[KindDelta]:
    """Lines in all, those that are written, and pages; by what they are."""
    tables = [
        [row for told, phase in side for row in (told.memory or {}).get(phase, ())]
        for side in (old, new)
    ]
    for group, name in (("lines", "lines"), ("lines written", "written"), ("pages", "pages")):
        for what in What:
            old_of, new_of = (_touching(rows, what, name) for rows in tables)
            totals = old_of.pop(EVERYWHERE, 0), new_of.pop(EVERYWHERE, 0)
            if any(totals):
                kind = _kind(group, what, old_of, new_of)
                yield replace(kind, old=totals[0], new=totals[1])


def _touching(rows: Iterable[MemoryRow], what: What, name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        if row.what is what:
            found[base_name(row.function)] += getattr(row, name)
    return found


def _values(old: Side, new: Side) -> Iterable[ValueDelta]:
    sides: list[dict[str, list[Histogram]]] = []
    for side in (old, new):
        found: dict[str, list[Histogram]] = {}
        for told, phase in side:
            for probe, histogram in told.values.get(phase, {}).items():
                found.setdefault(probe, []).append(histogram)
        sides.append(found)
    for probe in dict.fromkeys([*sides[0], *sides[1]]):
        was, now = (_added(own[probe]) if probe in own else None for own in sides)
        yield ValueDelta(probe=probe, old=was, new=now)


def _added(parts: Sequence[Histogram]) -> Histogram:
    values: Counter[str] = Counter()
    for part in parts:
        values.update(part.values)
    return Histogram(
        values=dict(values.most_common()),
        others=sum(part.others for part in parts),
        others_count=sum(part.others_count for part in parts),
        missing=parts[0].missing,
    )
