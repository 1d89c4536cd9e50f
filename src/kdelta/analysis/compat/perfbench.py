# SPDX-License-Identifier: GPL-2.0-or-later
"""perf's own figure of memory throughput: `perf bench mem`, "GB/sec ( +- % )".

From tools/perf/bench/mem-functions.c and tools/perf/util/stat.c of Linux: all bytes by all of the
time, 2^30 bytes a GB, and the standard deviation of the mean time in percent of it.  perf takes
that over its threads; here it is over the loops, which is what published tables of it show.
Never used for our verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kdelta.journal.run import RunRecord
from kdelta.sample import Outcome, TrialResult

REGION = "region"  # the metric by which a workload says how many bytes a loop works on
_UNITS = ("bytes/sec", "KB/sec", "MB/sec", "GB/sec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What perf would print.  percent: None for one loop, which has no deviation."""

    bytes_per_second: float
    percent: float | None
    loops: int

    @property
    def line(self) -> str:
        """The line of the result as perf prints it, with its deviation when it has one."""
        value, unit = self.bytes_per_second, 0
        while value >= 1024 and unit < len(_UNITS) - 1:
            value, unit = value / 1024, unit + 1
        spread = "" if self.percent is None else f"\t( +- {self.percent:6.2f}% )"
        return f" {value:14.6f} {_UNITS[unit]}{spread}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfbenchRow:
    """One arm's throughput in a scenario, over the loops of all its trials."""

    name: str  # "demand_fault:timed_thp_256m", with the point of a matrix
    arm: str
    found: Throughput


def throughput(region: float, nanoseconds: Sequence[int]) -> Throughput:
    """Of loops that each work on `region` bytes.  Raises ValueError when no time passed."""
    whole = sum(nanoseconds)
    if whole <= 0:
        raise ValueError("the loops took no time")
    loops = len(nanoseconds)
    percent = None
    if loops > 1:
        deviation = statistics.stdev(nanoseconds) / math.sqrt(loops)
        percent = 100 * deviation / statistics.fmean(nanoseconds)
    return Throughput(bytes_per_second=region * loops * 1e9 / whole, percent=percent, loops=loops)


def rows(record: RunRecord) -> tuple[PerfbenchRow, ...]:
    """Those of a timed run whose workload tells its region, by scenario; none otherwise."""
    arms = {arm.index: arm for arm in record.arms}
    groups: dict[tuple[str, int], list[TrialResult]] = {}
    for trial in record.trials:
        if trial.result and trial.result.outcome is Outcome.OK and trial.result.timed.phases:
            name = f"{trial.workload}:{trial.scenario} {arms[trial.arm].point}".strip()
            groups.setdefault((name, trial.arm), []).append(trial.result)
    found = []
    for (name, arm), results in sorted(groups.items()):
        regions = {m.value for result in results for m in result.metrics if m.name == REGION}
        region = regions.pop() if len(regions) == 1 else None
        loops = [ns for result in results for ns in _loops(result)]
        if region is not None and sum(loops) > 0:
            label = f"{arms[arm].label}{' (control)' * arms[arm].control}"
            found.append(PerfbenchRow(name=name, arm=label, found=throughput(region, loops)))
    return tuple(found)


def _loops(result: TrialResult) -> list[int]:
    """The time of each iteration, all phases."""
    columns = (times.nanoseconds for times in result.timed.phases)
    return [sum(phases) for phases in zip(*columns, strict=False)]


def lines(table: Sequence[PerfbenchRow]) -> list[str]:
    """The rows, each under what it is, as perf lays a result out."""
    said = []
    for row in table:
        said += [f"# {row.name} on {row.arm}, {row.found.loops} loops", row.found.line, ""]
    return said[:-1]
