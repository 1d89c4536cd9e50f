# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of scenarios: the same on memory in folios, as far as a scenario can have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kdelta import workload
from kdelta.errors import SpecError
from kdelta.machine import folios
from kdelta.metric import plural
from kdelta.printable import known, quoted

BASE = "4K"
ALL = (BASE, *folios.CELLS)


def sizes(words: str) -> tuple[str, ...]:
    """The sizes of "4K,64K,2M,2M-ptes".  Raises SpecError for one that there is not."""
    wanted = tuple(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
    for word in wanted:
        if word not in ALL:
            raise SpecError(f"no pages of {quoted(word)}", action=known(word, ALL))
    if not wanted:
        raise SpecError("no size of pages is named", action=known("", ALL))
    return wanted


def cells(scenarios: Sequence[str], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Each scenario and its cells, and a sentence for each reason why others have none.

    Without 4K only cells stay.
    """
    found: list[str] = []
    why: Counter[str] = Counter()
    for reference in scenarios:
        found += [reference] if BASE in wanted else []
        scenario = workload.parse_reference(reference)[1]
        given = set(scenario.folios)
        found += [f"{reference}.{name}" for name in wanted if name in given]
        none = [name for name in wanted if name != BASE and name not in given]
        if none and not given:
            why[workload.without_folios(scenario, none[0])] += 1
    told = [
        f"no cells of folios for {plural(count, 'scenario')}: {reason}"
        for reason, count in why.items()
    ]
    return found, sorted(told)
