# SPDX-License-Identifier: GPL-2.0-or-later
"""What resembles one of many is found by index as by comparing it with all, and with fewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kdelta.analysis.explanation import AlikeSets, alike_work, namesakes, the_one

_WORDS = st.sampled_from(("page", "pte", "lock", "zap", "map", "vm"))
_SETS = st.frozensets(_WORDS)
_WORK = st.dictionaries(_WORDS, st.integers(0, 9)).map(Counter)


@given(st.lists(_SETS, max_size=12), _SETS)
def test_sets_of_which_most_is_common(sets: list[frozenset[str]], one: frozenset[str]) -> None:
    named = {str(at): held for at, held in enumerate(sets)}
    wanted = {name for name, held in named.items() if 2 * len(one & held) >= len(one | held)}
    assert set(AlikeSets(named).of(one)) == wanted


@given(st.lists(_WORK, max_size=12), _WORK)
def test_work_of_which_most_is_common(listed: list[Counter[str]], one: Counter[str]) -> None:
    named = {str(at): held for at, held in enumerate(listed)}
    wanted = {
        name for name, held in named.items() if 2 * (one & held).total() >= (one | held).total() > 0
    }
    assert set(alike_work(one, named)) == wanted


def test_of_those_that_fit_two_are_enough() -> None:
    asked: list[str] = []

    def names() -> Iterator[str]:
        for name in "abbcd":
            asked.append(name)
            yield name

    assert the_one([names(), "b"], "bcd") == ""
    assert asked == ["a", "b", "b", "c"]
    assert the_one(["a", "abb", "c"], "bcd") == "b"  # a way that finds none is followed by the next
    assert the_one(["a"], "bcd") == ""


class _Counted(frozenset[str]):
    """A set that counts how often it is compared."""

    compared = 0

    def __and__(self, other: object) -> frozenset[str]:
        """What is common, counted."""
        _Counted.compared += 1
        return frozenset(self) & other if isinstance(other, frozenset) else frozenset()


def test_names_of_rare_words_are_compared_with_few() -> None:
    names = AlikeSets({str(n): frozenset(("pte", "lock", f"n{n}")) for n in range(2000)})
    _Counted.compared = 0
    found = [name for n in range(2000) for name in names.of(_Counted(("zap", "pmd", f"n{n}", "x")))]
    assert found == []
    assert _Counted.compared <= 2 * 2000


def test_trees_of_a_crowd_are_compared_with_none() -> None:
    """A thousand by a thousand that all may be alike took half a minute."""
    shared = {f"f{n}": 900 if n % 2 else 1 for n in range(12)}
    crowd = {str(n): Counter(shared) + Counter({f"own{n}": n}) for n in range(101)}
    assert list(alike_work(Counter(shared), crowd)) == []
    del crowd["0"]
    assert len(list(alike_work(Counter(shared), crowd))) == 100


def test_functions_are_namesakes_by_words_and_calls_where_only_one_fits() -> None:
    old = {
        "__pte_offset_map": 69, "free_commit": 27, "zap_a_page": 5, "mod_state": 8,
        "__mod_state": 8,
    }  # fmt: skip
    new = {"___pte_offset_map": 70, "free_frozen_commit": 15, "zap_one_page": 5, "mod_states": 8}
    assert namesakes(old, new) == {
        "___pte_offset_map": "__pte_offset_map",  # the very words
        "zap_one_page": "zap_a_page",
    }  # the second is called half as often, and of mod_state there are two
    assert namesakes({"mod_state": 8, "mod_x_state": 8}, {"__mod_state": 8}) == {
        "__mod_state": "mod_state"  # the very words come first
    }
    assert namesakes(
        {"__alloc_pages_noprof": 9, "alloc_pages_mpol_noprof": 9},
        {"__alloc_frozen_pages_noprof": 9, "alloc_pages_mpol": 9},
    ) == {  # then those that have most of them
        "__alloc_frozen_pages_noprof": "__alloc_pages_noprof",
        "alloc_pages_mpol": "alloc_pages_mpol_noprof",
    }
    assert namesakes({"mod_state": 0}, {"__mod_state": 0}) == {}
