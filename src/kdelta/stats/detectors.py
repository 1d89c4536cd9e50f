# SPDX-License-Identifier: GPL-2.0-or-later
"""What makes a set of timings less than it looks, and what forbids to compare two.

Everything is flagged; nothing is removed.  Cautions stand beside a verdict; obstacles make it
INVALID before any number is looked at.

A clock that only ticks leaves values on a lattice.  A guest without a usable TSC reads jiffies: at
HZ=250 every reading is a whole number of ticks of 4,000,250 ns, whatever happened in between.  A
mean of such readings over r rounds of p pages is floor(k * tick / (r * p)): it looks like data, and
its scatter is that of the clock.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, islice, pairwise

from kdelta.metric import Assume, Better, Metric
from kdelta.printable import few
from kdelta.stats.series import Series, Trap
from kdelta.verdict.comparison import Caution, Summary

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
UNKNOWN = "unknown"
_NO = frozenset({"0", "n", "no", "off", "false", "disabled", "none", ""})
_INSTRUMENTS = ("coverage", "instrumented", "tracing")
# How much was measured may differ between arms, and so may the identity of a boot.
_FREE = frozenset({"operations", "boot_id"})


def summarise(series: Series) -> Summary:
    """Summarise one value per valid replicate."""
    values = series.values
    arm, planned, kind = series.arm, series.planned, series.replicate
    if not values:
        return Summary(arm=arm, replicate=kind, n=0, planned=planned)
    mean = statistics.fmean(values)
    median = statistics.median(values)
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Summary(
        arm=arm,
        replicate=kind,
        n=len(values),
        planned=planned,
        median=median,
        mean=mean,
        sd=sd,
        cv=None if sd is None or mean == 0 else sd / mean,
        mad=statistics.median(abs(value - median) for value in values),
        minimum=min(values),
        maximum=max(values),
    )


def inspect(series: Series, *, max_cv: float | None = None) -> tuple[Caution, ...]:
    """Every trap of one arm by itself; max_cv: a limit of the CV that a rule elsewhere has."""
    summary = summarise(series)
    found = [
        Caution(trap=trap, sentence=f"{series.arm}: {text}")
        for trap, detect in _OF_ONE_ARM
        for text in detect(series)
    ]
    found += wild(series.arm, n=summary.n, cv=summary.cv)
    if max_cv is not None:
        found += near_limit(series.arm, n=summary.n, cv=summary.cv, limit=max_cv)
    return tuple(found)


def wild(arm: str, *, n: int, cv: float | None) -> list[Caution]:
    """One value that is the whole scatter: then the CV is close to sqrt(n), whatever it is."""
    if cv is None or n < 3 or not 0.8 * math.sqrt(n) <= cv <= 1.02 * math.sqrt(n):
        return []
    text = f"{arm}: the CV of {cv:.3g} is close to sqrt({n}) = {math.sqrt(n):.3g}, so one wild"
    text += " value outweighs all others: the mean says nothing, look at the median"
    return [Caution(trap=Trap.WILD, sentence=text)]


def near_limit(arm: str, *, n: int, cv: float | None, limit: float) -> list[Caution]:
    """A CV so close to a limit that its own error decides the side (Ahn and Fessler 2003).

    The standard error of a sample standard deviation is about sd / sqrt(2 (n - 1)).
    """
    if cv is None or n < 2 or abs(cv - limit) > cv / math.sqrt(2 * (n - 1)):
        return []
    side = "over" if cv > limit else "under"
    text = f"{arm}: the CV of {100 * cv:.2f} % is just {side} the limit of {100 * limit:g} %;"
    text += f" {n} values do not fix a CV better than +-{100 * cv / math.sqrt(2 * (n - 1)):.1f} %"
    return [Caution(trap=Trap.NEAR_LIMIT, sentence=text)]


def counted_twice(arm: str, *, claimed: int, planned: int) -> list[Caution]:
    """More results than runs, from published counts alone."""
    texts = _surplus(claimed, planned)
    return [Caution(trap=Trap.DOUBLE_COUNT, sentence=f"{arm}: {text}") for text in texts]


def _surplus(claimed: int, planned: int) -> Iterator[str]:
    if planned and claimed > planned:
        factor = math.sqrt((planned - 1) / planned * claimed / (claimed - 1))
        text = f"{claimed} results of {planned} runs: lines of one run were counted as runs, which"
        yield f"{text} also shrinks the CV (to {factor:.3f} of itself, when each run counts alike)"


def _duplicate_runs(series: Series) -> list[str]:
    """Identities of runs that more than one replicate claims: certain double counts."""
    runs = Counter(boot.run for boot in series.valid if boot.run)
    return [run for run, times in runs.items() if times > 1]


@lru_cache(maxsize=16)
def lattice(series: Series, *others: Series) -> Lattice | None:
    """The lattice on which this arm's samples lie, or those of several, if there is one."""
    known = series.fact("operations") or ""
    operations = int(known) if known.isascii() and known.isdigit() else 0
    values = [value for arm in (series, *others) for value in _samples(arm)]
    unit = _NS.get(series.metric.unit.partition("/")[0])
    return find_lattice(values, ns_per_unit=unit, operations=operations or None)


def reading_step(series: Series) -> float:
    """The coarsest step that readings of this arm can take, in the metric's unit; 0: unknown."""
    found = lattice(series)
    return max(resolution(_samples(series)), found.step if found else 0.0)


def interleaved(arms: Sequence[Series]) -> bool | None:
    """Whether the arms alternate: rounds change arm once each; None: the order is not known."""
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
        pairs = [(v - u, y - x) for at, (u, x) in enumerate(points) for v, y in points[at + 1 :]]
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
    if not all(arm.valid for arm in arms):
        return ()
    found = [Caution(trap=Trap.TREND, sentence=text) for text in _drifts(arms)]
    names = ", ".join(arm.arm for arm in arms)
    if not (mixed := interleaved(arms)):
        text = f"{UNKNOWN_ORDER}, so drift cannot be told" if mixed is None else IN_TURN
        found.insert(0, Caution(trap=Trap.ORDER, sentence=f"{names}: {text}"))
    return tuple(found)


def _drifts(arms: Sequence[Series]) -> Iterator[str]:
    """The trend of all arms together, of each at its part of the level, and where they differ."""
    # Of arms one after the other, thirds are of what was measured of each.
    of = "each arm's part" if interleaved(arms) is False else "the session"
    parts = [(arms, _TREND_P)]
    parts += [([arm], _TREND_P / len(arms)) for arm in arms if len(arms) > 1]
    for part, limit in parts:
        moved = trend(part)
        if moved is not None and moved[1] <= limit:
            names = ", ".join(arm.arm for arm in part)
            yield f"{names}: {_thirds(part, of)} (p = {moved[1]:.2g})"
    for one, other in combinations(arms, 2):
        unlike = _unlike(one, other)
        if unlike is not None and unlike[0] <= _TREND_P / len(arms):
            text = f"{one.arm} and {other.arm} drift unlike each other (p = {unlike[0]:.2g})"
            yield f"{text}: the change depends on when it is measured"


def opposite(arms: Sequence[Series]) -> str:
    """Why a change is one of the moment: one arm drifts alone, or two apart; "" where none do."""
    for one, other in combinations(arms, 2):
        unlike = _unlike(one, other)
        own = {arm.arm: moved[1] for arm in (one, other) if (moved := trend([arm])) is not None}
        if unlike is None or len(own) < 2:
            continue
        limit = _TREND_P / len(arms)
        (surely, moving), (hardly, still) = sorted((p, arm) for arm, p in own.items())
        # Of nine boots not even the straightest drift is surely unlike that of an arm that stands.
        apart = unlike[0] <= limit or max(surely / limit, unlike[0] / _UNLIKE_P) <= 1
        if hardly > _STILL_P and apart:
            text = f"{moving} drifts and {still} does not (p = {surely:.2g})"
        elif unlike[1] and unlike[0] <= limit:
            text = f"{one.arm} and {other.arm} drift in opposite directions (p = {unlike[0]:.2g})"
        else:
            continue
        return f"{text}: the change depends on when it is measured"
    return ""


def _unlike(one: Series, other: Series) -> tuple[float, bool] | None:
    """p of one trend in both arms, and whether their scores have opposite signs; None: unknown."""
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


def _few(series: Series) -> Iterator[str]:
    n = len(series.valid)
    if n < MIN_REPLICATES:
        yield f"{series.replicate.counted(n)}, {MIN_REPLICATES} are the least"


def _failed(series: Series) -> Iterator[str]:
    n, planned = len(series.valid), max(series.planned, len(series.boots))
    if n < planned:
        why = "; ".join(sorted({boot.failure for boot in series.boots if boot.failure}))
        text = f"{n}/{planned} {series.replicate}s have values"
        yield f"{text}: {why}" if why else text


def _refilled(series: Series) -> Iterator[str]:
    if late := ", ".join(boot.label for boot in series.valid if boot.refilled):
        yield f"{late} was measured later than its round, which breaks the interleaving"


def _counted_twice(series: Series) -> Iterator[str]:
    yield from _surplus(len(series.valid), series.planned)
    if same := _duplicate_runs(series):
        yield f"run {', '.join(same)} is counted more than once"
    groups = Counter(boot.values for boot in series.valid if len(boot.values) > 1)
    copies = sum(times - 1 for values, times in groups.items() if len(set(values)) > 1)
    if copies or all_twice(series):
        yield "equal values come in pairs, as if each run were counted twice"


def all_twice(series: Series) -> bool:
    """Every value an even number of times, and at least 4 different ones."""
    times = Counter(boot.values[0] for boot in series.valid if len(boot.values) == 1)
    return len(times) >= 4 and all(count % 2 == 0 for count in times.values())


def _zeros(series: Series) -> Iterator[str]:
    samples, timed = _samples(series), is_time(series.metric)
    zeros, negative = sum(value == 0 for value in samples), sum(value < 0 for value in samples)
    if negative:
        what = "time" if timed else "such figure"
        yield f"{negative} of {len(samples)} samples are negative: no {what} is"
    if zeros:
        more = ", below what the clock can tell: make the sample longer" if timed else ""
        yield f"{zeros} of {len(samples)} samples are zero{more}"


def _few_values(series: Series) -> Iterator[str]:
    """Boots that scatter less than their readings can show."""
    n, different = len(series.values), len(set(series.values))
    if n >= MIN_REPLICATES and different <= max(2, n // 6):
        text = "all values are equal" if different == 1 else f"only {different} different values"
        text += f" in {series.replicate.counted(n)}: the clock or the print is coarser than the"
        yield f"{text} scatter, so their CV says nothing"


def _clock(series: Series) -> Iterator[str]:
    source, hz = series.fact("clocksource"), series.fact("hz")
    if source in _JIFFIES:
        tick = f" (HZ={hz})" if hz else ""
        yield f"clocksource {source}: time moves by whole ticks only{tick}"


def _on_lattice(series: Series) -> Iterator[str]:
    on, median = lattice(series), summarise(series).median
    if on and median and on.step >= COARSE * median:
        tick = f", as a tick of {on.tick_ns:,.0f} ns (HZ={on.hz}) makes them" if on.tick_ns else ""
        text = f"all values lie on a lattice of step {on.step:.6g} {series.metric.unit},"
        text += f" {100 * on.step / median:.2g} % of the value{tick}; a sample should span"
        yield f"{text} {TICKS_PER_SAMPLE} steps"


def _steps(series: Series) -> Iterator[str]:
    step, median = resolution(_samples(series)), summarise(series).median
    if median and median > 0 and step > COARSE * median:
        text = f"values are printed in steps of {step:g} {series.metric.unit}"
        yield f"{text}, which is {100 * step / median:.2g} % of the value"


def _far(series: Series) -> list[str]:
    """Boots far from the others, with their values: of clean arms of any size in 1 %."""
    n = len(series.valid)
    if n < min(OUTLIER_LIMITS):
        return []
    middle = statistics.median(series.values)
    distances = sorted(abs(value - middle) for value in series.values)
    scale = statistics.fmean(distances[: math.ceil(CLOSEST * n)])
    # Never below half a step of the readings.
    reach = outlier_limit(n) * max(scale, resolution(series.values) / 2)
    return [
        f"{boot.label} ({value:g})"
        for boot, value in zip(series.valid, series.values, strict=True)
        if abs(value - middle) > reach
    ]


def outliers(series: Series) -> Iterator[str]:
    """The sentence on boots far from the others; none where there are none."""
    if far := _far(series):
        n = len(series.valid)
        text = "far from the others, and kept"
        if len(far) > _FEW_OF_MANY * n:
            text = f"{len(far)} of {n} lie far from the others, as a second mode does"
        yield f"{text}: {few(far, 5)}"


def _wild_runs(series: Series) -> Iterator[str]:
    """One far value that is also the distance of mean and median, which is then sd / sqrt(n)."""
    far, summary = _far(series), summarise(series)
    mean, median = summary.mean or 0.0, summary.median or 0.0
    root = math.sqrt(summary.n)
    if len(far) == 1 and summary.sd and abs(mean - median) / summary.sd * root >= CARRIED:
        yield f"one wild run carries the mean: the mean is {mean:g}, the median {median:g}"
    if far and median and (summary.maximum or 0) > WILD * median:
        yield f"one value is {(summary.maximum or 0) / median:.0f} x median"


def outlier_limit(n: int) -> float:
    """The distance from the median, in scales, that 1 % of clean arms of n values exceed."""
    largest = max(OUTLIER_LIMITS)
    if n > largest:
        return statistics.NormalDist().inv_cdf(1 - 0.005 / n) / _OF_MANY
    return OUTLIER_LIMITS[max(known for known in OUTLIER_LIMITS if known <= n)]


_OF_ONE_ARM: tuple[tuple[Trap, Callable[[Series], Iterator[str]]], ...] = (
    (Trap.FEW, _few),
    (Trap.FAILED, _failed),
    (Trap.REFILLED, _refilled),
    (Trap.DOUBLE_COUNT, _counted_twice),
    (Trap.ZERO, _zeros),
    (Trap.CLOCK, _clock),
    (Trap.LATTICE, _on_lattice),
    (Trap.LATTICE, _few_values),
    (Trap.TRUNCATED, _steps),
    (Trap.OUTLIER, outliers),
    (Trap.WILD, _wild_runs),
)


def shared_lattice(arms: Sequence[Series]) -> Lattice | None:
    """The lattice of all samples together; None where an arm has its own, or it hides nothing."""
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
    text = f"{', '.join(arm.arm for arm in arms)}: all values together lie on a lattice of step"
    text += f" {found.step:.6g} {arms[0].metric.unit}, {100 * found.step / least:.2g} % of the"
    text += f" value; a sample should span {TICKS_PER_SAMPLE} steps"
    return [Caution(trap=Trap.LATTICE, sentence=text)]


def obstacles(arms: Sequence[Series]) -> tuple[str, ...]:
    """Sentences that forbid a comparison of these arms; empty: nothing does."""
    found = [text for arm in arms for text in _of_one(arm)]
    for old, new in combinations(arms, 2):
        found += [*_of_metrics(old, new), *_of_facts_and_states(old, new)]
        # A run under two arms has one name and the same values; names alone may be numbers.
        was = {(boot.run, boot.values) for boot in old.valid if boot.run}
        shared = dict.fromkeys(boot.run for boot in new.valid if (boot.run, boot.values) in was)
        found += [f"run {run} is counted for {old.arm} and for {new.arm}" for run in shared]
    return tuple(dict.fromkeys(found))


def unknowns(arms: Sequence[Series]) -> tuple[Caution, ...]:
    """What is not known about state and facts, where that does not forbid the comparison."""
    lacking = ((a.arm, [name for name, value in a.state if value == UNKNOWN]) for a in arms)
    texts = [f"{arm}: page state unknown: {', '.join(names)}" for arm, names in lacking if names]
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


def _of_one(arm: Series) -> Iterator[str]:
    yield from (f"{arm.arm}: {text}" for text in _surplus(len(arm.valid), arm.planned))
    if arm.metric.assume is Assume.EXACT:
        yield f"{arm.arm}: {arm.metric.name} is an exact count, not a time"
    asked, seen, smp = (arm.fact(name) for name in ("requested_cpus", "seen_cpus", "smp"))
    if asked is not None and seen is not None and asked != seen:
        yield f"{arm.arm}: {asked} CPUs were requested and {seen} were seen"
    if asked is not None and smp is not None and smp.lower() in _NO:
        yield f"{arm.arm}: the kernel was built without SMP, so {asked} CPUs is only what was asked"
    for name in _INSTRUMENTS:
        if (arm.fact(name) or "").lower() not in _NO:
            yield f"{arm.arm}: measured with {name} on: instrumented runs are never a time"
    if (arm.fact("accelerator") or "").lower() == "tcg":
        yield f"{arm.arm}: emulated (tcg): wall-clock time there is never evidence"
    for run in _duplicate_runs(arm):
        yield f"{arm.arm}: run {run} is counted more than once"


def _of_metrics(old: Series, new: Series) -> Iterator[str]:
    # Of what an arm without any boot would have repeated nothing is known.
    repeated = old.replicate is new.replicate or not (old.boots and new.boots)
    if old.metric == new.metric and repeated:
        return
    was, now = (f"{arm.metric.name} ({arm.metric.unit}) per {arm.replicate}" for arm in (old, new))
    if was == now:
        was, now = (f"{arm.metric.name}, {arm.metric.better} is better" for arm in (old, new))
    yield f"metrics differ: {was} against {now}"


def _of_facts_and_states(old: Series, new: Series) -> Iterator[str]:
    facts = ({name: fact for name, fact in arm.facts if name not in _FREE} for arm in (old, new))
    states = ({name: is_ for name, is_ in arm.state if is_ != UNKNOWN} for arm in (old, new))
    for words, (was, now) in (("{} differs:", facts), ("page state differs: {}", states)):
        for name in sorted(was.keys() & now.keys()):
            if was[name] != now[name]:
                change = f"{was[name]} ({old.arm}) against {now[name]} ({new.arm})"
                yield f"{words.format(name)} {change}"


HERTZ = (100, 250, 300, 1000)
PIT_HZ = 1_193_182  # the rate of the timer by which x86 ticks
CHANCE = 1e-3  # a lattice is only claimed when chance would lay so many values on one so rarely
FINE = 1000  # a lattice this many times finer than the smallest value hides nothing
MAX_ROUNDS = 64
MAX_CALLS = 200
_PAGES = tuple(2**power for power in range(10, 19))  # workloads touch 4 MiB to 1 GiB
_MAX_DISTINCT = 400
# Units of times; "": nothing says what it is.
_TIMES = ("", "ns", "us", "ms", "s", "min", "h", "cycles", "jiffies", "ticks")
_PRINTED = 1e-6  # the finest step that somebody printed and cut; finer ones are figures in full


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """All values are multiples of `step`, in their unit; hz is that of the tick behind it."""

    step: float
    hz: int | None = None
    tick_ns: float | None = None


def refined_tick_ns(hz: int) -> float:
    """Length of a tick of clocksource refined-jiffies, as register_refined_jiffies() has it."""
    per_tick = (PIT_HZ + hz // 2) // hz
    rate = ((PIT_HZ << 8) + per_tick // 2) // per_tick
    return ((10**9 << 8) + rate // 2) // rate


def is_time(metric: Metric) -> bool:
    """False for a rate, and for a figure whose unit is known and none of time: bytes, faults."""
    return metric.better is not Better.HIGHER and metric.unit.partition("/")[0] in _TIMES


def resolution(values: Sequence[float]) -> float:
    """The decimal step in which values were printed: 1 for whole numbers, 0.01 for cents."""
    for places in range(7):
        if all(abs(value - round(value, places)) <= 1e-9 * abs(value) for value in values):
            return float(10.0**-places)
    return 0.0


def common_step(values: Sequence[float]) -> float:
    """The largest step of which all values are multiples, be it by chance; 0: none is printed."""
    printed = resolution(values)
    whole = [round(value / printed) for value in values] if printed else []
    return math.gcd(*whole) * printed


def find_lattice(
    values: Sequence[float], *, ns_per_unit: float | None = 1.0, operations: int | None = None
) -> Lattice | None:
    """The coarsest lattice on which all values lie, when chance does not explain it.

    ns_per_unit: of the values (1000 for us); None: not a time, so no tick is looked for.
    operations:  operations of one round, if known; else powers of two are tried.
    """
    distinct = sorted({value for value in values if value > 0})[:_MAX_DISTINCT]
    # With all their digits, as a tick over a power of two has.
    exact = (place for place in range(7, 13) if all(round(v, place) == v for v in distinct))
    printed = resolution(distinct) or next((float(10.0**-place) for place in exact), 0.0)
    if len(distinct) < 2 or not printed:
        return None
    whole = [round(value / printed) for value in distinct]
    divisor = math.gcd(*whole)
    # Values that know of no common divisor would hardly share it.
    if divisor != 1 and (len(whole) - 1) * -math.log(divisor) <= math.log(CHANCE):
        hz, tick = _named(divisor * printed, ns_per_unit)
        return Lattice(step=divisor * printed, hz=hz, tick_ns=tick)
    if ns_per_unit is None or printed < _PRINTED:
        return None
    scale = printed * ns_per_unit
    pages = _PAGES if operations is None else (operations,)
    found = (_per_operation(whole, scale, printed, pages), _mean_of_calls(whole, scale, printed))
    return max((each for each in found if each), key=lambda each: each.step, default=None)


def ticks_ns() -> tuple[tuple[int, float], ...]:
    """(HZ, tick in ns) of the jiffies clocks, as registered and refined."""
    return (*((hz, 1e9 / hz) for hz in HERTZ), *((hz, refined_tick_ns(hz)) for hz in HERTZ))


def _named(step: float, ns_per_unit: float | None) -> tuple[int | None, float | None]:
    for hz, tick in reversed(ticks_ns()) if ns_per_unit is not None else ():
        times = step * (ns_per_unit or 0.0) / tick
        if round(times) >= 1 and abs(times - round(times)) < 1e-6 * times:
            return hz, tick
    return None, None


def _fits(value: int, step: float) -> bool:
    """True when value is floor(k * step) for some k."""
    return math.floor(math.ceil(value / step - 1e-9) * step + 1e-9) == value


def _per_operation(
    whole: Sequence[int], scale: float, printed: float, pages: Sequence[int]
) -> Lattice | None:
    """floor(k * tick / (rounds * pages)) with one number of rounds for all values."""
    chance = 0.0
    for step, hz, tick in _lattice_steps(scale, tuple(pages)):
        if step < max(2.5, whole[0] / FINE):
            break
        chance += step ** -len(whole)
        if chance > CHANCE:
            break
        if _fits(whole[0], step) and all(_fits(value, step) for value in whole):
            return Lattice(step=step * printed, hz=hz, tick_ns=tick)
    return None


@lru_cache(maxsize=32)
def _lattice_steps(scale: float, pages: tuple[int, ...]) -> tuple[tuple[float, int, float], ...]:
    """(step in printed units, HZ, tick) of every number of rounds, the coarsest first."""
    found = {
        (tick / (rounds * count) / scale, hz, tick)
        for hz, tick in ticks_ns()
        for count in pages
        for rounds in range(1, MAX_ROUNDS + 1)
    }
    return tuple(sorted(found, reverse=True))


def _mean_of_calls(whole: Sequence[int], scale: float, printed: float) -> Lattice | None:
    """floor(k * tick / calls), each value with its own small number of calls."""
    for hz, tick in ticks_ns():
        unit = tick / scale
        # Fractions with a denominator up to n are about 0.3 n^2 per unit: each catches one value.
        chance = 0.3 * MAX_CALLS**2 / unit
        if chance > 0.5 or chance ** len(whole) > CHANCE:
            continue
        most = 0
        for value in whole:
            ways = (n for n in range(1, MAX_CALLS + 1) if _fits(value, unit / n))
            if (calls := next(ways, None)) is None:
                break
            most = max(most, calls)
        else:
            return Lattice(step=unit / most * printed, hz=hz, tick_ns=tick)
    return None
