# SPDX-License-Identifier: GPL-2.0-or-later
"""Which direction is better, where a name and a unit beside it both say something of it.

A time for an operation is better short and so many operations a second are better many, whatever
the column is called: a score in us/op is no throughput.  Where a name says the contrary of the
unit and is no such empty word, nothing is known.
"""

from __future__ import annotations

import msgspec

from kdelta.foreign import words
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.work import Work
from kdelta.metric import Better

_SAID = {
    Better.LOWER: vocabulary("min minimize minimise minimum less smaller fewer l lb lib < -"),
    Better.HIGHER: vocabulary("max maximize maximise maximum more bigger larger h hb hib > +"),
}
_EMPTY = {*vocabulary("score value result figure performance perf number rating mark points")}


def of(name: str, unit: str) -> Better | None:
    """What name and unit of a metric say; None: neither does, or they contradict each other."""
    from_name = words.metric_of(name)
    of_unit = words.said(unit).better if unit else None
    if from_name is None or of_unit is None:
        return from_name.better if from_name else of_unit
    return of_unit if of_unit is from_name.better or is_empty(name) else None


def told(text: str) -> Better | None:
    """The direction that a cell says: lower, higher is better, none, min."""
    word = text.strip().lower()
    found = next((each for each in Better if each in word), None)
    return found or next((better for better, listed in _SAID.items() if word in listed), None)


def by_units(work: Work) -> None:
    """Metrics with columns of their own, beside a column of units: these say the direction."""
    if "unit" not in work.keys or "metric" in work.keys:
        return
    cells = work.cells(str(work.keys["unit"])).distinct
    said = {words.said(cell).better for cell in cells}
    better = said.pop() if len(said) == 1 else None
    for name, keys in list(work.metrics.items()):
        if keys.unit and not is_empty(keys.unit):
            _two_units(work, name, keys.unit, cells)
        elif better and keys.better not in (None, Better.NONE, better) and not is_empty(name):
            work.doubts.append(
                f"{name} says that {keys.better} is better, and its unit {cells[0]} that {better}"
                " is: which is it?"
            )
        elif better:
            work.metrics[name] = msgspec.structs.replace(keys, unit=None, better=better)
            work.united = True


def is_empty(name: str) -> bool:
    """True for a name such as score, which says nothing beside a unit."""
    return bool({*words.words(name)} & _EMPTY)


def _two_units(work: Work, name: str, unit: str, cells: tuple[str, ...]) -> None:
    """A time in one unit by its name and in another by its row is in neither for certain."""
    kinds = {words.said(one).better: words.said(one).unit for one in cells}
    other = kinds.get(words.said(unit).better)
    if other and other != unit and "/" not in unit + other:
        work.doubts.append(f"the name of {name} says {unit}, and its rows {other}: which is it?")
