# SPDX-License-Identifier: GPL-2.0-or-later
"""What was measured of one arm: replicates, and the samples within each."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from enum import StrEnum

from kdelta.metric import Metric, ReplicateUnit


class Trap(StrEnum):
    """What may spoil a set of times."""

    LATTICE = "lattice"
    CLOCK = "clock"
    TRUNCATED = "truncated"
    ZERO = "zero"
    OUTLIER = "outlier"
    WILD = "wild"
    DOUBLE_COUNT = "double-count"
    FEW = "few"
    NEAR_LIMIT = "near-limit"
    REFILLED = "refilled"
    FAILED = "failed"
    TREND = "trend"
    ORDER = "order"
    REPLICATE = "replicate"
    STATE = "state"
    FACTS = "facts"
    CONTROL = "control"
    MEANS = "means"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One replicate: a boot, or a process round of a series that says so.

    label:    names it in messages ("6.19.9 r03").
    position: order of execution over all arms of the session, from 0; None: unknown.
    values:   samples of the metric within it, in order, in the metric's unit; empty: it failed.
    failure:  why there are no values.
    refilled: added later than its round, to replace a failed one (breaks the interleaving).
    boot_id:  the boot that a process round ran in; empty: unknown, or the replicate is the boot.
    run:      identity of the run that the values come from; two boots with one run are one run
              counted twice.  Empty: unknown.
    value:    the one number that stands for it, the median of its values; NaN: it failed.
    """

    label: str
    position: int | None
    values: tuple[float, ...]
    failure: str = ""
    refilled: bool = False
    boot_id: str = ""
    run: str = ""
    value: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in self.values):
            raise ValueError(f"{self.label}: a sample is not a finite number")
        if self.values and self.failure:
            raise ValueError(f"{self.label}: it has both values and a failure")
        # Asked for often, and a boot may hold 100,000 samples.
        value = statistics.median(self.values) if self.values else math.nan
        object.__setattr__(self, "value", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """All replicates of one arm for one metric, in the order of the session where known.

    planned: replicates asked for; it is never less than what was started.
    facts:   what the machine was (requested_cpus, seen_cpus, smp, clocksource, hz, coverage ...).
    state:   audited page state; the value "unknown" is allowed; empty: not audited.
    valid:   the replicates that have samples.
    values:  one value per valid replicate, in that order.
    """

    arm: str
    metric: Metric
    boots: tuple[Boot, ...]
    planned: int
    facts: tuple[tuple[str, str], ...] = ()
    state: tuple[tuple[str, str], ...] = ()
    replicate: ReplicateUnit = ReplicateUnit.BOOT
    valid: tuple[Boot, ...] = field(init=False, repr=False, compare=False)
    values: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        valid = tuple(boot for boot in self.boots if boot.values)
        object.__setattr__(self, "valid", valid)
        object.__setattr__(self, "values", tuple(boot.value for boot in valid))

    def fact(self, name: str) -> str | None:
        """The fact of that name; None when it was not recorded."""
        return dict(self.facts).get(name)
