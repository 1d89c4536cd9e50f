# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults of others' data that show over several metrics, arms or summaries at once.

A tick: phases of one boot are timed by the same clock over the same number of rounds, so on a clock
that only ticks all their means are floor(k * tick / (rounds * pages)) with one `rounds`.  That
number may change from boot to boot, which hides the lattice from a look at one metric alone.

Summaries: runs that were counted twice, a wild run behind a mean, runs that replaced lost ones.

CPUs: a number that was requested is not one that the kernel used.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kdelta.imports.record import SET, Published
from kdelta.imports.series import Case
from kdelta.stats import detectors
from kdelta.stats.clock import CHANCE, MAX_ROUNDS, ticks_ns
from kdelta.stats.detectors import COARSE, TICKS_PER_SAMPLE
from kdelta.verdict.comparison import Caution, Trap
from kdelta.verdict.series import Series

_PAGES = tuple(2**power for power in range(10, 19))  # workloads touch 4 MiB to 1 GiB
_MAX_BOOTS = 60
_FINEST = 1.5  # a finer lattice holds every whole number
_MIN_METRICS = 3
_MIN_ROWS = 6  # whole sums are even by chance in 4^-6 of the cases
_DIGITS = 9  # of a printed CV, for its sum of squares to be known to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The tick that explains the readings; steps in the metrics' unit, chance as log10."""

    hz: int
    nanoseconds: float
    pages: int
    fewest_rounds: int
    most_rounds: int
    log_chance: float

    def step(self, rounds: int) -> float:
        """Distance of neighbouring readings of a boot of so many rounds."""
        return self.nanoseconds / (rounds * self.pages)


def shared_tick(cases: Sequence[Case]) -> Tick | None:
    """The tick behind the whole-number times per page of one group, when chance is not.

    `cases`: one group's metrics of one unit, such as ns/page.  At least three metrics are
    needed: one is often nearly the sum of the others, and so proves nothing.
    """
    boots = _boots(cases)
    if not boots:
        return None
    tried = [(hz, tick, pages) for hz, tick in ticks_ns() for pages in _PAGES]
    found = [tick for each in tried if (tick := _tried(boots, *each))]
    best = min(found, key=lambda tick: tick.log_chance, default=None)
    if best is None or best.log_chance + math.log10(len(tried)) > math.log10(CHANCE):
        return None
    return best


def of_tick(case: Case, tick: Tick | None) -> list[Caution]:
    """The sentence on a tick for a metric whose value it is coarse against."""
    if tick is None:
        return []
    values = sorted(value for series in case.series for value in series.values if value > 0)
    step = tick.step(tick.most_rounds)
    if not values or step < COARSE * values[len(values) // 2]:
        return []
    rounds = f"{tick.fewest_rounds} to {tick.most_rounds} rounds"
    text = (
        f"{case.metric.name}: in every boot all metrics lie on one lattice, that of a tick of"
        f" {tick.nanoseconds:,.0f} ns (HZ={tick.hz}) over {rounds} of {tick.pages} operations,"
        f" so steps of {step:.3g} {case.metric.unit} or more; chance does so in 1e"
        f"{tick.log_chance:.0f} of the cases. Much of the scatter is the clock; a sample should"
        f" span {TICKS_PER_SAMPLE} ticks"
    )
    return [Caution(trap=Trap.LATTICE, sentence=text)]


def _boots(cases: Sequence[Case]) -> list[tuple[int, ...]]:
    """The distinct whole readings of each boot over all metrics; empty: nothing to look at."""
    found: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        if not case.metric.unit.startswith("ns/"):
            return []
        for series in case.series:
            _collect(series, found)
    chosen = list(found.values())[:_MAX_BOOTS]
    if any(value != int(value) for values in chosen for value in values):
        return []
    boots = [tuple(sorted({int(value) for value in values if value > 0})) for values in chosen]
    return [values for values in boots if len(values) >= _MIN_METRICS]


def _collect(series: Series, found: dict[tuple[str, str], list[float]]) -> None:
    for boot in series.valid:
        if boot.run and len(boot.values) == 1:
            found.setdefault((series.arm, boot.run), []).append(boot.values[0])


def _tried(boots: Sequence[tuple[int, ...]], hz: int, tick: float, pages: int) -> Tick | None:
    total, rounds = 0.0, []
    for values in boots:
        used, chance = _rounds(values, tick / pages)
        if used is None:
            return None
        rounds.append(used)
        total += math.log10(min(chance, 1.0))
    return Tick(
        hz=hz,
        nanoseconds=tick,
        pages=pages,
        fewest_rounds=min(rounds),
        most_rounds=max(rounds),
        log_chance=total,
    )


def _rounds(values: Sequence[int], unit: float) -> tuple[int | None, float]:
    """The fewest rounds whose lattice holds all values, and how likely chance finds that few."""
    chance = 0.0
    for rounds in range(1, MAX_ROUNDS + 1):
        step = unit / rounds
        if step < _FINEST:
            return None, 1.0
        # One value may follow from the others (a cycle is the sum of its phases).
        chance += step ** (1 - len(values))
        if all(math.floor(math.ceil(v / step - 1e-9) * step + 1e-9) == v for v in values):
            return rounds, chance
    return None, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A condition that the arms were measured under at several settings.

    sound: whether every setting was read back as requested; sentence: why, or why not.
    where: the table or bundle, when there are several.
    """

    name: str
    settings: tuple[str, ...]
    sound: bool
    sentence: str
    where: str = ""


def of_summaries(case: Case, *, paired: bool) -> Iterator[Caution]:
    """Traps that the published figures of a case show.  paired: see `counted_in_pairs`."""
    limit = case.rules.max_cv if case.rules else None
    for one in case.published:
        series = case.arm(one.arm)
        if series is None or series.boots:
            continue  # its values say more
        n = one.ok or 0
        if n > series.planned:
            yield from detectors.counted_twice(one.arm, claimed=n, planned=series.planned)
        yield from detectors.wild(one.arm, n=n, cv=one.cv)
        if limit is not None:
            yield from detectors.near_limit(one.arm, n=n, cv=one.cv, limit=limit)
        if one.failed:
            text = f"{one.arm}: {n}/{n + one.failed} runs ended ok"
            reason = f": {one.failure}" if one.failure else ""
            yield Caution(trap=Trap.FAILED, sentence=text + reason)
        elif one.failure:
            text = f"{one.arm}: runs behind the summary failed: {one.failure}"
            yield Caution(trap=Trap.FAILED, sentence=text)
        if n and not one.failed and n < detectors.MIN_REPLICATES:
            text = f"{one.arm}: {n} runs, {detectors.MIN_REPLICATES} are the least"
            yield Caution(trap=Trap.FEW, sentence=text)
    silent = not any(series.boots for series in case.series)
    if paired and case.published and silent:
        text = (
            "every published sum, and sum of squares, is twice a whole number: each run was"
            " counted twice, so n is half of what is said and the CV is too small"
        )
        yield Caution(trap=Trap.DOUBLE_COUNT, sentence=text)
    yield from _replaced(case)


def _replaced(case: Case) -> Iterator[Caution]:
    for series in case.series:
        lost = case.detail(series.arm, "lost_run")
        one = next((one for one in case.published if one.arm == series.arm), None)
        if lost and one and one.ok and not one.failed:
            text = (
                f"{series.arm}: a run was lost ({lost}) and yet {one.ok} are counted: a later run"
                " took its place, which breaks the interleaving"
            )
            yield Caution(trap=Trap.REFILLED, sentence=text)


def counted_in_pairs(published: Iterable[Published]) -> bool:
    """True when sum and sum of squares of all rows are even: whole values counted twice each.

    Needs rows with an even count and a CV with many digits; chance passes a row in 1 of 4 cases.
    """
    rows = [
        one
        for one in published
        if one.ok
        and one.ok % 2 == 0
        and one.mean
        and one.cv
        and (one.cv_digits >= _DIGITS or one.sd is not None)
    ]
    return len(rows) >= _MIN_ROWS and all(_even(one) for one in rows)


def _even(one: Published) -> bool:
    n, mean, cv = one.ok or 0, one.mean or 0.0, one.cv or 0.0
    total = n * mean
    squares = (cv * mean) ** 2 * (n - 1) + n * mean**2
    return all(abs(part / 2 - round(part / 2)) < 1e-3 for part in (total, squares))


def cpus(cases: Sequence[Case]) -> tuple[Dimension, ...]:
    """Whether each table may be read as a matrix over CPUs, where several numbers were requested.

    Without SMP, or with maxcpus=1, a guest runs on one CPU whatever QEMU was given.
    """
    sets: dict[str, list[Series]] = {}
    for case in cases:
        sets.setdefault(dict(case.group).get(SET, ""), []).extend(
            series for series in case.series if series.fact("requested_cpus")
        )
    found = {where: _settings(every) for where, every in sets.items()}
    return tuple(
        _matrix(settings, sets[where], where)
        for where, settings in found.items()
        if len(settings) > 1
    )


def _settings(every: Sequence[Series]) -> tuple[str, ...]:
    asked = {series.fact("requested_cpus") or "" for series in every}
    return tuple(sorted(asked, key=lambda text: (len(text), text)))


def _matrix(settings: tuple[str, ...], every: Sequence[Series], where: str) -> Dimension:
    listed = ", ".join(settings)
    sound = all(_confirmed(series) for series in every)
    text = f"the guests saw the CPUs that were requested: {listed}"
    if not sound:
        text = f"{listed} CPUs are what was requested; {_why(every)}"
    return Dimension(name="cpu", settings=settings, sound=sound, sentence=text, where=where)


def _confirmed(series: Series) -> bool:
    return series.fact("seen_cpus") == series.fact("requested_cpus") and series.fact("smp") != "no"


def _why(every: Sequence[Series]) -> str:
    if any(series.fact("smp") == "no" for series in every):
        return "the kernels are without SMP, so they used one"
    seen = sorted({s.fact("seen_cpus") or "" for s in every} - {""})
    if seen and not all(series.fact("seen_cpus") for series in every):
        return "for some of them nothing says what the guest saw"
    return f"the guests saw {', '.join(seen)}" if seen else "nothing says what the guests saw"


def contradicted(case: Case) -> Iterator[str]:
    """Sentences where published summaries are not those of the values."""
    for one in case.published:
        if series := case.arm(one.arm):
            yield from _contradicted(series, one)


def _rounded(printed: float, mean: float) -> float:
    """How far a printed mean may be from that of the values: it has the digits that it has."""
    digits = len(f"{printed:.9f}".rstrip("0").partition(".")[2])
    return max(6e-4, 1e-5 * abs(mean), 0.6 * 10.0**-digits)


def _contradicted(series: Series, one: Published) -> Iterator[str]:
    """Sentences where a published summary is not that of the values."""
    values = series.values
    if not values:
        return
    mean = statistics.fmean(values)
    if one.mean is not None and abs(one.mean - mean) > _rounded(one.mean, mean):
        yield f"{series.arm}: a mean of {one.mean:g} is published, its values make {mean:.6g}"
    if one.ok is not None and one.ok != len(values):
        yield f"{series.arm}: {one.ok} runs are published, {len(values)} values are there"
    if one.cv is None or len(values) < 2 or not mean:
        return
    sample, population = statistics.stdev(values) / mean, statistics.pstdev(values) / mean
    slack = 0.6 * 10.0**-one.cv_digits
    if abs(one.cv - sample) > slack:
        form = ", the population form" if math.isclose(one.cv, population, abs_tol=slack) else ""
        yield (
            f"{series.arm}: a CV of {100 * one.cv:.3f} % is published{form};"
            f" the sample form is {100 * sample:.3f} %"
        )
