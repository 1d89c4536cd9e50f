# SPDX-License-Identifier: GPL-2.0-or-later
"""Windows of two kernels in pairs: what differs from window to window of one, and not between two.

Kernels that were built alike go through the same windows: what refills a list in the third of one
does so in the third of the other.  So the windows of a scenario may be far apart, and each pair of
them differ by one number, to the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdelta.sample import PhaseCounts
from kdelta.verdict.windows import LEAST_CALM, representative

_CLEAR = 3  # times what pairs differ by


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """What each pair of windows differs by, all phases together, in instructions.

    deviation: how far from that all of them lie, but for one in a few.
    """

    difference: int
    deviation: int

    @property
    def clear(self) -> bool:
        """True when it is a difference, and not what windows differ by."""
        return bool(self.difference) and abs(self.difference) >= _CLEAR * self.deviation


def paired(old: Sequence[PhaseCounts], new: Sequence[PhaseCounts]) -> Paired | None:
    """The difference by pairs; None where windows have none, or too few are undisturbed."""
    if [_shape(one) for one in old] != [_shape(one) for one in new]:
        return None
    difference = deviation = 0
    for mine, theirs in zip(old, new, strict=True):
        disturbed = [a or b for a, b in zip(_switched(mine), _switched(theirs), strict=True)]
        totals = zip(mine.user, mine.kernel, theirs.user, theirs.kernel, disturbed, strict=True)
        each = [c + d - a - b for a, b, c, d, bad in totals if not bad]
        if len(each) < LEAST_CALM or mine.layouts > 1:
            return None
        found = representative(each)
        difference += found.value
        deviation += found.deviation
    return Paired(difference=difference, deviation=deviation)


def _shape(counts: PhaseCounts) -> tuple[str, int, str, int, int]:
    return counts.phase, counts.operations, counts.operation, counts.layouts, len(counts.user)


def _switched(counts: PhaseCounts) -> Sequence[bool]:
    return counts.switched or (False,) * len(counts.user)
