# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that functions were given and gave back: where the plugin reads them, and what it read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta.attribution import stream
from kdelta.attribution.insns import CountedWindow
from kdelta.attribution.symbols import Symbols

_COUNTS_FROM = 1  # an argument's number
_RESULT = 8  # enum register_index in plugin/registers.h


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAt:
    """A value of a function.  argument: its number from 1, 0 for what the function returns."""

    function: str
    argument: int


@dataclass(frozen=True, slots=True)
class Reads:
    """What the plugin reads.  rows: (first address, first behind, register << 1 | at the return).

    of: of each row the place's number.  missing: places whose function the kernel has not.
    """

    rows: array[int]
    of: tuple[int, ...]
    missing: tuple[int, ...]

    def write(self, path: Path) -> None:
        """The plugin's file arguments=."""
        stream.write(self.rows, path)


def places(wanted: Sequence[ReadAt], symbols: Symbols) -> Reads:
    """Where values are read: in functions of exactly that name, since clones take others."""
    starts: dict[str, list[int]] = {}
    names = {one.function for one in wanted}
    for at, name in enumerate(symbols.names):
        if name in names:
            starts.setdefault(name, []).append(at)
    rows: array[int] = array("Q")
    of: list[int] = []
    for number, one in enumerate(wanted):
        for at in starts.get(one.function, ()):
            behind = symbols.starts[at + 1] if at + 1 < len(symbols.starts) else 1 << 64
            register = one.argument - _COUNTS_FROM if one.argument else _RESULT
            rows.extend((symbols.starts[at], behind, register << 1 | (one.argument == 0)))
            of.append(number)
    missing = tuple(at for at, one in enumerate(wanted) if one.function not in starts)
    return Reads(rows, tuple(of), missing)


def counted(window: CountedWindow, of: Sequence[int]) -> dict[int, dict[int, int]]:
    """Of each place the registers that were read, as unsigned words, and how often."""
    found: dict[int, dict[int, int]] = {number: {} for number in of}
    words = window.values
    for row, register, count in zip(words[::3], words[1::3], words[2::3], strict=True):
        values = found[of[row]]
        values[register] = values.get(register, 0) + count
    return found
