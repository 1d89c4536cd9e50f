# SPDX-License-Identifier: GPL-2.0-or-later
"""How people write one number in a cell: 1,234,567, 1.234,5, 1 047 454, 1m23.5s, 12 us, 1.2k.

A column is rewritten where all of its cells are written in one of these ways; what may be another
is asked about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from kdelta.foreign import words
from kdelta.foreign.numerals import GROUPED
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.printable import printable

_MARKS = " '\u00a0\u202f\u2019"  # that people put between thousands
_WITH_UNIT = re.compile(rf"(?P<value>{GROUPED})\s*(?P<unit>[a-zA-Z\u00b5\u03bc][\w/\u00b5\u03bc]*)")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})*(?:\.\d+)?", re.ASCII)
_SURELY = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3}){2,}(?:\.\d+)?|,\d{3}\.\d+)", re.ASCII)
_UNDERSCORED = re.compile(r"[-+]?\d{1,3}(?:_\d{3})+(?:\.\d+)?", re.ASCII)
_POINTED = re.compile(r"[-+]?\d{1,3}(?:\.\d{3})*(?:,\d+)?", re.ASCII)
_SURELY_POINTED = re.compile(r"[-+]?\d{1,3}(?:(?:\.\d{3}){2,}(?:,\d+)?|\.\d{3},\d+)", re.ASCII)
_ONE_POINT = re.compile(r"\d{1,3}\.\d{3}", re.ASCII)
_HUNDREDS = re.compile(r"[1-9]\d{2}", re.ASCII)
_NEAR = 10.0  # times: figures of one kind
_SPACED = re.compile(rf"[-+]?\d{{1,3}}(?:[{_MARKS}]\d{{3}})+(?:[.,]\d+)?", re.ASCII)
_SHORT = re.compile(r"[-+]?\d{1,3}(?:[.,]\d+)?", re.ASCII)
_DATE = re.compile(
    r"(?P<first>\d{1,2})(?P<mark>[./])(?P<second>\d{1,2})(?P=mark)(?P<year>20\d\d)"
    r"(?:,?[ T](?P<clock>\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?))?",
    re.ASCII,
)
_MONTHS = 12
_CLOCK = 4  # rows that tell a clock
_MANY_PARTS = 2  # blanks in a number; more are between the values of a list
_DURATION = re.compile(
    r"(?:(?P<h>\d+)h ?)?(?P<m>\d+)m ?(?P<s>\d+(?:\.\d+)?)s?"
    r"|(?:(?P<hours>\d+):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{2}(?:\.\d+)?)",
    re.ASCII,
)
_PASSED = frozenset(
    vocabulary("real user sys elapsed wall walltime wallclock took duration runtime time")
)
_TIMES = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6}
_TIMES |= dict.fromkeys(("s", "sec", "secs"), 10**9)
_PREFIXES = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
_RATES = (
    {"B/s": 1, "KiB/s": 2**10, "MiB/s": 2**20, "GiB/s": 2**30},
    {"kB/s": 1, "KB/s": 1, "MB/s": 10**3, "GB/s": 10**6},
    {"bit/s": 1, "Kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9},
    {"bits/sec": 1, "Kbits/sec": 10**3, "Mbits/sec": 10**6, "Gbits/sec": 10**9},
)
_REPEATED = 0.6  # of the rows: a setting stands in more than one, what was measured hardly ever


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenColumn:
    """A column with one plain number a cell; doubt: a sentence on what it may be else."""

    name: str
    cells: tuple[str, ...]
    doubt: str = ""


def grouped(name: str, cells: Sequence[str]) -> WrittenColumn | None:
    """1,234,567 is one number; that 1,234 is one is seen where others of the column are."""
    if not any(_SURELY.fullmatch(cell) for cell in cells):
        return None
    if not all(_GROUPED.fullmatch(cell) for cell in cells if cell):
        return None
    return WrittenColumn(name=name, cells=tuple(cell.replace(",", "") for cell in cells))


def grouped_by_others(columns: Sequence[Sequence[str]]) -> dict[int, list[str]]:
    """The columns, by place, whose 1,002 is 1002 since a cell elsewhere is 1,234,567; no 1,5."""
    every = {cell for cells in columns for cell in cells if "," in cell}
    if not any(map(_SURELY.fullmatch, every)):
        return {}
    if any(re.fullmatch(GROUPED, cell) and not _GROUPED.fullmatch(cell) for cell in every):
        return {}
    return {
        at: [cell.replace(",", "") for cell in cells]
        for at, cells in enumerate(columns)
        if any("," in cell for cell in cells)
        and all(_GROUPED.fullmatch(cell) for cell in cells if cell)
    }


def pointed(name: str, cells: Sequence[str]) -> WrittenColumn | None:
    """1.234,5 is one number; that 1.234 is 1234 is seen where others of the column are."""
    if not any(_SURELY_POINTED.fullmatch(cell) for cell in cells):
        return None
    if not all(_POINTED.fullmatch(cell) for cell in cells if cell):
        return None
    made = tuple(cell.replace(".", "").replace(",", ".") for cell in cells)
    return WrittenColumn(name=name, cells=made)


def pointed_beside(name: str, cells: Sequence[str]) -> WrittenColumn | None:
    """998 beside 1.012 and 1.201: the point may be between thousands, which is asked."""
    parts = [cell for cell in cells if cell]
    points = [cell for cell in parts if _ONE_POINT.fullmatch(cell)]
    whole = [cell for cell in parts if _HUNDREDS.fullmatch(cell)]
    if not points or not whole or len(points) + len(whole) < len(parts):
        return None
    made = [float(cell.replace(".", "")) for cell in parts]
    if max(made) > _NEAR * min(made):
        return None
    return WrittenColumn(
        name=name,
        cells=tuple(cell.replace(".", "") for cell in cells),
        doubt=f"is the point of {points[0]} in {printable(name, 60)} between thousands, as"
        f" {whole[0]} stands beside it?",
    )


def underscored(name: str, cells: Sequence[str]) -> WrittenColumn | None:
    """1_234_567 is one number, as programs write it."""
    parts = [cell for cell in cells if cell]
    if not any(map(_UNDERSCORED.fullmatch, parts)):
        return None
    if not all(_UNDERSCORED.fullmatch(cell) or _SHORT.fullmatch(cell) for cell in parts):
        return None
    return WrittenColumn(name=name, cells=tuple(cell.replace("_", "") for cell in cells))


def spaced(name: str, cells: Sequence[str]) -> WrittenColumn | None:
    """1 047 454 is one number, and so is 1'047'454; with blanks and no zero after one it is asked.

    Then it may be a list, of two or three.
    """
    filled = [cell for cell in cells if cell]
    parts = [cell for cell in filled if _SPACED.fullmatch(cell)]
    if not parts or not all(_SPACED.fullmatch(c) or _SHORT.fullmatch(c) for c in filled):
        return None
    if max(cell.count(" ") for cell in parts) > _MANY_PARTS:
        return None
    sure = any(" " not in cell or " 0" in cell for cell in parts)
    asked = f"is {printable(parts[0], 30)} in {name} one number, or a list?"
    made = tuple(re.sub(f"[{_MARKS}]", "", cell) for cell in cells)
    return WrittenColumn(name=name, cells=made, doubt="" if sure else asked)


def durations(name: str, cells: Sequence[str]) -> WrittenColumn | None:
    """1m23.5s, and 1:23.5 in what is called after a time that passed, are seconds."""
    cut = [_DURATION.fullmatch(cell) for cell in cells if cell]
    parts = [one for one in cut if one]
    named = bool(set(words.words(name)) & _PASSED)
    if not parts or len(parts) < len(cut) or not (named or all(one["m"] for one in parts)):
        return None
    made = tuple(_in_seconds(_DURATION.fullmatch(cell)) for cell in cells)
    if not all(one["hours"] for one in parts) or words.words(name) != ("time",):
        return WrittenColumn(name=f"{name} (s)", cells=made)
    numbers = [Decimal(cell) for cell in made if cell]
    if len(numbers) >= _CLOCK and all(one < other for one, other in pairwise(numbers)):
        return WrittenColumn(name=f"{name} of day", cells=made)  # 10:00:05, 10:30:05: a clock's
    doubt = f"is {name} ({printable(cells[0], 30)}) a time that passed, or the clock on the wall?"
    return WrittenColumn(name=f"{name} (s)", cells=made, doubt=doubt)


def _in_seconds(cut: re.Match[str] | None) -> str:
    if cut is None:
        return ""
    hours, minutes = cut["h"] or cut["hours"] or "0", cut["m"] or cut["minutes"] or "0"
    return str(3600 * int(hours) + 60 * int(minutes) + Decimal(cut["s"] or cut["seconds"]))


def dates(name: str, cells: Sequence[str]) -> WrittenColumn | None:
    """01.05.2026 10:30 and 5/13/2026 as ISO has them, which sorts; 5/1/2026 is asked about."""
    parts = [found for cell in cells if cell and (found := _DATE.fullmatch(cell))]
    if not parts or len(parts) < sum(map(bool, cells)) or len({one["mark"] for one in parts}) > 1:
        return None
    pairs = [(int(one["first"]), int(one["second"])) for one in parts]
    if max(map(min, pairs)) > _MONTHS:
        return None
    turned = parts[0]["mark"] == "/" and not any(first > _MONTHS for first, _ in pairs)
    sure = parts[0]["mark"] == "." or any(max(pair) > _MONTHS for pair in pairs)
    asked = f"is the month of {name} ({printable(cells[0], 30)}) before its day?"
    made = tuple(_iso(_DATE.fullmatch(cell), turned=turned) for cell in cells)
    return WrittenColumn(name=name, cells=made, doubt="" if sure else asked)


def _iso(cut: re.Match[str] | None, *, turned: bool) -> str:
    if cut is None:
        return ""
    day, month = (cut["second"], cut["first"]) if turned else (cut["first"], cut["second"])
    return f"{cut['year']}-{month:>02}-{day:>02}" + (f" {cut['clock']:>05}" if cut["clock"] else "")


def with_units(name: str, cells: Sequence[str]) -> WrittenColumn | None:
    """12 us in every cell: the unit belongs to the head; 900 us beside 1.1 ms become one unit."""
    cut = [_WITH_UNIT.fullmatch(cell) for cell in cells if cell]
    parts = [one for one in cut if one]
    said = words.said(name)
    if not parts or len(parts) < len(cut) or said.part is Part.DIMENSION:
        return None
    if len(set(cells)) < max(2, _REPEATED * len(cells)):
        return None
    unit = common({one["unit"] for one in parts})
    if unit is None:
        return None
    # 1,5 us beside 900 ns: what the comma is shows in all of the column.
    values = pointed_decimals(
        [one["value"] if one else "" for one in map(_WITH_UNIT.fullmatch, cells)]
    )
    if values is None and len({one["unit"] for one in parts}) > 1:
        return None
    made = tuple(
        _scaled(_WITH_UNIT.fullmatch(cell), unit, values[at] if values else None)
        for at, cell in enumerate(cells)
    )
    known = not unit or said.unit == unit
    return WrittenColumn(name=name if known else f"{name} ({unit})", cells=made)


def common(units: set[str]) -> str | None:
    """The smallest of units of one kind; "" of 1.2k and 3M, which are numbers; None of others."""
    for kind in (_TIMES, *_RATES):
        if units <= kind.keys():
            return min(units, key=lambda each: kind[each])
    if units <= _PREFIXES.keys():
        return ""
    one = next(iter(units))
    return one if len(units) == 1 and words.said(one).better else None


def pointed_decimals(cells: Sequence[str]) -> list[str] | None:
    """Numbers with a point before decimals and nothing between thousands; None: 1,234 is either."""
    commas = [cell for cell in cells if "," in cell]
    if not commas:
        return list(cells)
    if all(map(_GROUPED.fullmatch, commas)) and any(map(_SURELY.fullmatch, commas)):
        return [cell.replace(",", "") for cell in cells]
    decimals = all(cell.count(",") == 1 and "." not in cell for cell in commas)
    if decimals and not all(map(_GROUPED.fullmatch, commas)):
        return [cell.replace(",", ".") for cell in cells]
    return None


def is_unit(text: str) -> bool:
    """True for a cell that holds nothing but a unit of time, or of a rate."""
    return any(text in kind for kind in (_TIMES, *_RATES))


def in_unit(cell: str, unit: str, small: str) -> str | None:
    """A number in one unit written in another of its kind; None of what is no number."""
    kind = next((kind for kind in (_TIMES, *_RATES) if {unit, small} <= kind.keys()), None)
    if not cell or kind is None or not re.fullmatch(GROUPED, cell):
        return None if cell else ""
    factor = Decimal(kind[unit]) / Decimal(kind[small])
    return cell if factor == 1 else f"{Decimal(cell) * factor:f}"


def _scaled(cut: re.Match[str] | None, unit: str, pointed: str | None) -> str:
    if cut is None:
        return ""
    if not unit:
        factor = Decimal(_PREFIXES[cut["unit"]])
    else:
        kind = next((kind for kind in (_TIMES, *_RATES) if unit in kind), {})
        factor = Decimal(kind.get(cut["unit"], 1)) / Decimal(kind.get(unit, 1))
    value = cut["value"]
    return value if factor == 1 else f"{Decimal(pointed or value) * factor:f}"


WAYS: tuple[Callable[[str, Sequence[str]], WrittenColumn | None], ...] = (
    *(grouped, underscored, pointed, pointed_beside, spaced, dates, durations, with_units),
)
