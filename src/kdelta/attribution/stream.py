# SPDX-License-Identifier: GPL-2.0-or-later
"""The stream of a QEMU plugin: little-endian 64-bit words, in records behind a header.

A record is its kind, the number of words behind that, and these, which are described at emit_*() in
plugin/*.c.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from kdelta.errors import InfraError

_MAGIC = 0x3230544C45444B00
HEADER, WINDOW, ERROR, ARMED, END, STRINGS, CODE, CONTEXTS, CALLS = range(1, 10)
BYTES, PAGES, LINES, ARGUMENTS, SYSCALLS, WAKES, SCALARS, BEHIND = range(10, 18)
OUTSIDE, OUTSIDE_SCALARS, SPENT, TOUCHED, ORDER, SLABS, SHARED, AREAS = range(18, 26)
BESIDE = (CALLS, PAGES, LINES, *range(ARGUMENTS, AREAS + 1))  # of the next window
WINDOW_HEAD = 6  # words of a window before its rows of a slot and a count
# Words of a record behind its kind and their number: at least so many, and then rows of so many.
_FIELDS = {
    HEADER: (4, 0),
    WINDOW: (WINDOW_HEAD, 2),
    ERROR: (3, 0),
    ARMED: (0, 0),
    END: (2, 0),
    STRINGS: (0, 4),
    CODE: (2, 1),
    CONTEXTS: (0, 3),
    CALLS: (0, 3),
    BYTES: (1, 2),
    PAGES: (0, 4),
    LINES: (0, 2),
    ARGUMENTS: (0, 3),
    SYSCALLS: (0, 3),
    WAKES: (1, 0),
    SCALARS: (0, 6),
    BEHIND: (1, 0),
    OUTSIDE: (1, 3),
    OUTSIDE_SCALARS: (0, 6),
    SPENT: (0, 2),
    TOUCHED: (4, 2),  # before: 4
    ORDER: (2, 0),
    SLABS: (0, 6),
    SHARED: (0, 6),
    AREAS: (0, 1),
}
_FIRST = 2 + _FIELDS[HEADER][0]  # word behind the header


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream whose header is ours.  place: of it, for complaints."""

    words: array[int]
    place: str

    def records(self, left_out: Collection[int] = ()) -> Iterator[tuple[int, array[int]]]:
        """Kind and words of the whole records behind the header, but of the kinds left out.

        One cut short at the end (QEMU was killed) is left out.  Raises InfraError for others.
        """
        words, at = self.words, _FIRST
        while at + 2 <= len(words):
            kind, size = words[at], words[at + 1]
            fewest, row = _FIELDS.get(kind, (0, 0))
            beyond = size - fewest
            fits = beyond >= 0 and not (beyond % row if row else beyond)
            if kind not in _FIELDS or kind == HEADER or not fits:
                raise damaged(f"at word {at}", self.place)
            if at + 2 + size > len(words):
                return
            if kind not in left_out:
                yield kind, words[at + 2 : at + 2 + size]
            at += 2 + size


def opened(content: bytes, place: str) -> Stream:
    """A stream by its bytes.  Raises InfraError when they are none of this kdelta's plugin."""
    words: array[int] = array("Q")
    words.frombytes(memoryview(content)[: len(content) // 8 * 8])
    if words[:3].tolist() != [HEADER, _FIELDS[HEADER][0], _MAGIC] or len(words) < _FIRST:
        raise InfraError(
            "no counts of this kdelta's plugin: it did not load, or is another's", place=place
        )
    return Stream(words, place)


def write(words: array[int], path: Path) -> None:
    """A file that the plugin reads: little-endian 64-bit words."""
    path.write_bytes(words.tobytes())


def damaged(how: str, place: str) -> InfraError:
    """The error that says so."""
    return InfraError(f"the plugin's counts are damaged: {how}", place=place)
