# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of a CPU feature that x86 kernels keep out of the way (static_cpu_has(), .altinstr_aux).

Each is `testb $bit, place; jne yes; jmp no`.  Functions jump to it, and it has no symbol: so it is
called by what it reads and where it goes, in an object as in an image.
"""

from __future__ import annotations

import re
from collections.abc import Callable

SECTION = ".altinstr_aux"
BYTES = 18
_TEST = re.compile(rb"\xf6\x05(.{4})(.)\x0f\x85(.{4})\xe9(.{4})", re.DOTALL)
_FIELDS = ((2, 7), (9, 13), (14, 18))  # where an address stands, and what it is relative to


def called(content: bytes, names: Callable[[int, int, int], str]) -> str:
    """The test in so many bytes, or "".  names: of a field at, relative to, of that value."""
    found = _TEST.fullmatch(content)
    if found is None:
        return ""
    place, yes, no = (
        names(at, end, int.from_bytes(content[at : at + 4], "little", signed=True))
        for at, end in _FIELDS
    )
    return f"[{place} & {found[2][0]:#x} ? {yes} : {no}]"
