# SPDX-License-Identifier: GPL-2.0-or-later
"""Which addresses ran in the windows of a plugin's stream, without how often.

For a view of a hundred scenarios: of the stream's records only code and windows are looked at, of
these only what was asked for, and no result of a trial is made here.
"""

from __future__ import annotations

import operator
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from kdelta.errors import InfraError
from kdelta.stats.layouts import choose

# Kinds of records, and words before a row in each, as emit_*() in plugin/insns.c has them.
_HEADER, _WINDOW, _CODE = 1, 2, 7
_MAGIC = 0x3230544C45444B00
_HEAD = 6  # words of the header and of a window's figures


@dataclass(frozen=True, slots=True)
class ReachedWindow:
    """A window as its record has it.

    code: of each slot its number and then its addresses; sizes: of each slot how many these are.
    """

    words: array[int]
    code: dict[int, array[int]]
    sizes: dict[int, int]
    place: str

    @property
    def phase(self) -> int:
        """Its number in the marks."""
        return self.words[1]

    @property
    def user(self) -> int:
        """Instructions."""
        return self.words[2]

    @property
    def kernel(self) -> int:
        """Instructions."""
        return self.words[3]

    def slots(self) -> set[int]:
        """The slots that ran.  Raises InfraError where they are not what was counted."""
        slots, counts = self.words[_HEAD::2], self.words[_HEAD + 1 :: 2]
        total = self.user + self.kernel
        try:
            counted = sum(map(operator.mul, map(self.sizes.__getitem__, slots), counts))
        except KeyError:
            raise _damaged("a window has code that was not told", self.place) from None
        if len(slots) != len(counts) or counted != total:
            raise _damaged(f"a window of {total} instructions has {counted}", self.place)
        return set(compress(slots, counts))


def windows(stream: bytes, place: str) -> list[ReachedWindow]:
    """Those of a stream, in execution order; a record cut short at its end is left out.

    place: of the stream, for complaints.  Raises InfraError when it is none.
    """
    words: array[int] = array("Q")
    words.frombytes(memoryview(stream)[: len(stream) // 8 * 8])
    if sys.byteorder == "big":
        words.byteswap()
    if len(words) < _HEAD or (words[0], words[2]) != (_HEADER, _MAGIC):
        raise InfraError("no counts of kdelta's plugin", place=place)
    code: dict[int, array[int]] = {}
    sizes: dict[int, int] = {}
    found = []
    at = 0
    while at + 2 <= len(words):
        kind, begin = words[at], at + 2
        at = begin + words[at + 1]
        if at > len(words):
            break
        if kind == _CODE:
            told = words[begin:at]
            if not told or code.setdefault(told[0], told) is not told:
                raise _damaged("code is told twice, or without a number", place)
            sizes[told[0]] = len(told) - 1
        elif kind == _WINDOW:
            if at - begin < _HEAD:
                raise _damaged("a window without its figures", place)
            found.append(ReachedWindow(words[begin:at], code, sizes, place))
    return found


def addresses(own: Sequence[ReachedWindow], layouts: int = 1) -> set[int]:
    """What ran in the window that stands for those of one phase, or in those that do."""
    totals = [window.user + window.kernel for window in own]
    chosen = choose(totals, [bool(window.words[5]) for window in own], layouts).indices
    slots: set[int] = set()
    for index in chosen:
        slots |= own[index].slots()
    found: set[int] = set()
    for slot in slots:
        found.update(own[0].code[slot][1:])
    return found


def _damaged(how: str, place: str) -> InfraError:
    return InfraError(f"the plugin's counts are damaged: {how}", place=place)
