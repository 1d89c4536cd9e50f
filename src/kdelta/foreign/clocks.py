# SPDX-License-Identifier: GPL-2.0-or-later
"""A tick found from several metrics of one boot together.

Phases of one boot are timed by the same clock over the same number of rounds, so on a clock that
only ticks all their means are floor(k * tick / (rounds * pages)) with one `rounds`.  That number
may change from boot to boot, which hides the lattice from a look at one metric alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kdelta.foreign.series import Case
from kdelta.stats.clock import CHANCE, MAX_ROUNDS, ticks_ns
from kdelta.stats.detectors import COARSE, TICKS_PER_SAMPLE
from kdelta.verdict.comparison import Caution, Trap
from kdelta.verdict.series import Series

_PAGES = tuple(2**power for power in range(10, 19))  # workloads touch 4 MiB to 1 GiB
_MAX_BOOTS = 60
_FINEST = 1.5  # a finer lattice holds every whole number
_MIN_METRICS = 3


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


def cautions(case: Case, tick: Tick | None) -> list[Caution]:
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
