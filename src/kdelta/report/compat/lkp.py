# SPDX-License-Identifier: GPL-2.0-or-later
"""lkp-tests' comparison: the `%stddev  %change  %stddev` table of the kernel test robot's mails.

From lib/compare.rb (formats, change), lib/statistics.rb (the standard deviation is the population
form) and lib/changed_stat.rb (the rule for "changed") of https://github.com/intel/lkp-tests.
Never used for our verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

HEAD = (
    "         %stddev     %change         %stddev",
    "             \\          |                \\  ",
)
_ABSOLUTE = 10
_RELATIVE = 10
_ERROR = 6
_SHOWN_PERCENT = 2
_FEW = 3
_GAP = 2


def line(name: str, base: Sequence[float], other: Sequence[float]) -> str:
    """One statistic of two arms as lkp prints it.  Raises ValueError for an arm without values."""
    change = change_percent(base, other)
    form = ".1f" if abs(change) < 100_000 else ".2g"
    return f"{_side(base)}{change:+{_RELATIVE}{form}}% {_side(other)}  {name}"


def change_percent(base: Sequence[float], other: Sequence[float]) -> float:
    """Change of the average in percent; a base of 0 counts as 1e-100, as lkp has it."""
    first = statistics.fmean(base) or 1e-100
    return 100 * (statistics.fmean(other) - first) / first


def deviation_percent(values: Sequence[float]) -> float:
    """%stddev: population standard deviation in percent of the average; -1 for one value."""
    average = statistics.fmean(values)
    deviation = statistics.pstdev(values) if len(values) > 1 else -1.0
    return 100 * deviation / average if average else deviation


def changed(base: Sequence[float], other: Sequence[float]) -> bool:
    """lkp's default rule: the ranges are apart, but for what overlaps on the far side's median."""
    a, b = sorted(base), sorted(other)
    middle_a, middle_b = a[len(a) // 2], b[len(b) // 2]
    up = b[0] > middle_a and middle_b > a[-1]
    down = a[0] > middle_b and middle_a > b[-1]
    return up or down


def changed_by_gap(base: Sequence[float], other: Sequence[float], distance: float = 5.0) -> bool:
    """lkp's rule when it bisects: with 3 runs or more a gap between the ranges of half the change;

    with fewer, a gap of `distance` times the larger range.
    """
    a, b = sorted(base), sorted(other)
    if min(len(a), len(b)) < _FEW:
        gap = max(a[-1] - a[0], b[-1] - b[0]) * distance
        return b[0] - a[-1] > gap or a[0] - b[-1] > gap
    rise = b[len(b) // 2] - a[len(a) // 2]
    up = b[0] > a[-1] and b[0] - a[-1] > rise / _GAP
    down = a[0] > b[-1] and a[0] - b[-1] > -rise / _GAP
    return up or down


def _side(values: Sequence[float]) -> str:
    average = statistics.fmean(values)
    percent = deviation_percent(values)
    error = f" ±{int(percent):{_ERROR - 3}d}%" if percent > _SHOWN_PERCENT else " " * _ERROR
    return _average(average) + error


def _average(average: float) -> str:
    if abs(average) < 1000:
        return f"{average:{_ABSOLUTE}.2f}"
    if abs(average) > 100_000_000:
        return f"{average:{_ABSOLUTE}.4g}"
    return f"{int(average):{_ABSOLUTE}d}"
