# SPDX-License-Identifier: GPL-2.0-or-later
"""Which point to measure next between a good and a bad end, and on which side a value lies: pure.

Points are numbered 0 (the good end) to count - 1 (the bad end).  Marks say what is known.  The
same marks always give the same answer, so a search is resumed by its marks alone.
Positions of values are taken on the scale of logarithms, since ratios are what counts: 0 is the
good end, 1 the bad end, and a point half-way is as many times more than the one as it is less than
the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise

# Within a third of the way a point is taken for an end; in the middle third it is like neither.
LIKE = 1 / 3


class Mark(StrEnum):
    """What is known of a point."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"  # it cannot be measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Measure this point next; left: measurements at most, with it, if none is marked SKIP."""

    point: int
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The change is between good and bad: neighbours, but for skipped points in between."""

    good: int
    bad: int
    skipped: tuple[int, ...]


def next_step(marks: Mapping[int, Mark], weights: Sequence[float]) -> Ask | Found:
    """What to measure next, or the result.  The ends are asked for first.

    weights: how likely the change is between each point and the next, not negative.  They steer,
    but never cost a measurement: without SKIP at most ceil(log2(count - 1)) points are asked for
    after the ends.  Raises ValueError for marks that are no search: an end that is marked otherwise
    than good and bad, points outside.
    """
    count = len(weights) + 1
    if count < 2 or any(not 0 <= point < count for point in marks):
        raise ValueError("a search is between two ends, and marks are of points between them")
    if marks.get(0, Mark.GOOD) is not Mark.GOOD or marks.get(count - 1, Mark.BAD) is not Mark.BAD:
        raise ValueError("the first point must be good and the last one bad")
    for end in (0, count - 1):
        if end not in marks:
            return Ask(point=end, left=_halvings(count - 1) + 2 - bool(end))
    decided = sorted(point for point, mark in marks.items() if mark is not Mark.SKIP)
    changes = [pair for pair in pairwise(decided) if marks[pair[0]] is not marks[pair[1]]]
    good, bad = min(
        (pair for pair in changes if marks[pair[0]] is Mark.GOOD),
        key=lambda pair: (_unmarked(pair, marks), pair),
    )
    left = max(_halvings(bad - good), _halvings(count - 1) - (len(decided) - 2))
    if _unmarked((good, bad), marks):
        return Ask(point=_choose((good, bad), marks, weights, left), left=left)
    return Found(good=good, bad=bad, skipped=tuple(range(good + 1, bad)))


def _halvings(gaps: int) -> int:
    """Measurements that tell one of so many gaps: ceil(log2(gaps))."""
    return (gaps - 1).bit_length()


def _unmarked(pair: tuple[int, int], marks: Mapping[int, Mark]) -> int:
    return sum(point not in marks for point in range(pair[0] + 1, pair[1]))


def _choose(
    ends: tuple[int, int], marks: Mapping[int, Mark], weights: Sequence[float], left: int
) -> int:
    """The unmarked point between ends that is expected to tell most.

    Only points are taken that leave at most 2 ** (left - 1) gaps on either side, if there are any:
    so the worst case is never worse than halving.
    """
    good, bad = ends
    skipped = [point for point in range(good + 1, bad) if point in marks]
    free = [point for point in range(good + 1, bad) if point not in marks]
    most = 2 ** (left - 1)
    fitting = [p for p in free if p - good <= most and bad - p <= most] or free
    # What cannot be measured comes in runs; each one met makes the run look twice as long.
    reach = min(math.ldexp(0.5, len(skipped)), max(1.0, (bad - good) / 8))
    before = [0.0, *accumulate(weights[good:bad])]
    whole = before[-1]

    def gain(point: int) -> float:
        share = before[point - good] / whole if whole else (point - good) / (bad - good)
        near = min((abs(point - other) for other in skipped), default=math.inf)
        chance = 1 - math.exp2(-near / reach)
        # What an answer tells, in bits, when it is "bad" with this chance (binary entropy).
        bits = -sum(each * math.log2(each) for each in (share, 1 - share)) if 0 < share < 1 else 0
        return round(chance * bits, 12)

    return max(fitting, key=lambda point: (gain(point), -abs(2 * point - good - bad), -point))


class Likeness(StrEnum):
    """A point beside the good end."""

    SAME = "SAME"  # like the good end
    DIFFERENT = "DIFFERENT"  # like the bad end
    UNKNOWN = "UNKNOWN"  # like neither: between them, or beyond one


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a value lies between two ends.

    position: 0 at the good end, 1 at the bad one.  likeness: like which end it is.  beyond: it is
    like neither because it lies outside, by more than a third of the way.
    """

    position: float
    likeness: Likeness
    beyond: bool

    @property
    def nearer(self) -> Mark:
        """The end that it is nearer to: the larger part of the change is on its other side."""
        return Mark.GOOD if self.position < 0.5 else Mark.BAD


def locate(value: float, *, good: float, bad: float, spread: float = 0.0) -> Position:
    """Where a value lies between two ends, all positive; spread: how far it may be off, its unit.

    UNKNOWN also when the spread does not allow to say.  Raises ValueError when the ends are equal
    or a value is not positive.
    """
    if min(value, good, bad) <= 0 or good == bad or spread < 0:
        raise ValueError("positions are of positive values, between ends that differ")
    position = _position(value, good, bad)
    seen = {_likeness(position)}
    if spread:
        around = (max(value - spread, value * 1e-9), value + spread)
        seen |= {_likeness(_position(each, good, bad)) for each in around}
    return Position(
        position=position,
        likeness=seen.pop() if len(seen) == 1 else Likeness.UNKNOWN,
        beyond=not -LIKE <= position <= 1 + LIKE,
    )


def _position(value: float, good: float, bad: float) -> float:
    return math.log(value / good) / math.log(bad / good)


def _likeness(position: float) -> Likeness:
    if abs(position) <= LIKE:
        return Likeness.SAME
    return Likeness.DIFFERENT if abs(1 - position) <= LIKE else Likeness.UNKNOWN
