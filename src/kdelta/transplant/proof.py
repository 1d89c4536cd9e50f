# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a compiled object is the one that an image was linked from, and where its parts lie there.

Every function of the object is laid beside the image's, instruction by instruction.  Bytes are
equal but for fields that the linker fills, branches that it or the assembler may make shorter, and
jump labels, which the build writes as the keys are at boot.  What a field means in the object must
be what the image has in it: so each field also says where a static function or piece of data lies,
which no symbol table could tell of names that are there twice.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kdelta import arch
from kdelta.disassembly import code
from kdelta.disassembly.code import Piece, Row
from kdelta.disassembly.image import Image
from kdelta.transplant import relocatable
from kdelta.transplant.relocatable import FUNCTION, Relocatable, Relocation

_BRANCH = re.compile(r"((?:[a-z]\w* )*?)(call|jmp|j[a-z]{1,4}|loop\w*) 0x([0-9a-f]+)")
_NOP = re.compile(r"nop[lw]?\b.*|xchg %ax,%ax|(?:data16 |cs )+nop[lw]?\b.*")
_WORD = (1 << 64) - 1
_JUMP_LABEL = 16  # bytes: code and target of 4, key of 8
_FIELD = struct.Struct("<i")

Place = tuple[int, int]
"""Index of a symbol of the object and an offset into it: what a field means."""


@dataclass(slots=True)
class Proven:
    """Where the image has what an object defines or needs.

    functions: of each function that the image has, its address; differing: of the others, why.
    data: of data and of undefined symbols, as far as fields tell it.  Keys: indices of symbols.
    """

    functions: dict[int, int] = field(default_factory=dict)
    data: dict[int, int] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Beside:
    """A function beside a candidate of the image.

    means: what the image has for each place that a field means; at: the address of each offset
    of the object's function at which an instruction begins.
    """

    start: int
    means: list[tuple[Place, int]] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)


def rows_of(own: Relocatable, functions: Sequence[int]) -> dict[int, tuple[Row, ...]]:
    """The instructions of functions of an object."""
    pieces = [Piece(start=0, code=own.content(index)) for index in functions]
    return dict(zip(functions, code.rows(pieces, arch.of("amd64")), strict=True))


def functions_of(own: Relocatable) -> list[int]:
    """The functions of an object that stay after boot, as indices of symbols."""
    return [
        index
        for index, symbol in enumerate(own.symbols)
        if symbol.kind == FUNCTION
        and symbol.is_defined
        and symbol.size
        and not is_of_boot(own.parts[symbol.section].name)
    ]


def is_of_boot(section: str) -> bool:
    """True for a section that the kernel frees when it has booted, or never needs."""
    return section.startswith((".init", ".exit", ".meminit"))


def meant(own: Relocatable, relocation: Relocation, behind: int) -> Place:
    """What a field means.  behind: bytes from its begin to what a relative one counts from.

    A place in data or code without a symbol of its own is one of its section's.
    """
    symbol, addend = own.symbols[relocation.symbol], relocation.addend
    if relocation.kind in relocatable.RELATIVE:
        addend += behind
    if not symbol.is_defined:
        return relocation.symbol, addend
    offset = symbol.value + addend
    holder = own.holder(symbol.section, offset)
    if holder is None:
        return relocation.symbol, addend
    return holder, offset - own.symbols[holder].value


def prove(own: Relocatable, image: Image) -> Proven:
    """Lay an object beside an image."""
    functions = functions_of(own)
    rows = rows_of(own, functions)
    labels = _labels(own)
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
            one = _Function(own, index, rows[index], labels)
            try:
                beside = one.beside(pieces[start], theirs[start], image)
                found.setdefault(index, []).append(beside)
            except _DiffersError as differs:
                reasons.append(str(differs))
        if index not in found:
            name = own.symbols[index].name
            proven.differing[name] = reasons[0] if len(reasons) == 1 else "the image has none"
    _settle(own, image, found, proven)
    return proven


def _settle(
    own: Relocatable, image: Image, found: Mapping[int, list[_Beside]], proven: Proven
) -> None:
    """Choose among candidates by what fields of functions that are sure mean."""
    told: dict[int, int] = {}
    left = dict(found)
    while left:
        sure = {i: _fitting(o, told.get(i)) for i, o in left.items()}
        ready = {i: o[0] for i, o in sure.items() if len(o) == 1}
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
    # Of equal candidates that nobody calls any will do where nothing is written to it.
    for index in left:
        proven.differing[own.symbols[index].name] = "the image has several that are equal"
    _check(own, image, found, proven)


def _fitting(candidates: list[_Beside], start: int | None) -> list[_Beside]:
    return [one for one in candidates if start is None or one.start == start]


def _check(
    own: Relocatable, image: Image, found: Mapping[int, list[_Beside]], proven: Proven
) -> None:
    """Every field of every function means one place, and the one that the symbols tell."""
    chosen = {
        index: next(one for one in found[index] if one.start == start)
        for index, start in proven.functions.items()
    }
    for index, one in chosen.items():
        for (symbol, offset), address in one.means:
            if not _means(own, image, proven, chosen, (symbol, offset), address):
                name = own.symbols[index].name
                proven.differing[name] = f"it refers to {_called(own, symbol)} elsewhere"
    for name in proven.differing:
        for index in [i for i in proven.functions if own.symbols[i].name == name]:
            del proven.functions[index]


def _called(own: Relocatable, symbol: int) -> str:
    return own.symbols[symbol].name or own.parts[own.symbols[symbol].section].name


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
            text = part.content[at : part.content.index(b"\0", at) + 1]
            return image.bytes_at(address, len(text)) == text
        if part.flags & relocatable.MERGED:
            constant = part.content[at : at + part.entry]
            return image.bytes_at(address, len(constant)) == constant
        return True  # data without a name: of a sanitizer
    known = image.addresses(symbol.name)
    base = (address - offset) & _WORD
    return proven.data.get(index) == base and (not known or base in known)


class _DiffersError(Exception):
    """The text says in what."""


@dataclass(frozen=True, slots=True)
class _Function:
    own: Relocatable
    index: int
    rows: tuple[Row, ...]
    labels: frozenset[Place]

    def beside(self, piece: Piece, theirs: Sequence[Row], image: Image) -> _Beside:
        """Raises _DiffersError."""
        if len(theirs) < len(self.rows):
            raise _DiffersError(f"it has {len(self.rows)} instructions, not {len(theirs)}")
        code_, symbol = self.own.content(self.index), self.own.symbols[self.index]
        fields = self.own.fields(self.index)
        found = _Beside(piece.start)
        offsets = {row.offset: number for number, row in enumerate(self.rows)}
        for number, (mine, other) in enumerate(zip(self.rows, theirs, strict=False)):
            address = piece.start + other.offset
            found.at[mine.offset] = address
            if (self.index, mine.offset) in self.labels:
                continue
            inner = [f for f in fields if mine.offset <= f.offset < mine.offset + mine.size]
            one, two = _BRANCH.fullmatch(mine.text), _BRANCH.fullmatch(other.text)
            if one and two and one.groups()[:2] == two.groups()[:2]:
                target = int(two[3], 16)
                if inner:
                    behind = mine.offset + mine.size - inner[0].offset
                    place = meant(self.own, inner[0], behind)
                    found.means.append((place, target))
                elif offsets.get(int(one[3], 16)) != _number(theirs, target - piece.start):
                    raise _DiffersError(f"instruction {number} branches elsewhere")
                continue
            bytes_ = piece.code[other.offset : other.offset + other.size]
            wanted = code_[mine.offset : mine.offset + mine.size]
            found.means += self._fields(mine, inner, wanted, bytes_, address)
        return found

    def _fields(
        self,
        mine: Row,
        inner: Sequence[Relocation],
        wanted: bytes,
        bytes_: bytes,
        address: int,
    ) -> Iterator[tuple[Place, int]]:
        masked, held = bytearray(wanted), bytearray(bytes_)
        if len(wanted) != len(bytes_):
            raise _DiffersError(f"at {mine.offset:#x} it has {mine.text}")
        for each in inner:
            size = relocatable.SIZES.get(each.kind, 0)
            at = each.offset - mine.offset
            if not size or at + size > len(held):
                raise _DiffersError(f"at {mine.offset:#x} it has an unknown field")
            value = int.from_bytes(held[at : at + size], "little", signed=True)
            behind = mine.size - at
            if each.kind in relocatable.RELATIVE:
                value += address + mine.size
            masked[at : at + size] = held[at : at + size] = bytes(size)
            yield meant(self.own, each, behind), value & _WORD
        if masked != held:
            raise _DiffersError(f"at {mine.offset:#x} it has {mine.text}")


def _number(rows: Sequence[Row], offset: int) -> int | None:
    return next((n for n, row in enumerate(rows) if row.offset == offset), None)


def _labels(own: Relocatable) -> frozenset[Place]:
    """The jump labels of an object: function and offset."""
    found = set()
    for part, fields in own.relocations.items():
        if own.parts[part].name == "__jump_table":
            for each in fields:
                if each.offset % _JUMP_LABEL == 0:
                    found.add(meant(own, each, 0))
    return frozenset(found)


def names(own: Relocatable, indices: Iterable[int]) -> list[str]:
    """Names of symbols, sorted."""
    return sorted(own.symbols[index].name for index in indices)
