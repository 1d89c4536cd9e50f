# SPDX-License-Identifier: GPL-2.0-or-later
"""Claims of a cover letter that have a figure, held against what was counted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto

from kdelta.check.page import Effect, PathRow, Promise, Saying

_MOST = 8
_LONGEST = 160
_MOST_WORDS = 1000  # characters of a sentence
_FIGURE = re.compile(r"\d(?:[\d.,]*\d)?\s?(?:%|percent\b)|\b\d+(?:\.\d+)?x\b", re.IGNORECASE)
_BETTER = re.compile(
    r"improv|faster|speed|reduc|fewer|less\b|lower|sav(?:e|ing)|gain|win|better|boost|shorter"
    r"|optimi[sz]|increas\w* (?:in )?(?:throughput|performance|ops)",
    re.IGNORECASE,
)
_WORSE = re.compile(r"regress|slower|overhead|cost|degrad|longer|worse|drop", re.IGNORECASE)
_NO = r"\b(?:no|not|without|never|neither|nor|any|hardly)\b|n't\b"
_DENIED = re.compile(
    rf"(?:{_NO})[^,;.()]{{0,24}}?(?P<what>{_BETTER.pattern}|{_WORSE.pattern})", re.IGNORECASE
)
_ROW = re.compile(r"\S(?:\s*\t\s*|\s{2,})\S.*\S(?:\s*\t\s*|\s{2,})\S")  # columns of a table
_STAT = re.compile(r"\s*(?:\S+\s+\|\s+(?:\d|Bin)|\d+ files? changed)")
_BASE_PAGES = re.compile(r"\b(?:base|small) (?:pages|folios)\b", re.IGNORECASE)
_AND = re.compile(r",?\s+(?:and|but|while)\s+|;\s+")
_WORD = re.compile(r"[a-z][a-z0-9]{2,}")
# Words of scenarios that say nothing of which one is meant.
_COMMON = frozenset(
    _WORD.findall(
        "the and with without pages page base full large folio folios private anonymous memory"
        " mapped file one two all mib kib bytes call calls per into from that each are its huge"
        " shared"
    )
)


class _Wish(Enum):
    """What a sentence says of a path."""

    SHORTER = auto()
    LONGER = auto()
    NOT_LONGER = auto()


def promises(
    text: str, paths: Sequence[PathRow], identical: Sequence[str] = ()
) -> tuple[Promise, ...]:
    """What counts say of each sentence with a figure, in the order of the text.

    identical: scenarios that execute no changed code.  Tables are no sentences: nothing in one says
    which of its figures is to be small.
    """
    found = [
        _judged(claim[:_LONGEST], wish, paths, identical)
        for sentence in _sentences(text)
        for claim, wish in _claims(sentence)
    ]
    return tuple(dict.fromkeys(found))[:_MOST]


def _claims(sentence: str) -> Iterator[tuple[str, _Wish]]:
    """The parts of a sentence that say each by how much; else the whole."""
    parts = [part for part in _AND.split(sentence) if part]
    whole = all(_FIGURE.search(part) and (set(_WORD.findall(part)) - _COMMON) for part in parts)
    every = _wish(sentence)
    for part in parts if whole else [sentence]:
        denied = _DENIED.search(part) is not None
        if wish := _wish(part) or (None if denied else every):
            yield part, wish


def _wish(text: str) -> _Wish | None:
    """What a text says became of a path; None where it says nothing, or that nothing was gained."""
    if denied := _DENIED.search(text):
        return _Wish.NOT_LONGER if _WORSE.match(denied["what"]) else None
    better, worse = _BETTER.search(text), _WORSE.search(text)
    if better and not (worse and worse.start() < better.start()):
        return _Wish.SHORTER
    return _Wish.LONGER if worse else None


def _sentences(text: str) -> Iterator[str]:
    """Those with a figure."""
    prose = "\n".join(
        "" if _ROW.search(line.strip()) or _STAT.match(line) else line
        for line in text.splitlines()
        if not line.startswith((">", "|", "diff "))
    )
    for part in re.split(r"(?<=[.!?])\s+|\n\s*\n|\n\s*[-*o] ", prose):
        sentence = " ".join(part.split())[:_MOST_WORDS]
        if _FIGURE.search(sentence):
            yield sentence


def _judged(
    sentence: str,
    wish: _Wish,
    paths: Sequence[PathRow],
    identical: Sequence[str],
) -> Promise:
    meant = _meant(sentence, paths)
    if not meant:
        return _unmoved(sentence, identical)
    largest = max(meant, key=lambda row: abs(row.percent))
    signs = {row.change for row in meant}
    why = f"{largest.scenario} {largest.percent:+.1f} %"
    if wish is _Wish.NOT_LONGER:
        longest = max(meant, key=lambda row: row.percent)
        why = f"{longest.scenario} {longest.percent:+.1f} %"
        saying = Saying.CONTRADICTED if Effect.MORE in signs else Saying.SUPPORTED
        return Promise(text=sentence, saying=saying, why=why)
    shorter = wish is _Wish.SHORTER
    want, other = (Effect.LESS, Effect.MORE) if shorter else (Effect.MORE, Effect.LESS)
    if want in signs and other in signs:
        why = f"both signs: {why}"
        return Promise(text=sentence, saying=Saying.SUPPORTED, why=why)
    if want in signs:
        return Promise(text=sentence, saying=Saying.SUPPORTED, why=why)
    if other in signs:
        return Promise(text=sentence, saying=Saying.CONTRADICTED, why=why)
    return Promise(text=sentence, saying=Saying.NOT_LENGTH, why=f"{len(meant)} paths, no change")


def _unmoved(sentence: str, identical: Sequence[str]) -> Promise:
    """Of a sentence that means no path that executes changed code."""
    words = _words(sentence)
    count = sum(bool(_words(name) & words) for name in identical)
    if not count:
        return Promise(text=sentence, saying=Saying.UNSEEN)
    why = f"none of {count} paths of that name executes changed code"
    return Promise(text=sentence, saying=Saying.NOT_LENGTH, why=why)


def _meant(sentence: str, paths: Sequence[PathRow]) -> list[PathRow]:
    """The paths whose names or words the sentence has; of "base pages" those alone."""
    words = _words(sentence)
    found = [row for row in paths if _words(f"{row.scenario} {row.what}") & words]
    base = [row for row in found if row.pages == "base"]
    return base if base and _BASE_PAGES.search(sentence) else found


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower().replace("_", " "))) - _COMMON
