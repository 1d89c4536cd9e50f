# SPDX-License-Identifier: GPL-2.0-or-later
"""Where members of structs are, by the types that a kernel carries in itself (BTF).

Layout: Documentation/bpf/btf.rst of Linux.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator, Mapping, Sequence

from kdelta.kernels.image import UnpackedKernel

_MAGIC = b"\x9f\xeb\x01\x00\x18\x00\x00\x00"  # little-endian, version 1, a header of 24 bytes
_HEADER = struct.Struct("<8x4I")
_TYPE = struct.Struct("<3I")
_MEMBER = struct.Struct("<3I")
_STRUCT, _UNION = 4, 5
# Bytes behind a type of a kind, and of each of its parts.
_BEHIND = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH = {_STRUCT: 12, _UNION: 12, 6: 8, 13: 8, 15: 12, 19: 12}


def offsets(
    kernel: UnpackedKernel, wanted: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], int]:
    """Bytes from the begin of structs to their own members, by (struct, member): those it has."""
    found: dict[tuple[str, str], int] = {}
    for segment in kernel.segments:
        content = bytes(segment.content)
        # Programs that a kernel brings along have types of their own.
        for match in re.finditer(re.escape(_MAGIC), content):
            with contextlib.suppress(struct.error, ValueError):
                found = dict(_members(content, match.start(), wanted)) | found
    return found


def _members(
    content: bytes, start: int, wanted: Mapping[str, Sequence[str]]
) -> Iterator[tuple[tuple[str, str], int]]:
    """The same of the types that begin at a place.  Raises struct.error, ValueError."""
    types, size, strings, _ = _HEADER.unpack_from(content, start)
    names = start + 24 + strings

    def name(at: int) -> str:
        return content[names + at : content.index(0, names + at)].decode(errors="replace")

    at, end = start + 24 + types, start + 24 + types + size
    while at < end:
        own, info, _ = _TYPE.unpack_from(content, at)
        kind, parts = info >> 24 & 31, info & 0xFFFF
        at += _TYPE.size
        if kind == _STRUCT and (members := wanted.get(name(own))):
            for part in range(parts):
                of, _, offset = _MEMBER.unpack_from(content, at + part * _MEMBER.size)
                if (member := name(of)) in members:
                    # Of a struct with bit fields the upper byte is the width of one.
                    yield (name(own), member), (offset & 0xFFFFFF if info >> 31 else offset) // 8
        at += _BEHIND.get(kind, 0) + _EACH.get(kind, 0) * parts
