# SPDX-License-Identifier: GPL-2.0-or-later
"""The gate: closed by more work, open without, and never open where nothing can be said."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

import ladder_records
import timed_records
from bundle_records import call
from kdelta.analysis.gate import Bar, gate
from kdelta.cli.show import gate as command
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.rendering import gate as page
from kdelta.rendering.formats import FORMATS, written
from kdelta.sample import Outcome
from kdelta.table.columns import plain
from run_records import kept

HOSTILE = "6.17|@all <script>[x](javascript:1) https://example.org `$()` #\n\x1b[31m\x00"


def pair(old: float, new: float, label: str = "6.17.13") -> RunRecord:
    trials = [[ladder_records.result(ladder_records.Trial(per_page=value))] for value in (old, new)]
    return ladder_records.run(dict(zip(("6.16.12", label), trials, strict=True)))


@pytest.mark.parametrize(
    ("old", "new", "fail_on", "closed"),
    [
        (300.0, 400.0, [Bar.MORE_WORK], True),
        (300.0, 400.0, [Bar.LESS_WORK], False),
        (400.0, 300.0, [Bar.MORE_WORK], False),
        (400.0, 300.0, [Bar.LESS_WORK, Bar.MORE_WORK], True),
        (300.0, 300.0, [Bar.MORE_WORK, Bar.LESS_WORK, Bar.UNDECIDED], False),
    ],
)
def test_what_closes_it(*, old: float, new: float, fail_on: list[Bar], closed: bool) -> None:
    found = gate(pair(old, new), fail_on=fail_on)
    assert found.closed is closed
    assert not found.undecided


def test_kernels_are_named_or_the_first_and_the_last() -> None:
    ladder = ladder_records.ladder(rounds=1)
    assert (gate(ladder).old, gate(ladder).new) == ("6.1.176", "7.2.1")
    found = gate(ladder, against="6.17", kernel="6.18.15")
    assert (found.old, found.new, found.closed) == ("6.17.13", "6.18.15", True)
    assert not gate(ladder, against="6.17", kernel="6.18.15", step_percent=5.0).closed
    for baseline in (None, ladder):
        with pytest.raises(SpecError, match="compared with itself"):
            gate(ladder, baseline, against="7.2.1")


def test_a_baseline_may_be_another_run() -> None:
    old, new = pair(300.0, 310.0), pair(500.0, 900.0)
    found = gate(new, replace(old, run_id="old"), against="6.16.12")
    assert found.cases[0].old == pytest.approx(300.0, rel=0.01)
    assert found.closed
    environment = replace(ladder_records.ENVIRONMENT, qemu_version="11")
    other = [ladder_records.result(ladder_records.Trial(per_page=300.0, environment=environment))]
    found = gate(new, ladder_records.run({"6.16.12": other}))
    assert (found.closed, found.undecided) == (False, True)
    assert gate(new, ladder_records.run({"6.16.12": other}), fail_on=[Bar.UNDECIDED]).closed
    with pytest.raises(SpecError, match="another instrument"):
        gate(new, timed_records.run([100.0, 100.0]))


def test_nothing_in_common_is_no_pass() -> None:
    good = [ladder_records.result(ladder_records.Trial(per_page=300.0))]
    other = ladder_records.run({"6.16.12": good}, scenario="anon_full_toggle")
    found = gate(pair(300.0, 300.0), other)
    assert found.cases == ()
    assert found.undecided


def test_a_failed_kernel_is_undecided_and_a_skip_is_neither() -> None:
    good = [ladder_records.result(ladder_records.Trial(per_page=300.0))]
    for outcome, undecided in ((Outcome.BOOT_ERROR, True), (Outcome.SKIP, False)):
        bad = [ladder_records.failed(outcome, "why")]
        found = gate(ladder_records.run({"6.16.12": good, "6.17.13": bad}))
        assert not found.closed
        assert any(case.open_question for case in found.cases) is undecided
        assert found.undecided  # a gate that compared nothing lets nothing in


@pytest.mark.parametrize("name", ["ls", "l" * 60])
def test_a_program_has_its_name_and_rows_fit_the_page(name: str) -> None:
    record = pair(3_000_000.0, 4_000_000.0)
    own = {"workload": f"~/.cache/kdelta/programs/001ea5a7/{name}.c", "scenario": name}
    trials = tuple(replace(one, **own) for one in record.trials)
    text = plain(page.show(gate(replace(record, trials=trials))), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert f"\n{name}: UNDECIDED" in text
    assert "programs" not in text


def test_times_are_judged_with_their_control() -> None:
    found = gate(timed_records.run([100.0, 160.0, 100.0]))
    assert found.closed
    assert found.cases[0].comparison.sandwich is not None
    assert "more time" in plain(page.show(found))


@pytest.mark.parametrize("form", [*FORMATS, *page.FOR_CI])
def test_every_format_holds_the_verdict_and_is_safe(form: str) -> None:
    found = gate(pair(300.0, 400.0, HOSTILE))
    text = written(form, page, found) if form in FORMATS else page.FOR_CI[form][1](found)
    assert "1.333" in text
    assert "\x1b" not in text
    assert "\x00" not in text


def test_json_and_xml_and_ktap_are_read_by_their_readers() -> None:
    found = gate(pair(300.0, 400.0, HOSTILE))
    told = json.loads(written("json", page, found))
    assert told["kind"] == "gate"
    assert (told["closed"], told["cases"][0]["closes"]) == (True, True)
    suite = ElementTree.fromstring(page.FOR_CI["junit"][1](found))  # noqa: S314  our own
    assert suite.attrib["tests"] == "1"
    assert suite.attrib["failures"] == "1"
    assert suite.find("testcase/failure") is not None
    lines = page.FOR_CI["ktap"][1](found).splitlines()
    assert lines[0] == "KTAP version 1"
    assert "1..1" in lines
    assert sum(line.startswith("not ok 1 ") for line in lines) == 1


def test_exit_codes(tmp_path: Path) -> None:
    assert call(command, kept(pair(300.0, 300.0), tmp_path / "same")).exit_code == 0
    done = call(command, kept(pair(300.0, 400.0), tmp_path / "more"))
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert said.startswith("FAIL: 1 scenario of 1; mprotect:shared_dirty_full_toggle_64m went from")
    assert "from 300.0 instructions per page on 6.16.12 to 400.0 on 6.17.13. " in said
    good = [ladder_records.result(ladder_records.Trial(per_page=300.0))]
    bad = [ladder_records.failed(Outcome.BOOT_ERROR, "it hung")]
    undecided = kept(ladder_records.run({"6.16.12": good, "6.17.13": bad}), tmp_path / "open")
    assert call(command, undecided).exit_code == 4
    assert call(command, undecided, "--fail-on", "undecided").exit_code == 1
