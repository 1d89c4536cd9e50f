# SPDX-License-Identifier: GPL-2.0-or-later
"""From JSON, JSON lines, YAML as programs print it, and logs of "key: value" to rows of a table.

A record is one run, or one row: names and cells.  What lies deeper is called by its path
("result latency_us").  Nothing is chosen here but which list holds the records; what the columns
are is for `guess` to say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kdelta.errors import SpecError
from kdelta.foreign import aggregates, arms, context, layout, marked, nested_text, titles
from kdelta.foreign.json_text import loaded
from kdelta.foreign.numerals import GROUPED, PLAIN
from kdelta.foreign.plain_tables import Plain
from kdelta.foreign.record import Line
from kdelta.foreign.tables import MAX_COLUMNS, MAX_LINES
from kdelta.printable import printable

Record = dict[str, str]
Numbered = tuple[int, Record]  # the line it begins at, or its place among others, from 1

_DEEP = 6
_TOLD = 20  # lines that tell a file with an object in each
_ENTRY = re.compile(
    r"(?:- +)?[*>]*\s*(?P<key>[^\s:=][^:=]{0,79}?)(?:\s*:\s+|\s*=\s*)(?P<rest>.*)\Z"
)
_DMESG = re.compile(r"\A\[\s*\d+\.\d+\]\s*")  # before a line of the kernel's log
_QUOTIENT = re.compile(r"\d.*/\s*\d+\s")
_HEADING = re.compile(r"(?P<key>[^-:=][^:=]{0,79}?)\s*:\Z")
_FIGURE = re.compile(
    rf"(?P<value>{GROUPED})\s*(?P<unit>\[?[a-zA-Z\u00b5\u03bc%][\w/\u00b5\u03bc%^.-]*\]?)?"
    r"(?:\s*\([^)]*\))?\s*\Z"
)
_RATE = re.compile(rf"{GROUPED}\s+\((?P<value>{GROUPED}) per sec(?:ond)?\.?\)")  # 12 (1.2 per sec.)
_BARE = re.compile(rf"(?P<value>{GROUPED})\s+(?P<unit>[a-zA-Z\u00b5\u03bc][\w/\u00b5\u03bc-]*)\Z")
_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w.%/-]*)=(?P<value>\"[^\"]*\"|[^\s,;]+)")
_BEFORE_PAIRS = 4  # words: a moment, a host, a program
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_LOOKED_AT = 65536  # characters that tell a log
_AGAIN = 3  # figures of one name that tell a program run in a loop
_NUMBERS = rf"{PLAIN}(?:(?:\s*[,;]\s*|\s+){PLAIN})+"
_NAMED_LIST = re.compile(
    rf"(?:- )?[\"'`]?(?P<key>[\w.+-]+)[\"'`]?\s*(?:[:=]|<-)\s*(?:c?\(|\[)?\s*"
    rf"(?P<rest>{_NUMBERS})\s*[\])]?[,;]?"
)
_R_NAME = re.compile(r"\$`?(?P<key>[\w.+-]+)`?")
_R_LINE = re.compile(rf"\[\d+\]\s+(?P<rest>{GROUPED}(?:\s+{GROUPED})*)")
_SEPARATOR = re.compile(r"\s*[,;]\s*|\s+")
_Path = tuple[str, ...]


def is_lines(text: str) -> bool:
    """True for a file with a JSON object in each line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()][:_TOLD]
    return len(lines) > 1 and all(line[0] == "{" and line[-1] == "}" for line in lines)


def of_json(
    text: str, name: str, known: Callable[[Any], list[Record]] | None = None
) -> list[Numbered]:
    """The records of a JSON file, or of one with an object a line.  Raises SpecError.

    known: what is asked first of each value; it knows what programs write.
    """
    if is_lines(text):
        lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
        values = [(n, loaded(line, name, n, exact=True)) for n, line in lines]
    else:
        values = [(1, loaded(text, name, exact=True))]
    # Of a program's output a part that holds no figure is no record of another kind.
    found = [(n, row) for n, value in values for row in (known(value) if known else ())]
    found = found or [(n, row) for n, value in values for row in _rows(value, {})]
    return found if is_lines(text) else [(at, row) for at, (_, row) in enumerate(found, start=1)]


def of_nested(text: str) -> list[Numbered]:
    """The records of YAML whose mappings or lists lie within each other; none: it is not such."""
    found = nested_text.loaded(text)
    if not isinstance(found, dict | list) or not _lies_deep(found):
        return []
    return list(enumerate(_rows(found, {}), start=1))


def _lies_deep(found: Any) -> bool:
    """True for what is no list of plain records, which `of_log` reads with its lines."""
    inner = found.values() if isinstance(found, dict) else found
    if isinstance(found, list):
        return any(_lies_deep(one) for one in inner if isinstance(one, dict))
    return any(
        isinstance(value, list) or (isinstance(value, dict) and _lies_deeper(value))
        for value in inner
    )


def _lies_deeper(found: Mapping[str, Any]) -> bool:
    return any(isinstance(value, dict | list) for value in found.values())


def _rows(found: Any, outer: Record, depth: int = 0) -> list[Record]:
    """The records in a value; outer: what was said around it.

    A list of objects, an object of objects of one kind (often of arms), arrays of one length, or
    one of these within an object, which then says more of each.
    """
    if isinstance(found, list):
        return _named_lists(found, outer) or [
            record for one in found if isinstance(one, dict) for record in _rows(one, outer, depth)
        ]
    if not isinstance(found, dict) or not found:
        return []
    if named := _keyed(found):
        return [
            record
            for key, value in found.items()
            for record in _rows(
                value if isinstance(value, dict) else {"values": value},
                outer | {named: key},
                depth + 1,
            )
        ]
    inner = [key for key, value in found.items() if _objects(value) or _keyed(value)]
    if inner and depth < _DEEP:
        rest = outer | _flat({key: value for key, value in found.items() if key not in inner})
        return [
            record
            for key in inner
            for record in _rows(found[key], rest | ({"list": key} if inner[1:] else {}), depth + 1)
        ]
    below = [key for key, value in found.items() if isinstance(value, dict) and _holds(value)]
    if len(below) == 1 and depth < _DEEP:
        rest = outer | _flat({key: value for key, value in found.items() if key != below[0]})
        return _rows(found[below[0]], rest, depth + 1)
    return _columns(found, outer) or [outer | _flat(found)]


def _named_lists(found: list[Any], outer: Record) -> list[Record]:
    """Lists of one length, of which the first holds the names of the others' values."""
    if len(found) < 2 or not all(_plain_list(one) for one in found):
        return []
    names, *rows = found
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        return []
    if any(len(row) != len(names) for row in rows) or all(
        isinstance(cell, str) for row in rows for cell in row
    ):
        return []
    return [outer | dict(zip(names, map(_cell, row), strict=True)) for row in rows]


def _holds(found: Mapping[str, Any]) -> bool:
    return any(_objects(value) or bool(_keyed(value)) for value in found.values())


def _keyed(found: Any) -> str:
    """What the keys of an object of equal things are: "arm", or "name"; "" for any other."""
    if not isinstance(found, dict) or len(found) < 2:
        return ""
    named = all(arms.is_version(key) or arms.side(key) for key in found)
    if named and all(isinstance(value, dict | list) for value in found.values()):
        return "arm"
    kinds = {
        frozenset(value) if isinstance(value, dict) else frozenset() for value in found.values()
    }
    return "name" if len(kinds) == 1 and kinds.pop() else ""


def _columns(found: Mapping[str, Any], outer: Record) -> list[Record]:
    """Arrays of one length: each is a column."""
    columns = {key: value for key, value in found.items() if _plain_list(value)}
    lengths = {len(value) for value in columns.values()}
    if len(columns) < 2 or len(lengths) != 1:
        return []
    rest = outer | _flat({key: value for key, value in found.items() if key not in columns})
    return [
        rest | {key: _cell(value[at]) for key, value in columns.items()}
        for at in range(lengths.pop())
    ]


def _objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _plain_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and not any(isinstance(one, dict | list) for one in value)
    )


def _flat(found: Any, path: str = "", depth: int = 0) -> Record:
    """The scalars of an object by their paths; a list of them is one cell."""
    if not isinstance(found, dict):
        return {path or "value": _cell(found)}
    made: Record = {}
    for key, value in found.items():
        name = f"{path} {key}" if path else str(key)
        if isinstance(value, dict) and depth < _DEEP:
            made |= _flat(value, name, depth + 1)
        elif not isinstance(value, list) or _plain_list(value):
            made[name] = _cell(value)
    return made


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "; ".join(_cell(one) for one in value)
    return str(value)


def of_log(text: str) -> list[Numbered]:
    """The records of a log: lines of several key=value, or blocks of lines "key: value".

    A key that stands again begins another record, and so does the dash of a YAML list.
    """
    lines = list(enumerate(text.splitlines(), start=1))
    if listed := _lists(lines):
        return listed
    pairs = [(number, _timed(line, dict(_pairs(line)))) for number, line in lines]
    several = [(number, found) for number, found in pairs if len(found) > 1]
    before = {number: _before(line) for number, line in lines}
    if several and all(before[number] for number, _ in several) and len({*before.values()}) > 1:
        several = [(number, {"kernel": before[number], **found}) for number, found in several]
    if several and 2 * len(several) >= sum(bool(line.strip()) for _, line in lines):
        return several
    return list(_blocks(lines))


def _lists(lines: Sequence[tuple[int, str]]) -> list[Numbered]:
    """A list of figures behind the name of each arm: 6.16: 1.2 1.3, old = [1.2, 1.3], $`6.16`.

    R prints a list below its name, [1] 1.2 1.3 and [3] 1.4.  Nothing where a line is another.
    """
    found: list[Numbered] = []
    test: Record = {}
    for number, line in lines:
        text = line.strip()
        if not text or text.startswith(("#", "//", "%")):
            continue
        if heading := _HEADING.match(text):
            test = {"test": heading["key"]}
        elif named := _R_NAME.fullmatch(text):
            found.append((number, {**test, "kernel": named["key"], "values": ""}))
        elif found and (more := _R_LINE.fullmatch(text)):
            found[-1][1]["values"] += f"{more['rest']} "
        elif listed := _NAMED_LIST.fullmatch(text):
            found.append((number, {**test, "kernel": listed["key"], "values": listed["rest"]}))
        else:
            return []
    cut = [
        (n, one | {"values": "; ".join(_SEPARATOR.split(one["values"].strip()))})
        for n, one in found
    ]
    named_ = all(arms.is_version(one["kernel"]) or arms.side(one["kernel"]) for _, one in cut)
    named_ &= len({(one.get("test"), one["kernel"]) for _, one in cut}) == len(cut)
    return cut if len(cut) > 1 and named_ and all(";" in one["values"] for _, one in cut) else []


def sections(text: str) -> list[tuple[Record, list[tuple[int, str]]]]:
    """(what a title such as "=== 6.16.1 run 3 ===" says, the lines below it) of each title.

    Nothing: there are no two of them.
    """
    found: list[tuple[Record, list[tuple[int, str]]]] = []
    lines = list(enumerate(text.splitlines(), start=1))
    known = titles.titles(lines)
    for number, line in lines:
        if number in known:
            found.append((known[number], []))
        elif found:
            found[-1][1].append((number, line))
    return found if len(found) > 1 else []


def _timed(line: str, found: Record) -> Record:
    """The pairs of a line, with the moment that it begins with."""
    moment = _MOMENT.match(line.lstrip(" [")) if found else None
    return {"timestamp": moment[0], **found} if moment and "timestamp" not in found else found


def _before(line: str) -> str:
    """The kernel, or the word of an old or new arm, in front of pairs: 6.17.8: mean=1.2 sd=0.1."""
    first = _PAIR.search(line)
    words_ = line[: first.start()].replace(":", " ").replace(",", " ").split() if first else []
    return (
        words_[0]
        if len(words_) == 1 and (arms.is_version(words_[0]) or arms.side(words_[0]))
        else ""
    )


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    for found in _PAIR.finditer(line):
        yield found["key"], found["value"].strip('"')


def is_log(text: str) -> bool:
    """True when most lines say "name: value", "name = value" or "12 us", or lie between such."""
    lines = [line.strip() for line in text[:_LOOKED_AT].splitlines()]
    if _lists(list(enumerate(text.splitlines(), start=1))):
        return True
    if sum(bool(titles.titled(line)) for line in lines) > 1:  # what programs say between, too
        return any(_entry(line) is not None for line in lines)
    lines = [line for line in lines if line and line[0] != "#" and set(line) - set("-=.*")]
    entries = sum(
        _entry(line) is not None or bool(_PAIR.match(line)) or _is_pairs(line) for line in lines
    )
    entries += sum(map(_is_heading, lines)) if entries else 0
    return entries > 0 and 2 * (entries + _between(lines)) >= len(lines)


def _between(lines: Sequence[str]) -> int:
    """How many lines a program prints again with each figure: they say under what it measured."""
    keys = Counter(entry[0] for line in lines if (entry := _entry(line)))
    often = max(keys.values(), default=0)
    rest = [line for line in lines if not (_entry(line) or _is_heading(line))]
    wordings = Counter(context.wording(line) for line in rest)
    return sum(n for n in wordings.values() if often >= _AGAIN and abs(n - often) <= 1)


def _is_pairs(line: str) -> bool:
    """True for several key=value behind a moment and a name: 10:00:00Z bench: n=1 us=2."""
    found = list(_PAIR.finditer(line))
    rest = _PAIR.sub("", line).split()
    return len(found) > 1 and len(rest) <= max(_BEFORE_PAIRS, len(found))


def _is_heading(line: str) -> bool:
    return bool(_HEADING.match(line))


@dataclass(slots=True)
class _Log:
    """Records so far: names are paths of headings and a key, with what stood before any dash."""

    done: list[tuple[int, dict[_Path, str]]] = field(default_factory=list)
    record: dict[_Path, str] = field(default_factory=dict)
    outer: dict[_Path, str] = field(default_factory=dict)
    first: int = 0
    dashed: bool = False

    def take(self, number: int, path: _Path, value: str, *, dash: bool) -> None:
        """One entry; a name that stands again begins another record."""
        if dash and not self.dashed:
            self.outer, self.dashed = dict(self.record), True
        if path in self.record and path not in self.outer:
            self.done.append((self.first, self.record))
            self.record = {key: text for key, text in self.outer.items() if key != path}
            self.first = number
        self.first = self.first or number
        self.record[path] = value

    def under(self, number: int, path: _Path, text: str, *, begins: bool) -> None:
        """A line that says under what is measured; begins: all that follows, until another says."""
        if not begins:
            self.take(number, path, text, dash=False)
            return
        if self.record and not self.record.keys() <= self.outer.keys():
            self.done.append((self.first, self.record))
        self.outer = {**self.outer, path: text}
        self.record, self.first, self.dashed = dict(self.outer), number, True

    def begin(self, number: int, said: Record) -> None:
        """A title: what was said of the record before is none of the next."""
        if self.record and not self.record.keys() <= self.outer.keys():
            self.done.append((self.first, self.record))
        self.outer = {(key,): text for key, text in said.items()}
        self.record, self.first, self.dashed = dict(self.outer), number, True

    def named(self) -> Iterator[Numbered]:
        """All records by the last parts of their paths, as far as these are different."""
        every = [*self.done, *([(self.first, self.record)] if self.record else [])]
        paths = dict.fromkeys(path for _, record in every for path in record)
        last = Counter(path[-1] for path in paths)
        names = {path: _name(path, alone=last[path[-1]] == 1) for path in paths}
        for number, record in every:
            yield number, {names[path]: value for path, value in record.items()}


def _name(path: _Path, *, alone: bool) -> str:
    """The key, with its headings where they tell it from others, or tell the unit: Latency (ms)."""
    kept = [part for part in path[:-1] if not alone or "(" in part]
    return " ".join((*kept, path[-1]))


def _says(line: str) -> bool:
    """True for a title, a heading, a rule and an entry, which is what a log is made of."""
    text = line.strip()
    if not text or set(text) <= set("-=.*") or titles.titled(text):
        return True
    return not text.startswith("#") and bool(_is_heading(text) or _entry(text))


def _blocks(lines: Sequence[tuple[int, str]]) -> Iterator[Numbered]:
    log = _Log()
    heads: list[tuple[int, str]] = []  # indentation and name of the headings above
    said = context.settings([one for one in lines if not _says(one[1])])
    known = titles.titles(lines)
    entries = (number for number, line in lines if number not in said and _entry(line.strip()))
    above = bool(said) and min(said) < next(entries, 0)
    for number, line in lines:
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if number in said:
            name, words_ = said[number]
            log.under(number, (name,), words_, begins=above)
            continue
        if number in known:
            log.begin(number, known[number])
            heads = []
            continue
        if not text or text.startswith("#") or set(text) <= set("-=.*"):
            continue
        while heads and heads[-1][0] >= depth:
            heads.pop()
        if heading := _HEADING.match(text):
            heads.append((depth, heading["key"]))
        elif entry := _entry(text):
            path = (*(name for _, name in heads), entry[0])
            log.take(number, path, entry[1], dash=text.startswith("- "))
    yield from log.named()


def _entry(text: str) -> tuple[str, str] | None:
    """(name, cell) of a line that says "name: 12 us", or "12 us"; None of any other."""
    text = _DMESG.sub("", text, count=1)
    if bare := _BARE.match(text):
        return bare["unit"], bare["value"].replace(",", "")
    found = _ENTRY.match(text)
    if not found or not found["rest"]:
        return None
    if rate := _RATE.fullmatch(found["rest"].strip()):
        return f"{found['key'].strip()} per second", rate["value"].replace(",", "")
    name = found["key"].strip()
    if name.count("(") > name.count(")") or _QUOTIENT.search(name):
        return None  # a sentence: ... descriptors each (== 400 tasks); 80 bytes / 4 usecs = 20
    figure = _FIGURE.match(found["rest"])
    if figure is None:
        return name, found["rest"].strip().strip("\"'")
    unit = (figure["unit"] or "").strip("[]")
    return f"{name} ({unit})" if unit else name, figure["value"].replace(",", "")


def table_of(records: Sequence[Numbered], name: str) -> Plain:
    """The records as a table, every name a column.  Raises SpecError for too many."""
    columns = tuple(dict.fromkeys(key for _, record in records for key in record))
    if len(records) > MAX_LINES:
        raise SpecError(f"more than {MAX_LINES} records", place=name, action="import a part of it")
    if len(columns) > MAX_COLUMNS:
        raise SpecError(
            f"{len(columns)} different names, more than {MAX_COLUMNS}",
            place=f"{name}: {printable(columns[MAX_COLUMNS], 60)}",
            action="leave out what was not measured",
        )
    lines = tuple(
        Line(number=number, cells=tuple(record.get(key, "").strip() for key in columns))
        for number, record in records
    )
    return aggregates.apart(marked.plain(layout.plain(columns, lines)))
