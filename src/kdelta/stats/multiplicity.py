# SPDX-License-Identifier: GPL-2.0-or-later
"""Many metrics, one promise: the chance of any false alarm among them stays alpha (Holm 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdelta.stats.verdict import Comparison, Verdict


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values in the order given: at most alpha where Holm's procedure rejects."""
    adjusted = [0.0] * len(p_values)
    worst = 0.0
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = worst
    return tuple(adjusted)


def correct(family: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The same comparisons, judged as one family (all metrics of one pair of arms).

    A REGRESSION or IMPROVEMENT that does not survive Holm's correction becomes UNDECIDED; other
    verdicts stay, since they claim no difference.  Comparisons without a p, those of counts, are
    not in the family.
    """
    tested = [index for index, each in enumerate(family) if each.p is not None]
    adjusted = dict(zip(tested, holm([family[index].p or 0.0 for index in tested]), strict=True))
    found = []
    for index, each in enumerate(family):
        p = adjusted.get(index, 0.0)
        if each.verdict.is_step and p > (each.alpha or 0.0):
            text = (
                f"one of {len(tested)} metrics: p = {each.p:.2g} becomes {p:.2g}"
                f" by Holm's correction, above {each.alpha:g}"
            )
            found.append(replace(each, verdict=Verdict.UNDECIDED, reasons=(*each.reasons, text)))
        else:
            found.append(each)
    return tuple(found)
