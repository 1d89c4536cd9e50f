# SPDX-License-Identifier: GPL-2.0-or-later
"""The Go benchmark format, as benchstat reads it."""

from __future__ import annotations

from pathlib import Path

from imports_evidence import evidence, imported
from kdelta.analysis import findings
from kdelta.imports.record import Case, cases
from kdelta.metric import Assume, Better, Metric
from kdelta.verdict.series import Boot, Series


def test_benchmark_format_is_read_back(tmp_path: Path) -> None:
    before = cases(evidence("mprotect-qemu/formal-20260513/perf_1cpu").contents)
    lines = findings.benchfmt_lines(before)
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
    assert findings.benchfmt_lines([case]) == [
        "Unit ns_per_op assume=exact better=lower",
        "arm: 6.1 x",
        "# boot: b 1",
        "BenchmarkMove_time/cpu=1_2 1 0.1 ns_per_op",
        "BenchmarkMove_time/cpu=1_2 1 2.0 ns_per_op",
    ]
