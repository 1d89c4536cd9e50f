# SPDX-License-Identifier: GPL-2.0-or-later
"""arm64 makes an address of two instructions: a page (adrp), and later an offset in it.

Linked code shows both as numbers that depend on where things lie.  Here the two are brought
together, so that they can be named.  Only what is certain is: within a stretch without branch
targets, as long as the register has not been written again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_PAGE = re.compile(r"adrp (x\d+), 0x([0-9a-f]+)")
_ADD = re.compile(r"add x\d+, (x\d+), #(0x[0-9a-f]+|\d+)")
_MEMORY = re.compile(r"\w+ .*\[(x\d+)(?:, #(0x[0-9a-f]+|\d+))?\]")
_WRITTEN = re.compile(r"(?!st|cmp|cmn|tst|cb|tb|prfm|b\b|b\.)\w+ ([wx])(\d+),(?: ([wx])(\d+), \[)?")
_CALL = re.compile(r"bl(?:r)? ")
_LOST_IN_CALLS = {f"x{number}" for number in range(19)} | {"x30"}


def together(texts: Sequence[str], starts: Collection[int]) -> dict[int, int]:
    """Index of an instruction -> the address that it completes, or that its page is for.

    texts: as objdump says them; starts: indices that something branches to.
    """
    found: dict[int, int] = {}
    pages: dict[str, tuple[int, int]] = {}  # register -> its page, index of its adrp
    for index, text in enumerate(texts):
        if index in starts:
            pages.clear()
        use = _ADD.fullmatch(text) or _MEMORY.fullmatch(text)
        if use is not None and use[1] in pages:
            page, at = pages[use[1]]
            found[index] = page + int(use[2] or "0", 0)
            found.setdefault(at, found[index])
        written = _WRITTEN.match(text)
        if written is not None:
            for number in (written[2], written[4]):
                pages.pop(f"x{number}", None)
        if _CALL.match(text):
            for register in _LOST_IN_CALLS:
                pages.pop(register, None)
        made = _PAGE.fullmatch(text)
        if made is not None:
            pages[made[1]] = int(made[2], 16), index
    return found


def with_name(text: str, name: str) -> str:
    """The text with its page or its offset replaced by what they mean together."""
    if _PAGE.fullmatch(text):
        return f"{text.rpartition(' ')[0]} {name}"
    if _ADD.fullmatch(text):
        return f"{text.rpartition(' ')[0]} {name}"
    return re.sub(r"\[(x\d+)(?:, #[^\]]*)?\]", lambda match: f"[{match[1]}, {name}]", text)
