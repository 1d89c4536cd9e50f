# SPDX-License-Identifier: GPL-2.0-or-later
"""Call paths: the functions that the plugin has to follow, and the tree that it counted."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdelta import elf
from kdelta.attribution import stream
from kdelta.attribution.insns import CountedWindow
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.errors import InfraError
from kdelta.sample import Count

_COLD = ".cold"  # what a compiler moved out of a function's way is entered by jumps from it
_USER = "[user]"
_USER_END = 1 << 47


class PathNode(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A function on a path.  parent: index of its caller's node, -1 for the root's children.

    calls: how often it was entered on this path; insns: instructions of its own there.
    """

    parent: int
    function: str
    calls: Count
    insns: Count


@dataclass(frozen=True, slots=True)
class Functions:
    """What the plugin follows: rows of (first address, first behind, function << 1 | is entry).

    names: of the functions by their number; 0 is the code in none.
    """

    rows: array[int]
    names: tuple[str, ...]

    def write(self, path: Path) -> None:
        """The plugin's file functions=."""
        stream.write(self.rows, path)


def functions(symbols: Symbols, program: bytes, replaced: Collection[str] = ()) -> Functions:
    """The functions of a kernel and of the static program that runs on it (an ELF file).

    replaced: those that jump into another of their name, which is the same function.
    """
    starts = symbols.starts
    ends = (*starts[1:], starts[-1] + 1) if len(starts) else ()
    kernel = (row for row in zip(starts, ends, symbols.names, strict=True) if row[2] != UNKNOWN)
    places = [*_of_program(program), *kernel]
    names = [UNKNOWN, _USER]
    latest: dict[str, int] = {}
    rows: array[int] = array("Q")
    for start, end, name in places:
        whole = name.removesuffix(_COLD)
        if name == _USER:
            rows.extend((start, end, 1 << 1))
        elif whole != name and whole in latest:
            rows.extend((start, end, latest[whole] << 1))
        elif whole in replaced and whole in latest:
            rows.extend((start, end, latest[whole] << 1 | 1))
        else:  # two functions of one name are two: one may call the other
            latest[whole] = len(names)
            rows.extend((start, end, len(names) << 1 | 1))
            names.append(whole)
    return Functions(rows, tuple(names))


def _of_program(program: bytes) -> Iterable[tuple[int, int, str]]:
    """Its functions by address; what lies between them is "[user]"."""
    sizes: dict[int, tuple[int, str]] = {}
    try:
        for start, size, name in elf.functions(program):
            if start + size < _USER_END:
                sizes[start] = max(sizes.get(start, (0, "")), (size, name))
    except elf.BadElf as error:
        raise InfraError(f"the workload's program cannot be read: {error}") from error
    at = 1
    for start, (size, name) in sorted(sizes.items()):
        if start < at:
            continue
        if at < start:
            yield at, start, _USER
        yield start, start + size, name
        at = start + size
    yield at, _USER_END, _USER


def tree(window: CountedWindow, names: Sequence[str]) -> tuple[PathNode, ...]:
    """The call paths of a window, callers first, without the root; equal names are one path."""
    index: dict[tuple[int, str], int] = {}
    places = {0: -1}
    calls: Counter[tuple[int, str]] = Counter()
    insns: Counter[tuple[int, str]] = Counter()
    for context in window.contexts:
        if context.number == 0 and not context.insns:
            continue
        name = names[context.function] if context.function < len(names) else UNKNOWN
        key = (places[context.parent] if context.number else -1, name)
        at = index.setdefault(key, len(index))
        if context.number:
            places[context.number] = at
        calls[key] += context.calls
        insns[key] += context.insns
    return tuple(PathNode(*key, calls[key], insns[key]) for key in index)
