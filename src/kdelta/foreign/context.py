# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of a log that say under what the figures below them were measured, and are no figures.

"Running in process mode with 10 groups" above "Time: 0.51" is a setting where other such lines say
4 groups: figures below unlike lines are no runs of one thing.  Numbers that nobody chose, and
numbers of runs, are none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain

from kdelta.foreign.numerals import PRINTED

Lines = Sequence[tuple[int, str]]

_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\S*/\S*|\d+(?:\.\d+)?[A-Za-z%]*")
_NUMBER = re.compile(PRINTED)
_LETTERS = re.compile(r"[A-Za-z]{2,}")
# Times of day, numbers of processes, and how long a program that tells in between has run.
_MOMENT = re.compile(
    r"(?<![\d.])\d\d?:\d\d(?!\d)|\d{4}-\d\d-\d\d|\bpid\b|\[\d{3,7}\]|\bruntime \d+ \(s\)",
    re.IGNORECASE,
)
_STAMP = re.compile(r"\A\[\s*\d+\.\d+\]\s*")  # of a kernel's log
_TITLE = re.compile(r"(?P<mark>[#=*>-]+)\s*(?P<text>[^#=*>\s-].*?)\s*[#=*<-]*")
_PAIR = re.compile(r"(?P<key>[A-Za-z][\w /.-]{0,40}?)\s*[:=]\s+(?P<rest>\S.*)|\b(?P<short>\w+)=\S+")
_SAID = re.compile(r"(?P<key>[A-Za-z]\w{0,40})=(?P<rest>[A-Za-z][^\s=,;]*|\d+(?:\.\d+)+\S*)")
_RUN = re.compile(r"\b(?:run|iter|iteration|rep|repetition|round|boot|trial|pass|loop|test) *#?\d")
_PROMPT = re.compile(r"(?:\[?[\w.-]+@[\w.-]+[^$#]{0,80}[$#]|\$|\+)\s+(?P<command>\S.*)")
_COMMAND = "command"
_NAME = "said"  # no word that any table uses for what it measures
_MOST = 6  # wordings that are kept
_WORDS = 4  # of a title, at most
_LONGEST = 200  # characters that are kept of a line
_SMALL = 64  # numbers up to this are chosen; above, powers of two and round numbers are


def wording(line: str) -> str:
    """A line with each number, and each name in quotes, as 0."""
    return _VARIES.sub("0", line[:_LONGEST])


def settings(lines: Lines) -> dict[int, tuple[str, str]]:
    """Number of a line -> (a name, what it says), where unlike lines are of one wording.

    lines: what is neither a figure nor a title of kernels and runs.
    """
    found: dict[tuple[str, str], dict[int, str]] = {}
    for number, line in lines:
        if len(line) <= _LONGEST and (cut := _cut(line.strip())):
            kind, name, text = cut
            found.setdefault((kind, name), {})[number] = text
    kept = [(name, _short(said)) for (_, name), said in found.items() if _is_set([*said.values()])]
    names = _told_apart([name for name, _ in kept[:_MOST]])
    return {
        number: (name, text)
        for name, (_, said) in zip(names, kept, strict=False)
        for number, text in said.items()
    }


def before(lines: Lines, taken: Collection[int]) -> dict[int, dict[str, str]]:
    """What the lines above each taken line say; nothing where the first of all says none."""
    first = min(taken, default=0)
    said = settings([(number, line) for number, line in lines if number not in taken])
    begun = {name for number, (name, _) in said.items() if number < first}
    found: dict[int, dict[str, str]] = {}
    now: dict[str, str] = {}
    for number, _ in lines:
        if number in said and said[number][0] in begun:
            name, text = said[number]
            now = {**now, name: text}
        elif number in taken:
            found[number] = now
    return found


def _cut(line: str) -> tuple[str, str, str] | None:
    """(what lines of one kind share, a name, what this one says); None: it says nothing."""
    if not _LETTERS.search(line) or _MOMENT.search(line):
        return None
    if prompt := _PROMPT.fullmatch(line):
        return "prompt", _COMMAND, prompt["command"]
    line = _STAMP.sub("", line)
    bare = line.lstrip("#").strip()
    if (pair := _PAIR.fullmatch(bare)) and pair["key"]:
        return "pair", pair["key"].strip(), pair["rest"]
    if said := _SAID.fullmatch(bare):
        return "pair", said["key"], said["rest"]
    title = _TITLE.fullmatch(line)
    if title and len(title["text"].split()) <= _WORDS and not _NUMBER.search(title["text"]):
        return title["mark"], _NAME, title["text"]
    kind = wording(bare)
    return (kind, _NAME, bare) if kind != bare else None


def _short(said: dict[int, str]) -> dict[int, str]:
    """What differs in lines of as many words, each number with the word behind it: 4 groups."""
    rows = [text.split() for text in said.values()]
    if len({len(row) for row in rows}) > 1:
        return said
    moved = [at for at, cells in enumerate(zip(*rows, strict=True)) if len(set(cells)) > 1]
    made = [", ".join(_with_next(row, at) for at in moved) for row in rows]
    return dict(zip(said, made, strict=True))


def _with_next(row: Sequence[str], at: int) -> str:
    word, behind = row[at], row[at + 1] if at + 1 < len(row) else ""
    bare = word.strip("(),;:=")
    named = _NUMBER.fullmatch(bare) and behind[:1].isalpha()
    return f"{bare} {behind.strip('(),;:')}" if named else bare or word


def _told_apart(names: Sequence[str]) -> list[str]:
    """The names, each once: said, said 2."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return made


def _is_set(texts: Sequence[str]) -> bool:
    """True for what somebody chose: words, or few, equally often, or small or round numbers."""
    counts = Counter(texts)
    if len(counts) < 2 or any(map(_RUN.search, texts)):
        return False
    each = set(counts.values())
    if each == {1} and _counts(texts):
        return False
    if len(each) == 1 and each != {1}:
        return True
    if len(each) > 1 and 1 in each:
        return False
    columns = [_NUMBER.findall(text) for text in counts]
    if len({len(numbers) for numbers in columns}) > 1:
        return True
    moved = [set(numbers) for numbers in zip(*columns, strict=True) if len(set(numbers)) > 1]
    return all(map(_is_chosen, chain.from_iterable(moved)))


def _counts(texts: Sequence[str]) -> bool:
    """True for 1, 2, 3: the numbers of runs, of whatever name."""
    numbers = [_NUMBER.findall(text) for text in texts]
    return all(
        len(each) == 1 and each[0] == str(at + int(numbers[0][0] == "1"))
        for at, each in enumerate(numbers)
        if numbers[0]
    ) and bool(numbers[0])


def _is_chosen(text: str) -> bool:
    if "." in text:
        return len(text.rstrip("0").replace(".", "")) < 3
    number = int(text[:18])
    return number <= _SMALL or number & (number - 1) == 0 or not text[2:].strip("0")
