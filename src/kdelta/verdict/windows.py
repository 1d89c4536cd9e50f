# SPDX-License-Identifier: GPL-2.0-or-later
"""Where an exact count lies: the one window that stands for many, and how well it repeats.

Counts of a single-threaded path repeat to the instruction, and a timer tick shows as a rare larger
window.  So nothing here averages: every value reported is a value that was observed.

Where the windows of a phase are not alike, one of each layout stands for them, added up.  A layout
is a state of the kernel that decides how long a path is: where the nodes of its tree of
mappings end (brk() takes twice as long at an end), or how full its lists of pages are (each 31st
page moves all of them).  One layout alone says little; all of them together say what is paid on
average, and how often the dear ones are met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

MODE_SHARE = 0.25
LEAST_CALM = 3  # undisturbed windows from which the others are left out
APART = 0.01  # share of the value from which another count that repeats is a second length
LEAST_RARE = 12
RARE = 5  # one window in so many may be far away: what is met twice in eight is a second level
HIT_PERCENT = 25  # above the median layout: what is dearer than that is hit
BATCH = 31  # so many layouts are how full a batch is (KD_BATCH of guest/kdelta.h), each once


class LocationKind(StrEnum):
    """How a representative value was chosen."""

    MODE = "mode"  # the most frequent value
    MEDIAN = "median"  # no value is frequent enough: the lower median, still an observed value
    MEAN = "mean"  # of several layouts: one observed value of each, see Layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The value that stands for a list of counts, all in the unit of those counts.

    share: part (0..1] of the n counts that equal value; left_out: further windows that were not
    looked at, because they were disturbed.  minimum, maximum: of all windows.
    index: position of the first count that equals value, so that whatever else was recorded for
    that one window (its functions) sums exactly to value.
    deviation: the counts lie within this distance of value, but for one in RARE.  (Half of them
    would not do: of a path that takes one of two lengths half agree, and the other length is no
    accident.)
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


def representative(
    windows: Sequence[int], disturbed: Sequence[bool] = (), left_out: int = 0
) -> Location:
    """Choose the count that stands for all windows of one phase.

    disturbed: of each window, whether another task ran in it: what that one executed is not the
    path's.  Where at least LEAST_CALM windows are undisturbed only these are looked at; a path that
    switches tasks itself has none.

    The mode (ties: the smallest) when it repeats and at least MODE_SHARE of the windows have it,
    else the lower median.  One window stands for itself.  Raises ValueError for no windows.  So
    many more as were left_out may have been of any length: of two that they could make as frequent
    the shorter one is the mode.
    """
    if not windows:
        raise ValueError("no windows")
    calm = [at for at, bad in enumerate(disturbed) if not bad]
    if disturbed and LEAST_CALM <= len(calm) < len(windows):
        left_out = len(windows) - len(calm)
        found = representative([windows[at] for at in calm], left_out=left_out)
        return replace(found, index=calm[found.index], minimum=min(windows), maximum=max(windows))
    n = len(windows)
    seen = Counter(windows)
    mode, times = min(seen.items(), key=lambda item: (-item[1], item[0]))
    least = max(2, MODE_SHARE * n, times - left_out)
    lengths = [item for item in seen.items() if item[1] >= least and not is_near(item[0], mode)]
    mode, times = min([(mode, times), *lengths])
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
        left_out=left_out,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rare:
    """The windows of a phase that are not of its common length: `times` of n, over all trials.

    common, length: instructions in a window; length is that of most of them where one repeats, else
    their lower median.
    """

    phase: str
    common: int
    length: int
    repeats: bool
    times: int
    n: int
    extra: int  # instructions of all of them, beyond those of as many common windows
    windows: tuple[tuple[tuple[int, int], int], ...] = ()  # all, by trial and place

    @property
    def weight(self) -> float:
        """What they add to the mean over all windows, in instructions."""
        return self.extra / self.n


def rare(phase: str, trials: Sequence[Mapping[int, int]], common: int) -> Rare | None:
    """The rare windows of a phase, None where too few are to say so.

    trials: the undisturbed windows of each, by their places; common: the mode.  Windows further
    than APART from it are rare when one of their lengths repeats, when at least one in LEAST_RARE
    is, when one stands at the same place in all of several trials, or when each trial has one and
    they add more than APART to the mean.  (A timer's tick does none of these.)
    """
    every = {(n, at): each for n, own in enumerate(trials) for at, each in own.items()}
    far = {at: each for at, each in every.items() if not is_near(each, common)}
    if not far or not common:
        return None
    (length, times), *_ = Counter(far.values()).most_common()
    extra = sum(far.values()) - len(far) * common
    places = [{at for of, at in far if of == n} for n in range(len(trials))]
    weighs = all(places) and abs(extra) > APART * common * len(every)
    always = len(trials) > 1 and (weighs or bool(set.intersection(*places)))
    if times == 1 and not always and len(far) * LEAST_RARE < len(every):
        return None
    return Rare(
        phase=phase,
        common=common,
        length=length if times > 1 else median([*far.values()]),
        repeats=times > 1,
        times=len(far),
        n=len(every),
        extra=extra,
        windows=tuple(every.items()),
    )


def is_near(window: int, common: int) -> bool:
    """Of one length with another window."""
    return abs(window - common) <= APART * common


def calm(windows: Sequence[int], disturbed: Sequence[bool]) -> dict[int, int]:
    """The windows that no other task disturbed, by place, where there are enough; else all."""
    every = dict(enumerate(windows))
    found = {at: every[at] for at, bad in enumerate(disturbed) if not bad}
    return found if len(found) >= LEAST_CALM else every


def bulk(windows: Sequence[int], disturbed: Sequence[bool] = (), layouts: int = 1) -> int:
    """The mean of calm windows without the dearest one in RARE; of layouts the sum over them."""
    each = [
        sorted(calm(windows[at::layouts], disturbed[at::layouts]).values()) for at in range(layouts)
    ]
    kept = [ranked[: len(ranked) - len(ranked) // RARE] for ranked in each]
    return sum(round(sum(own) / len(own)) for own in kept)


def median(values: Sequence[int]) -> int:
    """The lower median: a value that was observed."""
    return sorted(values)[(len(values) - 1) // 2]


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
        if len(self.counts) % BATCH == 0:  # of each CPU that takes turns one
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

    disturbed: see representative().  Raises ValueError for no windows, or when not every
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
    counts = [one.value for one in each]
    return Chosen(location=location, indices=indices, layouts=Layouts.of(counts))
