# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands for the windows of a phase: one of them, or one of each layout, added up.

A layout is a state of the kernel that decides how long a path is: where the nodes of its tree of
mappings end (brk() takes twice as long at an end), or how full its lists of pages are (each 31st
page moves all of them).  One layout alone says little; all of them together say what is paid on
average, and how often the dear ones are met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdelta.verdict.windows import Location, LocationKind, median, representative

HIT_PERCENT = 25  # above the median layout: what is dearer than that is hit
BATCH = 31  # so many layouts are how full a batch is (KD_BATCH of guest/kdelta.h), each once


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Several layouts.  counts: instructions in a window, by layout; hit: layouts that are dear."""

    counts: tuple[int, ...]
    hit: int

    @staticmethod
    def of(counts: Sequence[int]) -> Layouts:
        """The layouts with these counts."""
        return Layouts(counts=tuple(counts), hit=len(counts) - len(_not_hit(counts)))

    @property
    def usual(self) -> int:
        """What the sum would be if none were hit.

        How many are hit is a property of the program's mappings, and of the order in which they
        came to be, as much as of the kernel; this is not.  Of the layouts of a batch one is dear
        because the batch moves on then, which is the kernel's: they are all usual.
        """
        if len(self.counts) == BATCH:
            return sum(self.counts)
        calm = _not_hit(self.counts)
        return round(sum(calm) * len(self.counts) / len(calm))


def _not_hit(counts: Sequence[int]) -> list[int]:
    usual = median(counts)
    return [count for count in counts if 100 * (count - usual) <= HIT_PERCENT * usual]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The windows that stand for a phase: location.value is the sum of those at `indices`.

    Of several layouts location.minimum and maximum are what the sum would be if all layouts were
    like the cheapest or the dearest window.
    """

    location: Location
    indices: tuple[int, ...]
    layouts: Layouts | None = None


def choose(windows: Sequence[int], disturbed: Sequence[bool] = (), layouts: int = 1) -> Chosen:
    """Choose among the windows of a phase, which go through that many layouts in turn.

    disturbed: see stats.exact.representative.  Raises ValueError for no windows, or when not every
    layout has as many.
    """
    if layouts == 1:
        location = representative(windows, disturbed)
        return Chosen(location=location, indices=(location.index,))
    if len(windows) % layouts:
        raise ValueError(f"{len(windows)} windows of {layouts} layouts")
    each = [representative(windows[at::layouts], disturbed[at::layouts]) for at in range(layouts)]
    indices = tuple(at + layouts * one.index for at, one in enumerate(each))
    location = Location(
        value=sum(one.value for one in each),
        kind=LocationKind.MEAN,
        share=min(one.share for one in each),
        n=len(windows),
        minimum=layouts * min(windows),
        maximum=layouts * max(windows),
        index=indices[0],
        deviation=sum(one.deviation for one in each),
        left_out=sum(one.left_out for one in each),
    )
    return Chosen(
        location=location, indices=indices, layouts=Layouts.of([one.value for one in each])
    )
