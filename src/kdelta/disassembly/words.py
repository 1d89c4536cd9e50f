# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether two pieces of arm64 code are one although they lie elsewhere, by their words; pure.

An instruction is four bytes.  What moves with the code: branches relative to themselves, and
addresses that are made of a page (adrp) and an offset in it (add, loads, stores).  Anything else
that differs is a difference; what this cannot follow, too, so that it errs to "differs".
"""

from __future__ import annotations

import struct
from collections.abc import Callable

_SIZE = 4
_BRANCH_BITS, _BRANCH = 0x7C000000, 0x14000000  # b, bl
_ADRP_BITS, _ADRP = 0x9F000000, 0x90000000
_ADD_BITS, _ADD = 0xFFC00000, 0x91000000  # add (64-bit), an immediate without shift
_MEMORY_BITS, _MEMORY = 0x3B000000, 0x39000000  # loads and stores, an unsigned offset
_VECTOR = 0x04000000
_OFFSET = 0xFFF << 10

Same = Callable[[int, int], bool]
"""True when an address of one kernel is the same place as an address of the other."""


def alike(one: bytes, other: bytes, a: int, b: int, same: Same) -> bool:
    """True when two pieces of equal size are surely the same; a, b: where they lie."""
    if len(one) != len(other) or len(one) % _SIZE:
        return False
    pages: dict[int, tuple[int, int]] = {}  # register -> page of each
    open_pages: set[int] = set()  # registers whose pages nothing showed to be the same yet
    words = zip(struct.iter_unpack("<I", one), struct.iter_unpack("<I", other), strict=True)
    for number, ((x,), (y,)) in enumerate(words):
        at = number * _SIZE
        if _is_page(x) and _is_page(y) and x & 0x1F == y & 0x1F:
            register = x & 0x1F
            if register in open_pages:
                return False
            pages[register] = _page(x, a + at), _page(y, b + at)
            open_pages.add(register)
            continue
        base, differing = (x >> 5) & 0x1F, x ^ y
        if base in pages and _in_page(x) and not differing & ~_OFFSET:
            mine, theirs = pages[base]
            if not same(mine + _offset(x), theirs + _offset(y)):
                return False
            open_pages.discard(base)
            if x & _ADD_BITS == _ADD or (x & 0x1F) == base:
                _written(x & 0x1F, pages, open_pages)
            continue
        if not differing:
            continue
        branches = x & _BRANCH_BITS == _BRANCH == y & _BRANCH_BITS
        if not branches or (x ^ y) >> 26 or not same(_target(x, a + at), _target(y, b + at)):
            return False
    return not open_pages


def _written(register: int, pages: dict[int, tuple[int, int]], still: set[int]) -> None:
    if register not in still:
        pages.pop(register, None)


def _is_page(word: int) -> bool:
    return word & _ADRP_BITS == _ADRP


def _in_page(word: int) -> bool:
    return word & _ADD_BITS == _ADD or word & _MEMORY_BITS == _MEMORY


def _page(word: int, at: int) -> int:
    high = (word >> 5) & 0x7FFFF
    return (at & ~0xFFF) + (_signed(high << 2 | (word >> 29) & 3, 21) << 12)


def _offset(word: int) -> int:
    number = (word >> 10) & 0xFFF
    if word & _MEMORY_BITS != _MEMORY:
        return number
    scale = word >> 30
    if word & _VECTOR and (word >> 23) & 1:
        scale = 4  # 16 bytes
    return number << scale


def _target(word: int, at: int) -> int:
    return at + (_signed(word & 0x3FFFFFF, 26) << 2)


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number
