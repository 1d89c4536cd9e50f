# SPDX-License-Identifier: GPL-2.0-or-later
"""A gate as KCIDB's JSON: what its own package says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ladder_records
from kdelta.analysis.gate import gate
from kdelta.rendering import gate as view
from kdelta.rendering.formats import written

HOSTILE = "6.17|<script>\x00\n\x1b[31m"


def judged(old: float, new: float, label: str = "6.17.13") -> dict[str, Any]:
    trials = [[ladder_records.result(ladder_records.Trial(per_page=value))] for value in (old, new)]
    record = ladder_records.run(dict(zip(("6.16.12", label), trials, strict=True)))
    found: dict[str, Any] = json.loads(written("kcidb", view, gate(record)))
    return found


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [(300.0, 400.0, "FAIL"), (300.0, 300.0, "PASS"), (400.0, 300.0, "PASS")],
)
def test_a_scenario_is_a_test_of_one_build(old: float, new: float, status: str) -> None:
    found = judged(old, new)
    assert found["version"] == {"major": 5, "minor": 3}
    (checkout,), (build,), (test,) = found["checkouts"], found["builds"], found["tests"]
    assert (build["checkout_id"], test["build_id"]) == (checkout["id"], build["id"])
    assert test["path"] == "kdelta.mprotect.shared_dirty_full_toggle_64m"
    assert test["status"] == status
    assert judged(old, new) == found


@pytest.mark.parametrize("label", ["6.17.13", HOSTILE])
def test_its_own_package_takes_it(label: str) -> None:
    schema = pytest.importorskip("kcidb_io").schema
    assert (schema.LATEST.major, schema.LATEST.minor) >= (5, 3)
    schema.LATEST.validate(judged(300.0, 400.0, label))
