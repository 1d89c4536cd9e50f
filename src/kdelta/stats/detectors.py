# SPDX-License-Identifier: GPL-2.0-or-later
"""What makes a set of timings less than it looks, and what forbids to compare two.

Everything is flagged; nothing is removed.  Cautions stand beside a verdict; obstacles make it
INVALID before any number is looked at.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, combinations, islice, pairwise

from kdelta.metric import Assume
from kdelta.stats.clock import Lattice, find_lattice, is_time, resolution
from kdelta.verdict.comparison import Caution, Trap
from kdelta.verdict.series import Series, Summary, summarise

MIN_REPLICATES = 5  # exact two-sided tests can reach 1 % from here on: 2 of C(10, 5) = 252
COARSE = 0.005  # a reading step above this part of the value is worth a word
TICKS_PER_SAMPLE = 100
# The furthest of n normal values lies so many scales from the median in 1 % of samples (400,000
# each); the scale is the mean of the CLOSEST of all distances.  Even and uneven n jump.
_FEW_LIMITS = (
    *(28.7, 16.1, 10.9, 16.7, 12.6, 11.1, 13.3, 11.9, 10.5, 9.9),
    *(11.1, 10.4, 9.7, 10.8, 10.1),
)
OUTLIER_LIMITS = dict(enumerate(_FEW_LIMITS, start=4)) | {19: 9.7, 20: 10.5, 30: 9.8, 50: 9.3}
CLOSEST = 0.7
_OF_MANY = 0.4735  # that scale of many standard normal values
_FEW_OF_MANY = 0.2  # more than so many are a mode of their own, and no wild runs
UNKNOWN_ORDER = "the order of execution is not known"
IN_TURN = "measured one after the other, not interleaved"
CARRIED = 0.8  # of the distance from the median to the mean, by one value
WILD = 10.0  # times the median
_STILL_P, _UNLIKE_P = 0.1, 0.05  # of an arm that drifts alone: the other's, and of their difference
_TREND_P = 0.01
_MANY = 10_000  # samples looked at for lattices and steps
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_JIFFIES = ("jiffies", "refined-jiffies")
UNITS = (1.0, 3.0, 6.0, 9.0)  # powers of ten by which units are confused
_NEAR = 0.05  # of the logarithm
_LEAST = 2  # values of an arm in each of two units
UNKNOWN = "unknown"
_NO = frozenset({"0", "n", "no", "off", "false", "disabled", "none", ""})
_INSTRUMENTS = ("coverage", "instrumented", "tracing")
_EMULATORS = frozenset({"tcg"})
# ---- comparability
# How much was measured may differ between arms, and so may the identity of a boot.
_FREE = frozenset({"operations", "boot_id"})


def inspect(series: Series, *, max_cv: float | None = None) -> tuple[Caution, ...]:
    """Every trap of one arm by itself.

    max_cv: a limit that a rule elsewhere puts on the CV; a CV that could as well lie on the other
    side of it is flagged.
    """
    summary = summarise(series)
    found: list[Caution] = []
    about_boots = (_few, _failed, _refilled, _counted_twice)
    for detect in (*about_boots, _zeros, _clock, _few_values, _steps, outliers):
        found += detect(series)
    found += wild(series.arm, n=summary.n, cv=summary.cv)
    if max_cv is not None:
        found += near_limit(series.arm, n=summary.n, cv=summary.cv, limit=max_cv)
    return tuple(found)


def wild(arm: str, *, n: int, cv: float | None) -> list[Caution]:
    """One value that is the whole scatter: then the CV is close to sqrt(n), whatever it is.

    Works from a published n and CV alone.
    """
    if cv is None or n < 3 or not 0.8 * math.sqrt(n) <= cv <= 1.02 * math.sqrt(n):
        return []
    text = (
        f"{arm}: the CV of {cv:.3g} is close to sqrt({n}) = {math.sqrt(n):.3g}, so one wild value"
        " outweighs all others: the mean says nothing, look at the median"
    )
    return [Caution(trap=Trap.WILD, sentence=text)]


def near_limit(arm: str, *, n: int, cv: float | None, limit: float) -> list[Caution]:
    """A CV so close to a limit that its own error decides the side (Ahn and Fessler 2003).

    The standard error of a sample standard deviation is about sd / sqrt(2 (n - 1)).
    """
    if cv is None or n < 2 or abs(cv - limit) > cv / math.sqrt(2 * (n - 1)):
        return []
    side = "over" if cv > limit else "under"
    text = (
        f"{arm}: the CV of {100 * cv:.2f} % is just {side} the limit of {100 * limit:g} %;"
        f" {n} values do not fix a CV better than +-{100 * cv / math.sqrt(2 * (n - 1)):.1f} %"
    )
    return [Caution(trap=Trap.NEAR_LIMIT, sentence=text)]


def counted_twice(arm: str, *, claimed: int, planned: int) -> list[Caution]:
    """More results than runs, from published counts alone."""
    if not planned or claimed <= planned:
        return []
    factor = math.sqrt((planned - 1) / planned * claimed / (claimed - 1))
    text = (
        f"{arm}: {claimed} results of {planned} runs: lines of one run were counted as runs,"
        f" which also shrinks the CV (to {factor:.3f} of itself, when each run counts alike)"
    )
    return [Caution(trap=Trap.DOUBLE_COUNT, sentence=text)]


def duplicate_runs(series: Series) -> tuple[str, ...]:
    """Identities of runs that more than one replicate claims: certain double counts."""
    runs = Counter(boot.run for boot in series.valid if boot.run)
    return tuple(run for run, times in runs.items() if times > 1)


@lru_cache(maxsize=16)
def lattice(series: Series, *others: Series) -> Lattice | None:
    """The lattice on which this arm's samples lie, or those of several, if there is one."""
    known = series.fact("operations") or ""
    return find_lattice(
        [value for arm in (series, *others) for value in _samples(arm)],
        ns_per_unit=_NS.get(series.metric.unit.partition("/")[0]),
        operations=int(known) if known.isascii() and known.isdigit() and int(known) else None,
    )


def reading_step(series: Series) -> float:
    """The coarsest step that readings of this arm can take, in the metric's unit; 0: unknown."""
    found = lattice(series)
    return max(resolution(_samples(series)), found.step if found else 0.0)


def interleaved(arms: Sequence[Series]) -> bool | None:
    """Whether the arms alternate in the session; None: the order is not known.

    In rounds that hold every arm once, the order changes arm at least once a round.
    """
    placed = [(boot.position, index) for index, arm in enumerate(arms) for boot in arm.valid]
    if any(position is None for position, _ in placed) or len(arms) < 2:
        return None
    order = [index for _, index in sorted(placed, key=lambda each: each[0] or 0)]
    changes = sum(first != second for first, second in pairwise(order))
    return changes + 1 > min(len(arm.valid) for arm in arms) / 2 + 1


def trend(arms: Sequence[Series]) -> tuple[float, float] | None:
    """Change over the whole session as a ratio, and its p; None: order unknown, or too few.

    Theil and Sen's slope of log values within each arm, with the p of Kendall's test over all
    arms together (Hirsch, Slack and Smith 1982), so a difference between arms is no trend.
    """
    score = variance = 0.0
    slopes: list[float] = []
    places: list[int] = []
    for arm in arms:
        points = _points(arm)
        if points is None:
            return None
        places += [place for place, _ in points]
        pairs = [
            (later - earlier, y - x)
            for index, (earlier, x) in enumerate(points)
            for later, y in points[index + 1 :]
        ]
        slopes += [rise / run for run, rise in pairs if run]
        score += sum((rise > 0) - (rise < 0) for _, rise in pairs)
        ties = Counter(value for _, value in points).values()
        variance += _kendall(len(points)) - sum(map(_kendall, ties))
    if variance <= 0 or not slopes:
        return None
    z = max(abs(score) - 1, 0) / math.sqrt(variance)
    p = 2 * statistics.NormalDist().cdf(-z)
    return math.exp(statistics.median(slopes) * (max(places) - min(places))), p


def session(arms: Sequence[Series]) -> tuple[Caution, ...]:
    """What the order of the session says: interleaving and trend over all arms."""
    found: list[Caution] = []
    if not all(arm.valid for arm in arms):
        return ()
    names = ", ".join(arm.arm for arm in arms)
    if not (mixed := interleaved(arms)):
        text = f"{UNKNOWN_ORDER}, so drift cannot be told" if mixed is None else IN_TURN
        found.append(Caution(trap=Trap.ORDER, sentence=f"{names}: {text}"))
    return (*found, *_drifts(arms))


def _drifts(arms: Sequence[Series]) -> list[Caution]:
    """The trend of all arms together, of each at its part of the level, and where they differ."""
    found = []
    # Of arms one after the other, thirds are of what was measured of each.
    of = "each arm's part" if interleaved(arms) is False else "the session"
    moved = trend(arms)
    if moved is not None and moved[1] <= _TREND_P:
        text = f"{', '.join(arm.arm for arm in arms)}: {_thirds(arms, of)} (p = {moved[1]:.2g})"
        found.append(Caution(trap=Trap.TREND, sentence=text))
    alone = {arm.arm: own for arm in arms if (own := trend([arm])) is not None}
    for arm in arms:
        own = alone.get(arm.arm)
        if own and own[1] <= _TREND_P / len(arms) and not (found and len(arms) == 1):
            text = f"{arm.arm}: {_thirds([arm], of)} (p = {own[1]:.2g})"
            found.append(Caution(trap=Trap.TREND, sentence=text))
    for one, other in combinations(arms, 2):
        unlike = _unlike(one, other)
        if unlike is not None and unlike[0] <= _TREND_P / len(arms):
            text = f"{one.arm} and {other.arm} drift unlike each other (p = {unlike[0]:.2g}): the"
            text += " change depends on when it is measured"
            found.append(Caution(trap=Trap.TREND, sentence=text))
    return found


def opposite(arms: Sequence[Series]) -> str:
    """Why a change of arms is one of the moment: one drifts alone, or two against each other.

    "" where none do.  Which sign the score of an arm has that stands still is chance.
    """
    for one, other in combinations(arms, 2):
        unlike = _unlike(one, other)
        own = {arm.arm: moved[1] for arm in (one, other) if (moved := trend([arm])) is not None}
        if unlike is None or len(own) < 2:
            continue
        limit = _TREND_P / len(arms)
        (surely, moving), (hardly, still) = sorted((p, arm) for arm, p in own.items())
        # Of nine boots not even the straightest drift is surely unlike that of an arm that stands.
        alone = hardly > _STILL_P and (
            unlike[0] <= limit or max(surely / limit, unlike[0] / _UNLIKE_P) <= 1
        )
        if alone:
            text = f"{moving} drifts and {still} does not (p = {surely:.2g})"
        elif unlike[1] and unlike[0] <= limit:
            text = f"{one.arm} and {other.arm} drift in opposite directions (p = {unlike[0]:.2g})"
        else:
            continue
        return f"{text}: the change depends on when it is measured"
    return ""


def _unlike(one: Series, other: Series) -> tuple[float, bool] | None:
    """p of one trend in both arms: the difference of Kendall's scores; None: order unknown.

    Also whether the scores have opposite signs.
    """
    scores = []
    for arm in (one, other):
        points = _points(arm)
        if points is None or len(points) < MIN_REPLICATES:
            return None
        signs = ((y > x) - (y < x) for at, (_, x) in enumerate(points) for _, y in points[at + 1 :])
        scores.append((sum(signs), _kendall(len(points))))
    (first, was), (second, now) = scores
    z = abs(first / math.sqrt(was) - second / math.sqrt(now)) / math.sqrt(2)
    return 2 * statistics.NormalDist().cdf(-z), first * second < 0


def _thirds(arms: Sequence[Series], of: str) -> str:
    """The mean change of arms from the first third of their boots to the last, in words."""
    changes = []
    for arm in arms:
        logs = [value for _, value in _points(arm) or ()]
        part = max(1, len(logs) // 3)
        changes.append(statistics.fmean(logs[-part:]) - statistics.fmean(logs[:part]))
    percent = 100 * (math.exp(statistics.fmean(changes)) - 1)
    return f"values moved by {percent:+.2g} % from the first third of {of} to the last"


def _kendall(n: int) -> float:
    return n * (n - 1) * (2 * n + 5) / 18


def _points(arm: Series) -> list[tuple[int, float]] | None:
    """(position, log value) in order, thinned to 500: the pairs grow with the square."""
    points = [
        (boot.position, math.log(value))
        for boot, value in zip(arm.valid, arm.values, strict=True)
        if boot.position is not None and value > 0
    ]
    if len(points) != len(arm.valid):
        return None
    points.sort()
    return points[:: max(1, len(points) // 500)]


def _samples(series: Series) -> tuple[float, ...]:
    return tuple(islice(chain.from_iterable(boot.values for boot in series.valid), _MANY))


def _few(series: Series) -> list[Caution]:
    n = len(series.valid)
    if n >= MIN_REPLICATES:
        return []
    text = f"{series.arm}: {series.replicate.counted(n)}, {MIN_REPLICATES} are the least"
    return [Caution(trap=Trap.FEW, sentence=text)]


def _failed(series: Series) -> list[Caution]:
    n = len(series.valid)
    planned = max(series.planned, len(series.boots))
    if n >= planned:
        return []
    why = "; ".join(sorted({boot.failure for boot in series.boots if boot.failure}))
    text = f"{series.arm}: {n}/{planned} {series.replicate}s have values"
    return [Caution(trap=Trap.FAILED, sentence=f"{text}: {why}" if why else text)]


def _refilled(series: Series) -> list[Caution]:
    refilled = [boot.label for boot in series.valid if boot.refilled]
    if not refilled:
        return []
    text = (
        f"{series.arm}: {', '.join(refilled)} was measured later than its round, which breaks"
        " the interleaving"
    )
    return [Caution(trap=Trap.REFILLED, sentence=text)]


def _counted_twice(series: Series) -> list[Caution]:
    found = counted_twice(series.arm, claimed=len(series.valid), planned=series.planned)
    same = duplicate_runs(series)
    if same:
        text = f"{series.arm}: run {', '.join(same)} is counted more than once"
        found.append(Caution(trap=Trap.DOUBLE_COUNT, sentence=text))
    groups = Counter(boot.values for boot in series.valid if len(boot.values) > 1)
    copies = sum(times - 1 for values, times in groups.items() if len(set(values)) > 1)
    if copies or all_twice(series):
        text = f"{series.arm}: equal values come in pairs, as if each run were counted twice"
        found.append(Caution(trap=Trap.DOUBLE_COUNT, sentence=text))
    return found


def all_twice(series: Series) -> bool:
    """Every value an even number of times, and at least 4 different ones."""
    times = Counter(boot.values[0] for boot in series.valid if len(boot.values) == 1)
    return len(times) >= 4 and all(count % 2 == 0 for count in times.values())


def _zeros(series: Series) -> list[Caution]:
    samples = _samples(series)
    zeros, negative = sum(value == 0 for value in samples), sum(value < 0 for value in samples)
    found = []
    if negative:
        what = "time" if is_time(series.metric) else "such figure"
        text = f"{negative} of {len(samples)} samples are negative: no {what} is"
        found.append(Caution(trap=Trap.ZERO, sentence=f"{series.arm}: {text}"))
    if zeros:
        sentence = f"{series.arm}: {zeros} of {len(samples)} samples are zero"
        if is_time(series.metric):
            sentence += ", below what the clock can tell: make the sample longer"
        found.append(Caution(trap=Trap.ZERO, sentence=sentence))
    return found


def _few_values(series: Series) -> list[Caution]:
    """Boots that scatter less than their readings can show."""
    n, different = len(series.values), len(set(series.values))
    if n < MIN_REPLICATES or different > max(2, n // 6):
        return []
    text = "all values are equal" if different == 1 else f"only {different} different values"
    sentence = (
        f"{series.arm}: {text} in {series.replicate.counted(n)}: the clock or the print is coarser"
        " than the scatter, so their CV says nothing"
    )
    return [Caution(trap=Trap.LATTICE, sentence=sentence)]


def _clock(series: Series) -> list[Caution]:
    found = []
    source = series.fact("clocksource") or ""
    if source in _JIFFIES:
        hz = series.fact("hz")
        tick = f" (HZ={hz})" if hz else ""
        text = f"{series.arm}: clocksource {source}: time moves by whole ticks only{tick}"
        found.append(Caution(trap=Trap.CLOCK, sentence=text))
    on = lattice(series)
    median = summarise(series).median
    if on is None or not median or on.step < COARSE * median:
        return found
    tick = f", as a tick of {on.tick_ns:,.0f} ns (HZ={on.hz}) makes them" if on.tick_ns else ""
    text = (
        f"{series.arm}: all values lie on a lattice of step {on.step:.6g} {series.metric.unit},"
        f" {100 * on.step / median:.2g} % of the value{tick}; a sample should span"
        f" {TICKS_PER_SAMPLE} steps"
    )
    found.append(Caution(trap=Trap.LATTICE, sentence=text))
    return found


def _steps(series: Series) -> list[Caution]:
    step, median = resolution(_samples(series)), summarise(series).median
    if not median or median < 0 or step <= COARSE * median:
        return []
    text = (
        f"{series.arm}: values are printed in steps of {step:g} {series.metric.unit}, which is"
        f" {100 * step / median:.2g} % of the value"
    )
    return [Caution(trap=Trap.TRUNCATED, sentence=text)]


def outliers(series: Series) -> list[Caution]:
    """Boots far from the others: of clean arms of any size in 1 %."""
    n = len(series.valid)
    if n < min(OUTLIER_LIMITS):
        return []
    summary = summarise(series)
    reach = outlier_limit(n) * _scale(series)
    far = [
        (boot.label, value)
        for boot, value in zip(series.valid, series.values, strict=True)
        if abs(value - (summary.median or 0.0)) > reach
    ]
    if not far:
        return []
    shown = ", ".join(f"{label} ({value:g})" for label, value in far[:5])
    shown += f" and {len(far) - 5} more" if len(far) > 5 else ""
    text = f"{series.arm}: far from the others, and kept: {shown}"
    if len(far) > _FEW_OF_MANY * n:
        many = f"{len(far)} of {n} lie far from the others, as a second mode does"
        text = f"{series.arm}: {many}: {shown}"
    found = [Caution(trap=Trap.OUTLIER, sentence=text)]
    found += _carried(series.arm, summary) if len(far) == 1 else []
    if summary.median and (summary.maximum or 0) > WILD * summary.median:
        text = f"{series.arm}: one value is {(summary.maximum or 0) / summary.median:.0f} x median"
        found.append(Caution(trap=Trap.WILD, sentence=text))
    return found


def _carried(arm: str, summary: Summary) -> list[Caution]:
    """One far value that is also the distance of mean and median, which is then sd / sqrt(n)."""
    if summary.mean is None or summary.median is None or not summary.sd:
        return []
    if abs(summary.mean - summary.median) / summary.sd * math.sqrt(summary.n) < CARRIED:
        return []
    text = f"the mean is {summary.mean:g}, the median {summary.median:g}"
    return [Caution(trap=Trap.WILD, sentence=f"{arm}: one wild run carries the mean: {text}")]


def outlier_limit(n: int) -> float:
    """The distance from the median, in scales, that 1 % of clean arms of n values exceed."""
    largest = max(OUTLIER_LIMITS)
    if n > largest:
        return statistics.NormalDist().inv_cdf(1 - 0.005 / n) / _OF_MANY
    return OUTLIER_LIMITS[max(known for known in OUTLIER_LIMITS if known <= n)]


def _scale(series: Series) -> float:
    """Mean of the smallest distances from the median, never below half a step of the readings.

    So a value far from twelve equal ones is far.
    """
    middle = statistics.median(series.values)
    distances = sorted(abs(value - middle) for value in series.values)
    kept = distances[: math.ceil(CLOSEST * len(distances))]
    return max(statistics.fmean(kept), resolution(series.values) / 2)


def shared_lattice(arms: Sequence[Series]) -> Lattice | None:
    """The lattice of all samples together; None where an arm shows its own, or it hides nothing.

    Four different values on every fifth step are chance in one arm of a thousand; eight are not.
    """
    medians = [summarise(arm).median or 0.0 for arm in arms]
    if len(arms) < 2 or min(medians) <= 0 or len({arm.metric for arm in arms}) > 1:
        return None
    if any(_worth(lattice(arm), own) for arm, own in zip(arms, medians, strict=True)):
        return None
    found = lattice(*arms)
    return found if _worth(found, min(medians)) else None


def _worth(found: Lattice | None, median: float) -> bool:
    return found is not None and found.step >= COARSE * median


def shared_lattice_cautions(arms: Sequence[Series]) -> list[Caution]:
    """The sentence on a lattice that the arms share."""
    found = shared_lattice(arms)
    if found is None:
        return []
    least = min(summarise(arm).median or 0.0 for arm in arms)
    text = (
        f"{', '.join(arm.arm for arm in arms)}: all values together lie on a lattice of step"
        f" {found.step:.6g} {arms[0].metric.unit}, {100 * found.step / least:.2g} % of the value;"
        f" a sample should span {TICKS_PER_SAMPLE} steps"
    )
    return [Caution(trap=Trap.LATTICE, sentence=text)]


def units(arms: Sequence[Series]) -> list[Caution]:
    """An arm that is ten, or a thousand, times another, or some of its runs times the others."""
    old, new = (summarise(arm).median for arm in arms[:2])
    within = [caution for arm in arms for caution in _within(arm)]
    if within or not old or not new or old < 0 or new < 0:
        return within
    power = math.log10(new / old)
    if (times := _times(power)) is None:
        return []
    wide, narrow = (arms[1], arms[0]) if power > 0 else (arms[0], arms[1])
    text = f"{wide.arm} is about {times} times {narrow.arm}: are the units the same?"
    return [Caution(trap=Trap.UNITS, sentence=text)]


def _within(arm: Series) -> list[Caution]:
    """Runs of one arm in two heaps, the one a thousand times the other."""
    ordered = sorted(value for value in arm.values if value > 0)
    if len(ordered) < 2 * _LEAST:
        return []
    logs = [math.log10(value) for value in ordered]
    gaps = [later - first for first, later in pairwise(logs)]
    cut = gaps.index(max(gaps)) + 1
    if min(cut, len(logs) - cut) < _LEAST:
        return []
    power = statistics.median(logs[cut:]) - statistics.median(logs[:cut])
    times = _times(power)
    if times is None or power < UNITS[1] - _NEAR:  # ten times: modes have that
        return []
    text = f"{len(logs) - cut} runs of {arm.arm} are about {times} times its others: are the units"
    return [Caution(trap=Trap.UNITS, sentence=f"{text} the same?")]


def _times(power: float) -> str | None:
    near = next((unit for unit in UNITS if abs(abs(power) - unit) < _NEAR), None)
    return None if near is None else f"{10**near:,.0f}"


def obstacles(arms: Sequence[Series]) -> tuple[str, ...]:
    """Sentences that forbid a comparison of these arms; empty: nothing does."""
    found = [text for arm in arms for text in _of_one(arm)]
    for old, new in combinations(arms, 2):
        found += _of_metrics(old, new) + _of_facts(old, new) + _of_states(old, new)
        found += _of_runs(old, new)
    return tuple(dict.fromkeys(found))


def unknowns(arms: Sequence[Series]) -> tuple[Caution, ...]:
    """What is not known about state and facts, where that does not forbid the comparison."""
    texts = [
        f"{arm.arm}: page state unknown: {', '.join(names)}"
        for arm in arms
        if (names := [name for name, value in arm.state if value == UNKNOWN])
    ]
    unseen = ", ".join(dict.fromkeys(arm.arm for arm in arms if not arm.state))
    texts += [f"{unseen}: the page state was not audited"] if unseen else []
    found = [Caution(trap=Trap.STATE, sentence=text) for text in texts]
    for old, new in combinations(arms, 2):
        for one, other in ((old, new), (new, old)):
            names = sorted(set(dict(one.facts)) - set(dict(other.facts)) - _FREE)
            if names:
                text = f"{', '.join(names)}: known of {one.arm}, not of {other.arm}"
                found.append(Caution(trap=Trap.FACTS, sentence=text))
    return tuple(found)


def _of_one(arm: Series) -> list[str]:
    found = []
    if arm.metric.assume is Assume.EXACT:
        found.append(f"{arm.arm}: {arm.metric.name} is an exact count, not a time")
    asked, seen = arm.fact("requested_cpus"), arm.fact("seen_cpus")
    if asked is not None and seen is not None and asked != seen:
        found.append(f"{arm.arm}: {asked} CPUs were requested and {seen} were seen")
    smp = arm.fact("smp")
    if asked is not None and smp is not None and smp.lower() in _NO:
        found.append(
            f"{arm.arm}: the kernel was built without SMP, so {asked} CPUs is only what was asked"
        )
    found += [
        f"{arm.arm}: measured with {name} on: instrumented runs are never a time"
        for name in _INSTRUMENTS
        if (arm.fact(name) or "").lower() not in _NO
    ]
    if (arm.fact("accelerator") or "").lower() in _EMULATORS:
        found.append(f"{arm.arm}: emulated (tcg): wall-clock time there is never evidence")
    runs = duplicate_runs(arm)
    return found + [f"{arm.arm}: run {run} is counted more than once" for run in runs]


def _of_metrics(old: Series, new: Series) -> list[str]:
    # Of what an arm without any boot would have repeated nothing is known.
    repeated = old.replicate is new.replicate or not (old.boots and new.boots)
    if old.metric == new.metric and repeated:
        return []
    was, now = (f"{arm.metric.name} ({arm.metric.unit}) per {arm.replicate}" for arm in (old, new))
    if was == now:
        was, now = (f"{arm.metric.name}, {arm.metric.better} is better" for arm in (old, new))
    return [f"metrics differ: {was} against {now}"]


def _of_facts(old: Series, new: Series) -> list[str]:
    was, now = dict(old.facts), dict(new.facts)
    return [
        f"{name} differs: {was[name]} ({old.arm}) against {now[name]} ({new.arm})"
        for name in sorted((was.keys() & now.keys()) - _FREE)
        if was[name] != now[name]
    ]


def _of_runs(old: Series, new: Series) -> list[str]:
    """A run under two arms has one name and the same values; names alone may be numbers."""
    was = {(boot.run, boot.values) for boot in old.valid if boot.run}
    shared = dict.fromkeys(boot.run for boot in new.valid if (boot.run, boot.values) in was)
    return [f"run {run} is counted for {old.arm} and for {new.arm}" for run in shared]


def _of_states(old: Series, new: Series) -> list[str]:
    was, now = dict(old.state), dict(new.state)
    return [
        f"page state differs: {name} {was[name]} ({old.arm}) against {now[name]} ({new.arm})"
        for name in sorted(was.keys() & now.keys())
        if was[name] != now[name] and UNKNOWN not in (was[name], now[name])
    ]
