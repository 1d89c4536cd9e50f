# SPDX-License-Identifier: GPL-2.0-or-later
"""A lattice that the values of all arms show together, where those of each arm are too few."""

from __future__ import annotations

from collections.abc import Sequence

from kdelta.stats import detectors
from kdelta.stats.clock import Lattice
from kdelta.stats.detectors import COARSE, TICKS_PER_SAMPLE
from kdelta.verdict.comparison import Caution, Trap
from kdelta.verdict.series import Series, summarise


def shared(arms: Sequence[Series]) -> Lattice | None:
    """The lattice of all samples together; None where an arm shows its own, or it hides nothing.

    Four different values on every fifth step are chance in one arm of a thousand; eight are not.
    """
    medians = [summarise(arm).median or 0.0 for arm in arms]
    if len(arms) < 2 or min(medians) <= 0 or len({arm.metric for arm in arms}) > 1:
        return None
    if any(_worth(detectors.lattice(arm), own) for arm, own in zip(arms, medians, strict=True)):
        return None
    found = detectors.lattice(*arms)
    return found if _worth(found, min(medians)) else None


def _worth(found: Lattice | None, median: float) -> bool:
    return found is not None and found.step >= COARSE * median


def cautions(arms: Sequence[Series]) -> list[Caution]:
    """The sentence on a lattice that the arms share."""
    found = shared(arms)
    if found is None:
        return []
    least = min(summarise(arm).median or 0.0 for arm in arms)
    text = (
        f"{', '.join(arm.arm for arm in arms)}: all values together lie on a lattice of step"
        f" {found.step:.6g} {arms[0].metric.unit}, {100 * found.step / least:.2g} % of the value;"
        f" a sample should span {TICKS_PER_SAMPLE} steps"
    )
    return [Caution(trap=Trap.LATTICE, sentence=text)]
