# SPDX-License-Identifier: GPL-2.0-or-later
"""Logs that say what was measured in sentences: lines of one wording, with other numbers in them.

"[  12.345] bench: iteration 3 took 1.523 s" says a moment, the number of an iteration and a time;
"readrandom : 4.512 micros/op 221606 ops/sec" a name and two figures.  A number is a figure only
where a unit follows it; before a number stands what it is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kdelta.foreign import context, words
from kdelta.foreign.records import Numbered, Record
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part

Lines = Sequence[tuple[int, str]]

_LEAST = 3  # lines of one wording
_MOST = 0.5  # of all lines that hold a number
_STAMP = re.compile(
    r"(?:\[\s*(?P<dmesg>\d+\.\d+)\]|\[?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"(?:Z|[+-]\d\d:?\d\d)?)\]?|[A-Z][a-z]{2} +\d+ (?P<clock>\d\d:\d\d:\d\d))\s*"
)
_TOKEN = re.compile(
    r"(?P<number>(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?P<unit>[a-zA-Z\u00b5%][\w/\u00b5]*)?(?![\w.]*\d)"
    r"|(?P<word>[A-Za-z_\u00b5][\w./-]*)|(?P<sign>[^\s\w])"
)
_VERBS = frozenset(
    vocabulary(
        "took takes taken in of is was at after for with the a an per and total: done"
        " finished completed ran needed used"
    )
)
_OPERATION = re.compile(r"(?P<name>[a-z]\w{2,40})\s*:\s+(?P<rest>[\d.]+ \S+/\S+(?: .*)?)\Z")
_FIGURE = re.compile(r"(?P<value>\d+(?:\.\d+)?) (?P<unit>[A-Za-z]+/[A-Za-z]+)(?=[ ;,]|\Z)")


def stamped(line: str) -> tuple[str, str]:
    """(the moment that a line begins with, or "", the rest)."""
    found = _STAMP.match(line.strip())
    if found is None:
        return "", line.strip()
    return found["dmesg"] or found["iso"] or found["clock"], line.strip()[found.end() :]


def is_stamped(text: str) -> bool:
    """True where most lines begin with the moment of a kernel's log: no table does."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    stamps = sum(bool(found and found["dmesg"]) for found in map(_STAMP.match, lines))
    return len(lines) >= _LEAST and 2 * stamps > len(lines)


def records_of(lines: Lines) -> Iterator[Numbered]:
    """The records of lines of one wording; nothing where most lines have another."""
    found: dict[tuple[str, ...], list[Numbered]] = {}
    counted = 0
    for number, line in lines:
        moment, rest = stamped(line)
        counted += any(character.isdigit() for character in rest)
        if made := _sentence(rest):
            wording, record = made
            found.setdefault(wording, []).append(
                (number, {"timestamp": moment, **record} if moment else record)
            )
    kept = {wording: rows for wording, rows in found.items() if len(rows) >= _LEAST}
    every = [(number, wording, row) for wording, rows in kept.items() for number, row in rows]
    if len(every) <= _MOST * counted or len({tuple(row) for _, _, row in every}) != 1:
        return
    said = context.before(lines, {number for number, _, _ in every})
    for number, wording, row in sorted(every, key=lambda one: one[0]):
        own = {"what": _own_words(wording, kept)} if len(kept) > 1 else {}
        yield number, row | own | said.get(number, {})


def _own_words(wording: tuple[str, ...], every: Iterable[tuple[str, ...]]) -> str:
    """The words that one wording has and not all others: what its figures are of."""
    shared = set.intersection(*map(set, every))
    return " ".join(word for word in wording if word not in shared) or " ".join(wording)


def _sentence(text: str) -> tuple[tuple[str, ...], Record] | None:
    """(its words, what its numbers are) of a line with a time, or a rate, among other words."""
    wording: list[str] = []
    record: Record = {}
    before = ""
    tokens = list(_TOKEN.finditer(text))
    timed = False
    for at, token in enumerate(tokens):
        if not token["number"]:
            word = token["word"] or token["sign"]
            if word == "=":
                return None  # key=value is no sentence
            wording.append(word)
            if token["word"] and word.lower() not in _VERBS:
                before = word
            continue
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        unit = token["unit"] or (after["word"] if after and after["word"] else "")
        measured = _is_unit(unit)
        name = f"{before or 'result'} ({unit})" if measured else before
        if not name or name in record:
            return None
        timed = timed or measured
        record[name] = token["number"]
        wording.append("0")
        before = ""
        if not measured and token["unit"]:
            return None
    plain = len(wording) > 2 and len(record) < len(wording)
    return (tuple(wording), record) if timed and plain else None


def _is_unit(text: str) -> bool:
    """True for s, us, ops/s, ns/op, and for no other word that says a time: lat_us, latency."""
    said = words.said(text) if text else None
    if said is None or said.part is not Part.TIME or said.better is None:
        return False
    return "/" in text or (len(words.words(text)) == 1 and said.unit in ("ns", "us", "ms", "s"))


def operations(lines: Lines) -> Iterator[Numbered]:
    """Lines such as "readrandom : 4.512 micros/op 221606 ops/sec": a figure for each unit."""
    for number, line in lines:
        found = _OPERATION.fullmatch(line.strip())
        if found is None:
            continue
        for figure in _FIGURE.finditer(found["rest"]):
            said = words.said(figure["unit"])
            if said.better is not None:
                record = {"operation": found["name"], "metric": said.unit, "unit": said.unit}
                yield number, record | {"better": said.better.value, "value": figure["value"]}
