# SPDX-License-Identifier: GPL-2.0-or-later
"""Text from kernels, guests, studies and strangers, made safe for a terminal and bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterable

LONGEST = 2000
_MOST = 6  # names that a sentence lists


def printable(text: str, longest: int = LONGEST) -> str:
    """`text` on one line: white space becomes a blank, and what a terminal could act on a "?": any
    control, format, surrogate and private character; a longer one ends in "...".
    """
    if len(text) > longest:
        text = text[: max(longest - 3, 0)] + "..."
    if text.isprintable():  # as nearly always, and a site tells millions of characters
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def quoted(text: str, longest: int = 80) -> str:
    """`text` for an error sentence: quoted ASCII with escapes; a longer one ends in "..."."""
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def meant(text: str, names: Iterable[str]) -> str:
    """How an action begins, for a mistyped name: "did you mean NAME? "; "" where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(text[:LONGEST], [*names], n=1)
    return f"did you mean {near[0]}? " if near else ""


def told_name(workload: str, scenario: str) -> str:
    """A scenario as pages call it: without the folder of a C file; of `run -- ls` it is "ls"."""
    file = workload.rpartition("/")[2]
    return scenario if file == f"{scenario}.c" else f"{file}:{scenario}"


def few(texts: Collection[str], most: int = 3, apart: str = ", ") -> str:
    """The first of several texts, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return apart.join([*texts][:most]) + more


def known(text: str, names: Iterable[str]) -> str:
    """What to do about a name that is none of these: the nearest, and all, or those like it."""
    from difflib import get_close_matches

    listed = [*names]
    many = len(listed) > 2 * _MOST or sum(map(len, listed)) > 200
    shown = get_close_matches(text[:LONGEST], listed, _MOST, 0) if many else listed
    others = f" and {len(listed) - len(shown)} others" if len(listed) > len(shown) else ""
    return f"{meant(text, listed)}known: {', '.join(shown) or 'none'}{others}"
