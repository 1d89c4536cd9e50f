# SPDX-License-Identifier: GPL-2.0-or-later
"""The published figures, read by the importer and computed by our statistics."""

from __future__ import annotations

import csv
import hashlib
from functools import lru_cache

import pytest

from foreign_records import EVIDENCE
from kdelta.foreign import reader
from kdelta.foreign.series import Case, cases
from kdelta.verdict.series import summarise

SELECTING = ("exact_version", "point", "kernel")
STATISTIC = {"n": "n", "mean": "mean", "median": "median", "cv_sample": "cv"}


def headlines() -> list[dict[str, str]]:
    with (EVIDENCE / "headlines.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@lru_cache
def read(file: str) -> tuple[Case, ...]:
    _, contents, _ = reader.read([EVIDENCE / file])
    return cases(contents)


def test_there_are_184_figures() -> None:
    assert len(headlines()) == 184


@pytest.mark.parametrize(
    "row", headlines(), ids=lambda row: f"{row['file']}:{row['where']}:{row['stat']}"
)
def test_published_figure_is_reproduced(row: dict[str, str]) -> None:
    where = dict(part.split("=", 1) for part in row["where"].split(";"))
    arm = next(where[name] for name in SELECTING if name in where)
    metric = where.get("metric", row["column"])
    (case,) = [case for case in read(row["file"]) if case.metric.name == metric]
    series = case.arm(arm)
    assert series is not None
    found = getattr(summarise(series), STATISTIC[row["stat"]])
    assert found == pytest.approx(float(row["expected"]), rel=0, abs=float(row["abs_tolerance"]))


def test_copies_are_the_published_files() -> None:
    with (EVIDENCE / "SOURCES.tsv").open(newline="") as stream:
        listed = list(csv.DictReader(stream, delimiter="\t"))
    assert listed
    for row in listed:
        data = (EVIDENCE / row["file"]).read_bytes()
        assert len(data) == int(row["bytes"]), row["file"]
        assert hashlib.sha256(data).hexdigest().startswith(row["sha256_16"]), row["file"]
