# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program printed beside phases: facts that are same or free, counters, metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdelta.errors import GuestError, SpecError
from kdelta.machine.axes import Needs, words
from kdelta.metric import Better
from kdelta.output import Reading, contract_failures, parse_output
from kdelta.workload import load
from kernel_tree import written

TOML = """\
name = "swim"
title = "A swim"
description = "Swims."
path = "swim()"
mail = "swim is slow"
instruments = ["exact"]

[[phases]]
id = 0
name = "lap"
operation = "page"
what = "a lap"

[[metrics]]
name = "speed"
unit = "M/s"
better = "higher"
what = "how fast"

[[metrics]]
name = "status"
unit = "1"
better = "none"
what = "how often"
family = true

[contract]
vmas = 1
huge_kb = "same"

[during]
pswpout = 4

[scenarios.pool]
summary = "in a pool"
pages = 4
operations = { lap = 4 }
contract = {}
needs = { nodes = 2, swap = "disk" }
survey = true

[scenarios.lake]
summary = "in a lake"
pages = 4
operations = { lap = 4 }
contract = {}
metrics = ["status"]
instruments = ["exact", "time"]
"""

PRINTED = """\
kdelta-workload 1 swim pool
phase 0 lap page 4
state before vmas 1 1
state before huge_kb 8 same
state before node0_pages unknown free
state after vmas 1 1
state after huge_kb 8 same
state during pswpout 4 4
state during pgsteal_anon 17 free
sample lap 0 1000 4
metric speed M/s 2.5
metric status.SCAN_OK 1 3
metric status.SCAN_BAD 1 absent no such event
end 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, {"swim.toml": TOML, "swim.c": "int main(void) { return 0; }\n"})


def read(folder: Path, text: str, scenario: str = "pool") -> Reading:
    swim = load("swim", folder)
    return parse_output(text, swim, swim.scenario(scenario))


def test_what_a_scenario_needs_and_tells(folder: Path) -> None:
    pool, lake = load("swim", folder).scenarios
    assert pool.needs == Needs(nodes=2, swap="disk")
    assert words(pool.needs) == ("nodes 2", "swap disk")
    assert [metric.name for metric in pool.metrics] == ["speed", "status"]
    assert [metric.name for metric in lake.metrics] == ["status"]
    assert (pool.instruments, lake.instruments) == (("exact",), ("exact", "time"))
    assert (pool.survey, lake.survey) == (True, False)


def test_facts_bind_by_what_is_wanted_of_them(folder: Path) -> None:
    reading = read(folder, PRINTED)
    by_name = {(field.when, field.name): field for field in reading.state}
    assert by_name["before", "huge_kb"].holds
    assert by_name["before", "huge_kb"].binding
    assert by_name["before", "node0_pages"].holds, "free: not even unknown is a failure"
    assert not by_name["before", "node0_pages"].binding
    assert by_name["during", "pswpout"].value == "4"
    assert contract_failures(reading) == ()
    unknown = read(folder, PRINTED.replace("huge_kb 8 same", "huge_kb unknown same"))
    assert [field.name for field in contract_failures(unknown)] == ["huge_kb", "huge_kb"]


def test_metrics_are_read_and_absent_is_not_zero(folder: Path) -> None:
    speed, good, bad = read(folder, PRINTED).metrics
    assert (speed.name, speed.unit, speed.better, speed.value) == (
        "speed", "M/s", Better.HIGHER, 2.5,
    )  # fmt: skip
    assert (good.name, good.value) == ("status.SCAN_OK", 3.0)
    assert (bad.value, bad.absent) == (None, "no such event")


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("huge_kb 8 same", "huge_kb 8 free", "not as the scenario's TOML wants it"),
        ("node0_pages unknown free", "node0_pages 4 4", "not as the scenario's TOML wants it"),
        ("during pswpout 4 4", "during pswpout 4 free", "not as the scenario's TOML wants it"),
        ("state during pswpout 4 4\n", "", "no fact pswpout during the windows"),
        ("state during", "state while", "not a fact"),
        ("metric speed M/s 2.5", "metric speed GB/s 2.5", "not a metric of the scenario's TOML"),
        ("metric speed M/s 2.5", "metric speed.x M/s 2.5", "one of a family is called NAME.suffix"),
        ("metric status.SCAN_OK 1 3", "metric status 1 3", "one of a family is called NAME.suffix"),
        ("metric speed M/s 2.5", "metric speed M/s nan", '"nan" is not a number'),
        ("metric speed M/s 2.5", "metric speed M/s 9e+999", '"9e.999" is larger than any number'),
        ("metric speed M/s 2.5", "metric speed M/s absent", "not a record|without a reason"),
        ("metric speed M/s 2.5\n", "", "no metric speed"),
        ("SCAN_BAD 1 absent no such event", "SCAN_OK 1 4", "metric told twice"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, old: str, new: str, cause: str) -> None:
    assert old in PRINTED
    with pytest.raises(GuestError, match=cause):
        read(folder, PRINTED.replace(old, new, 1))


def test_an_unknown_metric_of_a_scenario_is_refused(folder: Path) -> None:
    (folder / "swim.toml").write_text(TOML.replace('metrics = ["status"]', 'metrics = ["depth"]'))
    with pytest.raises(SpecError, match=r"scenarios\.lake\.metrics: depth: not one of the metrics"):
        load("swim", folder)


def test_too_many_facts_are_refused(folder: Path) -> None:
    many = "".join(f"state during f{n} 1 free\n" for n in range(700))
    with pytest.raises(GuestError, match="more than 600 facts"):
        read(folder, PRINTED.replace("sample lap", many + "sample lap", 1))
