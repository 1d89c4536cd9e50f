# SPDX-License-Identifier: GPL-2.0-or-later
"""A difference by kinds of work, by memory touched and by values that functions had; pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import permutations

from kdelta.analysis.explanation import Explanation, base_name
from kdelta.journal.artifacts import Histogram, TrialDetails
from kdelta.ladder.ladders import LadderStep
from kdelta.probes.memory import EVERYWHERE, MemoryRow, What
from kdelta.probes.sharing import FieldRow, SharingRow
from kdelta.probes.work import Kind

_NAMED = 3  # functions that a kind's change is mostly in
_LINE = 64  # bytes
_OBJECTS, _LEAST_LINES = 4, 0.2  # named, of lines per operation that differ by so many


class Called(StrEnum):
    """What a kernel asks of itself by calling a function; where one is inlined it is not seen."""

    FAULT = "page faults"
    IPI = "interrupts sent"
    RESCHED = "cond_resched()"
    RCU = "calls of RCU"
    LOCK = "calls of locks"


FAULTS = r"asm_exc_page_fault|do_mem_abort"  # one call for each
_FUNCTIONS = {
    Called.FAULT: FAULTS,
    Called.IPI: r"(x2apic|default|native|apic)_send_\w*(IPI|ipi)\w*|native_smp_send_reschedule"
    r"|smp_cross_call|gic_ipi_send\w*",
    Called.RESCHED: r"_?_?(dynamic_)?cond_resched",
    Called.RCU: r"__rcu_read_(un)?lock|call_rcu(_hurry)?|kvfree_call_rcu|synchronize_rcu\w*",
    Called.LOCK: r"_raw_(spin|read|write)_(try)?(un)?lock\w*|mutex_(try)?(un)?lock\w*"
    r"|(up|down)_(read|write)\w*",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDelta:
    """A kind, in executions, calls or lines per window.  where: functions that changed most."""

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
class FieldPair:
    """Two members of a struct in a line that CPUs move on one kernel, in two lines on the other.

    new: they share it on the new one.  written, used: a function that writes the first, one that
    reads the other or, of both, writes it.
    """

    struct: str
    line: int
    first: str
    written: str
    other: str
    used: str
    both: bool
    new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkExplanation:
    """What an explanation's windows did.  memory, sharing: None where they were not recorded.

    lines: of all that they share, judged; None where it was not counted.  layout: what structs that
    moved brought into one line, or took apart.
    """

    explanation: Explanation
    work: tuple[KindDelta, ...] = ()
    memory: tuple[KindDelta, ...] | None = None
    sharing: tuple[KindDelta, ...] | None = None
    values: tuple[ValueDelta, ...] = ()
    lines: LadderStep | None = None
    layout: tuple[FieldPair, ...] = ()


Side = Sequence[tuple[TrialDetails, str]]
"""What trials told, and of which of their phases: the windows of one kernel."""


def compared(found: Explanation, old: Side, new: Side) -> WorkExplanation:
    """Compare what the windows of two kernels did; found: with all functions, which name them."""
    if found.refused:
        return WorkExplanation(explanation=found)
    names = {row.was: row.function for row in found.functions if row.was}

    def named(function: str) -> str:
        own = base_name(function)
        return names.get(own, own)

    work: list[defaultdict[Kind, Counter[str]]] = []
    for side in (old, new):
        counts: defaultdict[Kind, Counter[str]] = defaultdict(Counter)
        for row in (row for told, phase in side for row in told.work.get(phase, ())):
            counts[row.kind][named(row.function)] += row.count
        work.append(counts)
    return WorkExplanation(
        explanation=found,
        work=(
            *(_kind("work", kind, *(counts[kind] for counts in work)) for kind in Kind),
            *(_calls(found, kind) for kind in Called),
        ),
        memory=_lines(old, new, "memory", _MEMORY, named),
        sharing=_lines(old, new, "sharing", _SHARING, named),
        layout=(*_pairs(old, new, new=True), *_pairs(new, old, new=False)),
        values=tuple(_values(old, new)),
    )


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


_MEMORY = {"lines": "lines", "lines written": "written", "pages": "pages"}
_FETCHED, _TAKEN = "fetched from another CPU", "taken from other CPUs"
_SHARING = {
    _FETCHED: "fetched",
    _TAKEN: "taken",
    "of both, by atomic instructions": "atomic",
    "of both, no data shared": "false",
    "of both, a lock alone": "lock",
}


def shared(old: Side, new: Side) -> tuple[KindDelta, ...] | None:
    """The lines that CPUs take from each other, by object; None where they were not recorded."""
    return _lines(old, new, "sharing", _SHARING, base_name)


def objects_moved(rows: Sequence[KindDelta], operations: int) -> Iterator[tuple[str, float]]:
    """Of what is shared the objects of the largest changes, with who writes and who reads them, and
    how many lines more an operation fetches.
    """
    taken = {row.kind: dict(row.where) for row in rows if row.group == _TAKEN}
    moved = sorted((row for row in rows if row.group == _FETCHED), key=lambda row: -abs(row.delta))
    for row in moved[:_OBJECTS]:
        lines = row.delta / operations
        if abs(lines) < _LEAST_LINES:
            break
        writers = [name for name, n in taken.get(row.kind, {}).items() if n * lines > 0]
        readers = [name for name, n in row.where if n * lines > 0 and name not in writers]
        way = "new" if not row.old else "gone" if not row.new else "more" if lines > 0 else "less"
        said = [f"{way}: {row.kind}"]
        said += [f"written in {writers[0]}()"] if writers else []
        said += [f"read in {readers[0]}()"] if readers else []
        yield ", ".join(said), lines


def _pairs(apart: Side, together: Side, *, new: bool) -> Iterator[FieldPair]:
    """The members that share a moved line on one kernel, and on the other do not."""
    there, here = (
        {of: own for told, _ in side for of, own in told.members.items()}
        for side in (apart, together)
    )
    lines: defaultdict[tuple[str, int], defaultdict[str, list[FieldRow]]]
    lines = defaultdict(lambda: defaultdict(list))
    for row in (row for told, phase in together for row in told.fields.get(phase, ())):
        lines[row.struct, row.at // _LINE][row.member].append(row)
    for (struct, line), found in sorted(lines.items()):
        was, now = there.get(struct, {}), here.get(struct, {})
        moved = {  # in which line it is there
            name: (was[name] + rows[0].at - now[name]) // _LINE
            for name, rows in found.items()
            if name in was and name in now
        }
        for one, other in permutations(moved, 2):
            writers, users = ([row for row in found[name] if row.written] for name in (one, other))
            twice = users and (other < one)
            if not writers or twice or moved[one] == moved[other]:
                continue
            used = (users or found[other])[0].function
            yield FieldPair(
                struct=struct, line=line, first=one, written=writers[0].function, other=other,
                used=used, both=bool(users), new=new,
            )  # fmt: skip


def _lines(
    old: Side, new: Side, part: str, groups: Mapping[str, str], called: Callable[[str], str]
) -> tuple[KindDelta, ...] | None:
    """What a part of the details has of lines, by what they are; None where it was not recorded.

    called: the name of a function, by the one that was recorded.
    """
    tables: list[defaultdict[str, list[MemoryRow | SharingRow]]] = []
    for side in (old, new):
        tables.append(defaultdict(list))
        for told, phase in side:
            recorded = getattr(told, part)
            if recorded is None:
                return None
            for row in recorded.get(phase, ()):
                tables[-1][getattr(row, "object", "") or row.what].append(row)
    named = dict.fromkeys((*What, *sorted({*tables[0], *tables[1]})))
    found: list[KindDelta] = []
    for group, name in groups.items():
        for what in named:
            touched: list[Counter[str]] = [Counter(), Counter()]
            for own, table in zip(touched, tables, strict=True):
                for row in table[what]:
                    own[called(row.function)] += getattr(row, name)
            old_of, new_of = touched
            totals = old_of.pop(EVERYWHERE, 0), new_of.pop(EVERYWHERE, 0)
            if any(totals):
                kind = _kind(group, what, old_of, new_of)
                found.append(replace(kind, old=totals[0], new=totals[1]))
    return tuple(found)


def _values(old: Side, new: Side) -> Iterable[ValueDelta]:
    told = [[own.values.get(phase, {}) for own, phase in side] for side in (old, new)]
    for probe in dict.fromkeys(probe for side in told for own in side for probe in own):
        sides = ([own[probe] for own in side if probe in own] for side in told)
        was, now = (_added(parts) if parts else None for parts in sides)
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
