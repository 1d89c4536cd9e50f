# SPDX-License-Identifier: GPL-2.0-or-later
"""Two arms, one metric, one decision: a verdict with its reasons (rules: docs/method.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kdelta.metric import Grade, ReplicateUnit
from kdelta.verdict.windows import Rare

STEP_PERCENT = 1.0
Spent = Mapping[str, tuple[int, ...]]  # by call, at each of its places
_SPREAD_DIVISOR = 3  # the spread may be at most a third of what is to be decided
# What a byte of a string instruction is worth at most: a load and a store for each 8 of them.
_DEAREST = 2 / 8
_LITTLE_BYTES = 64  # of an operation: a structure that grew, unless they are
_LITTLE_PERCENT = 1.0  # of a path, or more
LEAST_SEEDS = 3  # two may agree by chance where a path has two lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """One thing to know before believing a number: a sentence that names the arm.

    trap: what was detected (stats.series.Trap).
    """

    trap: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Part of the gap that one arm closes: 0 nothing, 1 all; None with the reason why not.

    low and high: interval at 1 - alpha, None when the data do not bound it (reason says why).
    """

    arm: str
    value: float | None
    low: float | None
    high: float | None
    reason: str

    def unsure(self, reason: str) -> Share:
        """The same without an interval, where it has one."""
        return self if self.low is None else replace(self, low=None, high=None, reason=reason)


def closed(good: float | None, bad: float | None, value: float | None) -> float | None:
    """The share of the gap good -> bad that a value closes: 1 all, 0 nothing; None: no gap."""
    if good is None or bad is None or value is None or good == bad:
        return None
    return (bad - value) / (bad - good)


class Verdict(StrEnum):
    """The decision.  UNDECIDED and INVALID are answers, not failures."""

    REGRESSION = "REGRESSION"
    IMPROVEMENT = "IMPROVEMENT"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"
    INVALID = "INVALID"

    @property
    def is_step(self) -> bool:
        """True when the two arms were found to differ."""
        return self in (Verdict.REGRESSION, Verdict.IMPROVEMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountReading:
    """What one arm says of one metric: value (of a unit) for `operations` operations.

    spread: how far it depends on the window and the seed, in the unit of value.  seeds: of each
    trial its seed, its value and windows.bulk; a seed is alike on every kernel.  handled: bytes by
    string instructions, each of which is one of `value` however many it copies or clears.  usual:
    of several layouts, value as it would be if none were hit (windows.Layouts); None: the same.
    few_seeds: it is of fewer than LEAST_SEEDS, in a path that takes or gives back memory: what was
    free has a part in it, of which that shows too little.  unvaried: it is of fewer, and of a
    program that nobody has looked at: chance may have any part in it.  moved_by: each part of the
    seed, and how far it moves the value, as a share; () where that was not tried.  rare: lengths of
    windows beside the common one, by phase.  left: requests to others, by who does the work, which
    is not counted.  by_state: as ladder.calls has it.  Of a program that nobody looked at: program,
    the least and the most, over the trials, that are its own in user space; faults, of pages;
    behind, the least and the most that its other tasks executed of the kernel outside the windows;
    places, of windows of each length ("": the common one) and of each seed the instructions of the
    kernel by call and place.
    """

    value: int
    operations: int
    operation: str
    spread: int
    seeds: tuple[tuple[int, int, int], ...] = ()
    handled: int = 0
    usual: int | None = None
    few_seeds: bool = False
    unvaried: bool = False
    program: tuple[int, int] | None = None
    faults: int = 0
    by_state: dict[str, int] = field(default_factory=dict, hash=False)
    moved_by: tuple[tuple[str, float], ...] = ()
    rare: tuple[Rare, ...] = ()
    left: dict[str, int] = field(default_factory=dict, hash=False)
    behind: tuple[int, int] = (0, 0)
    places: dict[str, dict[int, Spent]] = field(default_factory=dict, hash=False)
    unit: str = "instructions"

    @property
    def if_none_is_hit(self) -> CountReading:
        """The same without the layouts that are."""
        return self if self.usual is None else replace(self, value=self.usual, usual=None)

    @property
    def per_operation(self) -> float:
        """Instructions per operation."""
        return self.value / self.operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Location and scatter over replicates, in the metric's unit.  None: it has no value.

    sd is the sample standard deviation (n - 1), cv is sd / mean (0.03 is 3 %), mad the median
    distance from the median, not scaled.
    """

    arm: str
    replicate: ReplicateUnit
    n: int
    planned: int
    median: float | None = None
    mean: float | None = None
    sd: float | None = None
    cv: float | None = None
    mad: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    @property
    def of_planned(self) -> str:
        """Valid of planned replicates: "8/9"."""
        return f"{self.n}/{self.planned}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandwich:
    """Old, new, old again (A/B/A), all from arithmetic means of the replicates.

    drift: (second - first) / first of the two old arms.  midpoint: new over their midpoint.
    drop_first_midpoint: the same without the first replicate of each arm; None: too few.
    """

    first: float
    second: float
    drift: float
    midpoint: float
    drop_first_midpoint: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The verdict on old -> new, of either statistic; ratio is new/old.

    Numbers are None when nothing may be computed, and where the statistic has no such number.
    crossing: "gcc 14 -> gcc 16; +UBSAN_SHIFT" where the two kernels were built by different
    compilers, or with other options that may have made the difference.  options: these options.
    proven: other such options, of which no function that ran has code in either kernel.
    differences: what else of their builds differs, and is no commit.
    Of counts: difference, spread and handled (the difference in bytes by string instructions), per
    operation.  signless: why these bytes keep the difference from having a sign, "" where it has;
    rarely: why windows of another length do.  few_seeds: nothing but LEAST_SEEDS is lacking.
    failing: which system calls of the windows return errors, "" for none.  within: phases and calls
    that do not go as the sum does, "" for none.
    Of times: low..high, the interval of the ratio at 1 - alpha, and ratio within it.  mean_ratio,
    median_ratio: of arithmetic means and of medians, new over the midpoint of the old arms.
    in_these_boots: all of this holds for the boots that were measured, and not for the kernels.
    tolerance: what is SAME, a share of 1.  p: of no difference, None: nothing was tested.  more:
    replicates an arm that would decide, for UNDECIDED.  trend: change over the session, as a ratio.
    hypotheses: how many metrics of these arms share the level 1 - alpha.
    """

    verdict: Verdict
    grade: Grade
    reasons: tuple[str, ...]
    crossing: str = ""
    options: tuple[str, ...] = ()
    proven: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    failing: str = ""
    within: str = ""
    cautions: tuple[Caution, ...] = ()
    ratio: float | None = None
    difference: float | None = None
    spread: float | None = None
    handled: float | None = None
    signless: str = ""
    few_seeds: bool = False
    rarely: str = ""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    alpha: float | None = None
    tolerance: float | None = None
    old: Summary | None = None
    new: Summary | None = None
    control: Summary | None = None
    mean_ratio: float | None = None
    median_ratio: float | None = None
    in_these_boots: bool = False
    hypotheses: int = 1
    sandwich: Sandwich | None = None
    trend: float | None = None
    more: int | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """low and high, where both bound the ratio."""
        if self.low is None or self.high is None:
            return None
        return (self.low, self.high) if self.low > 0 and math.isfinite(self.high) else None

    @property
    def hidden(self) -> str:
        """What the sum hides, to go on with a sentence."""
        return f"; but within it: {self.within}" if self.within else ""

    @property
    def factor(self) -> float:
        """new/old or old/new, whichever is larger; 0 without a ratio above 0."""
        return max(self.ratio, 1 / self.ratio) if self.ratio and self.ratio > 0 else 0.0

    @property
    def replicates(self) -> int:
        """Of the arm that has fewer; 0 of counts."""
        return min(self.old.n, self.new.n) if self.old and self.new else 0


def compare(
    old: CountReading | None,
    new: CountReading | None,
    *,
    step_percent: float = STEP_PERCENT,
    unseen_percent: float = 0.0,
    obstacles: Sequence[str] = (),
) -> Comparison:
    """Decide between the counts of two arms.  None: the arm has no trial that ended ok.

    obstacles: sentences that say why the two must not be compared; any makes the result INVALID.
    A change of up to step_percent of old is SAME; a step of up to unseen_percent, of readings of
    few seeds, is UNDECIDED.
    """
    grade = Grade.EXACT_PATH
    reasons = [*obstacles, *_operation_obstacles(old, new)]
    if reasons:
        return Comparison(verdict=Verdict.INVALID, grade=grade, reasons=tuple(reasons))
    if old is None or new is None:
        side = "either" if old is new else "the old" if old is None else "the new"
        reason = f"no trial of {side} kernel ended ok"
        return Comparison(verdict=Verdict.UNDECIDED, grade=grade, reasons=(reason,))
    verdict, reason = _decide(old, new, step_percent)
    if verdict is Verdict.UNDECIDED and (paired := _paired(old, new, step_percent)):
        old, new, told = paired
        verdict, reason = _decide(old, new, step_percent)
        reason += told
    if by_hits := _by_hits(old, new, verdict, step_percent):
        verdict, reason = Verdict.UNDECIDED, f"{verdict} over all layouts ({reason}), {by_hits}"
    chance = _chance(old, new, unseen_percent) if verdict.is_step else ""
    if chance:
        verdict = Verdict.UNDECIDED
        reason += f"; but {chance}: count with {LEAST_SEEDS} seeds (--rounds {LEAST_SEEDS})"
    open_already = verdict is Verdict.UNDECIDED
    apart = "" if open_already else _rarely_apart(old, new, verdict, step_percent)
    if apart:
        verdict, reason = Verdict.UNDECIDED, f"{verdict} by most windows ({reason}), {apart}"
    signless = _signless(old, new, step_percent)
    return Comparison(
        verdict=Verdict.UNDECIDED if signless else verdict,
        grade=grade,
        reasons=(f"{reason}; but {signless}" if signless else reason,),
        ratio=new.value / old.value if old.value else None,
        difference=(new.value - old.value) / old.operations,
        spread=(old.spread + new.spread) / old.operations,
        handled=(new.handled - old.handled) / old.operations,
        signless=signless,
        few_seeds=bool(chance) and not signless,
        rarely=apart,
    )


def _signless(old: CountReading, new: CountReading, step_percent: float) -> str:
    """Why bytes by string instructions forbid to say what the count says, "" where they do not.

    What a byte is worth nobody knows: something from nothing to _DEAREST.  Between these two the
    ratio of the arms moves one way only, so what holds at both holds at every price between.
    """
    delta, more = new.value - old.value, new.handled - old.handled
    worth = abs(more) * _DEAREST
    if abs(more) < _LITTLE_BYTES * old.operations and worth <= old.value * _LITTLE_PERCENT / 100:
        return ""
    before, after = (side.value + side.handled * _DEAREST for side in (old, new))
    threshold = step_percent / 100
    if abs(delta) > old.value * threshold:
        so, open_ = "so no sign", delta * (after - before) <= 0
    else:
        so = "so it may not be the same"
        open_ = worth > old.value * threshold and abs(after - before) > before * threshold
    if not open_:
        return ""
    own, handled, dearest = (_short(each / old.operations) for each in (delta, more, worth))
    return (
        f"{own} instructions, and {handled} bytes that string instructions copy or clear, which"
        f" count as one each: by words of 8 bytes up to {dearest.lstrip('+')} instructions, {so};"
        " times would decide"
    )


def _short(value: float) -> str:
    """A difference per operation: "+4,008", "-0.25"; "+0" for none."""
    return f"{value:+,.0f}" if abs(value) >= 10 or not value else f"{value:+.3g}"


def _operation_obstacles(old: CountReading | None, new: CountReading | None) -> list[str]:
    if old is None or new is None:
        return []
    was, now = (f"{side.operations} {side.operation}" for side in (old, new))
    return [f"operations per window differ: {was} against {now}"] if was != now else []


def _chance(old: CountReading, new: CountReading, unseen_percent: float) -> str:
    """What may make a step of few seeds, "" where nothing may."""
    pairs = (old, new), (old.if_none_is_hit, new.if_none_is_hit)
    if (old.few_seeds or new.few_seeds) and any(
        100 * abs(now.value - was.value) <= unseen_percent * was.value for was, now in pairs
    ):
        return f"which memory was free at boot can move it by up to {unseen_percent:g} %"
    if old.unvaried or new.unvaried:
        return "addresses, random numbers, free memory or ticks may have a part in it"
    return ""


def _rarely_apart(
    old: CountReading, new: CountReading, verdict: Verdict, step_percent: float
) -> str:
    """Why the rare windows forbid what is said of the common ones, "" where they do not.

    They do where they alone make a step, or are further from the common ones; a step stands when
    they only add to it, and a verdict that each window has.  A step of a program that nobody has
    looked at does not stand where one kernel's rare windows are as long as the other's common ones:
    which are common may be a matter of time (an acknowledgement of TCP that a timer sends first).
    """
    for side, other in ((old, new), (new, old)) if verdict.is_step and old.program else ():
        for one in side.rare:
            apart = abs(side.value - one.common + one.length - other.value)
            if 100 * apart <= step_percent * other.value:
                which, those = ("old", "new") if side is old else ("new", "old")
                return (
                    f"but windows of the {which} kernel do not count alike ({unlike(one)}), and"
                    f" those of the {those} one as those few: chance or time may decide how many do"
                )
    was, now = ({one.phase: one for one in side.rare} for side in (old, new))
    for phase in dict.fromkeys([*was, *now]):
        before, after = was.get(phase), now.get(phase)
        more = (after.weight if after else 0.0) - (before.weight if before else 0.0)
        longer = (before and before.repeats and after and after.repeats) and 100 * abs(
            after.length - after.common - before.length + before.common
        ) > step_percent * before.length
        if 100 * abs(more) <= step_percent * old.value and not longer:
            continue
        adds = verdict.is_step and (more > 0) == (new.value > old.value)
        if adds or _each_window_is(old, new, verdict, step_percent, phase):
            continue
        return (
            f"but windows of {phase} do not count alike ({unlike(before)} on the old kernel,"
            f" {unlike(after)} on the new one): mark what only some do as a phase of its own"
        )
    return ""


def unlike(one: Rare | None) -> str:
    """Which share of the windows counts what."""
    if one is None:
        return "none"
    return f"{one.times} of {one.n} windows count about {one.length:,} and not {one.common:,}"


def _each_window_is(
    old: CountReading, new: CountReading, verdict: Verdict, step_percent: float, phase: str = ""
) -> bool:
    """The n-th window of a seed against the n-th, whichever length it has, in phases that have two:
    each pair has that verdict, too.
    """
    was, now = (
        {
            (one.phase, at): n
            for one in side.rare
            if phase in ("", one.phase)
            for at, n in one.windows
        }
        for side in (old, new)
    )
    pairs = (
        (replace(old, value=was[at], spread=0), replace(new, value=now[at], spread=0))
        for at in was.keys() & now.keys()
    )
    return {_decide(*pair, step_percent)[0] for pair in pairs} == {verdict}


def _by_hits(old: CountReading, new: CountReading, verdict: Verdict, step_percent: float) -> str:
    """Why the layouts that are hit forbid a verdict, "" where it is the same without them.

    A program with one mapping more has other layouts hit: brk() of 6.18 took 9 % less in the mean
    over all and 0.3 % more over the others.
    """
    if old.usual is None and new.usual is None:
        return ""
    usual, why = _decide(old.if_none_is_hit, new.if_none_is_hit, step_percent)
    if usual is verdict:
        return ""
    return (
        f"and {usual} over those that are not hit ({why}):"
        " which are hit depends on a program's mappings as much as on the kernel"
    )


def _moved_by(old: CountReading, new: CountReading) -> str:
    most: dict[str, float] = {}
    for name, size in (*old.moved_by, *new.moved_by):
        most[name] = max(size, most.get(name, 0.0))
    found = [
        f"{name} (up to {100 * size:.{0 if size >= 1 else 2}{'f' if size >= 1 else 'g'}} %)"
        for name, size in most.items()
        if size
    ]
    if found:
        return f"moved by {', '.join(found)}"
    return "moved by no one part of the seed alone" if most else ""


def _smaller_spread(old: CountReading, new: CountReading) -> str:
    """What makes the spread and, of instructions, what to do."""
    if old.unit != "instructions":
        return ""
    mend = "more operations in a window make it smaller"
    if apart := (*old.rare, *new.rare):
        mend = f"{unlike(apart[0])}: let one window hold one of each, or mark phases"
    return f" ({'; '.join(filter(None, (_moved_by(old, new), mend)))})"


def _paired(
    old: CountReading, new: CountReading, step_percent: float
) -> tuple[CountReading, CountReading, str] | None:
    """The median of the pairs that trials of one seed are, and what to say of all pairs.

    Its spread is how far they are apart.  None where that forbids a verdict, too, or where neither
    the bulk of the windows nor each of them has it, since of two lengths that are about as frequent
    a median is only one.
    """
    was, now = ({seed: own for seed, *own in side.seeds} for side in (old, new))
    if len(was) < LEAST_SEEDS or was.keys() != now.keys():
        return None
    values, bulks = ([(was[seed][at], now[seed][at]) for seed in was] for at in range(2))
    pair, bulk = (_median_pair(old, new, pairs) for pairs in (values, bulks))
    verdict, _ = _decide(*pair, step_percent)
    alike = _decide(*bulk, step_percent)[0] is verdict
    alike |= _each_window_is(old, new, verdict, step_percent)
    if verdict is Verdict.UNDECIDED or not alike:
        return None
    apart = sorted((after - before) / old.operations for before, after in values)
    said = " to ".join(dict.fromkeys(map(_short, (apart[0], apart[-1]))))
    return (*pair, f", in each of {len(values)} seeds by {said} an operation")


def _median_pair(
    old: CountReading, new: CountReading, pairs: Sequence[tuple[int, int]]
) -> tuple[CountReading, CountReading]:
    ranked = sorted((after - before, before) for before, after in pairs)
    more, base = ranked[(len(ranked) - 1) // 2]
    spread = ranked[-1][0] - ranked[0][0]
    return replace(old, value=base, spread=spread), replace(new, value=base + more, spread=0)


def _decide(old: CountReading, new: CountReading, step_percent: float) -> tuple[Verdict, str]:
    size = abs(new.value - old.value)
    threshold = old.value * step_percent / 100
    spread = old.spread + new.spread
    allowed = max(size, threshold) / _SPREAD_DIVISOR
    each = [_short(n / old.operations).lstrip("+") for n in (spread, size, threshold, allowed)]
    if spread > allowed:
        return Verdict.UNDECIDED, (
            f"the spread over windows and seeds is {each[0]} {old.unit} per {old.operation}, and"
            f" the kernels differ by {each[1]}; a verdict needs a spread of at most {each[3]}"
            f"{_smaller_spread(old, new)}"
        )
    if spread and abs(size - threshold) < spread:
        return Verdict.UNDECIDED, (
            f"the difference of {each[1]} per {old.operation} is nearer to the threshold of"
            f" {step_percent:g} % ({each[2]}) than the spread of {each[0]}"
        )
    percent = f"{100 * size / old.value:.3g} %" if old.value else f"{size} from 0"
    if size <= threshold:
        return Verdict.SAME, f"differs by {percent}, threshold {step_percent:g} %"
    worse = new.value > old.value
    verdict = Verdict.REGRESSION if worse else Verdict.IMPROVEMENT
    return verdict, f"{'up' if worse else 'down'} by {percent}, threshold {step_percent:g} %"
