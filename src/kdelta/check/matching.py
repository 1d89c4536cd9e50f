# SPDX-License-Identifier: GPL-2.0-or-later
"""From the words of a report to a scenario: what robots call the loops that kdelta has."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from kdelta import workload
from kdelta.study import roster
from kdelta.workload import Scenario

_WORD = re.compile(r"[a-z0-9][a-z0-9_-]*[a-z0-9]")
_FUNCTION = re.compile(r"\b([a-z_][a-z0-9_]{3,63})\(\)")
_TOKEN = re.compile(r"[a-z0-9_]+")
_LEAST = 4.0  # of the weight of shared words, below which nothing is meant
_AHEAD = 1.2  # times what the next scenario has: else it could as well be that one
_SHORT = 3  # letters of words that say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """A scenario that a text means.  why: the words that say so."""

    scenario: str
    why: str


def meant(text: str) -> Meant | None:
    """The scenario of a text: by what robots and suites call it, else by words in common.

    None when nothing is meant with some certainty: a wrong scenario is worse than none.
    """
    lower = text.lower()
    return _by_name(lower) or _by_words(set(_WORD.findall(lower.replace("()", " "))))


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

    def rank(self, text: str) -> tuple[bool, bool, int] | None:
        """How well a text of tokens fits: at one place, with the suite, by how many letters."""
        if not all(_has(text, word) for word in self.test):
            return None
        named = bool(self.suite) and _has(text, self.suite)
        own = any(re.search(r"[0-9_-]", word) for word in self.test)
        if self.suite and not (named or own):
            return None
        together = named and _has(text, " ".join((self.suite, *self.test)))
        return together, named, sum(map(len, self.test))


def _has(text: str, word: str) -> bool:
    return f" {' '.join(_TOKEN.findall(word))} " in text


def _by_name(text: str) -> Meant | None:
    tokens = f" {' '.join(_TOKEN.findall(text))} "
    found = [(rank, name) for name in _names() if (rank := name.rank(tokens))]
    if not found:
        return None
    best = max(rank for rank, _ in found)
    first = [name for rank, name in found if rank == best]
    if len({name.scenario for name in first}) > 1:
        return None
    return Meant(scenario=first[0].scenario, why=" ".join(first[0].test))


@cache
def _field() -> tuple[Scenario, ...]:
    return tuple(
        workload.parse_reference(reference)[1] for reference in roster.surveyed(field=True)
    )


@cache
def _names() -> tuple[_Name, ...]:
    every = []
    for scenario in _field():
        for name in scenario.robots:
            suite, *test = name.split() if " " in name else ("", name)
            every.append(_Name(suite=suite, test=tuple(test), scenario=scenario.reference))
    return tuple(every)


def _by_words(words: set[str]) -> Meant | None:
    words = {word for word in words if len(word) > _SHORT and not word.isdecimal()}
    every = {
        scenario.reference: set(
            _WORD.findall(f"{scenario.reference} {scenario.summary}".lower().replace("()", " "))
        )
        for scenario in _field()
    }
    seen = Counter(word for own in every.values() for word in own)
    weight = {word: math.log(len(every) / count) for word, count in seen.items()}
    scores = sorted(
        ((sum(weight[word] for word in own & words), name) for name, own in every.items()),
        reverse=True,
    )
    (best, name), (second, _) = scores[0], scores[1]
    shared = sorted(every[name] & words, key=lambda word: -weight[word])
    if best < max(_LEAST, _AHEAD * second) or len(shared) == 1:
        return None
    return Meant(scenario=name, why=", ".join(shared[:3]))
