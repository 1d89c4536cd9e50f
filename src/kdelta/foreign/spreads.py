# SPDX-License-Identifier: GPL-2.0-or-later
"""A mean and what it scatters by, or an interval around it: in a cell, or in rows below it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from kdelta.foreign import words
from kdelta.foreign.numerals import GROUPED
from kdelta.foreign.plain_tables import Plain, cells_of, each_column, with_column
from kdelta.foreign.record import Line
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.printable import printable

_BESIDE = re.compile(
    rf"(?P<value>{GROUPED})\s*(?P<unit>[a-zA-Z\u00b5\u03bc/]*)\s*"
    rf"(?:(?:\u00b1|\+/-|\+-)\s*(?P<spread>{GROUPED})\s*(?P<percent>%?)\s*"
    rf"(?:(?P=unit)|(?P<behind>[a-zA-Z\u00b5\u03bc/]+)|(?<=%))"
    rf"|\(\s*(?:\u00b1|\+/-|\+-)?\s*(?P<inner>{GROUPED})\s*(?P<share>%?)\s*(?P=unit)\s*\))",
    re.ASCII,
)
_STATISTIC = "statistic"
_BELOW = vocabulary(
    "sd cv cv_percent err stderr sem se var variance mad iqr min max minimum maximum ci ci95 ci99"
)
_WITHIN = re.compile(
    rf"(?P<value>{GROUPED})\s*(?P<unit>[a-zA-Z\u00b5\u03bc/]*)\s*"
    rf"[\[(]\s*(?P<low>{GROUPED})\s*(?:,|;|\.\.+|\u2013|-|to)\s*(?P<high>{GROUPED})\s*(?P=unit)\s*[\])]",
    re.ASCII,
)


def beside(found: Plain) -> Plain:
    """10.2 +/- 0.3, or 10.2 (0.3): a mean and what it scatters by, in two columns."""

    def change(found: Plain, at: int) -> Plain:
        name = found.columns[at]
        cells = cells_of(found, at)
        cut = [_BESIDE.fullmatch(cell) for cell in cells if cell]
        parts = [one for one in cut if one]
        if not parts or len(parts) < len(cut):
            return found
        units = {one["unit"] or one["behind"] or "" for one in parts}
        percents = {bool(one["percent"] or one["share"]) for one in parts}
        two = any(one["unit"] and one["behind"] for one in parts)  # 10 us +/- 300 ns
        if two or len(units) > 1 or len(percents) > 1:
            return found
        unit, percent = units.pop(), percents.pop()
        base = f"{name} ({unit})" if unit else name
        bracket = any(one["inner"] for one in parts)
        second = f"{base} cv pct" if percent else f"{base} sd"
        if percent and bracket:
            second = f"{base} delta pct"  # 110.00 ( -10.00%): against another arm
        pairs = [_pair(_BESIDE.fullmatch(cell)) for cell in cells]
        what = "a coefficient of variation" if percent else "a standard deviation"
        sign = "the figure in brackets" if bracket else "what follows the +/-"
        doubt = f"is {sign} in {name} ({printable(cells[0], 30)}) {what}, of all runs?"
        made = with_column(found, at, [f"{base} mean", second], pairs)
        doubts = () if percent and bracket else (doubt,)
        return replace(made, doubts=(*doubts, *made.doubts))

    return each_column(found, change)


def _pair(cut: re.Match[str] | None) -> list[str]:
    if cut is None:
        return ["", ""]
    return [cut["value"].replace(",", ""), (cut["spread"] or cut["inner"]).replace(",", "")]


def intervals(found: Plain) -> Plain:
    """10.2 [9.9, 10.5]: a mean, and the bounds of an interval about it, in three columns."""

    def change(found: Plain, at: int) -> Plain:
        name, cells = found.columns[at], cells_of(found, at)
        cut = [_WITHIN.fullmatch(cell) for cell in cells if cell]
        parts = [one for one in cut if one]
        if not parts or len(parts) < len(cut) or len({one["unit"] for one in parts}) > 1:
            return found
        if not all(
            _number(one["low"]) <= _number(one["value"]) <= _number(one["high"]) for one in parts
        ):
            return found
        unit = parts[0]["unit"]
        base = f"{name} ({unit})" if unit else name
        names = [f"{base} mean", f"{base} ci low", f"{base} ci high"]
        rows = [_three(_WITHIN.fullmatch(cell)) for cell in cells]
        return with_column(found, at, names, rows)

    return each_column(found, change)


def below(found: Plain) -> Plain:
    """Rows called sd or min below each row that they are of: a column says which is which."""
    cells = cells_of(found, 0)
    marks = [_statistic(cell) for cell in cells]
    starts = [at for at, mark in enumerate(marks) if not mark]
    listed = Counter(mark for mark in marks if mark)
    if max(listed.values(), default=0) < 2 or marks[0] or _STATISTIC in found.columns:
        return found
    ends = [*starts[1:], len(marks)]
    if len({tuple(marks[at + 1 : end]) for at, end in zip(starts, ends, strict=True)}) > 1:
        names = printable(", ".join(listed), 60)
        return replace(found, doubts=(*found.doubts, f"of what are the rows called {names}?"))
    lines, label = [], ""
    for line, mark in zip(found.lines, marks, strict=True):
        label = label if mark else line.cells[0]
        cells = [label, mark or "mean", *line.cells[1:]]
        lines.append(Line(number=line.number, cells=tuple(cells)))
    columns = (found.columns[0], _STATISTIC, *found.columns[1:])
    return replace(found, columns=columns, lines=tuple(lines))


def _statistic(cell: str) -> str:
    """The statistic that a cell names and nothing beside it; "" for another text."""
    said = words.said(cell)
    bare = said.part is Part.STATISTIC and not said.metric and said.statistic in _BELOW
    return said.statistic if bare else ""


def _three(cut: re.Match[str] | None) -> list[str]:
    return [cut[key].replace(",", "") if cut else "" for key in ("value", "low", "high")]


def _number(text: str) -> float:
    return float(text.replace(",", ""))
