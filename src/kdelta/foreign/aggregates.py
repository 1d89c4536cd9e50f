# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows that are made of the others: Geomean below a list of benchmarks is no benchmark.

A geometric mean of things that are called by names is nothing else.  A row called mean or total
may be a metric of its own, so it is set apart only where its figures are made of the others'.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kdelta.foreign import arms, words
from kdelta.foreign.numerals import PLAIN
from kdelta.foreign.plain_tables import Plain
from kdelta.foreign.record import Line
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.printable import printable

_SURELY = vocabulary(
    "geomean geo_mean geometric_mean gmean hmean harmonic_mean geom_mean geometric_average"
)
_PERHAPS = vocabulary(
    "mean average avg arithmetic_mean amean total sum overall all totals grand_total"
    " mittelwert mittel durchschnitt summe gesamt moyenne somme promedio media suma"
)
_NUMBER = re.compile(rf"{PLAIN}\Z", re.ASCII)
_KEYS = (Part.ARM, Part.BOOT, Part.ROUND, Part.RUN, Part.POSITION, Part.DIMENSION)
_REPEATED = re.compile(
    r"(?P<base>\S.*)[_ ](?P<word>mean|avg|median|stddev|stdev|sd|cv|min|max)\Z", re.IGNORECASE
)
_BEFORE = re.compile(
    r"(?P<word>mean|avg|average|median|stddev|stdev|sd|cv|total)[_ ](?P<base>\S.*)\Z", re.IGNORECASE
)
_CENTRES = {*vocabulary("mean avg average median total")}
_SPREAD = {*vocabulary("stddev stdev sd cv")}
_NEAR = 0.005  # of a figure: what rounding for the eye may do
_MADE: tuple[Callable[[Sequence[float]], float], ...] = (
    sum,
    lambda values: sum(values) / len(values),
    lambda values: math.exp(sum(map(math.log, values)) / len(values)),
    lambda values: len(values) / sum(1 / value for value in values),
)


def apart(found: Plain) -> Plain:
    """The table without such rows, and a note that tells them."""
    found = _of_repetitions(found)
    for at in range(len(found.columns)):
        named = {line.cells[at] for line in found.lines if _word(line.cells[at])}
        others = {line.cells[at] for line in found.lines if line.cells[at]} - named
        if not named or len(others) < 2 or any(map(_NUMBER.match, others)):
            continue
        gone = {name for name in named if _word(name) in _SURELY or _is_made(found, at, name)}
        if not gone:
            continue
        listed = ", ".join(printable(name, 40) for name in sorted(gone))
        note = f"rows called {listed} are made of the others: set apart, not judged"
        kept = tuple(line for line in found.lines if line.cells[at] not in gone)
        return replace(found, lines=kept, notes=(*found.notes, note))
    return found


def _of_repetitions(found: Plain) -> Plain:
    """Without x_mean, x_median, x_stddev beside x; where x is not there, with the mean as x."""
    for at in range(len(found.columns)):
        held = {line.cells[at] for line in found.lines}
        cut = [_repeated(line.cells[at], held) for line in found.lines]
        said: dict[str, set[str]] = {}
        for one in filter(None, cut):
            said.setdefault(one["base"], set()).add(one["word"].lower())
        bases = {
            base
            for base, names in said.items()
            if (len(names) > 1 and names & _SPREAD) or (base in held and names & _CENTRES)
        }
        gone = [one is not None and one["base"] in bases for one in cut]
        if not any(gone):
            continue
        there = {line.cells[at] for line, one in zip(found.lines, gone, strict=True) if not one}
        lines = []
        for line, part, made in zip(found.lines, cut, gone, strict=True):
            if not made:
                lines.append(line)
            elif part and part["base"] not in there and part["word"].lower() in ("mean", "avg"):
                cells = (*line.cells[:at], part["base"], *line.cells[at + 1 :])
                lines.append(Line(number=line.number, cells=cells))
        first = next(one[0] for one in cut if one)
        note = f"rows such as {printable(first, 60)} sum up the repetitions of others: no runs"
        return replace(found, lines=tuple(lines), notes=(*found.notes, note))
    return found


def _repeated(text: str, held: set[str]) -> re.Match[str] | None:
    """The cut of x_mean, or of "avg x" where x stands in the column itself."""
    if found := _REPEATED.fullmatch(text):
        return found
    before = _BEFORE.fullmatch(text)
    return before if before and before["base"] in held else None


def _word(text: str) -> str:
    word = "_".join(words.words(text))
    return word if word in _SURELY or word in _PERHAPS else ""


def _is_made(found: Plain, at: int, name: str) -> bool:
    """True when every figure of the rows of that name is the sum or a mean of the others'."""
    figures = [n for n in range(len(found.columns)) if n != at and _measured(found, n)]
    keys = [n for n in range(len(found.columns)) if n != at and n not in figures]
    told = False
    for row in (line.cells for line in found.lines if line.cells[at] == name):
        beside = [
            line.cells
            for line in found.lines
            if not _word(line.cells[at]) and all(line.cells[n] == row[n] for n in keys)
        ]
        for n in figures:
            values = [float(cells[n]) for cells in beside if cells[n]]
            if not row[n] or len(values) < 2 or min(values) <= 0:
                continue
            if not any(
                math.isclose(float(row[n]), how(values), rel_tol=_NEAR, abs_tol=0) for how in _MADE
            ):
                return False
            told = True
    return told


def _measured(found: Plain, at: int) -> bool:
    """True for a column of figures that no name calls a kernel, a boot or a setting."""
    cells = [line.cells[at] for line in found.lines if line.cells[at]]
    part = words.said(found.columns[at]).part
    figures = bool(cells) and all(map(_NUMBER.match, cells))
    return figures and part not in _KEYS and (part is Part.TIME or not all(map(_is_arm, cells)))


def _is_arm(cell: str) -> bool:
    return arms.is_version(cell)
