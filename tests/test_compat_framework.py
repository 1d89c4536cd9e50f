# SPDX-License-Identifier: GPL-2.0-or-later
"""Every cell of every published summary.csv, rebuilt from its raw.csv."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from imports_evidence import EVIDENCE
from kdelta.analysis.judgement import FrameworkRow, framework_rows
from kdelta.metric import Better
from kdelta.stats.series import Boot, Series
from timing_series import METRIC, arm

BUNDLES = sorted(
    str(path.parent.relative_to(EVIDENCE))
    for path in EVIDENCE.rglob("summary.csv")
    if (path.parent / "raw.csv").exists()
)
KEY = (
    "profile", "source_file", "entry_profile", "test_kind", "version_family", "exact_version",
    "case", "scenario", "metric",
)  # fmt: skip
COMPUTED = (
    "value", "median_value", "stdev_value", "cv", "mad_value", "mad_ratio", "min_value",
    "max_value", "baseline_value", "delta_vs_baseline", "baseline_median_value",
    "delta_vs_baseline_median", "classification", "status", "stable", "robust_stable",
    "semantic_warning", "semantic_warning_reasons", "comparison_reliable",
    "comparison_robust_reliable", "run_count", "ok_runs", "failed_runs", "failure_reasons",
)  # fmt: skip


def runs(name: str, values: Iterable[float], failures: Iterable[str] = ()) -> Series:
    failed = [Boot(label=name, position=None, values=(), failure=why) for why in failures]
    return replace(ran := arm(name, [*values]), boots=(*ran.boots, *failed))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@lru_cache
def rebuilt(bundle: str) -> dict[tuple[str, ...], FrameworkRow]:
    """Our row for each key of the bundle's summary, from raw.csv and the recorded rules alone."""
    folder = EVIDENCE / bundle
    raw: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in table(folder / "raw.csv"):
        raw.setdefault(tuple(row[name] for name in KEY), []).append(row)
    environment = json.loads((folder / "pipeline_run_env.json").read_text())
    rules = {profile["name"]: profile for profile in environment["profiles"]}
    found = {}
    for key in raw:
        rule = rules[key[0]]
        same = {k[5]: raw[k] for k in raw if (k[0], *k[6:]) == (key[0], *key[6:])}
        (baseline,) = [k[5] for k in raw if k[4] == rule["baseline_version"] and k[6:] == key[6:]]
        made = framework_rows(
            [
                runs(
                    name, (float(r["value"]) for r in many if r["status"] == "ok"),
                    (r["failure_reason"] for r in many if r["status"] != "ok"),
                )
                for name, many in same.items()
            ],
            baseline=baseline, tolerance=rule["tolerance"], max_cv=rule["max_cv"],
        )  # fmt: skip
        found[key] = next(row for row in made if row.arm == key[5])
    return found


def test_all_bundles_are_here() -> None:
    assert len(BUNDLES) == 14
    assert sum(len(table(EVIDENCE / bundle / "summary.csv")) for bundle in BUNDLES) == 207


@pytest.mark.parametrize("bundle", BUNDLES)
def test_every_column_is_named(bundle: str) -> None:
    published = table(EVIDENCE / bundle / "summary.csv")
    assert set(published[0]) == {*KEY, *COMPUTED}
    assert {tuple(row[name] for name in KEY) for row in published} == set(rebuilt(bundle))


@pytest.mark.parametrize("column", COMPUTED)
@pytest.mark.parametrize("bundle", BUNDLES)
def test_column_is_rebuilt(bundle: str, column: str) -> None:
    made = rebuilt(bundle)
    wrong = [
        (row["exact_version"], row["metric"], row[column], ours)
        for row in table(EVIDENCE / bundle / "summary.csv")
        if (ours := made[tuple(row[name] for name in KEY)].cell(column)) != row[column]
    ]
    assert not wrong


def one(
    *values: float, failures: tuple[str, ...] = (), base: tuple[float, ...] = (100.0,)
) -> FrameworkRow:
    arms = [runs("new", values, failures), runs("base", base)]
    return framework_rows(arms, baseline="base", tolerance=0.05, max_cv=0.1)[0]


def test_limits_belong_to_the_steady_side() -> None:
    assert one(105.0).classification == "neutral"
    assert one(105.1).classification == "regression"
    assert one(94.9).classification == "improvement"


def test_direction_is_turned_for_a_throughput() -> None:
    metric = replace(METRIC, better=Better.HIGHER)
    arms = [arm("new", (90.0,), metric=metric), arm("base", (100.0,), metric=metric)]
    row, _ = framework_rows(arms, baseline="base", tolerance=0.05, max_cv=0.1)
    assert row.classification == "regression"


@pytest.mark.parametrize(
    ("row", "label"),
    [
        (one(100.0, 101.0, 99.0), "reliable"),
        (one(100.0, 101.0, 99.0, 100.0, 160.0), "robust-only"),
        (one(50.0, 100.0, 150.0), "unreliable"),
        (one(100.0, 101.0, failures=("crashed",)), "partial"),
    ],
)
def test_labels(row: FrameworkRow, label: str) -> None:
    assert row.label == label


def test_arm_without_a_run_has_no_figure() -> None:
    row = one(failures=("crashed", "crashed"))
    assert (row.status, row.cell("value"), row.cell("cv")) == ("unsupported", "", "")
    assert (row.run_count, row.failure_reasons, row.comparison_reliable) == (2, "crashed", False)


def test_value_of_zero_divides_nothing() -> None:
    row = one(0.0, 0.0, base=(0.0,))
    assert (row.cv, row.mad_ratio, row.delta_vs_baseline) == (0.0, 0.0, 0.0)
