# SPDX-License-Identifier: GPL-2.0-or-later
"""lkp-tests' comparison: the `%stddev  %change  %stddev` table of the kernel test robot's mails.

From lib/compare.rb (formats, change) and lib/statistics.rb (the standard deviation is the
population form) of https://github.com/intel/lkp-tests.  Never used for our verdict; the rule by
which lkp calls a change one is kdelta.stats.published_rules.lkp_changed.
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
