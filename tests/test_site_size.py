# SPDX-License-Identifier: GPL-2.0-or-later
"""A site says nothing twice: what is alike of kernels, scenarios and functions stands once."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

import ladder_records
from test_site import Page, files


def untabled(found: Any) -> list[dict[str, Any]]:
    """Records, which are a table where there are several."""
    if isinstance(found, list):
        return found
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def alike(kernels: int, scenarios: int) -> dict[str, bytes]:
    """A lab of so many kernels, the newer half of which does more in each scenario."""
    results = {
        f"6.{at}.1": [
            ladder_records.result(
                ladder_records.Trial(per_page=300.0 if at < kernels // 2 else 400.0)
            )
        ]
        for at in range(kernels)
    }
    record = ladder_records.run(results)
    trials = tuple(
        replace(trial, index=scenarios * trial.index + more, scenario=f"{trial.scenario}_{more}")
        for trial in record.trials
        for more in range(scenarios)
    )
    return files(replace(record, trials=trials), most_pairs=4000)


def test_kernels_that_are_alike_cost_no_bytes() -> None:
    """What a kernel more adds is its name and a cell of each table over kernels, nothing besides.

    Bounds are bytes for a kernel in a scenario.  Each is missed at once when a page tells again
    what it told of the kernel before: a row of a history has 110 bytes, its JSON 150.
    """
    few, many = alike(12, 3), alike(48, 3)

    def grown(kind: str) -> float:
        sizes = (
            sum(len(text) for name, text in own.items() if re.fullmatch(kind, name))
            for own in (few, many)
        )
        before, after = sizes
        return (after - before) / (36 * 3)

    assert grown(r"scenario/.*html") < 12
    assert grown(r"scenario/.*json") < 12
    assert grown(r"function/.*html") < 2
    assert grown(r"function/.*json") < 2
    assert grown(r"step/.*") < 2
    assert grown(r"compare\.json") < 16
    assert grown(r"index\.html") < 24


def test_scenarios_that_are_alike_share_a_functions_figures() -> None:
    found = alike(12, 3)
    (name,) = [n for n in found if n.startswith("function/") and n.endswith("html")]
    page = found[name].decode()
    assert page.count('rowspan="3"') == len(re.findall("<td", page)) == 2  # before and after
    rows = json.loads(found[name.removesuffix("html") + "json"])["page"]["rows"]
    assert [len(names) for names, _ in rows] == [3]


def test_a_history_names_every_kernel_once() -> None:
    found = alike(12, 1)
    (name,) = [n for n in found if n.startswith("scenario/") and n.endswith("json")]
    points = json.loads(found[name])["page"]["points"]
    rows = untabled(points)
    told = [kernel for row in rows for kernel in row["kernels"]]
    assert told == [f"6.{at}.1" for at in range(12)]
    assert [len(row["kernels"]) for row in rows] == [1, 5, 1, 5]
    assert [row["verdict"] for row in rows] == [None, "SAME", "REGRESSION", "SAME"]
    assert [row["values"] for row in rows] == pytest.approx([300, 300, 400, 400], rel=0.01)
    text = Page(found[name.removesuffix("json") + "html"]).text
    assert "6.1.1 to 6.5.1" in text
    assert "then as much on 6.2.1, 6.3.1, 6.4.1, 6.5.1" in text


def test_functions_of_a_step_add_up_to_its_difference() -> None:
    seen = 0
    for name, content in files(ladder_records.ladder(1)).items():
        if not (name.startswith("step/") and name.endswith("json")):
            continue
        own = json.loads(content)["page"]
        rows = untabled(own["functions"])
        rows += [own["others"]] if "others" in own else []
        sides = [sum(row.get(side) or 0 for row in rows) for side in ("old", "new")]
        assert sides == [own["old_value"], own["new_value"]]
        seen += 1
    assert seen
