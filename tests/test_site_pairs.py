# SPDX-License-Identifier: GPL-2.0-or-later
"""Any two kernels on the site: the table of pairs says of each two what was compared."""

from __future__ import annotations

import json
import re
from itertools import combinations
from operator import add
from typing import Any

import pytest
from msgspec.structs import replace

import ladder_records
from kdelta.analysis.lab import lab as lab_of
from kdelta.rendering import site
from kdelta.rendering.sentences import effort
from test_site import SCENARIO, Page, files, named


@pytest.fixture(scope="module")
def ladder() -> dict[str, bytes]:
    return files(ladder_records.ladder(1))


def answered(table: dict[str, Any], old: int, new: int) -> dict[str, list[Any]]:
    """Of two kernels by scenario: the answer, the values.  As the page's script reads the table."""
    found = {}
    for scenario in table["scenarios"]:
        counted = scenario["runs"][scenario["rows"][old]]
        row = [
            one for many, one in zip(counted[::2], counted[1::2], strict=True) for _ in range(many)
        ]
        answer = scenario["answers"][row[new - len(table["kernels"])]]
        apart = [one[2:] for one in scenario["apart"] if one[:2] == [old, new]]
        usual = [scenario["of"][at] for at in (old, new)]
        if [*answer] != ["-"]:
            values = apart[0] if apart else [scenario["values"][at] for at in usual]
            found[scenario["name"]] = [answer, values]
    return found


def reason(table: dict[str, Any], answer: list[Any]) -> str:
    if len(answer) == 1:
        return ""
    return "".join(map(add, table["reasons"][answer[1]], [*answer[2:], ""]))


def test_any_two_kernels(ladder: dict[str, bytes]) -> None:
    page = Page(ladder["compare.html"])
    links = [link for link in page.links if link.startswith("#") and link != "#main"]
    assert len(links) == 9 * 8 // 2
    assert "#6.16.12..7.2.1" in links
    (scenario,) = json.loads(page.block)["scenarios"]
    assert scenario["name"] == SCENARIO
    assert scenario["page"] in ladder


def test_the_table_of_pairs_is_what_was_compared() -> None:
    first = ladder_records.ladder(1)
    again = replace(named("6.17.13"), run_id="newer", created="2030-01-01T00:00:00+00:00")
    lab = lab_of([first, again], most_pairs=130)
    table = site.pair_table(lab.kernels, lab.pairs, lambda name: f"page of {name}")
    assert table["scenarios"][0]["apart"]  # values of another run than the newest
    assert len(lab.pairs) == 9 * 8 // 2
    for old, new in combinations(range(9), 2):
        own = answered(table, old, new)
        for row in lab.pairs[lab.kernels[old], lab.kernels[new]]:
            answer, values = own[row.name]
            assert [value for _, value in values] == pytest.approx([row.old, row.new])
            judged, word = row.comparison, table["words"][answer[0]]
            assert word == ("a part alone" if answer[0] == "P" else effort(judged.verdict))
            unsure = judged.verdict in ("UNDECIDED", "INVALID")
            assert reason(table, answer) == ("; ".join(judged.reasons) if unsure else judged.within)


def test_of_many_kernels_neighbours_are_compared() -> None:
    lab = lab_of([ladder_records.ladder(1)], most_pairs=20)
    table = site.pair_table(lab.kernels, lab.pairs, str)
    own = [pair for pair in combinations(range(9), 2) if answered(table, *pair)]
    assert own == [(old, new) for old, new in combinations(range(9), 2) if new in (old + 1, 8)]


def test_pairs_without_an_answer_say_why() -> None:
    record = ladder_records.ladder(9)
    other = replace(record.arms[1].kernel, compiler="gcc-99 (GCC) 99.1.0")
    kernels = {0: replace(record.arms[0].kernel, compiler="gcc-14 (GCC) 14.1.0"), 1: other}
    arms = (replace(a, kernel=kernels.get(a.index, a.kernel)) for a in record.arms)
    table = json.loads(Page(files(replace(record, arms=tuple(arms)))["compare.html"]).block)
    answer, _ = answered(table, 0, 1)[SCENARIO]
    assert answer[0] == "U"
    assert reason(table, answer).startswith("two compilers, gcc 14 -> gcc 99")


# A site says nothing twice: what is alike of kernels, scenarios and functions stands once


def untabled(found: Any) -> list[dict[str, Any]]:
    """Records, which are a table where there are several."""
    if isinstance(found, list):
        return found
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def alike(kernels: int, scenarios: int) -> dict[str, bytes]:
    """A lab of so many kernels, the newer half of which does more in each scenario."""
    values = {f"6.{at}.1": 300.0 if at < kernels // 2 else 400.0 for at in range(kernels)}
    record = ladder_records.counting(values)
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
    rows = untabled(json.loads(found[name])["page"]["points"])
    told = [kernel for row in rows for kernel in row["kernels"]]
    assert told == [f"6.{at}.1" for at in range(12)]
    assert [len(row["kernels"]) for row in rows] == [1, 5, 1, 5]
    assert [row["verdict"] for row in rows] == [None, "SAME", "REGRESSION", "SAME"]
    assert [row["values"] for row in rows] == pytest.approx([300, 300, 400, 400], rel=0.01)
    text = Page(found[name.removesuffix("json") + "html"]).text
    assert "6.1.1 to 6.5.1" in text
    assert "then as much on 6.2.1, 6.3.1, 6.4.1, 6.5.1" in text


def test_functions_of_a_step_add_up_to_its_difference() -> None:
    spread = {}
    for kernel, each in (("6.16.12", 10.0), ("6.17.13", 11.0)):
        own = {f"f{one:02}": each for one in range(20)}
        trial = ladder_records.Trial(per_page=100 + 20 * each, functions=own)
        spread[kernel] = [ladder_records.result(trial)]
    found = files(ladder_records.run(spread))
    (name,) = [n for n in found if n.startswith("step/") and n.endswith("json")]
    own = json.loads(found[name])["page"]
    rows = untabled(own["functions"])
    assert len(rows) == 15
    rows += [own["others"]]
    sides = [sum(row.get(side) or 0 for row in rows) for side in ("old", "new")]
    assert sides == [own["old_value"], own["new_value"]]
    assert "f02 +1.0, all others +17.0 per page" in Page(found["steps.html"]).text
