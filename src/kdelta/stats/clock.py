# SPDX-License-Identifier: GPL-2.0-or-later
"""What a clock that only ticks leaves in the data: values that lie on a lattice.

A guest without a usable TSC reads jiffies: at HZ=250 every reading is a whole number of ticks of
4,000,250 ns, whatever happened in between.  A mean of such readings over r rounds of p pages is
floor(k * tick / (r * p)): it looks like data, and its scatter is that of the clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kdelta.metric import Better, Metric

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
    for step, hz, tick in _steps(scale, tuple(pages)):
        if step < max(2.5, whole[0] / FINE):
            break
        chance += step ** -len(whole)
        if chance > CHANCE:
            break
        if _fits(whole[0], step) and all(_fits(value, step) for value in whole):
            return Lattice(step=step * printed, hz=hz, tick_ns=tick)
    return None


@lru_cache(maxsize=32)
def _steps(scale: float, pages: tuple[int, ...]) -> tuple[tuple[float, int, float], ...]:
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
