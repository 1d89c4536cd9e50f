# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a compiled object is the one that an image was linked from, and where its parts lie.

Every function of the object is laid beside the image's, instruction by instruction.  Bytes are
equal but for fields that the linker fills, branches that it or the assembler may make shorter, and
jump labels, which the build writes as the keys are at boot.  What a field means in the object must
be what the image has in it: so each field also says where a static function or piece of data lies,
which no symbol table could tell of names that are there twice.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from msgspec import structs

from kdelta import arch
from kdelta.disassembly import code, relocatable
from kdelta.disassembly.code import Piece, Row
from kdelta.disassembly.image import Image
from kdelta.disassembly.relocatable import FUNCTION, WEAK, Filled, Relocatable

BRANCH = re.compile(r"((?:[a-z]\w* )*?)(call|jmp|j[a-z]{1,4}|loop\w*) 0x([0-9a-f]+)")
_WORD = (1 << 64) - 1
_JUMP_LABEL = 16  # bytes: code and target of 4, key of 8

Place = tuple[int, int]
"""Index of a symbol of the object and an offset into it: what a field means."""


@dataclass(slots=True)
class Proven:
    """Where the image has what an object defines or needs.

    functions: of each function that the image has, its address; differing: of the others, why.
    overridden: weak ones, of which the image has another object's.
    data: of data and of undefined symbols, as far as fields tell it.  Keys: indices of symbols.
    """

    functions: dict[int, int] = field(default_factory=dict)
    data: dict[int, int] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)
    overridden: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Beside:
    """A function beside a candidate of the image.

    means: what the image has for each place that a field means; at: the address of each offset
    of the object's function at which an instruction begins.
    """

    start: int
    means: list[tuple[Place, int]] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)


class Listing:
    """The instructions of an object, all sections at once."""

    def __init__(self, own: Relocatable) -> None:
        self.own = own
        coded = [
            at
            for at, part in enumerate(own.parts)
            if part.flags & relocatable.EXECUTABLE and part.content
        ]
        pieces = [Piece(start=0, code=own.parts[at].content) for at in coded]
        self._rows = dict(zip(coded, code.rows(pieces, arch.of("amd64")), strict=True))
        self._of: dict[int, tuple[Row, ...]] = {}
        self._behind = {at: self._ends(at) for at in coded}

    def _ends(self, section: int) -> dict[int, int]:
        ends = (row.offset + row.size for row in self._rows[section])
        fields = sorted(self.own.relocations.get(section, ()), key=lambda each: each.offset)
        found, end = {}, next(ends)
        for each in fields:
            while end <= each.offset:
                end = next(ends)
            found[each.offset] = end - each.offset
        return found

    def rows(self, index: int) -> tuple[Row, ...]:
        """The instructions of a function, by offset from its begin.  Branches are the section's."""
        if index not in self._of:
            symbol = self.own.symbols[index]
            rows, end = self._rows[symbol.section], symbol.value + symbol.size
            first, last = (
                bisect_left(rows, at, key=attrgetter("offset")) for at in (symbol.value, end)
            )
            self._of[index] = tuple(
                structs.replace(row, offset=row.offset - symbol.value) for row in rows[first:last]
            )
        return self._of[index]

    def meant(self, section: int, relocation: Filled) -> Place:
        """What a field of a section means.

        A place in data or code without a symbol of its own is one of its section's.
        """
        own = self.own
        symbol, addend = own.symbols[relocation.symbol], relocation.addend
        addend += self.behind(section, relocation)
        if not symbol.is_defined:
            return relocation.symbol, addend
        offset = symbol.value + addend
        holder = own.holder(symbol.section, offset)
        if holder is None:
            return relocation.symbol, addend
        return holder, offset - own.symbols[holder].value

    def behind(self, section: int, relocation: Filled) -> int:
        """Bytes from a field to what it counts from: code counts from the instruction's end."""
        relative = relocation.kind in relocatable.RELATIVE
        return self._behind.get(section, {}).get(relocation.offset, 0) if relative else 0

    def branch(self, index: int, row: Row) -> tuple[str, Place | None] | None:
        """A branch of a function that no relocation fills: its words, and where it goes.

        None for what is no branch.
        """
        found = BRANCH.fullmatch(row.text)
        if found is None:
            return None
        section, target = self.own.symbols[index].section, int(found[3], 16)
        holder = self.own.holder(section, target)
        place = None if holder is None else (holder, target - self.own.symbols[holder].value)
        return found[1] + found[2], place


def functions_of(own: Relocatable, *, boot: bool = False) -> list[int]:
    """The functions of an object that stay after boot, or the others, as indices of symbols."""
    return [
        index
        for index, symbol in enumerate(own.symbols)
        if symbol.kind == FUNCTION
        and symbol.is_defined
        and symbol.size
        and is_of_boot(own.parts[symbol.section].name) == boot
    ]


def is_of_boot(section: str) -> bool:
    """True for a section that the kernel frees when it has booted, or never needs."""
    return section.startswith((".init", ".exit", ".meminit"))


def prove(listing: Listing, image: Image) -> Proven:
    """Lay an object beside an image."""
    own = listing.own
    functions = functions_of(own)
    labels = _labels(listing)
    candidates = {index: image.starts(own.symbols[index].name) for index in functions}
    pieces = {
        start: Piece(start=start, code=image.bytes_at(start, image.size(start)))
        for starts in candidates.values()
        for start in starts
    }
    theirs = dict(zip(pieces, code.rows(list(pieces.values()), arch.of("amd64")), strict=True))
    found: dict[int, list[_Beside]] = {}
    proven = Proven()
    for index in functions:
        reasons = []
        for start in candidates[index]:
            try:
                beside = _beside(listing, index, labels, pieces[start], theirs[start])
                found.setdefault(index, []).append(beside)
            except _DiffersError as differs:
                reasons.append(str(differs))
        if index not in found and own.symbols[index].binding == WEAK and len(reasons) == 1:
            proven.functions[index] = next(iter(candidates[index]))
            proven.overridden.add(index)
        elif index not in found:
            name = own.symbols[index].name
            proven.differing[name] = reasons[0] if len(reasons) == 1 else "the image has none"
    _settle(own, image, found, proven)
    return proven


def _settle(
    own: Relocatable, image: Image, found: Mapping[int, list[_Beside]], proven: Proven
) -> None:
    """Choose among candidates by what fields of functions that are sure mean.

    Of equal ones that no field tells apart none is chosen.
    """
    told: dict[int, int] = {}
    left = dict(found)
    while left:
        sure = {
            index: [one for one in ones if told.get(index, one.start) == one.start]
            for index, ones in left.items()
        }
        ready = {index: ones[0] for index, ones in sure.items() if len(ones) == 1}
        if not ready:
            break
        for index, one in ready.items():
            del left[index]
            proven.functions[index] = one.start
            for (symbol, offset), address in one.means:
                if own.symbols[symbol].kind == FUNCTION and own.symbols[symbol].is_defined:
                    if offset == 0:
                        told.setdefault(symbol, address)
                else:
                    proven.data.setdefault(symbol, (address - offset) & _WORD)
    _check(own, image, found, proven)


def _check(
    own: Relocatable, image: Image, found: Mapping[int, list[_Beside]], proven: Proven
) -> None:
    """Every field of every function means one place, and the one that the symbols tell."""
    chosen = {
        index: next(one for one in found[index] if one.start == start)
        for index, start in proven.functions.items()
        if index in found
    }
    for index, one in chosen.items():
        for (symbol, offset), address in one.means:
            if not _means(own, image, proven, chosen, (symbol, offset), address):
                meant = own.symbols[symbol]
                called = meant.name or own.parts[meant.section].name
                proven.differing[own.symbols[index].name] = f"it refers to {called} elsewhere"
    for name in proven.differing:
        for index in [i for i in proven.functions if own.symbols[i].name == name]:
            del proven.functions[index]


def _means(
    own: Relocatable,
    image: Image,
    proven: Proven,
    chosen: Mapping[int, _Beside],
    place: Place,
    address: int,
) -> bool:
    index, offset = place
    symbol = own.symbols[index]
    if symbol.kind == FUNCTION and symbol.is_defined:
        return index not in chosen or chosen[index].at.get(offset) == address
    if symbol.is_defined and symbol.kind != relocatable.DATA:
        part = own.parts[symbol.section]
        at = symbol.value + offset
        if part.flags & relocatable.STRINGS:
            said = part.content[at : part.content.index(b"\0", at) + 1]
        else:  # nothing for data without a name: of a sanitizer
            said = part.content[at : at + part.entry] if part.flags & relocatable.MERGED else b""
        return image.bytes_at(address, len(said)) == said
    known = image.addresses(symbol.name)
    base = (address - offset) & _WORD
    return proven.data.get(index) == base and (not known or base in known)


class _DiffersError(Exception):
    """The text says in what."""


def _beside(
    listing: Listing, index: int, labels: frozenset[Place], piece: Piece, theirs: Sequence[Row]
) -> _Beside:
    """A function of an object beside one of the image.  Raises _DiffersError."""
    rows, fields = listing.rows(index), listing.own.fields(index)
    if len(theirs) < len(rows):
        raise _DiffersError(f"it has {len(rows)} instructions, not {len(theirs)}")
    found = _Beside(piece.start)
    numbers = {row.offset: number for number, row in enumerate(rows)}
    others = {row.offset: number for number, row in enumerate(theirs)}
    for mine, other in zip(rows, theirs, strict=False):
        address = piece.start + other.offset
        found.at[mine.offset] = address
        if (index, mine.offset) in labels:
            continue
        inner = [f for f in fields if mine.offset <= f.offset < mine.offset + mine.size]
        one, two = listing.branch(index, mine), BRANCH.fullmatch(other.text)
        if not (one and two and one[0] == two[1] + two[2]):
            code_ = piece.code[other.offset : other.offset + other.size]
            found.means += _fields(listing, index, mine, inner, code_, address)
            continue
        target = int(two[3], 16)
        place = _meant(listing, index, inner[0]) if inner else one[1]
        if place is not None and place[0] != index:
            found.means.append((place, target))
        elif not place or numbers.get(place[1], -1) != others.get(target - piece.start):
            raise _DiffersError(f"at {mine.offset:#x} it branches elsewhere")
    return found


def _meant(listing: Listing, index: int, each: Filled) -> Place:
    symbol = listing.own.symbols[index]
    return listing.meant(symbol.section, replace(each, offset=each.offset + symbol.value))


def _fields(
    listing: Listing, index: int, mine: Row, inner: Sequence[Filled], theirs: bytes, address: int
) -> Iterator[tuple[Place, int]]:
    own = listing.own.content(index)
    masked, held = bytearray(own[mine.offset : mine.offset + mine.size]), bytearray(theirs)
    differs = _DiffersError(f"at {mine.offset:#x} it has another {mine.text}")
    if len(masked) != len(held):
        raise differs
    for each in inner:
        size = relocatable.SIZES.get(each.kind, 0)
        at = each.offset - mine.offset
        if not size or at + size > len(held):
            raise differs
        value = int.from_bytes(held[at : at + size], "little", signed=True)
        if each.kind in relocatable.RELATIVE:
            value += address + mine.size
        masked[at : at + size] = held[at : at + size] = bytes(size)
        yield _meant(listing, index, each), value & _WORD
    if masked != held:
        raise differs


def _labels(listing: Listing) -> frozenset[Place]:
    """The jump labels of an object: function and offset."""
    own = listing.own
    return frozenset(
        listing.meant(part, each)
        for part, fields in own.relocations.items()
        if own.parts[part].name == "__jump_table"
        for each in fields
        if each.offset % _JUMP_LABEL == 0
    )
