# SPDX-License-Identifier: GPL-2.0-or-later
"""Which lines of 64 bytes an operation takes from other CPUs, by function and by object.

Each CPU has a cache without an end, so this says what coherence must move, and no time: how long
CPUs wait for each other depends on how many come at once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, permutations, starmap
from operator import or_
from typing import NamedTuple

import msgspec

from kdelta.attribution.insns import CountedWindow, Touched
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.metric import Better
from kdelta.printable import printable
from kdelta.probes import memory
from kdelta.probes.memory import EVERYWHERE, What
from kdelta.sample import Count, ExactData, MetricValue

MOST_CPUS = 8  # plugin/sharing.h, as the following
_FETCHED, _TAKEN, _ATOMIC = 4, 8, 16
_FALSE, _LOCK = 32, 64
_PARTS = {"fetched": _FETCHED, "taken": _TAKEN, "atomic": _ATOMIC, "false": _FALSE, "lock": _LOCK}
_MOVED = _FETCHED | _TAKEN | _ATOMIC
FETCHED = "fetched_lines"  # of what it tells, what is judged
_TOLD = {
    FETCHED: _FETCHED,
    "taken_lines": _TAKEN,
    "lines_by_atomics": _ATOMIC,
    "falsely_shared_lines": _FALSE,
}
_FLUSHES, _FLUSH = "tlb_flushes_sent", "native_flush_tlb_multi"  # arch/x86/mm/tlb.c
_MOST_NAMED = 3
_LOCKS = re.compile(
    r"_raw_(spin|read|write)_\w+|(native_)?queued_(spin|read|write)_\w+|osq_(un)?lock"
    r"|(__)?(mutex|rt_mutex|rwsem)_\w+|(__)?(down|up)(_\w+)?"
)
# Of caches that do not have the name of the struct that they hold.
_STRUCTS = {
    "files_cache": "files_struct",
    "filp": "file",
    "fs_cache": "fs_struct",
    "inode_cache": "inode",
    "radix_tree_node": "xa_node",
    "shmem_inode_cache": "shmem_inode_info",
    "sighand_cache": "sighand_struct",
    "signal_cache": "signal_struct",
}


class SharingRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Lines per window that a function moved between CPUs; EVERYWHERE: all functions.

    object: what of a line is shared: a symbol of the kernel's data, or members of a struct, by
    offset where they are not known; "" where it has no name.  fetched: another CPU wrote them last;
    taken: a write took the copies of others.  Of both, atomic: by an instruction that reads and
    writes at once; false: the window accessed no byte that others wrote, and wrote none that they
    accessed; the object is then what either side accesses, and the function that wrote last; lock:
    of such bytes there are none but those that functions of locks access.
    """

    function: str
    what: What
    object: str
    fetched: Count
    taken: Count
    atomic: Count
    false: Count
    lock: int = 0


class FieldRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A member of a struct that a function accessed in a line that CPUs move, first at a byte of
    the struct, which begins with a line.
    """

    struct: str
    at: Count
    member: str
    function: str
    written: bool


@dataclass(frozen=True, slots=True)
class Naming:
    """What a kernel says of its data.  named: the symbols between two addresses; member: that of a
    struct at an offset, "" for none.  own: first and last address of symbols of per-CPU data.
    slabs: the plugin's option, "" where the kernel does not say what is in a slab.  members: of a
    struct, where each begins.
    """

    named: Callable[[int, int], str]
    member: Callable[[str, int], str]
    own: tuple[int, int] = (0, 0)
    slabs: str = ""
    members: Callable[[str], Mapping[str, int]] = lambda _of: {}


class _Slab(NamedTuple):
    """Objects of a size from an address on; alone: of one cache, and not of several in one."""

    first: int
    size: int
    name: str
    alone: bool

    @property
    def struct(self) -> str:
        """What the objects are."""
        return _STRUCTS.get(self.name, self.name)


def _slabs(window: Touched) -> dict[int, _Slab]:
    """Those that pages may be of, by page."""
    found: dict[int, _Slab] = {}
    for page, first, word, *text in memory.rows(window.slabs, 6):
        cache = b"".join(part.to_bytes(8, "little") for part in text).partition(b"\0")[0]
        name = printable(cache.decode("latin-1"))
        found[page] = _Slab(first, word & 0xFFFF_FFFF, name, word >> 32 == 1)
    return found


class _Moved(NamedTuple):
    """A row of SHARED in plugin/memory.c."""

    function: int
    word: int
    bytes: int
    same: int
    theirs: int
    by: int


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that moved in a window, and what each function did to it."""

    address: int
    rows: Sequence[_Moved]

    def union(self, part: str) -> int:
        """A mask of all functions."""
        masks: Iterator[int] = (getattr(row, part) for row in self.rows)
        return reduce(or_, masks)

    def how(self, names: Sequence[str]) -> int:
        """What moved it, and the class of what is shared; names: of functions by number."""
        same, moved = self.union("same"), self.union("word") & _MOVED
        if not same:
            return moved | _FALSE
        for row in self.rows:
            if _LOCKS.fullmatch(_name(names, row.function).partition(".")[0]):  # .constprop.0
                same &= ~row.bytes
        return moved if same else moved | _LOCK


def _lines(touched: Touched) -> Iterator[_Line]:
    """The lines that moved in a window."""
    found: defaultdict[int, list[_Moved]] = defaultdict(list)
    for row in starmap(_Moved, memory.rows(touched.shared, 6)):
        found[row.word & memory.LINE].append(row)
    lines = (_Line(address, rows) for address, rows in found.items())
    return (line for line in lines if line.union("word") & (_FETCHED | _TAKEN))


def by_atomics(touched: Sequence[Touched]) -> int:
    """How many lines windows fetched and took by instructions that read and write at once."""
    return sum(
        line.union("word") & _MOVED == _MOVED for window in touched for line in _lines(window)
    )


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else UNKNOWN


def sharing(
    touched: Sequence[Touched],
    names: Sequence[str],
    symbols: Symbols,
    release: str,
    places: memory.Map,
    naming: Naming,
) -> tuple[SharingRow, ...]:
    """What windows moved, summed, most first.  names: of functions by the plugin's numbers."""
    found: Counter[tuple[str, What, str, str]] = Counter()
    for window in touched:
        kinds, slabs = memory.kinds_of(window, release, places), _slabs(window)
        for line in _lines(window):
            what, how = memory.kind_at(line.address, kinds, symbols), line.how(names)
            slab = slabs.get(line.address & memory.PAGE) if what is What.SLAB else None
            place = partial(_place, line.address, what, slab, naming)
            if symbol := _of_a_cpu(line.address, window.areas, naming):
                what, place = What.PER_CPU, partial(_place, symbol, What.DATA, None, naming)
            thing = _beside(line, place, names) if how & _FALSE else place(line.union("same"))
            rows = [(_name(names, row.function), row.word) for row in line.rows]
            for name, word in [(EVERYWHERE, how), *rows]:
                if word & (_FETCHED | _TAKEN):
                    own = word & _MOVED | how & ~_MOVED
                    parts = [part for part, bit in _PARTS.items() if own & bit]
                    found.update((name, what, thing, part) for part in parts)
    every = {key[:3] for key in found}
    made = (SharingRow(*row, *(found[*row, part] for part in _PARTS)) for row in every)
    return tuple(
        sorted(made, key=lambda row: (-row.fetched, -row.taken, row.function, row.what, row.object))
    )


def _of_a_cpu(line: int, areas: Iterable[int], naming: Naming) -> int:
    """Where the symbols of a line in the data of one CPU are, 0 for another line."""
    first, last = naming.own
    own = ((line - area) % (1 << 64) for area in areas)
    return next((at for at in own if first <= at < last), 0)


def _beside(line: _Line, place: Callable[[int], str], names: Sequence[str]) -> str:
    """What a window accesses of a line, and what others do."""
    every = line.union("bytes"), line.union("theirs")
    masks = (mask & ~other or mask for mask, other in permutations(every))
    own, theirs = (place(mask) or f"byte {(mask & -mask).bit_length() - 1}" for mask in masks)
    by = next((f" of {_name(names, row.by)}()" for row in line.rows if row.by), "")
    return f"{own}, beside {theirs}{by}"


def _place(line: int, what: What, slab: _Slab | None, naming: Naming, mask: int) -> str:
    """What lies in a line at bytes of it, "" where that is not known."""
    at = [byte for byte in range(64) if mask >> byte & 1]
    if what is What.DATA and at:
        return naming.named(line + at[0], line + at[-1] + 1)
    if what is What.STRUCT_PAGE:
        # What lies between flags and _refcount depends on whose page it is.
        return _members("page", at, lambda byte: naming.member("page", byte) * (not 8 <= byte < 52))
    if slab is None:
        return ""
    offsets = [(line + byte - slab.first) % slab.size for byte in at] if slab.size else []
    # Of several caches that became one the name is that of the first.
    of = slab.struct if slab.alone else slab.name
    return _members(of, offsets, lambda at: naming.member(of, at) * slab.alone)


def fields(
    touched: Sequence[Touched],
    names: Sequence[str],
    release: str,
    places: memory.Map,
    naming: Naming,
) -> tuple[FieldRow, ...]:
    """Who accesses which members in lines that move, of structs whose objects begin with a line."""
    found: dict[tuple[str, str, str, bool], FieldRow] = {}
    for window in touched:
        kinds, slabs = memory.kinds_of(window, release, places), _slabs(window)
        for line in _lines(window):
            page = line.address & memory.PAGE
            slab = slabs.get(page) if kinds.get(page) is What.SLAB else None
            if not slab or not slab.alone or not slab.size or (slab.first | slab.size) % 64:
                continue
            begin = (line.address - slab.first) % slab.size
            for row in line.rows:
                written, name = bool(row.word & memory.WRITTEN), _name(names, row.function)
                for at in (begin + byte for byte in range(64) if row.bytes >> byte & 1):
                    if member := naming.member(slab.struct, at):
                        key = slab.struct, member, name, written
                        found.setdefault(key, FieldRow(slab.struct, at, member, name, written))
    return tuple(found.values())


def members(touched: Sequence[Touched], naming: Naming) -> dict[str, Mapping[str, int]]:
    """Where members begin, of each struct whose objects windows touched."""
    every = {slab.struct for window in touched for slab in _slabs(window).values() if slab.alone}
    return {of: own for of in sorted(every) if (own := naming.members(of))}


def _members(name: str, offsets: Sequence[int], member: Callable[[int], str]) -> str:
    """Members of a struct, the first of those that are not known by its offset."""
    found: dict[str, str] = {}
    for at in offsets:
        known = member(at)
        found.setdefault(known, f".{known}" if known else f"+{at}")
    more = ", ..." if len(found) > _MOST_NAMED else ""
    return name + ", ".join([*found.values()][:_MOST_NAMED]) + more


def told(standing: Mapping[str, CountedWindow], data: ExactData) -> tuple[MetricValue, ...]:
    """The same in all, per operation, as figures beside the counts; of one phase by its name.

    Only the plugin's words are needed: whoever has them makes the same figures again.
    """
    figures: list[MetricValue] = []
    for phase in data.phases:
        sums: Counter[str] = Counter()
        for line in chain.from_iterable(map(_lines, standing[phase.phase].touched)):
            sums.update(name for name, bit in _TOLD.items() if line.how(()) & bit)
        calls = {row.function: row.calls for row in data.functions if row.phase == phase.phase}
        sums[_FLUSHES] = calls.get(_FLUSH, 0)
        of = f".{phase.phase}" if len(data.phases) > 1 else ""
        figures += [
            MetricValue(name=f"{name}{of}", unit=f"per/{phase.operation}", better=Better.LOWER,
                        value=sums[name] / (phase.operations * phase.layouts))
            for name in (*_TOLD, _FLUSHES)
        ]  # fmt: skip
    return tuple(figures)
