# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures a thousand times others: a change, or another unit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from kdelta.verdict.comparison import Caution, Trap
from kdelta.verdict.series import Series, summarise

UNITS = (1.0, 3.0, 6.0, 9.0)  # powers of ten by which units are confused
_NEAR = 0.05  # of the logarithm
_LEAST = 2  # values of an arm in each of two units


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
