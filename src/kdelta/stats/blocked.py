# SPDX-License-Identifier: GPL-2.0-or-later
"""How much two arms differ over several machines, each of which measured both: a block each.

Arms are compared within a machine only, so what differs between machines is in nothing.  The p of
each machine at an assumed ratio becomes a normal deviate, and their weighted sum is judged
(Stouffer 1949; Lipták 1958); the interval holds every ratio that is not rejected so.  Deviates of
careful tests are nearer to 0 than normal ones, and then so is their sum (Birnbaum 1948).

It holds for these machines.  Whether the ratio is one and the same on all is asked beside it.
shift, and with it numpy (extra `time`), is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean

import numpy as np

from kdelta.metric import Better, Grade
from kdelta.stats import timing
from kdelta.stats.shift import batch_p_values, shift
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.verdict.series import Series

_NORMAL = NormalDist()
_LEAST = 1e-15  # p; a smaller one says nothing more
_FURTHEST = 5.0  # logs; beyond, nothing is bounded
_FIRST = 1e-3  # logs; the first step away from the estimate
_STEPS = 12  # of halving, for the ends of the interval


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineValues:
    """One positive value a replicate that a machine measured.  when: see shift.shift."""

    old: tuple[float, ...]
    new: tuple[float, ...]
    when: tuple[float, ...] | None = None

    @property
    def estimate(self) -> float:
        """Difference of the means of logs."""
        return fmean(map(math.log, self.new)) - fmean(map(math.log, self.old))

    @property
    def weight(self) -> float:
        """By its numbers of values alone: that of the difference, were all values as good."""
        return 1 / (1 / len(self.old) + 1 / len(self.new))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedShift:
    """new/old as a ratio over all machines; see shift.Shift.

    each: the interval of each machine, at the level at which all hold together.
    """

    ratio: float
    low: float
    high: float
    p: float
    each: tuple[tuple[float, float], ...]

    @property
    def common(self) -> bool:
        """True when some ratio is in the intervals of all machines."""
        return max(low for low, _ in self.each) <= min(high for _, high in self.each)


def blocked_shift(machines: Sequence[MachineValues], *, alpha: float, seed: int) -> BlockedShift:
    """Estimate new/old over machines.  Raises ValueError for none, and as shift.shift does."""
    if not machines:
        raise ValueError("there is no machine")
    level = alpha / len(machines)
    own = [shift(m.old, m.new, alpha=level, seed=seed, when=m.when) for m in machines]
    weights = [machine.weight for machine in machines]
    centre = sum(w * m.estimate for w, m in zip(weights, machines, strict=True)) / sum(weights)

    def p_at(moved: float) -> float:
        return _p(machines, moved, seed)

    low = -_end(lambda by: p_at(centre - by), alpha) + centre
    high = _end(lambda by: p_at(centre + by), alpha) + centre
    p = p_of_one(machines, seed=seed)
    if p > alpha:
        low, high = min(low, 0.0), max(high, 0.0)
    elif low <= 0 <= high:
        p = math.nextafter(alpha, 1)
    return BlockedShift(
        ratio=math.exp(centre),
        low=math.exp(low),
        high=math.exp(high),
        p=p,
        each=tuple((one.low, one.high) for one in own),
    )


def p_of_one(machines: Sequence[MachineValues], *, seed: int) -> float:
    """Two-sided p of equal arms on all machines."""
    return _p(machines, 0.0, seed)


def _p(machines: Sequence[MachineValues], moved: float, seed: int) -> float:
    """That of this log ratio."""
    deviates = []
    for machine in machines:
        logs = np.log(np.asarray([*machine.old, *machine.new], dtype=np.float64))[np.newaxis, :]
        logs[:, len(machine.old) :] -= moved
        found = batch_p_values(logs, n_old=len(machine.old), seed=seed, when=machine.when)
        size = -_NORMAL.inv_cdf(min(max(float(found[0]), _LEAST), 1.0) / 2)
        deviates.append(math.copysign(size, machine.estimate - moved))
    weights = [math.sqrt(machine.weight) for machine in machines]
    whole = sum(w * z for w, z in zip(weights, deviates, strict=True))
    z = whole / math.sqrt(sum(w**2 for w in weights))
    return 2 * _NORMAL.cdf(-abs(z))


def _end(p_at: Callable[[float], float], alpha: float) -> float:
    """How far from the estimate the first shift is that is rejected; infinite: none is."""
    kept, out = 0.0, _FIRST
    while p_at(out) > alpha:
        kept, out = out, 2 * out
        if out > _FURTHEST:
            return math.inf
    for _ in range(_STEPS):
        middle = (kept + out) / 2
        if p_at(middle) > alpha:
            kept = middle
        else:
            out = middle
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRatio:
    """The verdict over machines, and that of each alone, in their order."""

    merged: Comparison
    each: tuple[Comparison, ...]


def compare(
    machines: Mapping[str, Sequence[Series]],
    *,
    obstacles: Mapping[str, Sequence[str]],
    grade: Grade,
    tolerance: float,
    alpha: float,
    seed: int,
) -> MergedRatio:
    """Decide between two arms that several machines measured.

    machines: name -> old, new and, where there is one, old again (the control).  obstacles: of a
    machine, why its arms must not be compared.  The rest as in timing.compare.  Nothing is decided
    where a machine alone could not be judged for another reason than the width of its interval.
    """
    each = {
        name: timing.compare(
            *arms[:2],
            control=arms[2] if len(arms) > 2 else None,
            grade=grade,
            tolerance=tolerance,
            alpha=alpha,
            seed=seed,
            obstacles=obstacles[name],
        )
        for name, arms in machines.items()
    }

    invalid = _of(each, lambda one: one.verdict is Verdict.INVALID)
    doubtful = _of(each, lambda one: one.ratio is None or one.in_these_boots)
    found = None
    if invalid:
        verdict, reasons = Verdict.INVALID, invalid
    elif doubtful:
        verdict, reasons = Verdict.UNDECIDED, doubtful
    else:
        arms = [timing.by_boot(tuple(own)) for own in machines.values()]
        values = [_values(own) for own in arms]
        narrow = blocked_shift(values, alpha=alpha, seed=seed)
        found = _widened(narrow, max(map(timing.unread, arms)))
        verdict, reason = _decide(found, each, arms[0][0].metric.better, tolerance, alpha)
        reasons = [reason]
    merged = Comparison(
        verdict=verdict,
        grade=grade,
        reasons=tuple(reasons),
        alpha=alpha,
        tolerance=tolerance,
        ratio=found.ratio if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        p=found.p if found else None,
    )
    return MergedRatio(merged=merged, each=tuple(each.values()))


def _decide(
    found: BlockedShift,
    each: Mapping[str, Comparison],
    better: Better,
    tolerance: float,
    alpha: float,
) -> tuple[Verdict, str]:
    if not found.common:
        apart = ", ".join(f"{name} {timing.percent(one.ratio or 1)}" for name, one in each.items())
        return Verdict.UNDECIDED, f"the machines disagree: {apart}"
    shown = (
        f"{timing.percent(found.ratio)} over {len(each)} machines ({100 * (1 - alpha):g} % interval"
        f" {timing.percent(found.low)} to {timing.percent(found.high)})"
    )
    same = 1 / (1 + tolerance) <= found.low and found.high <= 1 + tolerance
    if not same and found.low <= 1 <= found.high:
        return Verdict.UNDECIDED, f"{shown}: undecided, more boots are needed"
    limit = tolerance if same else abs(found.ratio - 1) / timing.DRIFT_DIVISOR
    limit = min(limit, timing.MAX_DRIFT)
    if moved := [n for n, one in each.items() if one.sandwich and abs(one.sandwich.drift) > limit]:
        text = f"{', '.join(moved)}: the old arm itself moved by more than {100 * limit:.2g} %"
        return Verdict.UNDECIDED, f"{shown}: {text}"
    if same:
        return Verdict.SAME, f"{shown}, within {100 * tolerance:g} %"
    if better is Better.NONE:
        return Verdict.UNDECIDED, f"{shown}: nothing says which direction is better"
    worse = (found.ratio > 1) == (better is Better.LOWER)
    return Verdict.REGRESSION if worse else Verdict.IMPROVEMENT, shown


def _of(each: Mapping[str, Comparison], chosen: Callable[[Comparison], bool]) -> list[str]:
    return [f"{n}: {text}" for n, one in each.items() if chosen(one) for text in one.reasons]


def _values(arms: Sequence[Series]) -> MachineValues:
    """The old arm is what came before and after, as in timing.compare."""
    before = [*arms[0].valid, *(arms[2].valid if len(arms) > 2 else ())]
    when = timing.placed([*before, *arms[1].valid], arms)
    return MachineValues(
        old=tuple(boot.value for boot in before),
        new=arms[1].values,
        when=tuple(when) if when else None,
    )


def _widened(found: BlockedShift, by: float) -> BlockedShift:
    return replace(found, low=found.low * math.exp(-by), high=found.high * math.exp(by))
