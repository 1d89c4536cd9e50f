# SPDX-License-Identifier: GPL-2.0-or-later
"""What a study of the trace instrument watches, as it words it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from kdelta.errors import SpecError
from kdelta.study import probes

HOST = "host"  # the kernel reference that means this machine
_FUNCTION = r"[A-Za-z_][\w.]{0,126}"
_WORD = r"[A-Za-z_]\w{0,63}"
_EVENT = r"[A-Za-z][\w:./-]{0,126}"  # as perf list words it
_MOST_PROGRAM = 1 << 14  # characters
_FORMS = (
    rf"(?P<function>{_FUNCTION})",
    rf"graph\((?P<graph>{_FUNCTION})\)",
    rf"profile\((?P<profile>{_FUNCTION})\)",
    rf"perf\((?P<perf>{_EVENT})\)",
    rf"record\((?P<record>{_EVENT})=(?P<period>[1-9]\d{{0,8}})\)",
    rf"bpftrace\((?P<bpftrace>{_WORD})\)",
    rf"(?P<system>{_WORD}):(?P<event>{_WORD})(?:\((?P<field>{_WORD})\))?",
)
_OWN = re.compile("|".join(_FORMS))
_PLAIN = re.sub(r"\?P<\w+>", "?:", "|".join(_FORMS))
_NO_HITS = re.compile(r"=\s*(min|max|avg|stats)\s*\(")
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
PATTERN = rf"\A(?:{_PLAIN}|{probes.VALUE})\Z"
DESCRIPTION = (
    "FUNCTION, FUNCTION(NAME=arg1) or ret, SYSTEM:EVENT, SYSTEM:EVENT(FIELD), graph(FUNCTION),"
    " profile(FUNCTION), perf(EVENT), record(EVENT=PERIOD) or bpftrace(NAME)"
)


class WatchKind(StrEnum):
    """What is told of a function or an event."""

    HITS = "hits"  # how often a function is entered
    VALUES = "values"  # how often with which argument, or result
    EVENTS = "events"  # how often a trace event happens
    FIELDS = "fields"  # how often with which value of a field
    GRAPH = "graph"  # what is called below a function, once
    PROFILE = "profile"  # hits of the kernel's function profiler
    PERF = "perf"  # how often an event of perf happens
    RECORD = "record"  # in which functions it happens
    BPFTRACE = "bpftrace"  # what the maps of a program hold


PROGRAMS = frozenset((WatchKind.PERF, WatchKind.RECORD, WatchKind.BPFTRACE))
"""Watched by a program of this host, not by tracefs."""


class TracePer(StrEnum):
    """What hits are of."""

    ITERATION = "iteration"  # the difference of runs of the program with more and fewer
    RUN = "run"  # of the program, with its set-up and audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One thing to watch.

    text: as the study has it.  name: of the function, or of the event behind its system.  field: of
    the event, or what the study calls the value.  value: of a function.  period: events of which
    one is recorded.
    """

    text: str
    kind: WatchKind
    name: str
    system: str = ""
    field: str = ""
    value: probes.Value | None = None
    period: int = 0


class TraceSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the trace instrument watches.

    turns: iterations of the program's shortest run.  programs: bpftrace's, by name.
    """

    watch: Annotated[
        tuple[Annotated[str, Meta(pattern=PATTERN, description=DESCRIPTION)], ...],
        Meta(max_length=64),
    ] = ()
    hits_per: TracePer = TracePer.ITERATION
    turns: Annotated[int, Meta(ge=1, le=1000)] = 2
    programs: Annotated[
        dict[
            Annotated[str, Meta(pattern=rf"\A{_WORD}\Z")],
            Annotated[str, Meta(min_length=1, max_length=_MOST_PROGRAM)],
        ],
        Meta(max_length=16),
    ] = {}


def watch(text: str) -> Watch:
    """What a word of a study asks to watch.  Raises ValueError for what does not fit PATTERN."""
    if value := probes.value(text):
        kind = WatchKind.VALUES
        return Watch(text=text, kind=kind, name=value.function, field=value.name, value=value)
    found = _OWN.fullmatch(text)
    if found is None:
        raise ValueError(text)
    if system := found["system"]:
        kind = WatchKind.FIELDS if found["field"] else WatchKind.EVENTS
        return Watch(
            text=text, kind=kind, system=system, name=found["event"], field=found["field"] or ""
        )
    for kind in (WatchKind.GRAPH, WatchKind.PROFILE, *PROGRAMS):
        if name := found[kind]:
            return Watch(text=text, kind=kind, name=name, period=int(found["period"] or 0))
    return Watch(text=text, kind=WatchKind.HITS, name=found["function"])


def map_of(text: str, name: str) -> str:
    """What hits of a map of a watched bpftrace program are told as; name "": the only one."""
    return f"{text} {name}" if name else text


def without_map(told: str) -> str:
    """What a study watches, of what hits are told as."""
    return told.partition(" @")[0]


def check(
    settings: TraceSettings,
    kernels: Sequence[str],
    place: str,
    *,
    tracing: bool,
    probed: bool,
    varied: bool,
) -> None:
    """Raise SpecError where what is watched does not fit the study.

    tracing: its instrument traces.  probed: it has probes of the exact instrument.  varied: it has
    a matrix.
    """
    if not tracing and settings.watch:
        raise SpecError(
            "only the trace instrument watches something",
            place=f"{place}: trace.watch",
            action='set instrument = "trace"; hits are never mixed with counts or times',
        )
    if not tracing:
        return
    if not settings.watch:
        raise SpecError(
            "a trace has to watch something",
            place=f"{place}: trace.watch",
            action='name functions or events, such as watch = ["change_pte_range"]',
        )
    _check_programs(settings, place)
    if probed:
        raise SpecError(
            "probes are recorded beside counts, and a trace has none",
            place=f"{place}: plan.probes",
            action="name what is wanted in trace.watch instead",
        )
    if any(name.split(":")[0] == HOST for name in kernels) and tuple(kernels) != (HOST,):
        raise SpecError(
            "a trace of this host is of the kernel that runs, and of no other",
            place=f"{place}: kernels",
            action='give kernels = ["host"] alone, or kernels for guests',
        )
    if HOST in kernels and varied:
        raise SpecError(
            "this host is one machine, its CPUs and settings are not kdelta's to change",
            place=f"{place}: matrix",
            action="leave the matrix out, or trace kernels in guests",
        )


def _check_programs(settings: TraceSettings, place: str) -> None:
    for one in map(watch, settings.watch):
        if one.kind is WatchKind.BPFTRACE and one.name not in settings.programs:
            raise SpecError(
                f"no bpftrace program {one.name}",
                place=f"{place}: trace.programs",
                action=f'write it into the study: [trace.programs] {one.name} = """kprobe:..."""',
            )
    for name, text in settings.programs.items():
        if found := _NO_HITS.search(_NO_CODE.sub("", text)):
            raise SpecError(
                f"a map of {found[1]}() holds no hits, of which runs have a difference",
                place=f"{place}: trace.programs.{name}",
                action="keep count(), sum(), hist() or lhist()",
            )
