# SPDX-License-Identifier: GPL-2.0-or-later
"""What files of tracefs say: Documentation/trace/{ftrace,histogram,kprobetrace,events}.rst."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kdelta.errors import GuestError
from kdelta.printable import quoted

MOST_LINES = 2_000_000
LONGEST = 1024  # characters of a line, but of an event's format
_LONGEST_FORMAT = 1 << 18  # characters of it
ENTRIES = 4096  # of a histogram that we ask for
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
_PROFILE = re.compile(
    r" {2}(?P<function>[A-Za-z_][\w.]{0,255}) +(?P<hits>\d{1,14})(?: +[0-9.]+ us)* *"
)
_PROFILE_HEAD = re.compile(r" {2}(?:Function +Hit.*|[- ]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedHits:
    """A histogram of a trigger: hits by value, as it stands there; dropped: beyond its entries."""

    hits: dict[str, int]
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventField:
    """A field of an event.  symbols: names of its values, where the event prints names."""

    name: str
    signed: bool
    symbols: dict[int, str]

    def read(self, value: int) -> int:
        """A value that a histogram shows as unsigned."""
        return value - (1 << 64) if self.signed and value >> 63 else value


def histogram(text: str, key: str) -> KeyedHits:
    """The histogram by one key out of a file `hist`, which has one of each trigger of its event.

    Raises GuestError.
    """
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
    return KeyedHits(hits=hits, dropped=totals.get("Dropped", 0))


def missed(text: str) -> dict[str, int]:
    """Of kprobe_profile: hits that each probe missed, by event.  Raises GuestError."""
    found: dict[str, int] = {}
    for line in _lines(text):
        if row := _PROBE_PROFILE.fullmatch(line):
            found[row["name"]] = int(row["missed"])
        elif line.strip():
            raise _bad(line)
    return found


def fields(text: str) -> dict[str, EventField]:
    """The fields of an event, of its file `format`, by name.  Raises GuestError."""
    found: dict[str, EventField] = {}
    if len(text) > _LONGEST_FORMAT:
        raise GuestError(f"an event's format has more than {_LONGEST_FORMAT} characters")
    for line in _lines(text, _LONGEST_FORMAT):
        if row := _FIELD.fullmatch(line):
            name = re.sub(r"\[.*?\]", "", row["declaration"]).split()[-1].lstrip("*")
            found[name] = EventField(
                name=name, signed=row["signed"] == "1", symbols=_symbols(text, name)
            )
    return found


def _symbols(text: str, field: str) -> dict[int, str]:
    found = re.search(_SYMBOLIC.format(field=re.escape(field)), text)
    return {int(value, 0): name for value, name in _PAIR.findall(found["pairs"])} if found else {}


def graph(text: str) -> Counter[str]:
    """Calls of each function in what function_graph recorded.  Raises GuestError for garbage."""
    calls = Counter[str]()
    for line in _lines(text):
        row = _GRAPH.fullmatch(line)
        if row and (call := _CALL.fullmatch(row["rest"])):
            calls[call["function"]] += 1
        elif not (row and _NO_CALL.fullmatch(row["rest"])) and not _BETWEEN.fullmatch(line):
            raise _bad(line)
    return calls


def lost(text: str) -> int:
    """Events that did not fit into a CPU's buffer, of its file `stats`.  Raises GuestError."""
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


def profile(text: str) -> dict[str, int]:
    """Hits of each function, of a file trace_stat/functionN.  Raises GuestError for garbage."""
    found: dict[str, int] = {}
    for line in _lines(text):
        if row := _PROFILE.fullmatch(line):
            found[row["function"]] = int(row["hits"])
        elif line.strip() and not _PROFILE_HEAD.fullmatch(line):
            raise _bad(line)
    return found


def _lines(text: str, longest: int = LONGEST) -> Iterator[str]:
    if text.count("\n") > MOST_LINES:
        raise GuestError(f"tracefs said more than {MOST_LINES} lines")
    for line in text.split("\n"):
        if len(line) > longest:
            raise GuestError(f"tracefs said a line of more than {longest} characters")
        yield line


def _bad(line: str) -> GuestError:
    return GuestError(f"tracefs said something unknown: {quoted(line, 100)}")
