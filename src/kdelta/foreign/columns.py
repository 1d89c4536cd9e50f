# SPDX-License-Identifier: GPL-2.0-or-later
"""What the columns of published tables are called, and what those names mean."""

from __future__ import annotations

import re

from kdelta.metric import Assume, Better, Metric

ARM = ("arm", "point", "exact_version", "kernel", "version")
ORDER = ("order", "step", "sequence", "index")
ROUND = ("round", "repeat")
DIMENSIONS = (
    "environment",
    "cpu",
    "memory_mib",
    "guest_memory_mib",
    "thp_mode",
    "scenario",
    "case",
)
MEAN = ("mean", "value")
MEDIAN = ("median", "median_value")
SD = ("stdev", "sd", "stdev_value")
OK = ("ok_runs", "runs", "n", "run_count")
TRUE = ("true", "yes", "1")

_TIME = re.compile(r"(?:.+_)?ns(?:_per_\w+|_avg)?\Z")
_STATISTIC = re.compile(
    r"(?:(?P<before>mean|median|sd|cv|values)_(?P<a>.+)|(?P<b>.+)_(?P<after>mean|median|sd|cv))\Z"
)
_STATE = re.compile(
    r"anon_?huge|page_kb|thp_?eligible|expected_match|unexpected_results|semantic|vmas(?:_avg)?\Z"
    r"|pagemap|kpf_|compound_|soft_dirty|(?:^|_)present\Z|(?:target|other|failed|queried)_pages"
    r"|node_required|noapic"
)


def is_time(column: str) -> bool:
    """True for a metric whose name says nanoseconds (ns_per_page, move_ns, advise_ns_avg)."""
    return bool(_TIME.match(column)) and not is_state(column) and statistic(column) is None


def is_state(column: str) -> bool:
    """True for a field of an audit: page state, results of the calls, integrity."""
    return bool(_STATE.search(column)) and not column.endswith(("_mean", "_sum"))


def statistic(column: str) -> tuple[str, str] | None:
    """(statistic, metric) of a column such as mean_x_ns or x_ns_median; None: it is no such."""
    found = _STATISTIC.match(column)
    if not found:
        return None
    word = found["before"] or found["after"]
    metric = found["a"] or found["b"]
    return (word, metric) if _TIME.match(metric) else None


def metric_of(name: str) -> Metric | None:
    """The metric of that name where the name itself tells unit and direction; else None."""
    if not is_time(name):
        return None
    _, per, what = name.rpartition("_per_")
    unit = f"ns/{what.replace('_', '-')}" if per else "ns"
    return Metric(name=name, unit=unit, better=Better.LOWER, assume=Assume.NOTHING)
