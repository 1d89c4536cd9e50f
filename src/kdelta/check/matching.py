# SPDX-License-Identifier: GPL-2.0-or-later
"""From the words of a report to a scenario: what robots call the loops that kdelta has."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from itertools import permutations

from kdelta import workload
from kdelta.machine.folios import FolioName
from kdelta.study import plan
from kdelta.workload import Scenario

_WORD = re.compile(r"[a-z0-9_]+")
_HYPHEN = re.compile(r"(?<=[a-z])-(?=[a-z])")
_FUNCTION = re.compile(r"\b([a-z_][a-z0-9_]{3,63})\(\)")
_TOKEN = re.compile(r"[a-z0-9_]+")
_PLURAL = re.compile(r"\b(thread|process)(?:s|es)\b")
# "without swap" is not of swap.
_DENIED = re.compile(r"\b(?:without|no|none|not|nobody)\s+[a-z0-9_]+")
_STEM = re.compile(r"(?<=[a-z0-9]{5})(?:ing|ed|e)$")
_IRREGULAR = {"written": "write", "sent": "send", "taken": "take", "given": "give"}
# What says that pages are to be in folios, and in which.
_BASE = re.compile(r"\b(?:base page|small folio)")
_FOLIOS: tuple[tuple[re.Pattern[str], FolioName], ...] = (
    (re.compile(r"\bpte-mapped\b|\bmapped by ptes?\b"), "2M-ptes"),
    (re.compile(r"\bfolios? of 2 ?mi?b\b|\b2 ?mi?b folios?\b"), "2M"),
    (re.compile(r"\bfolios? of 64 ?ki?b?\b|\b64 ?ki?b? folios?\b|\bmthp\b"), "64K"),
    (re.compile(r"\blarge folios?\b"), "64K"),
)
_OF_FOLIOS = re.compile(
    r"\b(?:pte-mapped|mapped by ptes?|m?thp|(?:large )?folios?|(?:of )?(?:2 ?mi?b|64 ?ki?b?)"
    r"|huge pages?)\b"
)
_LARGE = re.compile(r"thp|huge|mthp|64k|folio")
_LEAST = 4.0  # of the weight of shared words, below which nothing is meant
_AHEAD = 1.2  # times what the next scenario has: else it could as well be that one
_NEAR = 0.75  # of a name's letters
_SHORT = 3  # letters of words that say nothing
_CALL = re.compile(r"\b([a-z][a-z0-9_]{2,31})\(|\bmadv_([a-z]{2,31})\b")
# Calls that end what another one began.
_ENDS = frozenset(("close", "exit", "_exit", "munmap", "wait", "waitpid"))
_HUGE = frozenset(("thp", "hugepage"))
_SILENT = frozenset((
    "each", "from", "into", "same", "some", "than", "that", "then", "they", "this", "until", "used",
    "where", "which", "with",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """A scenario that a text means.  why: the words that say so."""

    scenario: str
    why: str


def meant(text: str) -> Meant | None:
    """The scenario of a text: by a suite and its test, else by words in common, else by a test's
    name alone ("fork()", "fork").

    None when nothing is meant with some certainty: a wrong scenario is worse than none.
    """
    lower = _PLURAL.sub(r"\1", text.lower())
    if found := _by_name(lower):
        return found
    cell = None if _BASE.search(lower) else _cell(lower)
    if cell is None:
        return _by_any(lower)
    return _in_folios(_by_any(lower), cell) or _in_folios(_by_any(_OF_FOLIOS.sub("", lower)), cell)


def named(text: str) -> Meant | None:
    """The scenario of a text by a name or a call alone: other words of a commit's title say what
    the code is, not what a test does.
    """
    lower = _PLURAL.sub(r"\1", text.lower())
    return _by_name(lower) or _by_call(lower)


def _by_any(text: str) -> Meant | None:
    return _by_words(_words(text)) or _by_call(text) or _by_name(text, bare=True)


def _cell(text: str) -> FolioName | None:
    """Which folios a text speaks of."""
    return next((name for pattern, name in _FOLIOS if pattern.search(text)), None)


def _in_folios(found: Meant | None, cell: FolioName) -> Meant | None:
    """The scenario with its pages in folios; None where it has base pages alone: they take another
    path than the one that is meant.
    """
    if found is None or _LARGE.search(found.scenario):
        return found
    scenario = workload.parse_reference(found.scenario)[1]
    if cell not in scenario.folios:
        return None
    return Meant(scenario=f"{found.scenario}.{cell}", why=f"{found.why}, {cell}")


def nearest(suite: str, tests: Sequence[str]) -> str:
    """Of the tests of a suite, the one that is called most like these: "aim9 page_test"; or ""."""
    own = {" ".join(name.test): name for name in _names() if name.suite == suite.lower()}
    found = [get_close_matches(test.lower(), [*own], n=1, cutoff=_NEAR) for test in tests]
    named = next((near[0] for near in found if near), "")
    return f"{suite} {named}, which is {own[named].scenario}" if named else ""


def functions(text: str) -> tuple[str, ...]:
    """Kernel functions that a text names: "pcpu_alloc()"."""
    return tuple(dict.fromkeys(_FUNCTION.findall(text)))


def is_one_of(function: str, patterns: tuple[str, ...]) -> bool:
    """True for a function that fits one of the patterns."""
    return any(fnmatchcase(function, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """What a suite calls a test: a name without a suite is known by itself."""

    suite: str
    test: tuple[str, ...]
    scenario: str

    def rank(self, text: str, raw: str) -> tuple[bool, bool, int] | None:
        """How well a text of tokens fits: at one place, with the suite, by how many letters.

        raw: the text itself: "anon-w-seq-hugetlb" is not "anon-w-seq".
        """
        if not all(_has(text, word) and _apart(raw, word, self.suite) for word in self.test):
            return None
        named = bool(self.suite) and _has(text, self.suite)
        own = any(re.search(r"[0-9_-]", word) for word in self.test)
        if self.suite and not (named or own):
            return None
        together = named and any(
            _has(text, " ".join(words)) for words in permutations((self.suite, *self.test))
        )
        return together, named, sum(map(len, self.test))


def _has(text: str, word: str) -> bool:
    return f" {' '.join(_TOKEN.findall(word))} " in text


def _apart(raw: str, word: str, suite: str) -> bool:
    """False where a name is only seen as a part of a longer one with hyphens: "ring-pipe" is no
    "pipe", but "perf-bench-futex" is the "futex" of perf-bench.
    """
    alone = re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", raw)
    if alone or "-" in word:
        return bool(alone)
    return not re.search(rf"-{re.escape(word)}\b|\b{re.escape(word)}-", raw) or bool(
        suite and re.search(rf"\b{re.escape(suite)}-(?:[\w-]+-)?{re.escape(word)}\b", raw)
    )


def _by_name(text: str, *, bare: bool = False) -> Meant | None:
    """bare: by names that no suite has to be named for."""
    tokens = f" {' '.join(_TOKEN.findall(text))} "
    names = (name for name in _names() if bare or name.suite or "_" in name.test[0])
    found = [(rank, name) for name in names if (rank := name.rank(tokens, text))]
    if not found:
        return None
    best = max(rank for rank, _ in found)
    first = [name for rank, name in found if rank == best]
    if len({name.scenario for name in first}) > 1:
        return None
    return Meant(scenario=first[0].scenario, why=" ".join(first[0].test))


@cache
def _field() -> tuple[Scenario, ...]:
    return tuple(workload.parse_reference(reference)[1] for reference in plan.surveyed(field=True))


@cache
def _every() -> tuple[Scenario, ...]:
    return tuple(each for name in workload.names() for each in workload.load(name).scenarios)


@cache
def _names() -> tuple[_Name, ...]:
    every = []
    for scenario in _field():
        for name in scenario.robots:
            suite, *test = name.split() if " " in name else ("", name)
            every.append(_Name(suite=suite, test=tuple(test), scenario=scenario.reference))
    return tuple(every)


def _words(text: str) -> set[str]:
    """What says something in a text: "look-ups" is "lookup", "fork_exit" its parts too, "reclaimed"
    is "reclaim".
    """
    text = _DENIED.sub(" ", text.lower().replace("()", " "))
    found = set()
    for word in _WORD.findall(f"{text} {_HYPHEN.sub('', text)}"):
        found |= {word.removesuffix("s"), *word.split("_")}
    found |= {"huge"} if _HUGE & found else set()
    return {
        _STEM.sub("", _IRREGULAR.get(word, word))
        for word in found
        if len(word) > _SHORT and word not in _SILENT and not word.isdecimal()
    }


@cache
def _described() -> dict[str, set[str]]:
    """The words of each scenario; one that is "the same" has those of the scenario above, too."""
    found, above = {}, ""
    for scenario in _every():
        same = scenario.summary.startswith("the same")
        above = f"{above} {scenario.summary}" if same else scenario.summary
        found[scenario.reference] = _words(
            f"{scenario.reference} {above} {' '.join(scenario.robots)}"
        )
    return {each.reference: found[each.reference] for each in _field()}


def _by_call(text: str) -> Meant | None:
    """By the one call or advice that is written as such, if a single scenario is named after it."""
    called = {name for names in _CALL.findall(text) for name in names if name}
    called = called - _ENDS or called
    found = [each.reference for each in _every() if each.name in called]
    return Meant(scenario=found[0], why=min(called)) if len(found) == len(called) == 1 else None


def _by_words(words: set[str]) -> Meant | None:
    every = _described()
    seen = Counter(word for own in every.values() for word in own)
    weight = {word: math.log(len(every) / count) for word, count in seen.items()}
    scores = sorted(
        ((sum(weight[word] for word in own & words), name) for name, own in every.items()),
        reverse=True,
    )
    (best, name), (second, _) = scores[0], scores[1]
    shared = sorted(every[name] & words, key=lambda word: (-weight[word], word))
    if best < max(_LEAST, _AHEAD * second) or len(shared) == 1:
        return None
    return Meant(scenario=name, why=", ".join(shared[:3]))
