# SPDX-License-Identifier: GPL-2.0-or-later
"""Where an exact count lies: the one window that stands for many, and how well it repeats.

Counts of a single-threaded path repeat to the instruction, and a timer tick shows as a rare larger
window.  So nothing here averages: every value reported is a value that was observed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

MODE_SHARE = 0.25
LEAST_CALM = 3  # undisturbed windows from which the others are left out
APART = 0.01  # share of the value from which another count that repeats is a second length
RARE = 5  # one window in so many may be far away: what is met twice in eight is a second level


class LocationKind(StrEnum):
    """How a representative value was chosen."""

    MODE = "mode"  # the most frequent value
    MEDIAN = "median"  # no value is frequent enough: the lower median, still an observed value
    MEAN = "mean"  # of several layouts: one observed value of each, see stats.layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The value that stands for a list of counts, all in the unit of those counts.

    share: part (0..1] of the n counts that equal value; left_out: further windows that were not
    looked at, because they were disturbed.  minimum, maximum: of all windows.
    index: position of the first count that equals value, so that whatever else was recorded for
    that one window (its functions) sums exactly to value.
    deviation: the counts lie within this distance of value, but for one in RARE.  (Half of them
    would not do: of a path that takes one of two lengths half agree, and the other length is no
    accident.)  second: another count that repeats and lies further than that share APART from
    value, the most frequent such; None: there is none.
    """

    value: int
    kind: LocationKind
    share: float
    n: int
    minimum: int
    maximum: int
    index: int
    deviation: int
    left_out: int = 0
    second: int | None = None


def representative(windows: Sequence[int], disturbed: Sequence[bool] = ()) -> Location:
    """Choose the count that stands for all windows of one phase.

    disturbed: of each window, whether another task ran in it: what that one executed is not the
    path's.  Where at least LEAST_CALM windows are undisturbed only these are looked at; a path that
    switches tasks itself has none.

    The mode (ties: the smallest) when it repeats and at least MODE_SHARE of the windows have it,
    else the lower median.  One window stands for itself.  Raises ValueError for no windows.
    """
    if not windows:
        raise ValueError("no windows")
    calm = [at for at, bad in enumerate(disturbed) if not bad]
    if disturbed and LEAST_CALM <= len(calm) < len(windows):
        found = representative([windows[at] for at in calm])
        return replace(
            found,
            index=calm[found.index],
            minimum=min(windows),
            maximum=max(windows),
            left_out=len(windows) - len(calm),
        )
    n = len(windows)
    seen = Counter(windows)
    mode, times = min(seen.items(), key=lambda item: (-item[1], item[0]))
    is_mode = n == 1 or (times > 1 and times >= MODE_SHARE * n)
    value = mode if is_mode else median(windows)
    return Location(
        value=value,
        kind=LocationKind.MODE if is_mode else LocationKind.MEDIAN,
        share=seen[value] / n,
        n=n,
        minimum=min(windows),
        maximum=max(windows),
        index=list(windows).index(value),
        deviation=sorted(abs(window - value) for window in windows)[n - 1 - n // RARE],
        second=_second(seen, value),
    )


def _second(seen: Counter[int], value: int) -> int | None:
    others = [
        (-times, count)
        for count, times in seen.items()
        if times > 1 and abs(count - value) > APART * value
    ]
    return min(others)[1] if others else None


def median(values: Sequence[int]) -> int:
    """The lower median: a value that was observed."""
    return sorted(values)[(len(values) - 1) // 2]
