# SPDX-License-Identifier: GPL-2.0-or-later
"""Throughput as `perf bench mem` prints it; the lines of perf were printed by linux-perf 7.3."""

from __future__ import annotations

import math
import re

import pytest
from msgspec.structs import replace

from kdelta.analysis.compat import perfbench
from kdelta.journal.run import RunRecord
from kdelta.metric import Better
from kdelta.sample import Instrument, MetricValue, Outcome, PhaseTimes, TimeData, TrialResult
from ladder_records import run

GIB = 1 << 30
PERF = (
    "       2.494632 GB/sec",
    "     825.567703 MB/sec",
    "     466.758414 MB/sec/thread\t( +-   1.76% )",
)


def timed(*nanoseconds: int, region: float | None = GIB) -> TrialResult:
    phases = PhaseTimes(
        phase="fault", operations=512, operation="page", nanoseconds=tuple(nanoseconds)
    )
    told = MetricValue(name="region", unit="B", better=Better.NONE, value=region)
    return TrialResult(
        outcome=Outcome.OK,
        data=TimeData(phases=(phases,)),
        metrics=() if region is None else (told,),
    )


def record(*results: TrialResult) -> RunRecord:
    made = run({"host": list(results)})
    return replace(made, study=replace(made.study, instrument=Instrument.TIME))


def test_all_bytes_by_all_of_the_time() -> None:
    # 3 GiB in 1 s, not the mean of three throughputs.
    found = perfbench.throughput(GIB, [200_000_000, 300_000_000, 500_000_000])
    assert found.bytes_per_second == 3 * GIB
    # Sample deviation 0.15275, of the mean of three 0.08819, by the mean 0.33333.
    assert found.percent == pytest.approx(26.4575, abs=1e-3)
    assert found.line == "       3.000000 GB/sec\t( +-  26.46% )"


def test_one_loop_has_no_deviation() -> None:
    found = perfbench.throughput(GIB, [500_000_000])
    assert (found.percent, found.line) == (None, "       2.000000 GB/sec")


@pytest.mark.parametrize("line", PERF)
def test_the_line_is_laid_out_as_perf_does(line: str) -> None:
    number, unit = re.match(r" *([\d.]+) (\w+)/sec", line).groups()  # type: ignore[union-attr]
    scale = {"MB": 1 << 20, "GB": GIB}[unit]
    found = perfbench.throughput(float(number) * scale, [10**9])
    assert found.line == line.partition("/thread")[0]


@pytest.mark.parametrize(
    ("region", "line"), [(512, "bytes/sec"), (2048, "KB/sec"), (1 << 40, "GB/sec")]
)
def test_units(region: int, line: str) -> None:
    assert perfbench.throughput(region, [10**9]).line.endswith(line)


def test_no_time_is_no_throughput() -> None:
    with pytest.raises(ValueError, match="took no time"):
        perfbench.throughput(GIB, [])


def test_an_arm_is_all_loops_of_its_trials() -> None:
    (row,) = perfbench.rows(record(timed(10**9, 10**9), timed(2 * 10**9)))
    assert (row.arm, row.found.loops) == ("host", 3)
    assert math.isclose(row.found.bytes_per_second, 3 * GIB / 4)
    assert perfbench.lines([row]) == [
        "# mprotect:shared_dirty_full_toggle_64m on host, 3 loops",
        "     768.000000 MB/sec\t( +-  25.00% )",
    ]


def test_what_has_no_region_or_did_not_end_ok_is_left_out() -> None:
    assert perfbench.rows(record(timed(10**9, region=None))) == ()
    assert perfbench.rows(record(replace(timed(10**9), outcome=Outcome.INVALID))) == ()
