# SPDX-License-Identifier: GPL-2.0-or-later
"""Relocatable objects of x86-64 (ELF64) that can be changed: sections, symbols, relocations.

pyelftools reads and cannot write, and takes seconds for the relocations of a large object.
Layouts: System V ABI, chapter 4; its AMD64 supplement.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from kdelta.elf import BadElf

UNDEFINED, ABSOLUTE = 0, 0xFFF1
LOCAL, GLOBAL, WEAK = 0, 1, 2
NO_TYPE, DATA, FUNCTION, SECTION = 0, 1, 2, 3
WRITABLE, ALLOCATED, EXECUTABLE, MERGED, STRINGS = 0x1, 0x2, 0x4, 0x10, 0x20
PLACE_64, RELATIVE_32, CALL_32, UNSIGNED_32, SIGNED_32, RELATIVE_64 = 1, 2, 4, 10, 11, 24
TABLE_32 = 9  # relative, to an entry of the table of addresses
SIZES = {
    PLACE_64: 8, RELATIVE_32: 4, CALL_32: 4, UNSIGNED_32: 4, SIGNED_32: 4, RELATIVE_64: 8,
}  # fmt: skip
RELATIVE = (RELATIVE_32, CALL_32, RELATIVE_64)

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMBOLS, _NAMES, _RELOCATIONS, _EMPTY = 2, 3, 4, 8
_RELOCATABLE, _X86_64 = 1, 62
_SPECIAL = 0xFF00
_OWN = ".shstrtab"


@dataclass(slots=True)
class Part:
    """A section.  content: empty for one that takes no room in the file, of `size` bytes."""

    name: str
    kind: int
    flags: int
    content: bytes
    size: int
    link: int
    info: int
    align: int
    entry: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol.  section: its index, UNDEFINED or ABSOLUTE; value: offset in it, or the address."""

    name: str
    value: int = 0
    size: int = 0
    kind: int = NO_TYPE
    binding: int = GLOBAL
    section: int = UNDEFINED
    visibility: int = 0

    @property
    def is_defined(self) -> bool:
        """True for one that lies in a section."""
        return UNDEFINED < self.section < _SPECIAL


@dataclass(frozen=True, slots=True)
class Filled:
    """A field at an offset of a section; symbol: an index."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(eq=False)
class Relocatable:
    """An object.  relocations: by the index of the section that they fill."""

    parts: list[Part]
    symbols: list[Symbol]
    relocations: dict[int, list[Filled]]
    flags: int = 0

    @cached_property
    def held(self) -> dict[int, list[int]]:
        """The functions and data of each section, as indices of symbols, by place."""
        found: dict[int, list[int]] = {}
        for index, symbol in enumerate(self.symbols):
            if symbol.is_defined and symbol.size and symbol.kind in (DATA, FUNCTION):
                found.setdefault(symbol.section, []).append(index)
        for own in found.values():
            own.sort(key=lambda index: self.symbols[index].value)
        return found

    def holder(self, section: int, offset: int) -> int | None:
        """The index of the function or piece of data that holds a place."""
        own = self.held.get(section, [])
        at = bisect_right(own, offset, key=lambda index: self.symbols[index].value) - 1
        symbol = self.symbols[own[at]] if at >= 0 else None
        return own[at] if symbol and offset < symbol.value + symbol.size else None

    def content(self, index: int) -> bytes:
        """The bytes of a function or piece of data; zeros where the file has none."""
        symbol = self.symbols[index]
        found = self.parts[symbol.section].content[symbol.value : symbol.value + symbol.size]
        return found.ljust(symbol.size, b"\0")

    @cached_property
    def _ordered(self) -> dict[int, list[Filled]]:
        by_place = attrgetter("offset")
        return {part: sorted(fields, key=by_place) for part, fields in self.relocations.items()}

    def fields(self, index: int, start: int = 0, size: int | None = None) -> list[Filled]:
        """The relocations in a function or piece of data, by offset from its begin.

        start, size: of a part of it.
        """
        symbol = self.symbols[index]
        fields = self._ordered.get(symbol.section, [])
        begin = symbol.value + start
        ends = (begin, begin + (symbol.size if size is None else size))
        first, last = (bisect_left(fields, at, key=attrgetter("offset")) for at in ends)
        return [replace(each, offset=each.offset - symbol.value) for each in fields[first:last]]


def read(content: bytes) -> Relocatable:
    """An object of x86-64.  Raises BadElf for anything else."""
    try:
        return _read(content)
    except (struct.error, IndexError, ValueError, StopIteration) as error:
        raise BadElf(f"it is damaged: {error}") from error


def _read(content: bytes) -> Relocatable:
    header = _HEADER.unpack_from(content)
    if header[0][:6] != b"\x7fELF\x02\x01" or header[1:3] != (_RELOCATABLE, _X86_64):
        raise BadElf("it is no object of x86-64")
    start, flags, count, names = header[6], header[7], header[12], header[13]
    rows = [_SECTION.unpack_from(content, start + _SECTION.size * at) for at in range(count)]
    held = [b"" if r[1] in (0, _EMPTY) else content[r[4] : r[4] + r[5]] for r in rows]
    parts = [
        Part(_text(held[names], row[0]), row[1], row[2], own, row[5], *row[6:])
        for row, own in zip(rows, held, strict=True)
    ]
    table = next(part for part in parts if part.kind == _SYMBOLS)
    called = parts[table.link].content
    symbols = [
        Symbol(_text(called, name), value, size, info & 15, info >> 4, section, other)
        for name, info, other, section, value, size in _SYMBOL.iter_unpack(table.content)
    ]
    relocations = {
        part.info: [
            Filled(offset, info & 0xFFFFFFFF, info >> 32, addend)
            for offset, info, addend in _RELOCATION.iter_unpack(part.content)
        ]
        for part in parts
        if part.kind == _RELOCATIONS
    }
    return Relocatable(parts, symbols, relocations, flags)


def _text(texts: bytes, at: int) -> str:
    return texts[at : texts.index(b"\0", at)].decode()


def written(changed: Relocatable) -> bytes:
    """The file of an object.  Its local symbols stand before all others."""
    parts = [replace(part) for part in changed.parts]
    places, texts = _texts(symbol.name for symbol in changed.symbols)
    table = next(part for part in parts if part.kind == _SYMBOLS)
    rows = (
        (place, s.binding << 4 | s.kind, s.visibility, s.section, s.value, s.size)
        for place, s in zip(places, changed.symbols, strict=True)
    )
    table.content = b"".join(_SYMBOL.pack(*row) for row in rows)
    table.info = sum(symbol.binding == LOCAL for symbol in changed.symbols)
    parts[table.link].content = texts
    for part in parts:
        if part.kind == _RELOCATIONS:
            fields = changed.relocations[part.info]
            part.content = b"".join(
                _RELOCATION.pack(r.offset, r.symbol << 32 | r.kind, r.addend) for r in fields
            )
    names, called = _texts(part.name for part in parts)
    own = next(at for at, part in enumerate(parts) if part.kind == _NAMES and part.name == _OWN)
    parts[own].content = called
    body, headers = bytearray(_HEADER.size), []
    for name, part in zip(names, parts, strict=True):
        body += bytes(-len(body) % max(part.align, 1))
        size = part.size if part.kind in (0, _EMPTY) else len(part.content)
        place = len(body) if part.kind else 0
        row = name, part.kind, part.flags, 0, place, size, part.link, part.info
        headers.append(_SECTION.pack(*row, part.align, part.entry))
        body += part.content
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    body[: _HEADER.size] = _HEADER.pack(
        ident, _RELOCATABLE, _X86_64, 1, 0, 0, len(body), changed.flags, _HEADER.size, 0, 0,
        _SECTION.size, len(parts), own,
    )  # fmt: skip
    return bytes(body) + b"".join(headers)


def _texts(names: Iterable[str]) -> tuple[list[int], bytes]:
    """A table of strings, and where in it each name begins."""
    content, places = bytearray(b"\0"), list[int]()
    for name in names:
        places.append(len(content) if name else 0)
        content += name.encode() + b"\0" if name else b""
    return places, bytes(content)
