# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions of one kernel are which of the other, by name, work and length; pure.

What the tree of calls (`netting`) and tables of functions (`explanation`, `compare`) share.  Each
index answers exactly what comparing the one with all would, in an order of its own; only candidates
that can fit are compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from math import ceil

ALIKE = 0.5  # share in common from which two are alike
NEAR = 0.75  # share of the longer that the shorter has at least
_MOST_COMPARED = 100  # trees with one, each function of them


def name_words(name: str) -> frozenset[str]:
    """What a function's name is made of: two are akin where most words are the same."""
    return frozenset(name.split("_")) - {""}


def akin(one: str, other: str) -> bool:
    """Two names are of mostly the same words."""
    mine, theirs = name_words(one), name_words(other)
    return len(mine & theirs) >= ALIKE * len(mine | theirs)


def namesakes(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, str]:
    """Which function of the new kernel alone is which of the old one alone, by name: new -> old.

    old, new: name -> calls.  Names are akin and both are called about as often; where more than one
    fits, on either side, the one of the very same words does, or else none.
    """
    words = {name: name_words(name) for name in (*old, *new)}
    akin = AlikeSets({name: words[name] for name in old})
    fits = {
        name: {other for other in akin.of(words[name]) if calls > 0 and near(calls, old[other])}
        for name, calls in new.items()
    }
    found: dict[str, str] = {}
    for same in (True, False):
        pairs = [
            (name, other)
            for name in sorted(fits.keys() - found.keys())
            for other in sorted(fits[name] - set(found.values()))
            if not same or words[name] == words[other]
        ]
        often = Counter(name for pair in pairs for name in pair)
        found |= {name: other for name, other in pairs if often[name] == often[other] == 1}
    return found


def near(one: int, other: int) -> bool:
    """Two lengths are about the same."""
    shorter, longer = sorted((one, other))
    return shorter >= NEAR * longer


def making_up(
    change: int, sizes: Sequence[int], most: int, fits: Callable[[tuple[int, ...], int], bool]
) -> tuple[int, ...]:
    """Which, at most so many, together come nearest to a change, the fewest of them.

    Places in sizes, all positive; none where it takes more than nothing does.  fits: whether such
    places, with their sum, may be taken for it.
    """
    best: tuple[int, ...] = ()
    left = change
    for count in range(1, min(most, len(sizes)) + 1):
        for chosen in combinations(range(len(sizes)), count):
            total = sum(sizes[at] for at in chosen)
            rest = abs(change - total)
            if rest < left and fits(chosen, total):
                best, left = chosen, rest
    return best


def only(found: Iterable[str], fits: Callable[[str], bool]) -> tuple[int, str]:
    """How many of those found fit, at most two, and the first of them."""
    fitting: dict[str, None] = {}
    for name in found:
        if name not in fitting and fits(name):
            fitting[name] = None
            if len(fitting) > 1:
                break
    return len(fitting), next(iter(fitting), "")


class AlikeSets:
    """Of many sets those that are alike to one.

    Of two sets of a and b elements that are alike at least o = (a + b) / 3 are common, so one of
    any a - o + 1 elements of the first is in the second: the rarest are asked.
    """

    def __init__(self, sets: Mapping[str, AbstractSet[str]]) -> None:
        self._sets = sets
        self._by_size: dict[int, dict[str, list[str]]] = {}
        self._empty = [name for name, held in sets.items() if not held]
        self._often: Counter[str] = Counter()
        for name, held in sets.items():
            self._often.update(held)
            places = self._by_size.setdefault(len(held), {})
            for element in held:
                places.setdefault(element, []).append(name)

    def of(self, one: AbstractSet[str]) -> Iterator[str]:
        """The names of all that are alike to one."""
        if not one:
            yield from self._empty
            return
        ranked = sorted(one, key=lambda element: (self._often[element], element))
        for size, places in self._by_size.items():
            common = max(1, ceil(ALIKE * (len(one) + size) / (1 + ALIKE) - 1e-9))
            if common > min(len(one), size):
                continue
            for element in ranked[: len(one) - common + 1]:
                for name in places.get(element, ()):
                    if len(one & self._sets[name]) >= common:
                        yield name


class AlikeWork:
    """Of many trees, as instructions by function, those of which most is in one tree, too."""

    def __init__(self, work: Mapping[str, Counter[str]]) -> None:
        self._work = work
        self._totals = {name: held.total() for name, held in work.items()}
        self._places: dict[str, list[str]] = {}
        for name, held in work.items():
            for function, insns in held.items():
                if insns > 0:
                    self._places.setdefault(function, []).append(name)

    def of(self, one: Counter[str]) -> Iterator[str]:
        """The names of all that are alike to one; what does nothing is like nothing.

        None where so many may be that it is one of a crowd.
        """
        able = self._able(one)
        for name in able if len(able) <= _MOST_COMPARED else ():
            other = self._work[name]
            if (one & other).total() >= ALIKE * (one | other).total() > 0:
                yield name

    def _able(self, one: Counter[str]) -> list[str]:
        """Those that can be alike: what both do is at least a third of what they do, added up.

        Behind the first function that a tree shares, in this order, it shares at most what is left.
        """
        left = total = one.total()
        ranked = sorted(one, key=lambda function: len(self._places.get(function, ())))
        found: list[str] = []
        looked_at: set[str] = set()
        for function in ranked:
            if left < ALIKE * total or not total:
                break  # what shares nothing so far cannot share enough
            insns = one[function]
            left -= insns
            for name in self._places.get(function, ()):
                if name not in looked_at:
                    looked_at.add(name)
                    own = self._totals[name]
                    both = min(own, left + min(insns, self._work[name][function]))
                    if both * (1 + ALIKE) >= ALIKE * (total + own):
                        found.append(name)
        return found


class NearLengths:
    """Of many lengths, each under a key, those of one key that are about the same as one."""

    def __init__(self, lengths: Iterable[tuple[str, int, int]]) -> None:
        """lengths: (name, key, length)."""
        self._sorted: dict[int, list[tuple[int, str]]] = {}
        self._lengths: dict[str, tuple[int, int]] = {}
        for name, key, length in lengths:
            self._sorted.setdefault(key, []).append((length, name))
            self._lengths[name] = key, length
        for listed in self._sorted.values():
            listed.sort()

    def of(self, key: int, length: int, among: AbstractSet[str]) -> Iterator[str]:
        """The names among some of all with that key that are about as long."""
        listed = self._sorted.get(key, [])
        start = bisect_left(listed, (int(NEAR * length) - 1, ""))
        end = bisect_left(listed, (int(length / NEAR) + 2, ""))
        if len(among) < end - start:
            lengths = ((name, *self._lengths.get(name, (None, 0))) for name in among)
            yield from (name for name, own, n in lengths if own == key and near(length, n))
            return
        for other, name in listed[start:end]:
            if near(length, other) and name in among:
                yield name
