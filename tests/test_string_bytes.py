# SPDX-License-Identifier: GPL-2.0-or-later
"""Bytes by string instructions: beside the functions of a difference, and where they forbid a sign.

The rule itself is held in test_stats_verdict; here it comes out the same in every view.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from bisect_bench import Bench, journal, of_releases
from kdelta.analysis import lab
from kdelta.analysis.claims import claim
from kdelta.analysis.explanation import explain
from kdelta.analysis.findings import report
from kdelta.analysis.gate import gate
from kdelta.bisect.evidence import Ending
from kdelta.bisect.search import Mark
from kdelta.ladder.counts import CountMethod, counted
from kdelta.rendering import explain as explain_view
from kdelta.rendering import gate as gate_page
from kdelta.rendering import mail, show
from kdelta.rendering.formats import FORMATS, written
from kdelta.sample import FunctionCount, TrialResult
from kdelta.table.columns import plain
from kdelta.verdict.comparison import Verdict
from ladder_records import PAGES, SCENARIO, WORKLOAD, Trial, handling, result, run

OLD = result(Trial(per_page=300))
NEW = result(Trial(per_page=600))


def test_bytes_by_string_instructions_are_told_beside_the_sum() -> None:
    record = run({"6.16.1": [handling(OLD, 4096 * PAGES)], "6.17.1": [handling(NEW, PAGES, PAGES)]})
    found = explain(record, "6.16", "6.17")
    assert found.strings is not None
    assert (found.strings.old, found.strings.new) == (4096 * PAGES, 2 * PAGES)
    assert found.strings.delta == -4094 * PAGES
    assert found.delta == sum(row.delta for row in found.functions) == 300 * PAGES
    lines = plain(explain_view.show(found, ())).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("sum "))
    assert lines[at + 1].split() == [
        *("bytes", "by", "string", "instructions"),
        *("4096.0", "2.0", "-4094.0", "-", "-", "-"),
    ]
    _, rows = explain_view.table(found)
    assert [row[8] for row in rows[-2:]] == ["[sum]", "[bytes by string instructions]"]
    assert rows[-1][12:18] == (4096 * PAGES, 2 * PAGES, -4094 * PAGES, 4096.0, 2.0, -4094.0)
    told = json.loads(written("json", explain_view, found))
    assert told["strings"] == {"old": 4096 * PAGES, "new": 2 * PAGES, "delta": -4094 * PAGES}
    # The other phase has none.
    assert explain(record, "6.16", "6.17", phase="touch").strings is None


WHY = "+4,096 bytes that string instructions copy or clear"
# A page is cleared for each page that was not before, by fewer instructions.
LENT, COPIED = handling(result(Trial(per_page=600)), PAGES), handling(OLD, 4097 * PAGES)
PAIR = run({"6.16.12": [LENT], "6.17.13": [COPIED]})


@pytest.mark.parametrize("form", [*FORMATS, "text"])
def test_a_run_says_undecided_and_why_in_every_format(form: str) -> None:
    found = report(PAIR)
    told = plain(show.show(found)) if form == "text" else written(form, show, found)
    assert WHY in " ".join(told.split())
    assert "times would decide" in " ".join(told.split())
    assert "IMPROVEMENT" not in told


@pytest.mark.parametrize("form", [*FORMATS, *gate_page.FOR_CI, "text"])
def test_a_gate_is_left_open_by_it_in_every_format(form: str) -> None:
    found = gate(PAIR)
    if form in FORMATS:
        told = written(form, gate_page, found)
    else:
        told = plain(gate_page.show(found)) if form == "text" else gate_page.FOR_CI[form][1](found)
    assert WHY in " ".join(told.split())
    assert (found.closed, found.undecided) == (False, True)


def test_a_mail_says_it() -> None:
    grown = handling(result(Trial(per_page=900)), 4097 * PAGES)
    record = run({"6.16.12": [LENT], "6.17.13": [COPIED], "6.18.15": [grown]})
    told = " ".join(mail.written(claim(record), mail.Letter(workloads={})).split())
    assert f"6.17.13: down by 50 %, threshold 1 %; but -300 instructions, and {WHY}" in told
    assert "x0.500, undecided" in told


def test_a_survey_marks_it_and_lists_it() -> None:
    same = handling(result(Trial(per_page=600)), 4097 * PAGES)
    found = lab.surveyed(run({"6.16.12": [LENT], "6.17.13": [same], "6.18.15": [COPIED]}))
    told = plain(show.show_survey(found))
    *_, row = (line for line in told.splitlines() if line.startswith("mprotect:"))
    assert row.split()[2:] == [".?", "-50%"]
    flat = " ".join(told.split())
    assert "?: UNDECIDED, `kdelta explain` says why" in flat
    assert f"differs by 0 %, threshold 1 %; but +0 instructions, and {WHY}" in flat


def test_a_bisection_does_not_begin_without_a_sign(tmp_path: Path) -> None:
    values = {"old": LENT, "new": COPIED}
    own, bench = journal(tmp_path, list(values)), Bench(values)
    found = of_releases(own, bench).run()
    assert found.ending is Ending.UNDECIDED
    assert WHY in found.reasons[0]


def test_a_point_that_copies_by_other_instructions_is_like_no_end(tmp_path: Path) -> None:
    values = {"old": OLD, "mid": handling(NEW, 4096 * PAGES), "new": NEW}
    own, bench = journal(tmp_path, list(values)), Bench(values)
    found = of_releases(own, bench).run()
    step = own.steps["mid"]
    assert step.mark is Mark.SKIP
    assert step.why.startswith(f"beside new: +0 instructions, and {WHY}")
    assert [point.key for point in (found.good, *found.skipped, found.bad)] == [*values]


def test_any_two_kernels_are_told_apart_by_their_bytes() -> None:
    less, more = handling(OLD, PAGES), handling(OLD, 4097 * PAGES)
    record = run({"6.15.1": [less], "6.16.1": [OLD], "6.17.1": [more]})
    pairs = lab.lab([record], most_pairs=9).pairs.items()
    verdicts = {pair: rows[0].comparison.verdict for pair, rows in pairs}
    assert verdicts == {
        ("6.15.1", "6.16.1"): Verdict.SAME,
        ("6.16.1", "6.17.1"): Verdict.UNDECIDED,
        ("6.15.1", "6.17.1"): Verdict.UNDECIDED,
    }


def test_bytes_of_many_layouts_are_those_of_one_operation() -> None:
    """What stands for a scenario over layouts is a window of each, added up, and so are bytes."""
    phase = replace(OLD.exact.phases[0], operations=4, user=(0,) * 8, kernel=(4000,) * 8, layouts=4)

    def of(handled: int) -> TrialResult:
        rows = (
            FunctionCount(phase=phase.phase, function="f", insns=16000, calls=1),
            FunctionCount(phase=phase.phase, function="rep", insns=0, calls=1, bytes=handled),
        )
        return replace(OLD, data=replace(OLD.exact, phases=(phase,), functions=rows))

    # 4 layouts of 4 operations of 1000 instructions; 100 bytes more for each.
    record = run({"6.16.1": [of(0)], "6.17.1": [of(1600)]})
    (ladder,) = report(record).ladders
    comparison = ladder.rungs[1].comparison
    assert comparison is not None
    assert comparison.handled == 100
    assert "+100 bytes" in comparison.reasons[0]
    assert any("(up to 100 more)" in limit for limit in report(record).limits)
    assert counted(record, WORKLOAD, SCENARIO)[1].phases[0].handled == 1600


@pytest.mark.parametrize("backwards", [False, True])
def test_the_scenarios_that_copy_most_are_named_in_one_order(*, backwards: bool) -> None:
    """A run measures them in an order of its own, which must not show."""
    trials = [
        replace(trial, scenario=f"s{at}")
        for at in range(1, 9)
        for trial in run(
            {"6.16.1": [handling(OLD, 0)], "6.17.1": [handling(OLD, at * 1000 * PAGES)]}
        ).trials
    ]
    record = replace(
        run({"6.16.1": [OLD], "6.17.1": [OLD]}),
        trials=tuple(reversed(trials) if backwards else trials),
    )
    (said,) = (limit for limit in CountMethod().limits(record) if "differ between" in limit)
    assert re.findall(r":(s\d)", said) == ["s8", "s7", "s6", "s5", "s4"]
    assert said.endswith("(up to 4,000 more), 3 others.")
