# SPDX-License-Identifier: GPL-2.0-or-later
"""The code that a function executed: its instructions as they ran, and how often each did."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from kdelta.arch import Arch
from kdelta.disassembly.addr2line import Chain
from kdelta.disassembly.objdump import Piece, rows
from kdelta.printable import printable

_ADDRESS = re.compile(r"\b(?:0x)?([0-9a-f]{12,16})\b")


@dataclass(frozen=True, slots=True)
class ExecutedInsn:
    """An instruction that ran.  offset: from the function's begin; count: per window.

    lines: where it comes from, as far as that is known.
    """

    offset: int
    size: int
    count: int
    text: str
    lines: Chain = ()


def executed(
    instructions: Iterable[tuple[int, bytes, int]],
    start: int,
    end: int,
    architecture: Arch,
    names: Mapping[int, str] = MappingProxyType({}),
) -> tuple[ExecutedInsn, ...]:
    """Those of a function, by address.

    instructions: (address, its bytes, how often) of all that ran.  Addresses within the function
    are told from its begin, others by the name that `names` has for them.  Raises InfraError
    without an objdump for the architecture.
    """
    counts: dict[int, tuple[bytes, int]] = {}
    for address, code, count in instructions:
        if start <= address < end and code:
            before = counts[address][1] if address in counts else 0
            counts[address] = code, before + count
    if not counts:
        return ()
    near = partial(_near, start=start, end=end, names=names)
    pieces = [Piece(start=address, code=code) for address, (code, _) in sorted(counts.items())]
    found = []
    for piece, told in zip(pieces, rows(pieces, architecture), strict=True):
        text = _ADDRESS.sub(lambda seen: near(int(seen[1], 16)), told[0].text)
        count = counts[piece.start][1]
        found.append(ExecutedInsn(piece.start - start, len(piece.code), count, text))
    return tuple(found)


def _near(address: int, *, start: int, end: int, names: Mapping[int, str]) -> str:
    if start <= address < end:
        return f"+{address - start:#x}"
    return printable(names.get(address, f"{address:#x}"))
