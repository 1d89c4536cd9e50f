# SPDX-License-Identifier: GPL-2.0-or-later
"""Text from kernels, guests, studies and strangers, made safe for a terminal and bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterable

LONGEST = 2000
_MOST = 12  # names that a sentence lists


def printable(text: str, longest: int = LONGEST) -> str:
    """`text` on one line: white space becomes a blank, and what a terminal could act on a "?".

    That is every control, format (direction override), surrogate and private character.  Text
    longer than `longest` characters ends in "...".
    """
    if len(text) > longest:
        text = text[: max(longest - 3, 0)] + "..."
    if text.isprintable():  # as nearly always, and a site tells millions of characters
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def quoted(text: str, longest: int = 80) -> str:
    """`text` for an error sentence: in quotes, in ASCII, with escapes for all else.

    Text longer than `longest` characters ends in "...".
    """
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def meant(text: str, names: Iterable[str]) -> str:
    """How an action begins, for a mistyped name: "did you mean NAME? "; "" where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(text[:LONGEST], [*names], n=1)
    return f"did you mean {near[0]}? " if near else ""


def few(texts: Collection[str], most: int = 3, apart: str = ", ") -> str:
    """The first of several texts, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return apart.join([*texts][:most]) + more


def known(text: str, names: Iterable[str]) -> str:
    """What to do about a name that is none of these: the nearest, and all, or the first of many."""
    listed = [*names]
    return f"{meant(text, listed)}known: {few(listed, _MOST) or 'none'}"
