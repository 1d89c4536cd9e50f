# SPDX-License-Identifier: GPL-2.0-or-later
"""Where members of structs are, by the types that a kernel carries in itself (BTF).

Layout: Documentation/bpf/btf.rst of Linux.
"""

from __future__ import annotations

import contextlib
import re
import struct
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kdelta.kernels.image import UnpackedKernel

_MAGIC = b"\x9f\xeb\x01\x00\x18\x00\x00\x00"  # little-endian, version 1, a header of 24 bytes
_HEADER = struct.Struct("<8x4I")
_TYPE = struct.Struct("<3I")
_MEMBER = struct.Struct("<3I")
_VOID = (0, 0, 0)
_STRUCT, _UNION = 4, 5
# Bytes behind a type of a kind, and of each of its parts.
_BEHIND = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH = {_STRUCT: 12, _UNION: 12, 6: 8, 13: 8, 15: 12, 19: 12}


@dataclass(frozen=True, slots=True)
class Types:
    """The types of a kernel.  places: in the content, by a type's number, from 1 on; names: where
    its strings begin; structs: numbers by name.
    """

    content: bytes
    names: int
    places: array[int]
    structs: Mapping[str, int]

    def offsets(self, of: str) -> dict[str, int]:
        """Bytes from the begin of a struct to each of its members; none of what it is not."""
        return {name: at for at, name in self._members(self.structs.get(of, 0))}

    def member(self, of: str, offset: int) -> str:
        """The member of a struct that is at an offset, "" for none; of a union its first."""
        number = self.structs.get(of, 0)
        if offset >= self._type(number)[2]:
            return ""
        begun = [(at, name) for at, name in self._members(number) if at <= offset]
        return max(begun, key=lambda one: one[0], default=(0, ""))[1]

    def _members(self, number: int, base: int = 0) -> Iterator[tuple[int, str]]:
        """Offset and name, those of members without a name in their place."""
        _, info, _ = self._type(number)
        if info >> 24 & 31 not in (_STRUCT, _UNION):
            return
        first = self.places[number] + _TYPE.size
        for part in range(info & 0xFFFF):
            of, kind, at = _MEMBER.unpack_from(self.content, first + part * _MEMBER.size)
            # Of a struct with bit fields the upper byte is the width of one.
            at = base + (at & 0xFFFFFF if info >> 31 else at) // 8
            _, behind, size = self._type(kind)
            if not of:
                yield from self._members(kind, at)
            elif size or behind >> 24 & 31 != _STRUCT:  # else padding up to the next line
                yield at, _text(self.content, self.names + of)

    def _type(self, number: int) -> tuple[int, int, int]:
        """Name, kind and number of parts, and size or type; zeros of 0, which is void."""
        own, info, last = _TYPE.unpack_from(self.content, self.places[number]) if number else _VOID
        return own, info, last


def read(kernel: UnpackedKernel) -> Types | None:
    """The types of a kernel; None where it carries none."""
    every: list[Types] = []
    for segment in kernel.segments:
        content = bytes(segment.content)
        # Programs that a kernel brings along have fewer types of their own.
        for match in re.finditer(re.escape(_MAGIC), content):
            with contextlib.suppress(struct.error, ValueError):
                every.append(_at(content, match.start()))
    return max(every, key=lambda types: len(types.places), default=None)


def _at(content: bytes, start: int) -> Types:
    """The types that begin at a place.  Raises struct.error, ValueError."""
    types, size, strings, length = _HEADER.unpack_from(content, start)
    names = 24 + strings
    content = content[start : start + names + length]
    places, structs = array("Q", (0,)), dict[str, int]()
    at, end = 24 + types, 24 + types + size
    while at < end:
        own, info, _ = _TYPE.unpack_from(content, at)
        kind, parts = info >> 24 & 31, info & 0xFFFF
        if kind == _STRUCT and own:
            structs.setdefault(_text(content, names + own), len(places))
        places.append(at)
        at += _TYPE.size + _BEHIND.get(kind, 0) + _EACH.get(kind, 0) * parts
    return Types(content, names, places, structs)


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(0, at)].decode(errors="replace")
