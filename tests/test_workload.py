# SPDX-License-Identifier: GPL-2.0-or-later
"""Workload TOML and the protocol text: what is taken, what is refused, and in which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta.cli.workload import workload as command
from kdelta.errors import GuestError, SpecError
from kdelta.output import MAX_LINE, MAX_LINES, Reading, contract_failures, parse_output
from kdelta.workload import Feature, load, names, parse_reference
from kernel_tree import written

TOML = """\
name = "walk"
title = "A walk"
description = "Walks."
path = "walk()"
mail = "walk is slow"

[[phases]]
id = 0
name = "out"
operation = "page"
what = "away"

[[phases]]
id = 1
name = "back"
operation = "page"
what = "home"

[contract]
vmas = 1

[scenarios.short]
summary = "a short one"
pages = 4
operations = { out = 4, back = 4 }
contract = { present_pages = 4 }

[scenarios.oneway]
summary = "out only"
pages = 2
operations = { out = 2 }
args = ["--left"]
features = ["thp"]
contract = { shape = "round" }
"""

OUTPUT = """\
kdelta-workload 1 walk short
phase 0 out page 4
phase 1 back page 4
note the road is wet
state before vmas 1 1
state before present_pages 4 4
state after vmas 1 1
state after present_pages 4 4
sample out 0 1001 4
sample out 1 1002 4
sample back 0 2001 4
sample back 1 2002 4
end 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, {"walk.toml": TOML, "walk.c": "int main(void) { return 0; }\n"})


def read(folder: Path, text: str, scenario: str = "short") -> Reading:
    walk = load("walk", folder)
    return parse_output(text, walk, walk.scenario(scenario))


# ---- TOML


def test_a_workload_is_read_whole(folder: Path) -> None:
    walk = load("walk", folder)
    assert (walk.name, walk.title, walk.path, walk.mail) == (
        "walk", "A walk", "walk()", "walk is slow",
    )  # fmt: skip
    assert [(phase.id, phase.name, phase.what) for phase in walk.phases] == [
        (0, "out", "away"),
        (1, "back", "home"),
    ]
    oneway = walk.scenario("oneway")
    assert oneway.reference == "walk:oneway"
    assert [(window.name, window.operations) for window in oneway.windows] == [("out", 2)]
    assert oneway.features == (Feature.THP,)
    assert [(fact.name, fact.want) for fact in oneway.contract] == [
        ("vmas", "1"),
        ("shape", "round"),
    ]
    assert oneway.arguments(iterations=3, warmup=0) == [
        "--protocol", "--iterations", "3", "--warmup", "0", "--left", "oneway",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('title = "A walk"', "", "walk.toml: missing key title"),
        ('title = "A walk"', 'title = "A walk"\ntitel = "x"', "walk.toml: unknown key titel"),
        ("id = 1", "id = 255", "walk.toml: phases[1].id: expected int <= 254"),
        ("id = 1", "id = 0", "walk.toml: phases: two phases have the same id or name"),
        ('name = "back"', 'name = "out"', "walk.toml: phases: two phases have the same id or name"),
        ("what = ", "adds = false\nwhat = ",
         "walk.toml: scenarios.oneway.operations: no phase adds to the total"),
        ("pages = 4", "pages = true", "walk.toml: scenarios.short.pages: expected int, got bool"),
        ("pages = 4", "pages = 0", "walk.toml: scenarios.short.pages: expected int >= 1"),
        ("pages = 4", "pages = 4\nx = 1", "walk.toml: scenarios.short: unknown key x"),
        ("out = 4, ", "up = 4, ",
         "walk.toml: scenarios.short.operations.up: not one of the phases"),
        ("{ out = 2 }", "{}", "walk.toml: scenarios.oneway.operations: expected object"),
        ("present_pages = 4", "vmas = 2",
         "walk.toml: scenarios.short.contract.vmas: is wanted by every scenario already"),
        ('"round"', '"two words"', "walk.toml: scenarios.oneway.contract[...]: expected"),
        ('["thp"]', '["wings"]', "walk.toml: scenarios.oneway.features[0]: invalid enum value"),
        ('name = "walk"', 'name = "run"', 'walk.toml: name: "run" is not the file\'s name'),
        ("[scenarios.short]", "[scenarios.Short]", "walk.toml: key in scenarios: expected str"),
        ("[contract]", "[contract", "walk.toml: not valid TOML"),
    ],
)  # fmt: skip
def test_wrong_toml_names_file_and_key(folder: Path, old: str, new: str, sentence: str) -> None:
    assert TOML.count(old) >= 1
    (folder / "walk.toml").write_text(TOML.replace(old, new, 1))
    with pytest.raises(SpecError) as caught:
        load("walk", folder)
    assert caught.value.sentence().startswith(sentence)


def test_a_workload_without_its_program_is_refused(folder: Path) -> None:
    (folder / "walk.c").unlink()
    with pytest.raises(SpecError, match=r"walk\.toml: its program walk\.c is missing"):
        load("walk", folder)


@pytest.mark.parametrize("name", ["fly", "", "../walk", "walk.toml", "WALK", "wal\x1bk"])
def test_an_unknown_workload_lists_the_known(folder: Path, name: str) -> None:
    with pytest.raises(SpecError, match="known: walk") as caught:
        load(name, folder)
    assert caught.value.sentence().isprintable()


def test_references_resolve_or_say_what_is_known(folder: Path) -> None:
    walk, scenario = parse_reference("walk:short", folder)
    assert (walk.name, scenario.name) == ("walk", "short")
    with pytest.raises(SpecError, match='walk has no scenario "long"; known: short, oneway'):
        parse_reference("walk:long", folder)
    with pytest.raises(SpecError, match='"walk" names no scenario; write WORKLOAD:SCENARIO'):
        parse_reference("walk", folder)


@pytest.mark.parametrize("name", names())
def test_what_is_shipped_loads(name: str) -> None:
    workload = load(name)
    assert workload.program.is_file()
    for scenario in workload.scenarios:
        wanted = {fact.name: fact.want for fact in scenario.contract}
        assert wanted.get("present_pages", str(scenario.pages)) == str(scenario.pages)


def test_the_scenarios_of_the_reports_are_shipped() -> None:
    for workload, scenarios in {
        "mincore": ["no_thp_pte_scan_4m", "no_thp_pte_scan_64m", "thp_pmd_shortcut_4m"],
        "mprotect": ["shared_dirty_full_toggle_64m", "single_protect", "pte_mapped_thp"],
    }.items():
        assert {*scenarios} <= {scenario.name for scenario in load(workload).scenarios}


# ---- protocol


def test_good_output_is_read_whole(folder: Path) -> None:
    reading = read(folder, OUTPUT)
    assert [(phase.id, phase.name, phase.operations) for phase in reading.phases] == [
        (0, "out", 4),
        (1, "back", 4),
    ]
    assert [(s.phase, s.iteration, s.nanoseconds) for s in reading.samples] == [
        ("out", 0, 1001), ("out", 1, 1002), ("back", 0, 2001), ("back", 1, 2002),
    ]  # fmt: skip
    assert reading.notes == ("the road is wet",)
    assert len(reading.state) == 4
    assert contract_failures(reading) == ()
    assert reading.exit_code == 0
    assert read(folder, OUTPUT.replace("\n", "\r\n")) == reading


def test_an_unknown_fact_fails_the_contract(folder: Path) -> None:
    reading = read(
        folder, OUTPUT.replace("before present_pages 4 4", "before present_pages unknown 4")
    )
    assert [(field.when, field.value) for field in contract_failures(reading)] == [
        ("before", "unknown")
    ]


def test_a_mismatch_is_read_with_its_samples(folder: Path) -> None:
    text = OUTPUT.replace("after vmas 1 1", "after vmas 2 1")
    reading = read(folder, text.replace("end 0", "note 1 fact is not as wanted\nend 1"))
    assert [field.value for field in contract_failures(reading)] == ["2"]
    assert len(reading.samples) == 4
    assert reading.exit_code == 1


@pytest.mark.parametrize("code", [1, 2, 77])
def test_a_program_that_gives_up_says_why(folder: Path, code: int) -> None:
    text = f"kdelta-workload 1 walk short\nnote no shoes\nend {code}\n"
    reading = read(folder, text)
    assert (reading.exit_code, reading.notes, reading.samples) == (code, ("no shoes",), ())
    with pytest.raises(GuestError, match="without a note of its reason"):
        read(folder, text.replace("note no shoes\n", ""))


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("kdelta-workload 1 walk short", "kdelta-workload 1 walk oneway", "not the header"),
        ("kdelta-workload 1 walk short", "kdelta-workload 2 walk short", "not the header"),
        ("kdelta-workload 1 walk short\n", "", "not the header"),
        ("phase 1 back page 4", "phase 1 back page 5", "not a phase of the scenario's TOML"),
        ("phase 1 back page 4", "phase 2 back page 4", "not a phase of the scenario's TOML"),
        ("phase 1 back page 4", "phase 1 side page 4", "not a phase of the scenario's TOML"),
        ("phase 1 back page 4", "phase 0 out page 4", "phase declared twice"),
        ("phase 1 back page 4", "phase -1 back page 4", '"-1" is not a number'),
        ("state after vmas 1 1", "state after vmas 1 2", "not as the scenario's TOML wants it"),
        ("state after vmas 1 1", "state after vma 1 1", "not as the scenario's TOML wants it"),
        ("state after vmas 1 1", "state later vmas 1 1", "not a fact"),
        ("state after vmas 1 1", "state after vmas % 1", "not a fact"),
        ("state after vmas 1 1", "state before vmas 1 1", "fact stated twice"),
        ("sample out 1 1002 4", "sample out 0 1002 4", "sample printed twice"),
        ("sample out 1 1002 4", "sample out 1 1002 3", "not a sample of a declared phase"),
        ("sample out 1 1002 4", "sample up 1 1002 4", "not a sample of a declared phase"),
        ("sample out 1 1002 4", "sample out 1 1e3 4", '"1e3" is not a number'),
        ("sample out 1 1002 4", "sample out 1 " + "9" * 30 + " 4", "is not a number"),
        ("sample out 1 1002 4", "sample out 1 1002", "not a record"),
        ("sample out 1 1002 4", "sample  out 1 1002 4", "not a record"),
        ("note the road is wet", "random: crng init done", "not a record"),
        ("note the road is wet", "", "not a record"),
        ("note the road is wet", "note \x1b[31mred", "not printable ASCII"),
        ("note the road is wet", "note " + "x" * MAX_LINE, f"longer than {MAX_LINE} characters"),
        ("end 0", "end 3", "not an exit code of a workload"),
        ("end 0\n", "end 0\nend 0\n", "line after the end record"),
    ],
)
def test_a_bad_line_is_quoted(folder: Path, old: str, new: str, cause: str) -> None:
    text = OUTPUT.replace(old, new, 1)
    with pytest.raises(GuestError) as caught:
        read(folder, text)
    sentence = caught.value.sentence()
    assert caught.value.place.startswith("output of walk:short, line ")
    assert cause in sentence
    assert sentence.isprintable()
    assert len(sentence) < 300
    bad = text.split("\n")[int(caught.value.place.rpartition(" ")[2]) - 1]
    assert ascii(bad[:60])[1:-1] in sentence


LAID_OUT = 'args = ["--left"]\nlayouts = 2\n'


@pytest.mark.parametrize(
    ("told", "iterations", "cause"),
    [
        ("layouts 2\n", 4, ""), ("", 4, "1 layouts, not 2"), ("layouts 3\n", 3, "3 layouts, not 2"),
        ("layouts two\n", 4, '"two" is not a number'),
        ("layouts 2\n", 3, "not as many iterations in each layout"),
    ],
)  # fmt: skip
def test_a_program_goes_through_the_layouts_of_its_toml(
    told: str, iterations: int, cause: str, folder: Path
) -> None:
    (folder / "walk.toml").write_text(TOML.replace('args = ["--left"]\n', LAID_OUT))
    facts = "".join(
        f"state {when} {fact}\n"
        for when in ("before", "after")
        for fact in ("vmas 1 1", "shape round round")
    )
    samples = "".join(f"sample out {at} 5 2\n" for at in range(iterations))
    text = f"kdelta-workload 1 walk oneway\n{told}phase 0 out page 2\n{facts}{samples}end 0\n"
    if cause:
        with pytest.raises(GuestError, match=cause):
            read(folder, text, "oneway")
    else:
        assert read(folder, text, "oneway").layouts == 2


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("end 0\n", "", "no end record"),
        (OUTPUT, "", "not the header"),
        ("sample back 1 2002 4\n", "", "not one sample of each phase in each iteration"),
        ("sample back 1 ", "sample back 2 ", "not one sample of each phase in each iteration"),
        ("state after vmas 1 1\n", "", "no fact vmas after the windows"),
        ("state before present_pages 4 4\n", "", "no fact present_pages before the windows"),
        ("state after vmas 1 1", "state after vmas 2 1", "exit 0 although vmas does not hold"),
        (OUTPUT[OUTPUT.index("sample") : OUTPUT.index("end")], "", "not one sample of each phase"),
        (OUTPUT, "".join(line + "\n" for line in OUTPUT.splitlines() if " back " not in line),
         "no phase back"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(folder: Path, old: str, new: str, cause: str) -> None:
    assert old in OUTPUT
    with pytest.raises(GuestError, match=cause):
        read(folder, OUTPUT.replace(old, new, 1))


def test_endless_output_is_refused(folder: Path) -> None:
    with pytest.raises(GuestError, match=f"more than {MAX_LINES} lines"):
        read(folder, "note x\n" * (MAX_LINES + 1))


# ---- the command line


def test_workloads_are_listed_and_described() -> None:
    listed = CliRunner().invoke(command, ["list"]).output
    mprotect = CliRunner().invoke(command, ["show", "mprotect"]).output
    single = CliRunner().invoke(command, ["show", "mprotect:single_protect"]).output
    for name in names():
        for scenario in load(name).scenarios:
            assert scenario.reference in listed
    assert load("mprotect").mail in " ".join(mprotect.split())
    assert "vmas            1024" in single
    assert "512 x page: mprotect(PROT_READ)" in single
    assert max(len(line) for line in (listed + mprotect + single).splitlines()) <= 100
    for name in names():
        for scenario in load(name).scenarios:
            assert CliRunner().invoke(command, ["show", scenario.reference]).exit_code == 0
    unknown = CliRunner().invoke(command, ["show", "mprotect:double"])
    assert isinstance(unknown.exception, SpecError)


def test_workloads_as_json_say_what_the_list_says() -> None:
    every = json.loads(CliRunner().invoke(command, ["list", "--json"]).output)
    assert [one["name"] for one in every] == [*names()]
    for one in every:
        assert [each["reference"] for each in one["scenarios"]] == [
            scenario.reference for scenario in load(one["name"]).scenarios
        ]
    words = ["mprotect:single_protect", "--json"]
    (alone,) = json.loads(CliRunner().invoke(command, ["show", *words]).output)
    (scenario,) = alone["scenarios"]
    assert scenario["reference"] == "mprotect:single_protect"
    assert [window["phase"] for window in scenario["windows"]] == [
        window.name for window in load("mprotect").scenario("single_protect").windows
    ]
    assert scenario["contract"]
