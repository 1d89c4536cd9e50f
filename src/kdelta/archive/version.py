# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian package versions: their order, and the upstream release inside one."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

_CHUNK = re.compile(r"(\D*)(\d*)")


def compare(left: str, right: str) -> int:
    """Negative, zero or positive, as dpkg --compare-versions orders the two (deb-version(7))."""
    epoch_left, upstream_left, revision_left = split(left)
    epoch_right, upstream_right, revision_right = split(right)
    return (
        epoch_left - epoch_right
        or _compare_part(upstream_left, upstream_right)
        or _compare_part(revision_left, revision_right)
    )


key = functools.cmp_to_key(compare)
"""Sort key of a version string."""


def split(version: str) -> tuple[int, str, str]:
    """Epoch, upstream version, Debian revision ("" when absent) of "1:6.1.192-2"."""
    head, colon, rest = version.partition(":")
    epoch, body = (int(head), rest) if colon and head.isdigit() else (0, version)
    upstream, dash, revision = body.rpartition("-")
    return (epoch, upstream, revision) if dash else (epoch, body, "")


def _compare_part(left: str, right: str) -> int:
    for (text_left, number_left), (text_right, number_right) in _chunks(left, right):
        order = [_letter(c) for c in text_left] + [0]
        other = [_letter(c) for c in text_right] + [0]
        if order != other:
            return -1 if order < other else 1
        difference = int(number_left or 0) - int(number_right or 0)
        if difference:
            return difference
    return 0


def _chunks(left: str, right: str) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    pairs_left = _CHUNK.findall(left)
    pairs_right = _CHUNK.findall(right)
    for at in range(max(len(pairs_left), len(pairs_right))):
        yield (
            pairs_left[at] if at < len(pairs_left) else ("", ""),
            pairs_right[at] if at < len(pairs_right) else ("", ""),
        )


def _letter(character: str) -> int:
    # "~" sorts before the end of the part (0), letters before all other characters.
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
