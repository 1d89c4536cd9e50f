# SPDX-License-Identifier: GPL-2.0-or-later
"""On which side of a change a measured point is: pure.

Ratios are what counts, so positions are taken on the scale of logarithms: 0 is the good end, 1 the
bad end, and a point half-way is as many times more than the one as it is less than the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from kdelta.bisect.search import Mark

# Within a third of the way a point is taken for an end; in the middle third it is like neither.
LIKE = 1 / 3


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
