# SPDX-License-Identifier: GPL-2.0-or-later
"""Which addresses ran in the windows of a plugin's stream, without how often.

For a view of a hundred scenarios: of the stream's records only code and windows are looked at, of
these only what was asked for, and no result of a trial is made here.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from kdelta.attribution import stream
from kdelta.stats.exact import choose

_OTHER = stream.KINDS - {stream.CODE, stream.WINDOW}


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
        slots, counts = self.words[stream.WINDOW_HEAD :: 2], self.words[stream.WINDOW_HEAD + 1 :: 2]
        total = self.user + self.kernel
        try:
            counted = sum(map(operator.mul, map(self.sizes.__getitem__, slots), counts))
        except KeyError:
            raise stream.damaged("a window has code that was not told", self.place) from None
        if len(slots) != len(counts) or counted != total:
            raise stream.damaged(f"a window of {total} instructions has {counted}", self.place)
        return set(compress(slots, counts))


def windows(content: bytes, place: str) -> list[ReachedWindow]:
    """Those of a stream, in execution order; place: of it, for complaints.

    Raises InfraError when it is none.
    """
    code: dict[int, array[int]] = {}
    sizes: dict[int, int] = {}
    found = []
    for kind, words in stream.opened(content, place).records(_OTHER):
        if kind == stream.WINDOW:
            found.append(ReachedWindow(words, code, sizes, place))
        elif code.setdefault(words[0], words) is words:
            sizes[words[0]] = len(words) - 1
        else:
            raise stream.damaged("code is told twice", place)
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
