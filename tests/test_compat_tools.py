# SPDX-License-Identifier: GPL-2.0-or-later
"""mmtests' table and the Go benchmark format, against figures worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from imports_evidence import evidence, imported
from kdelta.analysis import benchfmt
from kdelta.analysis.compat import MmtestsCell, mmtests_table
from kdelta.imports.series import Case, cases
from kdelta.metric import Assume, Better, Metric
from kdelta.verdict.series import Boot, Series

OLD = (241.0, 243.0, 242.0, 250.0, 244.0)
NEW = (251.0, 249.0, 250.0, 252.0, 248.0)


def figures(better: Better, *samples: tuple[float, ...]) -> dict[str, tuple[MmtestsCell, ...]]:
    return {row.name: row.cells for row in mmtests_table(samples, better)}


def test_mmtests_rows_in_their_order() -> None:
    names = ["Min", "Amean", "Stddev", "CoeffVar", "Max", "BAmean-50", "BAmean-95", "BAmean-99"]
    assert list(figures(Better.LOWER, OLD, NEW)) == names


def test_mmtests_figures() -> None:
    found = figures(Better.LOWER, OLD, NEW)
    assert found["Amean"][0].value == 244.0
    assert found["Stddev"][0].value == pytest.approx(math.sqrt(12.5))  # 9+1+4+36+0 over 4
    assert found["CoeffVar"][0].value == pytest.approx(100 * math.sqrt(12.5) / 244)
    assert found["BAmean-50"][0].value == pytest.approx((241 + 242) / 2)  # int(2.5) lowest
    assert found["BAmean-95"][0].value == pytest.approx((241 + 242 + 243 + 244) / 4)
    assert found["Amean"][1].percent == pytest.approx(100 - 100 * 250 / 244)
    assert found["Stddev"][1].percent == pytest.approx(100 - 100 * math.sqrt(2.5 / 12.5))


def test_mmtests_star_marks_the_mean_only() -> None:
    found = figures(Better.LOWER, OLD, NEW)  # t = 6 / sqrt(3) = 3.46, 8 degrees: p = 0.0085
    assert found["Amean"][1].star
    assert not any(cells[1].star for name, cells in found.items() if name != "Amean")
    assert not figures(Better.LOWER, OLD, (245.0, 242.0, 246.0, 241.0, 247.0))["Amean"][1].star


def test_mmtests_takes_harmonic_means_where_higher_is_better() -> None:
    found = figures(Better.HIGHER, (100.0, 300.0), (150.0, 150.0))
    assert found["Hmean"][0].value == pytest.approx(150.0)
    assert found["Hmean"][1].percent == pytest.approx(0.0)
    assert found["BHmean-50"][0].value == 300.0  # the best is the highest
    # 1/150 +- 1/300: sqrt(2 (1/300)^2 150^4 / 2)
    assert found["HStddev"][0].value == pytest.approx(75.0)


def test_mmtests_of_one_sample_has_no_deviation() -> None:
    found = figures(Better.LOWER, (5.0,), (6.0,))
    assert math.isnan(found["Stddev"][0].value)
    assert found["CoeffVar"][0].value == 0.0
    assert found["Amean"][1].star  # without scatter any difference gets its star


def test_mmtests_goes_around_zero_as_it_does() -> None:
    found = figures(Better.LOWER, (0.0, 0.0), (3.0, 3.0))
    assert found["Amean"][1].percent == -99.0
    assert figures(Better.LOWER, (3.0, 3.0), (0.0, 0.0))["Amean"][1].percent == 100.0


def test_mmtests_needs_samples() -> None:
    with pytest.raises(ValueError, match="no samples"):
        mmtests_table([(1.0,), ()], Better.LOWER)


def test_benchmark_format_is_read_back(tmp_path: Path) -> None:
    before = cases(evidence("mprotect-qemu/formal-20260513/perf_1cpu").contents)
    lines = benchfmt.lines(before)
    assert lines[0] == "Unit ns/page assume=nothing better=lower"
    path = tmp_path / "out.txt"
    path.write_text("\n".join(lines) + "\n")
    after = cases(imported(path).contents)
    values = [
        sorted(
            (series.arm, boot.label, boot.values)
            for c in found
            for series in c.series
            for boot in series.valid
        )
        for found in (before, after)
    ]
    assert [(arm, kept) for arm, _, kept in values[0]] == [
        (arm, kept) for arm, _, kept in values[1]
    ]
    assert {series.replicate.value for case in after for series in case.series} == {"boot"}


def test_benchmark_names_are_words() -> None:
    metric = Metric(name="move time", unit="ns per op", better=Better.LOWER, assume=Assume.EXACT)
    boots = (Boot(label="b 1", position=None, values=(0.1, 2.0)),)
    series = Series(arm="6.1 x", metric=metric, boots=boots, planned=1)
    case = Case(group=(("cpu", "1 2"),), metric=metric, series=(series,))
    assert benchfmt.lines([case]) == [
        "Unit ns_per_op assume=exact better=lower", "arm: 6.1 x", "# boot: b 1",
        "BenchmarkMove_time/cpu=1_2 1 0.1 ns_per_op", "BenchmarkMove_time/cpu=1_2 1 2.0 ns_per_op",
    ]  # fmt: skip
