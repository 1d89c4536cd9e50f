# SPDX-License-Identifier: GPL-2.0-or-later
"""Many metrics, one promise: the chance of any false alarm among them stays alpha (Holm 1979)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import count
from statistics import NormalDist

from kdelta.stats.detectors import MIN_REPLICATES
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


def correct(
    family: Sequence[Comparison], copies: Sequence[Hashable] | None = None
) -> tuple[Comparison, ...]:
    """The same comparisons, judged as one family (all metrics of one pair of arms).

    A REGRESSION or IMPROVEMENT that does not survive Holm's correction becomes UNDECIDED; other
    verdicts stay, since they claim no difference.  Comparisons without a p, those of counts, are
    not in the family.  copies: one key for each; comparisons of one key are of the same values
    in other units, and one hypothesis.
    """
    keys = list(copies) if copies is not None else list(range(len(family)))
    asked: dict[Hashable, float] = {}
    for key, each in zip(keys, family, strict=True):
        if each.p is not None:
            asked[key] = max(asked.get(key, 0.0), each.p)
    adjusted = dict(zip(asked, holm(list(asked.values())), strict=True))
    return tuple(
        _corrected(each, adjusted[key], len(asked)) if each.p is not None else each
        for key, each in zip(keys, family, strict=True)
    )


def _corrected(each: Comparison, p: float, hypotheses: int) -> Comparison:
    if hypotheses == 1:
        return each
    if not each.verdict.is_step or p <= (each.alpha or 0.0):
        return replace(each, hypotheses=hypotheses)
    enough = _enough(each, hypotheses)
    kind = each.old.replicate if each.old else "replicate"
    text = (
        f"one of {hypotheses} metrics: p = {each.p:.2g} becomes {p:.2g} by Holm's correction, above"
        f" {each.alpha:g}; about {enough} {kind}s an arm would do"
    )
    return replace(
        each,
        verdict=Verdict.UNDECIDED,
        reasons=(*each.reasons, text),
        hypotheses=hypotheses,
        more=max(enough - each.replicates, 1),
    )


def _enough(each: Comparison, hypotheses: int) -> int:
    """Replicates an arm with which such a change among so many metrics would be seen.

    So many that the tests can reach the level at all, and by the law of the square root.
    """
    # numpy belongs to the extra `time`: reading a result must work without it.
    from kdelta.stats.shift import least_p

    level = (each.alpha or 0.0) / hypotheses
    reached = next(n for n in count(MIN_REPLICATES) if least_p(n, n) <= level)
    normal = NormalDist()
    wanted, seen = (-normal.inv_cdf(max(p, 1e-15) / 2) for p in (level, min(each.p or 0.0, 0.99)))
    return max(reached, math.ceil(each.replicates * (wanted / seen) ** 2))
