# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions of one kernel are which of the other, by name, work and length; pure.

What the tree of calls (`calls`) and tables of functions (`explanation`) share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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
    return _alike(name_words(one), name_words(other))


def _alike(one: AbstractSet[str], other: AbstractSet[str]) -> bool:
    return len(one & other) >= ALIKE * len(one | other)


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


def the_one(ways: Iterable[Iterable[str]], among: Container[str]) -> str:
    """The only one that the first way finds that finds any; "" where it finds several."""
    for names in ways:
        found: set[str] = set()
        for name in names:
            if name in among:
                found.add(name)
                if len(found) > 1:
                    return ""
        if found:
            return found.pop()
    return ""


class AlikeSets:
    """Of many sets those that are alike to one.

    Such a set has at least half the elements of the one, so of any more than half it has one: the
    rarest are asked.
    """

    def __init__(self, sets: Mapping[str, AbstractSet[str]]) -> None:
        self._sets = sets
        self._places: dict[str, list[str]] = {}
        for name, held in sets.items():
            for element in held or ("",):
                self._places.setdefault(element, []).append(name)

    def of(self, one: AbstractSet[str]) -> Iterator[str]:
        """The names of all that are alike to one."""
        ranked = sorted(one or ("",), key=lambda each: (len(self._places.get(each, ())), each))
        for element in ranked[: len(one) - ceil(ALIKE * len(one)) + 1]:
            for name in self._places.get(element, ()):
                if _alike(one, self._sets[name]):
                    yield name


def alike_work(one: Counter[str], work: Mapping[str, Counter[str]]) -> Iterator[str]:
    """The trees, as instructions by function, that do mostly what one does; not of a crowd.

    What does nothing is like nothing.
    """
    for name, other in work.items() if len(work) <= _MOST_COMPARED else ():
        if (one & other).total() >= ALIKE * (one | other).total() > 0:
            yield name
