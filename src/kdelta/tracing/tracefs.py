# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of tracefs: what is written to watch something, what its files say, what a refusal means.

Documentation/trace/{ftrace,histogram,kprobetrace,events}.rst of Linux.  What is watched becomes
events with a histogram each (hist triggers): the kernel counts, and no buffer can run over.
Every reader raises GuestError for garbage.  At the end: counts of each run as rows of hits.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kdelta.errors import GuestError
from kdelta.printable import quoted
from kdelta.sample import TraceRow, TraceSkip
from kdelta.study.probes import TracePer, Watch, WatchKind

MOST_LINES = 2_000_000
LONGEST = 1024  # characters of a line, but of an event's format
ENTRIES = 4096  # of a histogram that we ask for
_LONGEST_FORMAT = 1 << 18  # characters of it
_GROUP = "kdelta"  # of our kprobes
_ANYONE = "common_pid"  # the key where no value is asked for
_CLONE = re.compile(r"(?:\.(?:isra|constprop)(?:\.\d+)*)+")
_HIST_BEGIN = "# event histogram\n"
# Hits of fewer digits than 64 bits have, so that their sums have no more than these.
_HIST_ROW = re.compile(
    r"\{ (?P<key>\w{1,64}): {1,200}(?P<value>[ -~]{0,200}?) {0,200}\} hitcount: {1,50}"
    r"(?P<hits>\d{1,14})"
)
_HIST_TOTAL = re.compile(r" {4}(?P<name>Hits|Entries|Dropped): (?P<count>\d{1,18})")
_PROBE_PROFILE = re.compile(
    r" {0,50}(?P<name>\w{1,64}) {1,80}(?P<hits>\d{1,20}) {1,50}(?P<missed>\d{1,20})"
)
_FIELD = re.compile(
    r"\tfield:(?P<declaration>[ -~]{1,200});\toffset:\d+;\tsize:(?P<size>\d+);"
    r"\tsigned:(?P<signed>[01]);"
)
_SYMBOLIC = r"__print_symbolic\(REC->{field}, (?P<pairs>(?:\{{[^{{}}]*\}}(?:, ?)?)+)\)"
_PAIR = re.compile(r'\{ ?(-?(?:0x[0-9a-fA-F]{1,16}|\d{1,19})), "([ -~]{0,100}?)" ?\}')
_STATS = re.compile(r"(?P<name>[a-z][a-z ]{0,40}): +(?P<number>[0-9.]{1,30})")
_LOST = ("overrun", "dropped events")
# " 0)   1.504 us    |    down_write();", or without a duration and " {" at the end.
_GRAPH = re.compile(r" *\d+\) [^|]{0,40}\|(?P<indent> *)(?P<rest>\S[ -~]*)")
_CALL = re.compile(r"(?P<function>[A-Za-z_][\w.]{0,255})(?: \[\w{1,64}\])?\(.*\)(?P<end>;| \{).*")
_NO_CALL = re.compile(r"(?:\}|/\*).*")
# Comments, task switches, and where interrupts begin and end.
_BETWEEN = re.compile(r"#.*| *-+ *| *\d+\) +[ -~]* => [ -~]*| *\d+\) *[= <>|]*| *")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """An event with a histogram by `key`.  definition: its kprobe, "" for a kernel's own event."""

    watch: Watch
    system: str
    event: str
    key: str
    definition: str = ""

    @property
    def name(self) -> str:
        """Unique among the probes of a trial."""
        return f"{self.system}/{self.event}/{self.key}"

    @property
    def folder(self) -> str:
        """Its folder below tracefs."""
        return f"events/{self.system}/{self.event}"

    @property
    def trigger(self) -> str:
        """What is written into its file `trigger`."""
        return f"hist:keys={self.key}:size={ENTRIES}"


def probes(
    watched: Sequence[Watch], functions: Iterable[str]
) -> tuple[list[Probe], list[TraceSkip]]:
    """Events that count what is watched, and what is not there.  functions: in the kernel."""
    found: list[Probe] = []
    refused: list[TraceSkip] = []
    there = Counter(functions)
    for number, watch in enumerate(watched):
        if watch.kind in (WatchKind.EVENTS, WatchKind.FIELDS):
            key = watch.field or _ANYONE
            found.append(Probe(watch=watch, system=watch.system, event=watch.name, key=key))
        elif watch.kind in (WatchKind.HITS, WatchKind.VALUES):
            # Of hits the function's clones, too; those take other arguments.
            own, alone = watch.name, watch.kind is WatchKind.VALUES or "." in watch.name
            begin = [] if alone else sorted(n for n in there if n.startswith(f"{own}."))
            names = [own] * (own in there) + [n for n in begin if _CLONE.fullmatch(n, len(own))]
            twice = [name for name in names if there[name] > 1]
            reason = f"there are {there[twice[0]]} functions {twice[0]}" if twice else ""
            if not names:
                reason = f"no function {watch.name} of its own (inlined, or not there)"
            if reason:
                refused.append(TraceSkip(watch=watch.text, reason=reason))
                continue
            found += [_kprobe(watch, name, f"w{number}_{at}") for at, name in enumerate(names)]
    return found, refused


def _kprobe(watch: Watch, function: str, event: str) -> Probe:
    kind, argument, key = "p", "", _ANYONE
    if value := watch.value:
        kind = "p" if value.argument else "r"
        place = f"$arg{value.argument}" if value.argument else "$retval"
        form = f"{'s' if value.form[0] == 'i' else 'u'}{value.form[1:]}"
        key = f"v_{value.name}"  # histograms have words of their own, such as `hitcount`
        argument = f" {key}={place}:{form}"
    definition = f"{kind}:{_GROUP}/{event} {function}{argument}"
    return Probe(watch=watch, system=_GROUP, event=event, key=key, definition=definition)


def why(probe: Probe, defined: int, format_text: str | None, triggered: int) -> str:
    """Why an event does not count, or "".  defined, triggered: errno; format_text: of its file."""
    watch = probe.watch
    if defined == errno.ENOENT:  # its name was found among the kernel's symbols
        return "no probe there: the kernel has no kprobes"
    if defined:
        return f"no probe there: {_words(defined, 'the kernel lets nobody trace it')}"
    if format_text is None:
        return f"no event {watch.system}:{watch.name}"
    if watch.kind is WatchKind.FIELDS and watch.field not in (known := fields(format_text)):
        own = ", ".join(name for name in known if not name.startswith("common_"))
        return f"{watch.system}:{watch.name} has no field {watch.field}, but {own}"
    if triggered:
        return f"no histogram: {_words(triggered, 'the kernel has no hist triggers')}"
    return ""


def refusal(status: int, what: str) -> str:
    """Why something of tracefs other than an event cannot be had; what: it is called."""
    return f"no {what}: {_words(status, 'the kernel does not take it')}"


def _words(status: int, invalid: str) -> str:
    """invalid: what EINVAL means there."""
    known = {
        errno.EINVAL: invalid,
        errno.ENOENT: "the kernel has no such file in tracefs",
        errno.EPERM: "locked down (lockdown, or no right)",
        errno.EADDRNOTAVAIL: "there are several functions of that name",
    }
    return known.get(status, os.strerror(status) if status > 0 else f"status {status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventField:
    """A field of an event.  symbols: names of its values, where the event prints names."""

    signed: bool
    symbols: dict[int, str]

    def read(self, value: int) -> int:
        """A value that a histogram shows as unsigned."""
        return value - (1 << 64) if self.signed and value >> 63 else value


def histogram(text: str, key: str) -> tuple[dict[str, int], int]:
    """Hits by value as printed, and those it dropped, of the histogram by a key (file `hist`)."""
    hits: dict[str, int] = {}
    totals: dict[str, int] = {}
    begin = f"# trigger info: hist:keys={key}:"
    own = [part for part in text.split(_HIST_BEGIN) if begin in part]
    for line in _lines(own[0] if len(own) == 1 else ""):
        if found := _HIST_ROW.fullmatch(line):
            if found["key"] != key or found["value"] in hits or len(hits) > ENTRIES:
                raise _bad(line)
            hits[found["value"]] = int(found["hits"])
        elif found := _HIST_TOTAL.fullmatch(line):
            totals[found["name"]] = int(found["count"])
        elif line.strip() and line != "Totals:" and not line.startswith("#"):
            raise _bad(line)
    if "Hits" not in totals or totals.get("Entries") != len(hits):
        raise GuestError("a histogram of tracefs ends early, or is not there")
    return hits, totals.get("Dropped", 0)


def values(
    probe: Probe, found: Mapping[str, int], format_text: str
) -> Counter[tuple[str, int | None]]:
    """Hits by (name or digits of a value, its number where it has a name); ("", None) for all."""
    if probe.key == _ANYONE:
        return Counter({("", None): sum(found.values())})
    field = fields(format_text).get(probe.watch.field)
    counts: Counter[tuple[str, int | None]] = Counter()
    for text, hits in found.items():
        counts[_value(probe.watch, field, text)] += hits
    return counts


def _value(watch: Watch, field: EventField | None, text: str) -> tuple[str, int | None]:
    if watch.value is not None:
        if not text.isdigit():
            raise GuestError(f"a histogram of {watch.text} holds no number")
        return str(watch.value.read(int(text))), None
    if field is None or not text.isdigit():
        return text, None
    number = field.read(int(text))
    name = field.symbols.get(number)
    return (name, number) if name else (str(number), None)


def missed(text: str) -> dict[str, int]:
    """Hits that each probe missed, by event, of a file kprobe_profile."""
    found: dict[str, int] = {}
    for line in _lines(text):
        if row := _PROBE_PROFILE.fullmatch(line):
            found[row["name"]] = int(row["missed"])
        elif line.strip():
            raise _bad(line)
    return found


def fields(text: str) -> dict[str, EventField]:
    """The fields of an event by name, of its file `format`."""
    found: dict[str, EventField] = {}
    if len(text) > _LONGEST_FORMAT:
        raise GuestError(f"an event's format has more than {_LONGEST_FORMAT} characters")
    for line in _lines(text, _LONGEST_FORMAT):
        if row := _FIELD.fullmatch(line):
            name = re.sub(r"\[.*?\]", "", row["declaration"]).split()[-1].lstrip("*")
            signed = row["signed"] == "1"
            named = re.search(_SYMBOLIC.format(field=re.escape(name)), text)
            pairs = _PAIR.findall(named["pairs"]) if named else ()
            symbols = {int(value, 0): word for value, word in pairs}
            found[name] = EventField(signed=signed, symbols=symbols)
    return found


def graph(text: str) -> Counter[str]:
    """Calls of each function in what function_graph recorded."""
    calls = Counter[str]()
    for line in _lines(text):
        row = _GRAPH.fullmatch(line)
        if row and (call := _CALL.fullmatch(row["rest"])):
            calls[call["function"]] += 1
        elif not (row and _NO_CALL.fullmatch(row["rest"])) and not _BETWEEN.fullmatch(line):
            raise _bad(line)
    return calls


def lost(text: str) -> int:
    """Events that did not fit into a CPU's buffer, of its file `stats`."""
    found: dict[str, int] = {}
    for line in _lines(text):
        row = _STATS.fullmatch(line)
        if row and row["name"] in _LOST and row["number"].isdigit():
            found[row["name"]] = int(row["number"])
        elif line.strip() and not row:
            raise _bad(line)
    if set(found) != set(_LOST):
        raise GuestError("statistics of a trace buffer say nothing of what was lost")
    return sum(found.values())


def _lines(text: str, longest: int = LONGEST) -> Iterator[str]:
    if text.count("\n") > MOST_LINES:
        raise GuestError(f"tracefs said more than {MOST_LINES} lines")
    for line in text.split("\n"):
        if len(line) > longest:
            raise GuestError(f"tracefs said a line of more than {longest} characters")
        yield line


def _bad(line: str) -> GuestError:
    return GuestError(f"tracefs said something unknown: {quoted(line, 100)}")


SUM = "[sum of the values]"
_NUMBER = re.compile(r"-?\d{1,20}")
_LARGEST = 1 << 53  # larger sums are of addresses or flags, and mean nothing
MOST_KEYS = 256  # of one watched thing that a result keeps, most hits first
Key = tuple[str, str, int | None]
"""What is watched, the value or function, and its number where it has a name."""


def schedule(per: TracePer, turns: int) -> tuple[int, ...]:
    """Iterations of each watched run: the difference of two is free of set-up and audit."""
    return (turns, 2 * turns, 3 * turns) if per is TracePer.ITERATION else (turns, turns)


def counted(
    probes: Sequence[Probe], texts: Mapping[str, str], shapes: Mapping[str, str]
) -> tuple[Counter[Key], list[str]]:
    """Hits by the files `hist` (texts) and `format` (shapes) of probes, and what they lost."""
    hits = Counter[Key]()
    doubts = []
    for probe in probes:
        found, dropped = histogram(texts[probe.name], probe.key)
        name = probe.watch.text
        hits[name, "", None] += 0
        for (key, number), count in values(probe, found, shapes[probe.name]).items():
            hits[name, key, number] += count
        if dropped:
            most = ENTRIES
            doubts.append(f"{name}: {dropped} hits of further values than {most} are left out")
    return hits, doubts


def between(later: Mapping[Key, int], earlier: Mapping[Key, int]) -> dict[Key, int]:
    """What histograms that are never cleared counted meanwhile."""
    keys = dict.fromkeys((*earlier, *later))
    return {key: later.get(key, 0) - earlier.get(key, 0) for key in keys}


def rows(
    per: TracePer, iterations: Sequence[int], runs: Sequence[Mapping[Key, int]]
) -> tuple[tuple[int, ...], list[TraceRow]]:
    """Iterations of each sample, and hits of each key.  iterations, runs: those of each run."""
    if per is TracePer.RUN:
        turns, samples = (1,) * len(runs), list(runs)
    else:
        turns = tuple(more - less for less, more in itertools.pairwise(iterations))
        samples = [between(more, less) for less, more in itertools.pairwise(runs)]
    found = []
    for one in dict.fromkeys(key for sample in samples for key in sample):
        watch, key, number = one
        hits = tuple(sample.get(one, 0) for sample in samples)
        found.append(TraceRow(watch=watch, key=key, number=number, hits=hits))
    own = _by_watch(found)
    whole = [TraceRow(watch=w, hits=_total(row.hits for row in each)) for w, each in own.items()]
    kept = [*whole, *(row for row in found if row.key and any(row.hits))]
    sums = []
    for watch, every in own.items():
        keyed = [row for row in every if row.key and any(row.hits)]
        if keyed and all(row.number is None and _NUMBER.fullmatch(row.key) for row in keyed):
            hits = _total([int(row.key) * count for count in row.hits] for row in keyed)
            if max(map(abs, hits)) < _LARGEST:
                sums.append(TraceRow(watch=watch, key=SUM, hits=hits))
    return turns, [*_bounded(kept), *sums]


def graph_rows(
    watched: Sequence[Watch], calls: Mapping[str, int], lost: int
) -> tuple[list[TraceRow], list[str]]:
    """The functions that were called below those that are watched, and what was lost."""
    name = ", ".join(watch.text for watch in watched)
    found = [TraceRow(watch=name, key=key, hits=(n,), whole=True) for key, n in calls.items()]
    return _bounded(found), [f"{name}: {lost} entries did not fit into the buffer"] if lost else []


def _by_watch(found: Iterable[TraceRow]) -> dict[str, list[TraceRow]]:
    own: dict[str, list[TraceRow]] = {}
    for row in found:
        own.setdefault(row.watch, []).append(row)
    return own


def _total(hits: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*hits, strict=True)))


def _bounded(found: Sequence[TraceRow]) -> list[TraceRow]:
    kept: list[TraceRow] = []
    for watch, own in _by_watch(found).items():
        ranked = sorted(own, key=lambda row: (bool(row.key), -max(row.hits), row.key))
        kept += ranked[:MOST_KEYS]
        if rest := ranked[MOST_KEYS:]:
            key = f"[{len(rest)} others]"
            hits = _total(row.hits for row in rest)
            kept.append(TraceRow(watch=watch, key=key, hits=hits, whole=rest[0].whole))
    return kept
