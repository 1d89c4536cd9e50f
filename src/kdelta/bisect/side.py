# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of two ends a point is like, by times: pure, and as sure as is asked for.

Times are measured in blocks: good end, point, bad end, one after the other.  Within a block the
point is placed between the ends on the scale of logarithms, so that what moves all three (a host
that grows warm, a neighbour) does not move it.  Blocks are added until the mean place is surely on
one side of the middle; the chance of the wrong side is kept however often one looks (the levels of
stats.multiplicity).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache as remember

from kdelta.stats import multiplicity
from kdelta.stats.detectors import MIN_REPLICATES
from kdelta.stats.welch import two_sided_p


class Side(StrEnum):
    """Which end a point is nearer to."""

    GOOD = "good"
    BAD = "bad"
    UNDECIDED = "undecided"  # not sure enough yet, or the budget is spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One reading of each, in ns per operation, measured one after the other."""

    good: float
    point: float
    bad: float

    def __post_init__(self) -> None:
        if not all(0 < each < math.inf for each in (self.good, self.point, self.bad)):
            raise ValueError("a time is positive")

    @property
    def place(self) -> float:
        """Distance from the middle of the ends, as a logarithm: positive above it."""
        return math.log(self.point) - (math.log(self.good) + math.log(self.bad)) / 2

    @property
    def width(self) -> float:
        """Distance of the ends, as a logarithm."""
        return math.log(self.bad) - math.log(self.good)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """What blocks of earlier points say of the scatter: sum of squares, degrees of freedom."""

    squares: float = 0.0
    freedom: int = 0

    def plus(self, blocks: Sequence[Block]) -> Scatter:
        """With another point's blocks."""
        if len(blocks) < 2:
            return self
        places = [block.place for block in blocks]
        mean = statistics.fmean(places)
        return Scatter(
            squares=self.squares + sum((place - mean) ** 2 for place in places),
            freedom=self.freedom + len(places) - 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """Where a point is: position 0 at the good end, 1 at the bad one, with its standard error.

    p: chance of a place so far from the middle when it is in the middle.  level: what p was held
    against.  more: whether another block may decide.  None: too few blocks.
    """

    side: Side
    blocks: int
    more: bool
    position: float | None = None
    error: float | None = None
    p: float | None = None
    level: float = 0.0


def weigh(
    blocks: Sequence[Block], *, budget: int, alpha: float, scatter: Scatter | None = None
) -> Weighed:
    """Decide which side a point is on, after every block from the fifth on.

    budget: blocks at most.  alpha: chance of the wrong side, over all looks at this point.
    scatter: of earlier points, measured alike.  Raises ValueError for a budget of fewer blocks
    than were measured, or an alpha outside 0..1.
    """
    count = len(blocks)
    if not 0 < alpha < 1 or count > budget:
        raise ValueError("alpha is within 0..1, and the budget holds all blocks")
    more = count < budget
    if count < MIN_REPLICATES:
        return Weighed(side=Side.UNDECIDED, blocks=count, more=more)
    width = statistics.median(block.width for block in blocks)
    place = statistics.fmean(block.place for block in blocks)
    pooled = (scatter or Scatter()).plus(blocks)
    error = math.sqrt(pooled.squares / pooled.freedom / count)
    level = levels(budget, alpha)[count - MIN_REPLICATES]
    p = two_sided_p(place / error, pooled.freedom) if error else float(place == 0)
    side = Side.UNDECIDED
    if p <= level and width:
        side = Side.BAD if (place > 0) == (width > 0) else Side.GOOD
    return Weighed(
        side=side,
        blocks=count,
        more=more and side is Side.UNDECIDED,
        position=0.5 + place / width if width else None,
        error=abs(error / width) if width else None,
        p=p,
        level=level,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How two points differ: ratio new/old, and what that is sure of.

    p: chance of such a difference between equal ones.  differs: it is one; same: it is surely
    within the tolerance.  Neither: not sure enough.
    """

    ratio: float
    p: float
    differs: bool
    same: bool


def contrast_of_blocks(
    differences: Sequence[float], *, tolerance: float, alpha: float
) -> Contrast | None:
    """Two points that were measured in the same blocks, by log(new) - log(old) of each.

    None: too few blocks.
    """
    count = len(differences)
    if count < MIN_REPLICATES:
        return None
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(count)
    return _contrast(mean, error, count - 1, tolerance=tolerance, alpha=alpha)


def contrast_of_places(
    old: Sequence[float], new: Sequence[float], *, tolerance: float, alpha: float
) -> Contrast | None:
    """Two points that were measured in blocks of their own, by their places (Block.place).

    Welch's comparison of means.  None: too few blocks.
    """
    if min(len(old), len(new)) < MIN_REPLICATES:
        return None
    parts = [statistics.variance(side) / len(side) for side in (old, new)]
    error = math.sqrt(sum(parts))
    below = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (old, new), strict=True))
    freedom = error**4 / below if below else float(len(old) + len(new) - 2)
    mean = statistics.fmean(new) - statistics.fmean(old)
    return _contrast(mean, error, freedom, tolerance=tolerance, alpha=alpha)


def _contrast(
    mean: float, error: float, freedom: float, *, tolerance: float, alpha: float
) -> Contrast:
    room = math.log(1 + tolerance) - abs(mean)
    if error:
        p = two_sided_p(mean / error, freedom)
        # Two one-sided tests at alpha / 2: the interval at 1 - alpha lies within the tolerance.
        same = room > 0 and two_sided_p(room / error, freedom) <= alpha
    else:
        p, same = float(mean == 0), room >= 0
    differs = not same and p <= alpha
    return Contrast(ratio=math.exp(mean), p=p, differs=differs, same=same)


@remember
def levels(budget: int, alpha: float) -> tuple[float, ...]:
    """The level of every look, when one looks after each block from the fifth to the last."""
    return multiplicity.levels(range(MIN_REPLICATES, budget + 1), budget=budget, alpha=alpha)
