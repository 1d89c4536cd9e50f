# SPDX-License-Identifier: GPL-2.0-or-later
"""One promise over many questions: the chance of any false alarm among them stays alpha.

Many metrics of the same arms share it by Holm's procedure (1979).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import count
from statistics import NormalDist

from kdelta.stats.detectors import MIN_REPLICATES, resolution
from kdelta.verdict.comparison import Comparison, Verdict

_NORMAL = NormalDist()
_COPY = 1e-6  # logs of values that are equal but for what a factor leaves of their digits
_COARSE_COPY = 0.4  # of the scatter, the most that the print may hide
_ROOM = 1.5  # times what the prints hide: the means are off as well


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


def copies(metrics: Sequence[Sequence[Sequence[float]]]) -> tuple[int, ...]:
    """A key for each metric's values, arm by arm: the same where they agree but for a factor.

    Or as rates, and as far as they were printed: of metrics printed in unlike steps the finer ones
    tell which are copies.  What is printed more coarsely than it scatters has to agree exactly.
    """
    keys = list(range(len(metrics)))
    every = [[value for arm in arms for value in arm] for arms in metrics]
    logs = [_centred(values) for values in every]
    errors = [_printed(values) for values in every]
    finer: list[int] = []
    for at in sorted(keys, key=lambda index: errors[index]):
        limit = _COARSE_COPY * _scatter(metrics[at])
        for one in finer:
            error = errors[one] + errors[at]
            room = 2 * _COPY + (_ROOM * error if error <= limit else 0.0)
            if _agree(logs[one], logs[at], room):
                keys[at] = one
                break
        else:
            finer += [at] if logs[at] else []
    return tuple(keys)


def _centred(values: Sequence[float]) -> tuple[float, ...]:
    """Logs less their mean; none of values of which one has no log."""
    if not values or min(values) <= 0:
        return ()
    logs = [math.log(value) for value in values]
    middle = math.fsum(logs) / len(logs)
    return tuple(each - middle for each in logs)


def _printed(values: Sequence[float]) -> float:
    """How far (log) a value may be off because it was printed."""
    least = min(values, default=0.0)
    return resolution(values) / 2 / least if least > 0 else 0.0


def _scatter(arms: Sequence[Sequence[float]]) -> float:
    """Of the logs of values about their own arm's mean."""
    apart = [each for arm in arms for each in _centred(arm)]
    return math.sqrt(math.fsum(each**2 for each in apart) / len(apart)) if apart else 0.0


def _agree(one: Sequence[float], other: Sequence[float], error: float) -> bool:
    """True where values are equal, or each other's reciprocals, but for that error."""
    if len(one) != len(other) or not one:
        return False
    pairs = list(zip(one, other, strict=True))
    return any(all(abs(a - sign * b) <= error for a, b in pairs) for sign in (1, -1))


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
