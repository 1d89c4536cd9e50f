# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin's stream of counts, written by hand; the records are those of plugin/insns.c."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

KERNEL = 0xFFFFFFFF81000000
HEADER = [1, 0x31574154454C444B, 4, 4, 1]
ARMED = [4]
END = [5, 1, 16384]


def window(
    counts: Mapping[int, int], *, phase: int = 0, interrupts: int = 0, switched: int = 0
) -> list[int]:
    user = sum(count for address, count in counts.items() if address < 1 << 63)
    pairs = [word for pair in counts.items() for word in pair]
    kernel = sum(counts.values()) - user
    return [2, 0, phase, user, kernel, interrupts, switched, len(counts), *pairs]


def strings(*rows: tuple[int, str, str, int]) -> list[int]:
    """Rows of (address, "m" or "s", width, ends), told before the window that has them."""
    words = [word for at, name, width, ends in rows for word in (at, kind(name, width), ends)]
    return [6, len(rows), *words]


def kind(name: str, width: str) -> int:
    return ord(name) << 8 | ord(width)


def write(path: Path, *records: list[int]) -> Path:
    words = [word for record in records for word in record]
    path.write_bytes(struct.pack(f"<{len(words)}Q", *words))
    return path
