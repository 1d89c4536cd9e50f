# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of several arms is the old one: by versions, by words, else as they come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kdelta.foreign.wordlists import vocabulary

_VERSION = re.compile(
    r"(?:linux|kernel|vmlinuz|v|k|mainline|stable)?[-_ ]?v?(\d+(?:\.\d+)+)(?:[-_~.]?(rc\d+))?"
    r"(?![a-z%]|\d)",  # 99.0th and 1.5x are no versions
    re.IGNORECASE,
)
# 97.7 is a figure: without a word before it, a version is of Linux 2 to 9.
_BARE = re.compile(r"[2-9]\.\d{1,2}(?!\d)", re.ASCII)
_SHORT = re.compile(r"(?P<start>\D*[2-9]\.)(?P<minor>[1-9])\Z", re.ASCII)
_OLD = vocabulary(
    "base baseline parent before old vanilla stock unpatched orig original control"
    " without good reference ref clean pre"
)
_NEW = vocabulary(
    "patched child after new fix fixed patch candidate with bad test series modified"
    " treated treatment experiment post regressed changed revert reverted"
)
_SWITCHES = (("0", "1"), ("no", "yes"), ("n", "y"), ("off", "on"), ("false", "true"))
_WORD = re.compile(r"[a-z]+")
_AGAIN = re.compile(
    r"(?:[-_ .]?(?:again|repeat(?:ed)?|bis|rerun|[ab12]|first|second|pre|post))\Z", re.I
)


def version_key(name: str) -> tuple[tuple[int, ...], bool, str, bool]:
    """Sorts 6.9 before 6.12, 7.1-rc3 before 7.1, and a plain version before its variants."""
    found = _VERSION.match(name)
    if not found:
        return ((), True, "", False)
    numbers = tuple(int(part) for part in found[1].split(".")[:6] if len(part) < 10)
    return (numbers, not found[2], (found[2] or "").lower(), found.end() < len(name))


def is_version(name: str) -> bool:
    """True for a name that begins with a kernel's version."""
    return bool(_VERSION.match(name)) and (not name[:1].isdigit() or bool(_BARE.match(name)))


def lost_zero(names: Iterable[str]) -> str:
    """A version that may have lost its last digit: 6.1 beside 6.9 or 6.11 may be 6.10.

    Spreadsheets and JSON write numbers so.  "" for none.
    """
    known = set(names)
    for name in known:
        found = _SHORT.match(name)
        if found and f"{found[0]}0" not in known:
            ten = 10 * int(found["minor"])
            if known & {f"{found['start']}{ten - 1}", f"{found['start']}{ten + 1}"}:
                return name
    return ""


def side(name: str) -> int:
    """-1 for a word of an old arm (base, parent), 1 for a word of a new one (patched), else 0."""
    words = _WORD.findall(name.lower())
    return any(word in _NEW for word in words) - any(word in _OLD for word in words)


def in_order(arms: Iterable[str], given: Sequence[str] = ()) -> tuple[list[str], str]:
    """The arms, oldest first, and by what: "given", "versions", "words", or "" as they come."""
    names = list(arms)
    if given and all(name in given for name in names):
        return sorted(names, key=given.index), "given"
    if len(names) > 1 and all(is_version(name) for name in names):
        # Not by the text: of variants of one version the first that was met comes first.
        ranked = sorted(names, key=version_key)
        keys = [version_key(name) for name in ranked]
        return _sided(ranked), "versions" if len(set(keys)) == len(keys) else _how(ranked, keys)
    for switch in _SWITCHES:
        if sorted(name.lower() for name in names) == sorted(switch):
            return sorted(names, key=lambda name: switch.index(name.lower())), "words"
    sides = [side(name) for name in names]
    if any(sides):
        ranked = sorted(names, key=side)
        again = len(names) == 3 and stem(ranked[0]) == stem(ranked[1])
        if again and not count_on(names):
            return [ranked[0], ranked[2], ranked[1]], "words"  # the old arm, the new one, and again
        if len(names) == 2 or sorted(sides) == [-1, *[1] * (len(names) - 1)]:
            return ranked, "words"
        # patch1 and a name that says nothing stand as they come, behind what is called old.
        return sorted(names, key=lambda name: side(name) >= 0), ""
    return names, ""


def _sided(ranked: list[str]) -> list[str]:
    """Within one version, the words of old and new arms."""
    return sorted(
        ranked, key=lambda name: (*version_key(name)[:3], side(name), version_key(name)[3])
    )


def _how(ranked: Sequence[str], keys: Sequence[tuple[tuple[int, ...], bool, str, bool]]) -> str:
    same = [name for name, key in zip(ranked, keys, strict=True) if keys.count(key) > 1]
    return "versions" if len({side(name) for name in same}) == len(same) else ""


def count_on(names: Sequence[str]) -> bool:
    """True for v1, v2, v3, or patch-a, patch-b, patch-c: none of them is the old one again."""
    return len({name[:-1] for name in names}) == 1


def stem(name: str) -> str:
    """A name without what says that it is the first or the second of two: parent-a, base2."""
    return _AGAIN.sub("", name)
