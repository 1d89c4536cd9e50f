# SPDX-License-Identifier: GPL-2.0-or-later
"""How something is watched: what is written into tracefs, what is read, and what a refusal means.

A watched thing becomes events with a histogram each (hist triggers), so that the kernel itself
counts and no buffer can run over.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kdelta.errors import GuestError
from kdelta.study.tracing import PROGRAMS, Watch, WatchKind
from kdelta.tracing import formats
from kdelta.tracing.formats import EventField, KeyedHits

KPROBES = "kprobe_events"
MISSED = "kprobe_profile"
_ANYONE = "common_pid"  # the key where no value is asked for
_CLONE = re.compile(r"(?:\.(?:isra|constprop)(?:\.\d+)*)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """An event with a histogram.

    definition: the kprobe that makes it, "" for an event of the kernel's own.  key: what the
    histogram is by.
    """

    watch: Watch
    system: str
    event: str
    key: str
    definition: str = ""

    @property
    def name(self) -> str:
        """It alone has it."""
        return f"{self.system}/{self.event}/{self.key}"

    @property
    def folder(self) -> str:
        """Its folder below tracefs, or an instance of it."""
        return f"events/{self.system}/{self.event}"

    def trigger(self, pid: int | None = None) -> str:
        """What its file `trigger` is told.  pid: of the only process that counts."""
        only = f" if common_pid == {pid}" if pid else ""
        return f"hist:keys={self.key}:size={formats.ENTRIES}{only}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What cannot be watched in this kernel, and why, in a clause."""

    watch: Watch
    reason: str


def host_only(watched: Sequence[Watch]) -> list[Refused]:
    """What cannot be watched in a guest, which has only its kernel and one program."""
    reason = "perf and bpftrace run on this host only: kernels = host"
    return [Refused(watch=one, reason=reason) for one in watched if one.kind in PROGRAMS]


def probes(
    watched: Sequence[Watch], functions: Iterable[str], group: str
) -> tuple[list[Probe], list[Refused]]:
    """The events that count what is watched, and what this kernel has not.

    functions: names in the kernel, each as often as it is there.  group: of our kprobes.
    """
    found: list[Probe] = []
    refused: list[Refused] = []
    there = Counter(functions)
    for number, watch in enumerate(watched):
        if watch.kind in (WatchKind.EVENTS, WatchKind.FIELDS):
            key = watch.field or _ANYONE
            found.append(Probe(watch=watch, system=watch.system, event=watch.name, key=key))
        elif watch.kind in (WatchKind.HITS, WatchKind.VALUES):
            names = _entered(watch, there)
            if reason := _unfit(watch, names, there):
                refused.append(Refused(watch=watch, reason=reason))
                continue
            found += [
                _kprobe(watch, name, group, f"w{number}_{at}") for at, name in enumerate(names)
            ]
    return found, refused


def _entered(watch: Watch, there: Mapping[str, int]) -> list[str]:
    """The function and, for hits, its clones; those take other arguments."""
    own = [watch.name] if watch.name in there else []
    if watch.kind is WatchKind.VALUES or "." in watch.name:
        return own
    rest = len(watch.name)
    return own + sorted(
        name for name in there if name.startswith(f"{watch.name}.") and _CLONE.fullmatch(name, rest)
    )


def _unfit(watch: Watch, names: Sequence[str], there: Mapping[str, int]) -> str:
    if not names:
        return f"no function {watch.name} of its own (inlined, or not there)"
    twice = [name for name in names if there[name] > 1]
    return f"there are {there[twice[0]]} functions {twice[0]}" if twice else ""


def _kprobe(watch: Watch, function: str, group: str, event: str) -> Probe:
    kind, argument = "p", ""
    if value := watch.value:
        kind = "p" if value.argument else "r"
        place = f"$arg{value.argument}" if value.argument else "$retval"
        form = f"{'s' if value.form[0] == 'i' else 'u'}{value.form[1:]}"
        argument = f" {_named(value.name)}={place}:{form}"
    return Probe(
        watch=watch,
        system=group,
        event=event,
        key=_named(value.name) if value else _ANYONE,
        definition=f"{kind}:{group}/{event} {function}{argument}",
    )


def _named(name: str) -> str:
    """A value's name as a field's: none of the words that histograms have for themselves."""
    return f"v_{name}"


def why(probe: Probe, defined: int, format_text: str | None, triggered: int) -> str:
    """Why an event does not count, "" when it does.

    defined, triggered: errno of making it and of asking for its histogram.  format_text: of its
    file `format`, None when there is none.
    """
    watch = probe.watch
    if defined == errno.ENOENT:  # its name was found among the kernel's symbols
        return "no probe there: the kernel has no kprobes"
    if defined:
        return f"no probe there: {_words(defined, 'the kernel lets nobody trace it')}"
    if format_text is None:
        return f"no event {watch.system}:{watch.name}"
    if watch.kind is WatchKind.FIELDS and watch.field not in (known := formats.fields(format_text)):
        own = ", ".join(name for name in known if not name.startswith("common_"))
        return f"{watch.system}:{watch.name} has no field {watch.field}, but {own}"
    if triggered:
        return f"no histogram: {_words(triggered, 'the kernel has no hist triggers')}"
    return ""


def _words(status: int, invalid: str) -> str:
    """invalid: what EINVAL means there."""
    known = {
        errno.EINVAL: invalid,
        errno.ENOENT: "the kernel has no such file in tracefs",
        errno.EPERM: "locked down (lockdown, or no right)",
        errno.EACCES: "only root may",
        errno.EBUSY: "somebody else uses it",
        errno.EADDRNOTAVAIL: "there are several functions of that name",
    }
    return known.get(status, os.strerror(status) if status > 0 else f"status {status}")


def refusal(status: int, what: str) -> str:
    """Why something of tracefs other than an event cannot be had; what: it is called."""
    return f"no {what}: {_words(status, 'the kernel does not take it')}"


def values(probe: Probe, found: KeyedHits, format_text: str) -> dict[tuple[str, int | None], int]:
    """Hits by value: (its name or digits, its number where it has a name).

    Where no value is asked for, all of them under ("", None).  Raises GuestError.
    """
    watch = probe.watch
    if probe.key == _ANYONE:
        return {("", None): sum(found.hits.values())}
    field = formats.fields(format_text).get(watch.field)
    counts: Counter[tuple[str, int | None]] = Counter()
    for text, hits in found.hits.items():
        counts[_key(watch, field, text)] += hits
    return dict(counts)


def _key(watch: Watch, field: EventField | None, text: str) -> tuple[str, int | None]:
    if not text.isdigit():
        if watch.value is not None:
            raise GuestError(f"a histogram of {watch.text} holds no number")
        return text, None
    number = int(text)
    if watch.value is not None:
        return str(watch.value.read(number)), None
    if field is None:
        return text, None
    number = field.read(number)
    name = field.symbols.get(number)
    return (name, number) if name else (str(number), None)
