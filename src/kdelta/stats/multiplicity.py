# SPDX-License-Identifier: GPL-2.0-or-later
"""One promise over many questions: the chance of any false alarm among them stays alpha.

Many metrics of the same arms share it by Holm's procedure (1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from statistics import NormalDist

from kdelta.stats.detectors import MIN_REPLICATES
from kdelta.verdict.comparison import Comparison, Verdict

_NORMAL = NormalDist()


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
    not in the family.  A metric that repeats another in other units is a hypothesis like any other:
    a mapping can ignore it.
    """
    tested = [each.p for each in family if each.p is not None]
    adjusted = iter(holm(tested))
    return tuple(
        _corrected(each, next(adjusted), len(tested)) if each.p is not None else each
        for each in family
    )


def _corrected(each: Comparison, p: float, hypotheses: int) -> Comparison:
    if hypotheses == 1:
        return each
    if not each.verdict.is_step or p <= (each.alpha or 0.0):
        return replace(each, hypotheses=hypotheses)
    enough = _enough(each, hypotheses)
    kind = each.old.replicate if each.old else "replicate"
    text = f"one of {hypotheses} metrics: p = {each.p:.2g} becomes {p:.2g} by Holm's correction,"
    text += f" above {each.alpha:g}; about {enough} {kind}s an arm would do"
    reasons, more = (*each.reasons, text), max(enough - each.replicates, 1)
    changed = replace(each, verdict=Verdict.UNDECIDED, reasons=reasons, more=more)
    return replace(changed, hypotheses=hypotheses)


def _enough(each: Comparison, hypotheses: int) -> int:
    """Replicates an arm that would show such a change: the law of the square root, and least_p."""
    # numpy belongs to the extra `time`: reading a result must work without it.
    from kdelta.stats.brunner_munzel import least_p

    level = (each.alpha or 0.0) / hypotheses
    reached = next(n for n in count(MIN_REPLICATES) if least_p(n, n) <= level)
    wanted, seen = (-_NORMAL.inv_cdf(max(p, 1e-15) / 2) for p in (level, min(each.p or 0.0, 0.99)))
    return max(reached, math.ceil(each.replicates * (wanted / seen) ** 2))
