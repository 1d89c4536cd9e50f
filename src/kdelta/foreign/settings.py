# SPDX-License-Identifier: GPL-2.0-or-later
"""Which numbers of a table were set and not measured: what the figures beside them say of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from kdelta.foreign.columns import Holds
from kdelta.foreign.mapping import ArmKeys
from kdelta.foreign.words import Part, Said
from kdelta.foreign.work import Work
from kdelta.metric import Better

_FAR_LESS = 0.25  # of the mean square
_THRICE = 3  # a setting stands in so many rows, on average
_APART = 1.5  # times: rows that differ so much are no runs of one thing
_SET_APART = 1.2  # times: numbers of a time that was set
_MOVED = 0.25  # of what rows differ by: what the arms beside them may differ in


def with_units(work: Work) -> None:
    """Columns of times and rates that were set: interval_us 100, 1000, beside what was measured."""
    figures = work.of(Part.TIME)
    found = [name for name in figures if _set(work, name)]
    measured = [name for name in figures if name not in found]
    measured += work.of(Part.VALUE, Part.VALUES, Part.STATISTIC)
    for name in found if measured or work.arms else ():
        work.left[name] = Said(part=Part.DIMENSION)
    summed = [name for name in work.of(Part.TIME, Part.STATISTIC) if work.left[name].statistic]
    for name in () if summed else work.of(Part.COUNT):  # n 1024, 4096: no counts of runs
        if _set(work, name):
            work.left[name] = Said(part=Part.DIMENSION)
    for name in work.of(Part.DERIVED):  # a ratio that was set; one of two arms differs by row
        cells = work.cells(name)
        few = len(cells.distinct) > 1 and _THRICE * len(cells.distinct) <= work.table.rows
        if few and work.arm and work.table.balanced(work.arm[0], name):
            work.left[name] = Said(part=Part.DIMENSION)


def as_numbers_of_runs(work: Work, name: str) -> bool:
    """True when the numbers of what seem to be runs are a setting: figures of all arms follow it.

    Rounds may differ, and the first one is left out, which may be slow; but no rounds differ by so
    much, and alike in every arm.
    """
    if not work.arm or not work.cells(name).whole:
        return False
    arm, cells = work.cells(work.arm[0]), work.cells(name)
    numbers = sorted(cells.distinct, key=int)[1:]
    for figure in work.of(Part.TIME, Part.VALUE):
        found: dict[tuple[str, str], list[float]] = {}
        for key, value in zip(
            zip(cells.texts, arm.texts, strict=True), _numbers(work, figure), strict=False
        ):
            found.setdefault(key, []).append(value)
        rows = [[_level(found.get((n, one), [])) for one in arm.distinct] for n in numbers]
        if len(arm.distinct) > 1 and _together(rows):
            return True
    return False


def _level(values: Sequence[float]) -> float:
    """The mean of figures, not a number of none."""
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _together(rows: Sequence[Sequence[float]]) -> bool:
    """True when figures (rows x arms) differ by row far more than arms do within one."""
    if len(rows) < _THRICE or not all(0 < value < math.inf for row in rows for value in row):
        return False
    logs = [[math.log(value) for value in row] for row in rows]
    levels = sorted(math.fsum(row) / len(row) for row in logs)
    spread = levels[-1] - levels[0]
    steps = [[later - first for first, later in pairwise(row)] for row in logs]
    unlike = max(max(step) - min(step) for step in zip(*steps, strict=True))
    return spread > math.log(_APART) and unlike < _MOVED * spread


def _set(work: Work, name: str) -> bool:
    """True for few numbers that stand equally often with every arm, or that others depend on."""
    cells = work.cells(name)
    few = len(cells.distinct) > 1 and _THRICE * len(cells.distinct) <= work.table.rows
    if cells.holds is not Holds.NUMBERS or not few or _measured(work, name):
        return False
    others = [other for other in work.of(Part.TIME, Part.VALUE) if other != name]
    others += _arm_columns(work)
    if work.arm and not work.cells(work.arm[0]).constant:
        return work.table.balanced(work.arm[0], name) or (
            work.table.crosses(work.arm[0], name) and tells(work, name, others, work.arm)
        )
    return tells(work, name, others, ())


def _measured(work: Work, name: str) -> bool:
    """True for a cost (ns/page), and for numbers too near to each other, or by arm, to be set.

    Times that are printed in whole ns are few numbers, too, and those of one run go together.
    """
    said = work.left[name]
    if said.part is not Part.TIME:
        return False
    values = _numbers(work, name)
    near = bool(values) and max(values) < _SET_APART * min(values)
    if near or (said.better is Better.LOWER and "/" in said.unit):
        return True
    by_arm = work.table.groups(work.arm)
    return _scatter(values, by_arm) < _FAR_LESS * _scatter(values, work.table.groups(()))


def tells(work: Work, name: str, figures: Sequence[str], by: tuple[str, ...]) -> bool:
    """True when some column of figures scatters far less where this one is equal, too."""
    apart = [at for at in work.table.groups((*by, name)) if len(at) > 1]
    together = work.table.groups(by)
    if len(apart) <= len(together):
        return False
    for figure in (*figures, *_arm_columns(work)):
        values = _numbers(work, figure)
        if values and _scatter(values, apart) < _FAR_LESS * _scatter(values, together):
            return True
    return False


def labels_rows(work: Work, name: str) -> bool:
    """True when arms have columns, and their figures rise and fall together from row to row.

    Then what is different in every row is a setting, and no number of a run.
    """
    columns = [_numbers(work, column) for column in _arm_columns(work)]
    each = work.cells(name).whole and len(work.cells(name).distinct) == work.table.rows
    if len(columns) < 2 or work.table.rows < _THRICE or not each:
        return False
    return all(columns) and _together(list(zip(*columns, strict=True)))


def named_by_rows(work: Work, name: str) -> bool:
    """True when iter 1, iter 2 ... of a row each are a setting: all arms follow it."""
    cells = work.cells(name)
    columns = [_numbers(work, column) for column in _arm_columns(work)]
    if cells.holds is not Holds.TEXT or len(cells.distinct) < work.table.rows:
        return False
    return len(columns) > 1 and all(columns) and _together(list(zip(*columns, strict=True)))


def _arm_columns(work: Work) -> list[str]:
    """The columns with the figure of each arm, where arms have columns."""
    found = [
        (keys.value or keys.mean or keys.median) if isinstance(keys, ArmKeys) else keys
        for keys in work.arms.values()
    ]
    return [column for column in found if column]


def _numbers(work: Work, column: str) -> list[float]:
    """The numbers of a column, not a number where a cell is empty; nothing for other cells."""
    texts = work.cells(column).texts
    try:
        return [float(text.replace(",", ".")) if text else math.nan for text in texts]
    except ValueError:
        return []


def _scatter(values: Sequence[float], groups: Sequence[Sequence[int]]) -> float:
    """The mean square of values about the means of their groups."""
    squares, free = 0.0, 0
    for group in groups:
        known = [values[at] for at in group if math.isfinite(values[at])]
        if len(known) > 1:
            mean = math.fsum(known) / len(known)
            squares += math.fsum((value - mean) ** 2 for value in known)
            free += len(known) - 1
    return squares / free if free else 0.0
