# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures that workloads tell: by arm, as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from kdelta.analysis import findings
from kdelta.analysis.lab import surveyed
from kdelta.journal.run import RunRecord
from kdelta.metric import Better, Grade
from kdelta.rendering import show as show_page
from kdelta.rendering.formats import written
from kdelta.sample import MetricValue, Outcome, StateField, TrialResult
from kdelta.table.columns import plain
from kdelta.verdict.comparison import Verdict
from ladder_records import failed, result, run, trial_of, with_kernels, with_results

NO_PMU = "no PMU for us: No such file or directory"
Figures = Mapping[str, float | str]  # a text: why it is absent

UNITS = {"total_access_time": "s", "throughput": "M/s", "cycles_per_access": "cycles"}


def told(figures: Figures) -> TrialResult:
    """An ok trial of which the workload told figures."""
    found = tuple(
        MetricValue(
            name=name,
            unit=UNITS.get(name, "1"),
            better=Better.HIGHER if name == "throughput" else Better.LOWER,
            value=None if isinstance(value, str) else value,
            absent=value if isinstance(value, str) else "",
        )
        for name, value in figures.items()
    )
    return replace(result(trial_of("6.16.12")), metrics=found)


def record(arms: Mapping[str, Sequence[TrialResult]], scenario: str = "") -> RunRecord:
    """A run of one scenario, "khugepaged:hot_cold_hot_16m" unless another is named."""
    workload, _, name = (scenario or "khugepaged:hot_cold_hot_16m").partition(":")
    made = run({label: list(results) for label, results in arms.items()})
    trials = tuple(replace(trial, workload=workload, scenario=name) for trial in made.trials)
    return replace(made, trials=trials)


def table(arms: Mapping[str, Sequence[TrialResult]]) -> findings.MetricTable:
    (found,) = findings.metric_tables(record(arms))
    return found


STEPPED = {
    "7.0.13": [told({"passes.hot1": 8, "passes.hot2": 24, "idle_passes": 25})] * 3,
    "7.1.13": [told({"passes.hot1": 8, "passes.hot2": 16, "idle_passes": 1})] * 3,
}


def test_median_range_and_ratio_are_of_the_ok_trials() -> None:
    values = [told({"passes.hot2": value}) for value in (24, 30, 25)]
    invalid = replace(told({"passes.hot2": 1}), outcome=Outcome.INVALID)
    found = table({"old": [*values, invalid], "new": [told({"passes.hot2": 16})]})
    (row,) = found.rows
    assert (row.name, row.unit, row.better) == ("passes.hot2", "1", Better.LOWER)
    old, new = row.cells
    assert (old.arm, old.median, old.minimum, old.maximum, old.n) == ("old", 25, 24, 30, 3)
    assert (new.median, new.n, new.ratio) == (16, 1, 16 / 25)


def test_absent_is_never_zero() -> None:
    found = table({"old": [told({"cycles": NO_PMU})] * 2, "new": [told({"cycles": 4.0})]})
    old, new = found.rows[0].cells
    assert (old.median, old.n, old.ratio, old.absent) == (None, 0, None, (NO_PMU,))
    assert new.ratio is None
    text = plain(show_page.show_metrics([found]))
    assert f"absent: old: {NO_PMU}" in text
    assert next(line for line in text.splitlines() if line.startswith("old")).endswith("absent")


def test_a_zero_is_a_value() -> None:
    found = table({"old": [told({"full_scans": 0})], "new": [told({"full_scans": 2})]})
    old, new = found.rows[0].cells
    assert (old.median, new.median, new.ratio) == (0, 2, None)


def test_what_no_trial_told_is_neither_a_value_nor_absent() -> None:
    found = table({"old": [told({"a": 1})], "new": [told({"b": 2})]})
    assert [row.name for row in found.rows] == ["a", "b"]
    assert (found.rows[1].cells[0].median, found.rows[1].cells[0].absent) == (None, ())
    lines = plain(show_page.show_metrics([found])).splitlines()
    assert [line.split() for line in lines[3:5]] == [["old", "1", "-"], ["new", "-", "2"]]


def test_a_family_stays_together() -> None:
    found = table(
        {
            "old": [told({"status.a": 1, "progress": 5})],
            "new": [told({"status.b": 2, "progress": 5, "status.c": 3})],
        }
    )
    assert [row.name for row in found.rows] == ["status.a", "status.b", "status.c", "progress"]


def test_a_run_without_metrics_has_no_table() -> None:
    plain_run = run({"6.16": [result(trial_of("6.16.12"))], "6.17": [failed(Outcome.SKIP, "no")]})
    assert findings.metric_tables(plain_run) == ()
    assert show_page.show_metrics(findings.metric_tables(plain_run)) == []


def test_ranges_are_shown_where_trials_differ() -> None:
    arms = {label: [told({"a": 1.0}), told({"a": 3.0})] for label in ("6.1", "6.2", "6.3")}
    text = plain(show_page.show_metrics([table(arms)]))
    assert "6.1     2 [1-3]" in text


def test_show_and_json_hold_the_metrics() -> None:
    stored = record({"old": [told({"a.x": 3.0})], "new": [told({"a.x": NO_PMU})]})
    text = plain(show_page.show(findings.report(stored)))
    assert "khugepaged:hot_cold_hot_16m: what it tells" in text
    (held,) = json.loads(written("json", show_page, findings.report(stored)))["metrics"]
    assert held["rows"][0]["cells"][0]["median"] == 3.0
    assert held["rows"][0]["cells"][1]["absent"] == [NO_PMU]


def moved(old: Sequence[float], new: Sequence[float]) -> RunRecord:
    """Two kernels that fetched so many lines an operation, each in as many seeds."""
    arms = {"6.16.12": old, "6.17.13": new}
    return record({k: [told({"fetched_lines": n}) for n in each] for k, each in arms.items()})


BROKEN = StateField(when="after", name="vma_count", value="2", want="1")
COMPILERS = {"6.16.12": {"compiler": "gcc (a) 13.1.0"}, "6.17.13": {"compiler": "gcc (a) 14.1.0"}}


@pytest.mark.parametrize(
    ("stored", "verdict", "why"),
    [
        (moved([2, 2, 2], [3, 3, 3]), Verdict.REGRESSION, "up by 50 %"),
        (moved([3, 3, 3], [0, 0, 0]), Verdict.IMPROVEMENT, "down by 100 %"),
        (moved([0, 0, 0], [0, 0, 0]), Verdict.SAME, "0 from 0"),
        (moved([0, 0, 0], [1, 1, 1]), Verdict.REGRESSION, "from 0"),
        (moved([2, 3, 2], [3, 2, 4]), Verdict.UNDECIDED, "is 3 lines per page, and"),
        (moved([2, 3, 4], [3, 4, 5]), Verdict.REGRESSION, "in each of 3 seeds by +1"),
        (moved([2, 2], [3, 3]), Verdict.UNDECIDED, "count with 3 seeds"),
        (with_kernels(moved([2] * 3, [3] * 3), lambda arm: COMPILERS[arm.label]),
         Verdict.UNDECIDED, "compilers differ"),
        (with_results(moved([2] * 3, [3] * 3), lambda one: {"state": (BROKEN,) * one.arm}),
         Verdict.INVALID, "vma_count"),
    ],
)  # fmt: skip
def test_lines_that_cpus_take_are_judged_as_counts_are(
    stored: RunRecord, verdict: Verdict, why: str
) -> None:
    found = findings.report(stored)
    (ladder,) = found.beside
    judged = ladder.rungs[1].comparison
    assert judged
    assert (judged.verdict, judged.grade) == (verdict, Grade.EXACT_LINES)
    assert why in "; ".join(judged.reasons)


def test_a_step_of_lines_is_said_in_lines() -> None:
    stored = moved([2, 2, 2], [3, 3, 3])
    said = "REGRESSION x1.500 from 6.16.12 to 6.17.13: 2.00 -> 3.00 lines per"
    found = findings.report(stored)
    for page in (show_page.show(found), show_page.show_survey(surveyed(stored))):
        assert said in " ".join(plain(page).split())
    *_, row = csv.DictReader(io.StringIO(written("csv", show_page, found)))
    assert (row["phase"], row["instructions"], row["per_operation"]) == ("lines", "", "3.0")
    (held,) = json.loads(written("json", show_page, found))["lines"]
    assert held["rungs"][1]["comparison"]["verdict"] == Verdict.REGRESSION


def test_lines_that_a_trial_did_not_count_are_not_judged() -> None:
    arms = {"old": [told({"fetched_lines": 2})] * 3, "new": [told({"a": 2})] * 3}
    text = plain(show_page.show(findings.report(record(arms))))
    assert "no trial of the new kernel ended ok" in text
    assert not findings.report(record({"old": arms["new"], "new": arms["new"]})).beside
