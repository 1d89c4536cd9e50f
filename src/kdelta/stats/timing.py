# SPDX-License-Identifier: GPL-2.0-or-later
"""Two arms of timings, one decision, and many: the rules of docs/times.md in their order."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdelta.metric import Better, Grade, ReplicateUnit
from kdelta.stats import detectors
from kdelta.stats.detectors import MIN_REPLICATES, common_step, is_time, summarise
from kdelta.stats.series import Boot, Series, Trap
from kdelta.verdict.comparison import Caution, Comparison, Sandwich, Share, Summary, Verdict

if TYPE_CHECKING:
    from kdelta.stats.brunner_munzel import Shift

OF_UNKNOWN = "in an unknown number of boots"
TOLERANCE = 0.03
ALPHA = 0.01
MAX_DRIFT = 0.03
DRIFT_DIVISOR = 3  # the drift may be at most a third of the effect
_COPIED = 4  # different values that two arms do not have alike by chance
_MANY = 1000
_ROUNDING = 1e-9  # of figures that are equal
_NO_BOUND = 1000  # times the ratio: an end of an interval that is as far away bounds nothing


def compare(
    old: Series,
    new: Series,
    *,
    control: Series | None = None,
    grade: Grade,
    tolerance: float = TOLERANCE,
    alpha: float = ALPHA,
    seed: int = 0,
    obstacles: Sequence[str] | None = None,
    max_cv: float | None = None,
) -> Comparison:
    """Decide between two arms of timings.

    control:   the old arm, repeated: then old is what came before it (A/B/A).
    tolerance: a change whose whole interval is within 1/(1+tolerance) .. 1+tolerance is SAME.
    alpha:     how often a verdict REGRESSION or IMPROVEMENT may be wrong on equal arms.
    obstacles: sentences that say why the arms must not be compared; any makes it INVALID.  None:
               what the facts and the state of the series say of that.
    Raises ValueError for an exact-path grade, or a tolerance or alpha outside 0..1.
    """
    if grade is Grade.EXACT_PATH or not (0 < tolerance < 1 and 0 < alpha < 1):
        raise ValueError("a time has a time's grade, and tolerance and alpha are within 0..1")
    arms = by_boot((old, new) if control is None else (old, new, control))
    case = _Case(arms=arms, alpha=alpha, tolerance=tolerance, grade=grade, max_cv=max_cv)
    forbidden = detectors.obstacles(arms) if obstacles is None else tuple(obstacles)
    warned = detectors.unknowns(arms) if obstacles is None else ()
    if forbidden:
        return case.result(Verdict.INVALID, forbidden, warned)
    if unusable := _unusable(arms):
        lacking = None if any(arm.valid for arm in arms) else MIN_REPLICATES
        was, now, *again = (summarise(arm) for arm in arms)
        # Where values of zero leave no other estimate, the medians may say something.
        if min(arm.median or 0.0 for arm in (was, now, *again)) > 0:
            told = percent(_ratio(was, now, again, "median") or math.nan)
            unusable += f"; by medians {told}"
        return case.result(Verdict.UNDECIDED, [unusable], warned, more=lacking)
    sandwich = _sandwich(*arms) if len(arms) > 2 else None
    effect = _effect(arms, alpha=alpha, seed=seed)
    doubt, more = _doubt(arms)
    if doubt:
        text = f"in these boots {_shown(effect, sandwich, case)}: {doubt}"
        found = case.result(
            *(Verdict.UNDECIDED, [text], warned), effect=effect, sandwich=sandwich, more=more
        )
        return replace(found, in_these_boots=True, p=None)
    verdict, reason, more = _decide(arms, effect, sandwich, case)
    return case.result(verdict, (reason,), warned, effect=effect, sandwich=sandwich, more=more)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What every result carries."""

    arms: tuple[Series, ...]
    alpha: float
    tolerance: float
    grade: Grade
    max_cv: float | None

    def result(
        self,
        verdict: Verdict,
        reasons: Sequence[str],
        warned: Sequence[Caution],
        *,
        effect: Shift | None = None,
        sandwich: Sandwich | None = None,
        more: int | None = None,
    ) -> Comparison:
        old, new, *control = (summarise(arm) for arm in self.arms)
        ratios = {name: _ratio(old, new, control, name) for name in ("mean", "median")}
        found = [each for arm in self.arms for each in detectors.inspect(arm, max_cv=self.max_cv)]
        found += detectors.session(self.arms)
        found += [*detectors.shared_lattice_cautions(self.arms), *warned]
        found += [
            Caution(trap=trap, sentence=text) for trap, text in self._words(effect, ratios) if text
        ]
        moved = detectors.trend(self.arms)
        return Comparison(
            verdict=verdict,
            grade=self.grade,
            reasons=tuple(reasons),
            cautions=tuple(found),
            old=old,
            new=new,
            control=control[0] if control else None,
            alpha=self.alpha,
            tolerance=self.tolerance,
            **_numbers(effect),
            mean_ratio=ratios["mean"] if effect else None,
            median_ratio=ratios["median"] if effect else None,
            sandwich=sandwich,
            trend=moved[0] if moved else None,
            more=more,
        )

    def _words(
        self, effect: Shift | None, ratios: Mapping[str, float | None]
    ) -> Iterator[tuple[Trap, str]]:
        if len(self.arms) == 2 and effect:
            yield Trap.CONTROL, "no control arm: the drift of the session was not measured"
        if self.arms[0].replicate is ReplicateUnit.PROCESS_ROUND:
            text = "replicates are process rounds: what differs from boot to boot is not in them"
            yield Trap.REPLICATE, text
        if effect:
            yield Trap.MEANS, _contradiction(effect, ratios)


def _numbers(found: Shift | None) -> dict[str, Any]:
    return {key: getattr(found, key) if found else None for key in ("ratio", "low", "high", "p")}


def _contradiction(effect: Shift, ratios: Mapping[str, float | None]) -> str:
    """Where the ratio of means or that of medians is not what the interval says."""
    known = {name: ratio for name, ratio in ratios.items() if ratio}
    told = ", ".join(f"{name}s {percent(ratio)}" for name, ratio in known.items())
    if not all(effect.low <= ratio <= effect.high for ratio in known.values()):
        return f"{told}: not both within the interval: look at single boots"
    ends = {ratio > 1 for ratio in (*known.values(), effect.ratio) if ratio != 1}
    if len(ends) > 1 and effect.excludes_one():
        return f"{told}: not of one sign with the estimate: look at single boots"
    return ""


def _ratio(old: Summary, new: Summary, control: Sequence[Summary], name: str) -> float | None:
    """New over the midpoint of the old arms, of what has this name: mean or median."""
    value = attrgetter(name)
    before = [each for arm in (old, *control) if (each := value(arm))]
    after = value(new)
    return after / statistics.fmean(before) if after and before else None


def by_boot(arms: tuple[Series, ...]) -> tuple[Series, ...]:
    """One value a boot, where process rounds ran in enough known boots of each arm."""
    if any(arm.replicate is not ReplicateUnit.PROCESS_ROUND for arm in arms):
        return arms
    if min(map(_boots, arms)) < MIN_REPLICATES:
        return arms
    folded = []
    for arm in arms:
        rounds: dict[str, list[Boot]] = {}
        for each in arm.valid:
            rounds.setdefault(each.boot_id, []).append(each)
        boots = tuple(
            Boot(
                label=members[0].label,
                position=members[0].position,
                values=tuple(each.value for each in members),
                refilled=any(each.refilled for each in members),
            )
            for members in rounds.values()
        )
        unit = ReplicateUnit.BOOT
        folded.append(replace(arm, boots=boots, planned=len(boots), replicate=unit))
    return tuple(folded)


def _boots(arm: Series) -> int:
    """How many boots an arm has values of; with a round of an unknown boot they may be one."""
    if arm.replicate is ReplicateUnit.BOOT:
        return len(arm.valid)
    known = {boot.boot_id for boot in arm.valid}
    return min(len(arm.valid), 1 if "" in known else len(known))


def _unusable(arms: Sequence[Series]) -> str:
    """Why there is no estimate at all; "" when there is one."""
    empty = [arm for arm in arms if not arm.valid]
    if empty:
        none = empty[0].replicate.counted(0)
        text = "; ".join(f"{arm.arm} has {none} of {arm.planned} planned" for arm in empty)
        return f"{text}: at least {MIN_REPLICATES} boots an arm are needed"
    negative = [arm.arm for arm in arms if min(min(boot.values) for boot in arm.valid) < 0]
    timed = is_time(arms[0].metric)
    if negative:
        what = "times: the clock" if timed else "values: the counter"
        return f"{', '.join(negative)}: negative {what} or the arithmetic is wrong"
    zeros = [arm.arm for arm in arms if min(arm.values) == 0]
    if zeros and arms[0].metric.better is Better.HIGHER:
        return f"{', '.join(zeros)}: values of zero: in such a run nothing was done"
    what = "times of zero: the samples are too short"
    why = what if timed else "values of zero: no ratio to them"
    return f"{', '.join(zeros)}: {why}" if zeros else ""


def _doubt(arms: Sequence[Series]) -> tuple[str, int | None]:
    """Why an estimate is of these boots only, "" when it is not; and how many boots would help."""
    counts = [_boots(arm) for arm in arms]
    lacking = MIN_REPLICATES - min(counts)
    if lacking > 0:
        boots = ReplicateUnit.BOOT
        rounds = arms[0].replicate is ReplicateUnit.PROCESS_ROUND
        told = []
        for arm, count in zip(arms, counts, strict=True):
            beside = f"{boots.counted(count)} of {arm.planned} planned"
            if rounds:
                known = all(boot.boot_id for boot in arm.valid)
                ran = arm.replicate.counted(len(arm.valid))
                beside = f"{boots.counted(count)} with {ran}" if known else f"{ran} {OF_UNKNOWN}"
            if count < MIN_REPLICATES:
                told.append(f"{arm.arm} has {beside}")
        text = "; ".join(told)
        text += f"; each arm needs at least {MIN_REPLICATES} boots"
        text += f", {lacking} more" if OF_UNKNOWN not in text else ""
        return f"{text}{': more rounds of one boot do not count' if rounds else ''}", lacking
    if len(arms) == 2 and detectors.interleaved(arms) is False:
        text = "the arms were measured one after the other: drift and change cannot be told apart;"
        return f"{text} interleave them, or repeat the old arm after the new (A/B/A)", None
    if apart := detectors.opposite(arms):
        return f"{apart}; measure again once both stand still", None
    return _suspect(arms), None


def _suspect(arms: Sequence[Series]) -> str:
    """What no clock and no two sessions give: values that were copied, or an unknown step."""
    old, new = (arm.values for arm in arms[:2])
    listed = f"{arms[0].arm} and {arms[1].arm}"
    if sorted(old) == sorted(new) and len(set(old)) >= _COPIED:
        copy = "one of them is a copy; import what was measured"
        return f"{listed} have the very same values: {copy}"
    twice = [arm.arm for arm in arms if detectors.all_twice(arm)]
    if twice:
        text = f"{', '.join(twice)}: equal values come in pairs, as if each run were counted twice"
        return f"{text}; import each run once"
    if len({*old, *new}) > 2:
        return ""
    # The largest step that is possible, and worth a word.
    samples = {value for arm in arms[:2] for boot in arm.valid for value in boot.values}
    step = (1 - _ROUNDING) * common_step(sorted(samples)) / min(*old, *new)
    if unread(arms) >= math.log1p(max(detectors.COARSE, step)):
        return ""
    held = "one value" if len({*old, *new}) == 1 else "two different values"
    text = f"{listed} have {held} in all: how coarse the clock is"
    return f"{text} nobody can tell; make the samples longer"


def _sandwich(old: Series, new: Series, control: Series) -> Sandwich:
    first, middle, second = (statistics.fmean(arm.values) for arm in (old, new, control))
    shorter = [_without_first(arm) for arm in (old, new, control)]
    a, b, c = (statistics.fmean(values) if all(shorter) else math.nan for values in shorter)
    return Sandwich(
        first=first,
        second=second,
        drift=(second - first) / first,
        midpoint=2 * middle / (first + second),
        drop_first_midpoint=2 * b / (a + c) if all(shorter) else None,
    )


def _without_first(arm: Series) -> list[float]:
    """Values without the replicate that was measured first (where unknown: listed first)."""
    places = [math.inf if boot.position is None else boot.position for boot in arm.valid]
    first = places.index(min(places))
    return [value for index, value in enumerate(arm.values) if index != first]


def _effect(arms: Sequence[Series], *, alpha: float, seed: int) -> Shift:
    # numpy belongs to the extra `time`: reading a result must work without it.
    from kdelta.stats.brunner_munzel import Shift, shift

    old, new = _values(arms)
    if min(len(old), len(new)) < 2:
        ratio = statistics.median(new) / statistics.median(old)
        return Shift(ratio=ratio, low=0.0, high=math.inf, p=1.0)
    return _widened(shift(old, new, alpha=alpha, seed=seed), unread(arms))


def _widened(found: Shift, unknown: float) -> Shift:
    """With what readings leave open (a log); an end that is _NO_BOUND times away is none."""
    low, high = found.low * math.exp(-unknown), found.high * math.exp(unknown)
    least = low if high < 1 or low * _NO_BOUND > found.ratio else 0.0
    most = high if low > 1 or high < found.ratio * _NO_BOUND else math.inf
    return replace(found, low=least, high=most)


def _values(arms: Sequence[Series]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """One value a boot: of the old arm before and after (A/B/A), and of the new one."""
    old, new, *control = (arm.values for arm in arms)
    return (*old, *(control[0] if control else ())), new


def unread(arms: Sequence[Series]) -> float:
    """How far (log) a ratio may be off because readings have a coarse step.

    Scatter of half a step or more is dither: the mean error of rounding vanishes (Widrow 1956).
    Values that hardly scatter sit on one step, and may lie anywhere within it.
    """
    total, common = 0.0, detectors.shared_lattice(arms)
    for arm in arms[:2]:
        step, summary = detectors.reading_step(arm), summarise(arm)
        step = max(step, common.step if common else 0.0)
        if summary.median and (summary.sd or 0.0) < step / 2:
            total = max(total, math.log1p(step / summary.median))
    return total


def _decide(
    arms: Sequence[Series], effect: Shift, sandwich: Sandwich | None, case: _Case
) -> tuple[Verdict, str, int | None]:
    shown = _shown(effect, sandwich, case)
    if effect.margin:
        n = min(map(len, _values(arms)))
        shown += f", with {100 * effect.margin:g} % for modes that {n} an arm do not show"
    same, differs = effect.inside(case.tolerance), effect.excludes_one()
    if not same and not differs:
        text, more = _needs(arms, effect, case.tolerance, unread(arms))
        return Verdict.UNDECIDED, f"{shown}: {text}", more
    tolerance, better = case.tolerance, arms[0].metric.better
    limit = min(tolerance if same else abs(effect.ratio - 1) / DRIFT_DIVISOR, MAX_DRIFT)
    if sandwich and abs(sandwich.drift) > limit:
        text = f"{shown}: the old arm itself moved by more than {100 * limit:.2g} %"
        return Verdict.UNDECIDED, f"{text}; more rounds on a quieter machine", None
    if same:
        return Verdict.SAME, f"{shown}, within {100 * tolerance:g} %", None
    if better is Better.NONE:
        return Verdict.UNDECIDED, f"{shown}: nothing says which direction is better", None
    worse = (effect.ratio > 1) == (better is Better.LOWER)
    return (Verdict.REGRESSION if worse else Verdict.IMPROVEMENT), shown, None


def _shown(effect: Shift, sandwich: Sandwich | None, case: _Case) -> str:
    """The estimate with its interval; of A/B/A also from arithmetic means."""
    low, high = (f"{percent(bound)}" for bound in (effect.low, effect.high))
    text = f"{percent(effect.ratio)} ({100 * (1 - case.alpha):g} % interval {low} to {high})"
    if not effect.bounded():
        text = f"{percent(effect.ratio)} (too few for an interval)"
    if sandwich is None:
        return text
    text += f", means {percent(sandwich.midpoint)} against the midpoint of the old arms,"
    text += f" drift {percent(1 + sandwich.drift)}"
    if sandwich.drop_first_midpoint is None:
        return text
    return f"{text}, without the first of each {percent(sandwich.drop_first_midpoint)}"


def percent(ratio: float) -> str:
    """A ratio as a change: "+9.60 %"."""
    return f"{100 * (ratio - 1):+.2f} %" if math.isfinite(ratio) else "any"


def _needs(
    arms: Sequence[Series], effect: Shift, tolerance: float, coarse: float
) -> tuple[str, int | None]:
    """How many more replicates an arm would decide, if what was seen so far goes on.

    The half width of an interval falls with the square root of the replicates, but for the part
    that a coarse reading leaves open (coarse, in logs).  It must become smaller than the effect (a
    change) or than what the effect leaves of the tolerance (same).
    """
    # numpy belongs to the extra `time`: reading a result must work without it.
    from kdelta.stats.brunner_munzel import SHOWN

    kind, n = arms[0].replicate, min(len(arm.valid) for arm in arms)
    if not effect.bounded():
        text = f"{kind.counted(n)} an arm cannot bound the ratio"
        return (f"{text}; at least {SHOWN} would", SHOWN - n) if n < SHOWN else (text, None)
    size = abs(math.log(effect.ratio))
    half = math.log(effect.high / effect.low) / 2 - math.log1p(effect.margin) - coarse
    target = max(size, math.log1p(tolerance) - size) - coarse
    if target <= 0:
        step = f"readings in steps of {100 * math.expm1(coarse):.2g} % leave it open"
        return f"undecided; {step}: longer samples or a finer clock would decide", None
    total = math.ceil(n * (half / target) ** 2)
    if effect.margin:
        total = max(total, SHOWN)
    more = max(total - n, 1)
    if more > _MANY:
        return f"undecided, and more than {_MANY} more {kind}s an arm would be needed", None
    return f"undecided; about {more} more {kind}{'s' * (more > 1)} an arm would decide", more


# ---- many questions ------------------------------------------------------------------------------

# The chance of any false alarm among many metrics of the same arms stays alpha: Holm (1979).


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
    # numpy belongs to the extra `time`: reading a result must work without it.
    from kdelta.stats.brunner_munzel import least_p

    # Replicates that would show such a change: the law of the square root, and least_p.
    level = (each.alpha or 0.0) / hypotheses
    reached = next(n for n in count(MIN_REPLICATES) if least_p(n, n) <= level)
    wanted, seen = (
        -statistics.NormalDist().inv_cdf(max(p, 1e-15) / 2)
        for p in (level, min(each.p or 0.0, 0.99))
    )
    enough = max(reached, math.ceil(each.replicates * (wanted / seen) ** 2))
    kind = each.old.replicate if each.old else "replicate"
    text = f"one of {hypotheses} metrics: p = {each.p:.2g} becomes {p:.2g} by Holm's correction,"
    text += f" above {each.alpha:g}; about {enough} {kind}s an arm would do"
    reasons, more = (*each.reasons, text), max(enough - each.replicates, 1)
    changed = replace(each, verdict=Verdict.UNDECIDED, reasons=reasons, more=more)
    return replace(changed, hypotheses=hypotheses)


# ---- shares of a regression ----------------------------------------------------------------------

# With base (before), regressed (after) and an arm in between, the share of the gap that the arm
# closes is (regressed - arm) / (regressed - base).  Its interval is Fieller's (1954): all shares c
# for which the contrast (1 - c) regressed - arm + c base is not told from zero by a t test with
# Welch's degrees of freedom.  A ratio of two noisy differences has no other honest interval: it is
# unbounded as long as the gap itself is not certain, and then the answer is that there is none.

_REACH = 20.0  # shares beyond -20 .. 20 are as good as unbounded


def gap_closed(base: Series, regressed: Series, arm: Series, *, alpha: float = 0.01) -> Share:
    """The share of the gap base -> regressed that `arm` (a candidate fix, a probe) closes."""
    arms = (base, regressed, arm)
    value = low = high = None
    if forbidden := detectors.obstacles(arms):
        reason = "; ".join(forbidden)
    elif few := [each.arm for each in arms if not each.valid]:
        reason = f"no values of {', '.join(few)}"
    else:
        before, after, between = (statistics.fmean(each.values) for each in arms)
        reason = f"{base.arm} and {regressed.arm} do not differ: there is no gap"
        if before != after:
            value = (after - between) / (after - before)
            low, high, reason = _interval(base, regressed, arm, value, alpha)
    return Share(arm=arm.arm, value=value, low=low, high=high, reason=reason)


def shares(
    base: Series, regressed: Series, arms: Sequence[Series], *, alpha: float = 0.01
) -> list[Share]:
    """What each arm closes: a candidate fix, or the regressed kernel with one part undone.

    The level is divided among the arms (Bonferroni), so all intervals hold together.  Parts that
    act on each other make the sum differ from what undoing all of them at once would give.  An
    interval is said where it says no more than the comparison of the two arms does.
    """
    level = alpha / max(len(arms), 1)
    return [
        _no_surer(gap_closed(base, regressed, arm, alpha=level), regressed, arm, level)
        for arm in arms
    ]


def _no_surer(share: Share, regressed: Series, arm: Series, alpha: float) -> Share:
    """Without an interval that is above or below 0 where nothing shows that the arms differ.

    Fieller's test is of means: it knows no margin of few boots, no drift and no clock that ticks.
    """
    if share.low is None or share.high is None or share.low <= 0 <= share.high:
        return share
    found = compare(regressed, arm, grade=Grade.HOST_TIME, alpha=alpha, obstacles=())
    shown = found.p is not None and found.p <= alpha
    if shown and found.verdict is not Verdict.UNDECIDED:
        return share
    return share.unsure(f"{regressed.arm} -> {arm.arm} is {found.verdict}")


_Mean = tuple[float, float, int]  # with its variance, and the degrees of freedom of that


def _interval(
    base: Series, regressed: Series, arm: Series, value: float, alpha: float
) -> tuple[float | None, float | None, str]:
    from scipy.optimize import brentq

    short = min(len(each.valid) for each in (base, regressed, arm))
    if short < MIN_REPLICATES:
        kind = base.replicate.counted(short)
        return None, None, f"{kind} an arm bound no share: at least {MIN_REPLICATES} are needed"
    means = [
        (statistics.fmean(values), statistics.variance(values) / len(values), len(values) - 1)
        for values in (base.values, regressed.values, arm.values)
    ]
    # The gap is the contrast as c grows without end: when that is zero, no share is excluded.
    if _p(means, 1e9) > alpha:
        return None, None, "the gap itself is not certain"

    def edge(far: float) -> float:
        """The furthest share on one side of value that is not rejected."""
        outside = _p(means, far) > alpha
        return far if outside else float(brentq(lambda c: _p(means, c) - alpha, value, far))

    return edge(value - _REACH), edge(value + _REACH), ""


def _p(means: Sequence[_Mean], share: float) -> float:
    """p of the t test of the contrast for this share."""
    base, regressed, arm = means
    weights = ((1 - share, regressed), (-1.0, arm), (share, base))
    size = sum(weight * mean for weight, (mean, _, _) in weights)
    parts = [(weight**2 * variance, freedom) for weight, (_, variance, freedom) in weights]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return float(math.isclose(size, 0.0, abs_tol=1e-12))
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return two_sided_p(size / math.sqrt(variance), freedom)


def two_sided_p(t: float, freedom: float) -> float:
    """Chance that |T| with this many degrees of freedom exceeds |t|."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))
