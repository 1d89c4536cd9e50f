# SPDX-License-Identifier: GPL-2.0-or-later
"""What a study asks to be recorded, in its words: probes beside counts, what a trace watches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from kdelta.errors import SpecError

CALLS, MEMORY, SHARING = "calls", "memory", "sharing"
# A value of a function, as a pattern.
VALUE = r"[A-Za-z_]\w{0,127}\([A-Za-z_]\w{0,31}=(?:arg[1-6]|ret)(?::[iu](?:8|16|32|64))?\)"
PATTERN = rf"\A(?:calls|memory|sharing|{VALUE})\Z"
DESCRIPTION = (
    "calls, memory, sharing, or a value of a function: FUNCTION(NAME=arg1), or arg2 ... arg6, ret"
)
_ARGUMENT = re.compile(
    r"(?P<function>\w+)\((?P<name>\w+)=(?P<which>arg[1-6]|ret)(?::(?P<form>[iu]\d+))?\)"
)
_WHOLE = "u64"


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a function, `text` in a study.  argument: its number from 1, 0 for what it
    returns.  form: how its register is read, "i32": signed, 32 bits.
    """

    text: str
    function: str
    name: str
    argument: int
    form: str

    def read(self, register: int) -> int:
        """The value in a register of 64 bits."""
        bits = int(self.form[1:])
        value = register & ((1 << bits) - 1)
        return value - (1 << bits) if self.form[0] == "i" and value >> (bits - 1) else value


def value(probe: str) -> Value | None:
    """The value that a probe asks for; None for another probe."""
    found = _ARGUMENT.fullmatch(probe)
    if not found:
        return None
    which = found["which"]
    number = 0 if which == "ret" else int(which[-1])
    return Value(probe, found["function"], found["name"], number, found["form"] or _WHOLE)


_FUNCTION = r"[A-Za-z_][\w.]{0,126}"
_WORD = r"[A-Za-z_]\w{0,63}"
_FORMS = (
    rf"(?P<function>{_FUNCTION})",
    rf"graph\((?P<graph>{_FUNCTION})\)",
    rf"(?P<system>{_WORD}):(?P<event>{_WORD})(?:\((?P<field>{_WORD})\))?",
)
_OWN = re.compile("|".join(_FORMS))
_PLAIN = re.sub(r"\?P<\w+>", "?:", "|".join(_FORMS))
WATCH_PATTERN = rf"\A(?:{_PLAIN}|{VALUE})\Z"
WATCH_DESCRIPTION = (
    "FUNCTION, FUNCTION(NAME=arg1) or ret, SYSTEM:EVENT, SYSTEM:EVENT(FIELD) or graph(FUNCTION)"
)


class WatchKind(StrEnum):
    """What is reported of a function or an event."""

    HITS = "hits"  # how often a function is entered
    VALUES = "values"  # how often with which argument, or result
    EVENTS = "events"  # how often a trace event happens
    FIELDS = "fields"  # how often with which value of a field
    GRAPH = "graph"  # what is called below a function, once


class TracePer(StrEnum):
    """What hits are of."""

    ITERATION = "iteration"  # the difference of runs of the program with more and fewer
    RUN = "run"  # of the program, with its set-up and audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One thing to watch, `text` in a study.  name: of the function, or event of the system; field:
    of the event, or the study's name for a value of the function.
    """

    text: str
    kind: WatchKind
    name: str
    system: str = ""
    field: str = ""
    value: Value | None = None


class TraceSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the trace instrument watches.  turns: iterations of the program's shortest run."""

    watch: Annotated[
        tuple[Annotated[str, Meta(pattern=WATCH_PATTERN, description=WATCH_DESCRIPTION)], ...],
        Meta(max_length=64),
    ] = ()
    hits_per: TracePer = TracePer.ITERATION
    turns: Annotated[int, Meta(ge=1, le=1000)] = 2


def watch(text: str) -> Watch:
    """What a word of a study asks to watch.  Raises ValueError for another one."""
    if asked := value(text):
        kind = WatchKind.VALUES
        return Watch(text=text, kind=kind, name=asked.function, field=asked.name, value=asked)
    found = _OWN.fullmatch(text)
    if found is None:
        raise ValueError(text)
    if system := found["system"]:
        kind, field = WatchKind.FIELDS, found["field"] or ""
        kind = kind if field else WatchKind.EVENTS
        return Watch(text=text, kind=kind, system=system, name=found["event"], field=field)
    kind = WatchKind.GRAPH if found["graph"] else WatchKind.HITS
    return Watch(text=text, kind=kind, name=found["graph"] or found["function"])


def check_trace(
    settings: TraceSettings, kernels: Sequence[str], place: str, *, tracing: bool, probed: bool
) -> None:
    """Raise SpecError where what is watched does not fit a study that is tracing, or probed."""
    if not tracing and settings.watch:
        action = 'set instrument = "trace"; hits are never mixed with counts or times'
        raise wrong(place, "trace.watch", "only the trace instrument watches something", action)
    if tracing and not settings.watch:
        action = 'name functions or events, such as watch = ["change_pte_range"]'
        raise wrong(place, "trace.watch", "a trace has to watch something", action)
    if tracing and probed:
        cause = "probes are recorded beside counts, and a trace has none"
        raise wrong(place, "plan.probes", cause, "name what is wanted in trace.watch instead")
    if tracing and any(name.split(":")[0] == "host" for name in kernels):
        cause = "kernels are traced in guests only, and this study names the host's"
        raise wrong(place, "kernels", cause, 'name kernels for guests, such as ["6.12", "6.17"]')


def wrong(place: str, key: str, cause: str, action: str) -> SpecError:
    """What is wrong with a key of the study at a place."""
    return SpecError(cause, place=f"{place}: {key}", action=action)
