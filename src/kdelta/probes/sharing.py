# SPDX-License-Identifier: GPL-2.0-or-later
"""Which lines of 64 bytes an operation takes from other CPUs, by function and by object.

Each CPU has a cache without an end, so this says what coherence must move, and no time: how long
CPUs wait for each other depends on how many come at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import msgspec

from kdelta.attribution.insns import CountedWindow, Touched
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.metric import Better
from kdelta.printable import printable
from kdelta.probes import memory
from kdelta.probes.memory import EVERYWHERE, What
from kdelta.sample import MetricValue, PhaseCounts

MOST_CPUS = 8  # plugin/sharing.h, as the following
_FETCHED, _TAKEN, _BYTES, _ATOMIC = 4, 8, 16, 32
_FALSE = 64  # no byte that others wrote was accessed
_ALL = -1  # functions
_TOLD = ("fetched_lines", "taken_lines", "lines_by_atomics", "falsely_shared_lines")
_PARTS = {"fetched": _FETCHED, "taken": _TAKEN, "atomic": _ATOMIC, "false": _FALSE}


class SharingRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Lines per window that a function moved between CPUs; EVERYWHERE: all functions.

    object: a symbol of the kernel's data, or a slab cache, and the offset of the line; "" where it
    has none.  fetched: another CPU wrote them last; taken: a write took the copies of others.  Of
    both, atomic: by an instruction that reads and writes at once.  false: of those fetched, the
    window accessed no byte, by the same address, that others wrote.
    """

    function: str
    what: What
    object: str
    fetched: int
    taken: int
    atomic: int
    false: int


def _moved(touched: Touched) -> list[tuple[int, int, int]]:
    """(function, line, how) of all that moved; then of the same lines in all functions."""
    every = [
        (at, word & memory.LINE, word & ~memory.LINE) for at, word in memory.rows(touched.lines, 2)
    ]
    lines: Counter[int] = Counter()
    for _, line, how in every:
        lines[line] |= how
    false = {line: 0 if how & _BYTES else _FALSE for line, how in lines.items()}
    every += [(_ALL, line, how) for line, how in lines.items()]
    return [
        (at, line, how | (false[line] if how & _FETCHED else 0))
        for at, line, how in every
        if how & (_FETCHED | _TAKEN)
    ]


def sharing(
    touched: Sequence[Touched],
    names: Sequence[str],
    symbols: Symbols,
    release: str,
    places: memory.Map,
    named: Callable[[int], str],
) -> tuple[SharingRow, ...]:
    """What windows moved, summed, most first.  names: of functions by the plugin's numbers; named:
    the object of the kernel's data at an address.
    """
    found: Counter[tuple[str, What, str, str]] = Counter()
    for window in touched:
        kinds = memory.kinds_of(window, release, places)
        slabs = {
            page: (first, size, name) for page, first, size, *name in memory.rows(window.slabs, 6)
        }
        for at, line, how in _moved(window):
            name = EVERYWHERE if at == _ALL else names[at] if at < len(names) else UNKNOWN
            what = memory.kind_at(line, kinds, symbols)
            thing = ""
            if what is What.DATA:
                thing = named(line)
            elif what is What.SLAB and line & memory.PAGE in slabs:
                thing = _in_slab(line, *slabs[line & memory.PAGE])
            for part, bit in _PARTS.items():
                found[name, what, thing, part] += bool(how & bit)
    rows = {key[:3] for key in found}
    made = (SharingRow(*row, *(found[*row, part] for part in _PARTS)) for row in rows)
    return tuple(
        sorted(made, key=lambda row: (-row.fetched, -row.taken, row.function, row.what, row.object))
    )


def _in_slab(line: int, first: int, size: int, name: Sequence[int]) -> str:
    """The cache of a slab and the offset of a line in an object of it, "mm_struct+128"."""
    text = b"".join(word.to_bytes(8, "little") for word in name).partition(b"\0")[0]
    return f"{printable(text.decode('latin-1'))}+{(line - first) % size}" if size else ""


def told(
    standing: Mapping[str, CountedWindow], phases: Sequence[PhaseCounts]
) -> tuple[MetricValue, ...]:
    """The same in all, per operation, as figures beside the counts; of one phase by its name.

    Only the plugin's words are needed: whoever has them makes the same figures again.
    """
    figures: list[MetricValue] = []
    for phase in phases:
        window = standing[phase.phase]
        sums: Counter[str] = Counter()
        for at, _, how in chain.from_iterable(map(_moved, window.touched)):
            sums.update(part for part, bit in _PARTS.items() if at == _ALL and how & bit)
        operations = phase.operations * phase.layouts
        of = f".{phase.phase}" if len(phases) > 1 else ""
        figures += [
            MetricValue(name=f"{name}{of}", unit=f"per/{phase.operation}", better=Better.LOWER,
                        value=sums[part] / operations)
            for part, name in zip(_PARTS, _TOLD, strict=True)
        ]  # fmt: skip
    return tuple(figures)
