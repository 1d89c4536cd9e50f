# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin's stream of counts, written by hand; the records are those of plugin/stream.h."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

KERNEL = 0xFFFFFFFF81000000
HEADER = [1, 4, 0x3230544C45444B00, 4, 4, 1]
ARMED = [4, 0]
END = [5, 2, 1, 16384]


_slots = itertools.count(1)


def window(
    counts: Mapping[int, int], *, phase: int = 0, interrupts: int = 0, switched: int = 0
) -> list[int]:
    """A window, and before it the code of its slots: new ones, one an address."""
    slots = list(itertools.islice(_slots, len(counts)))
    told = [word for slot, at in zip(slots, counts, strict=True) for word in code(slot, at)]
    rows = list(zip(slots, counts.values(), strict=True))
    user = sum(count for address, count in counts.items() if address < 1 << 63)
    return [*told, *bare(rows, user, sum(counts.values()) - user, phase, interrupts, switched)]


def code(slot: int, *addresses: int) -> list[int]:
    return [7, 1 + len(addresses), slot, *addresses]


def encodings(slot: int, *instructions: bytes) -> list[int]:
    """The bytes of the instructions of a slot that was told."""
    padded = [code.ljust(15, b"\0") + bytes([len(code)]) for code in instructions]
    words = [int.from_bytes(part, "little") for code in padded for part in (code[:8], code[8:])]
    return [10, 1 + len(words), slot, *words]


def bare(
    rows: Sequence[tuple[int, int]],
    user: int,
    kernel: int,
    phase: int = 0,
    interrupts: int = 0,
    switched: int = 0,
) -> list[int]:
    """A window of slots that were told."""
    words = [word for row in rows for word in row]
    return [2, 6 + len(words), 0, phase, user, kernel, interrupts, switched, *words]


def strings(*rows: tuple[int, str, str, int, int]) -> list[int]:
    """Rows of (address, letter, width, ends, bytes), told before the window that has them."""
    words = [word for at, name, width, *told in rows for word in (at, kind(name, width), *told)]
    return [6, len(words), *words]


def contexts(*rows: tuple[int, int, int]) -> list[int]:
    """Rows of (number, parent, function)."""
    return [8, 3 * len(rows), *itertools.chain.from_iterable(rows)]


def calls(*rows: tuple[int, int, int]) -> list[int]:
    """Rows of (number, calls, instructions), told before the window that has them."""
    return [9, 3 * len(rows), *itertools.chain.from_iterable(rows)]


def syscalls(*rows: tuple[int, int, int], wakes: int = 0) -> list[int]:
    """Rows of (number, errno, how often), and wakes, told before the window that has them."""
    return [14, 3 * len(rows), *itertools.chain.from_iterable(rows), 15, 1, wakes]


def scalars(*rows: tuple[int, int, int, int, int, int]) -> list[int]:
    """Rows of (number, which, least, most, sum, digest), told before their window."""
    return [16, 6 * len(rows), *itertools.chain.from_iterable(rows)]


def outside(user: int, calls: Sequence[int], values: Sequence[int] = ()) -> list[int]:
    """Instructions, and words as of syscalls() and scalars(), told before their window."""
    words = calls[2 : 2 + calls[1]]
    return [18, 1 + len(words), user, *words, 19, len(values[2:]), *values[2:]]


def kind(name: str, width: str) -> int:
    return ord(name) << 8 | ord(width)


def write(path: Path, *records: list[int]) -> Path:
    words = [word for record in records for word in record]
    path.write_bytes(struct.pack(f"<{len(words)}Q", *words))
    return path
