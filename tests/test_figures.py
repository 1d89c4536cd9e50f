# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures that a study asks for out of the functions that ran."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kdelta.analysis import findings
from kdelta.journal.run import RunRecord
from kdelta.metric import Better
from kdelta.rendering import show
from kdelta.rendering.formats import written
from kdelta.sample import FunctionCount, MetricValue, Outcome, TrialResult
from kdelta.table import columns as page
from ladder_records import PAGES, STUDY, Trial, failed, recounted, result, run

CLEARS = "rep stosb in clear_page_erms"
REGION = 1 << 26


def with_rows(clears: int, yields: int) -> TrialResult:
    """A trial whose stored functions have these calls beside the usual ones."""
    plain = result(Trial(per_page=300, functions={"folio_zero_user.isra.0": 20.0}))
    phase = plain.exact.phases[0].phase
    extra = (
        FunctionCount(phase=phase, function=CLEARS, insns=0, calls=clears),
        FunctionCount(phase=phase, function="__cond_resched", insns=0, calls=yields),
        FunctionCount(phase=phase, function="folio_zero_user.cold", insns=0, calls=9),
    )
    region = MetricValue(name="region", unit="B", better=Better.NONE, value=float(REGION))
    rows = (*plain.exact.functions, *(row for row in extra if row.calls))
    return replace(recounted(plain, functions=rows), metrics=(region,))


def study(**figure: object) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in figure.items()]
    return "\n".join([STUDY, "[[figures]]", *lines, ""])


def cells(record: RunRecord) -> list[findings.FigureCell]:
    return [cell for table in findings.figure_tables(record) for cell in table.rows[0].cells]


def values(record: RunRecord) -> list[float | None]:
    return [cell.value for cell in cells(record)]


TWO = {"6.19.14": [with_rows(1024, 1026)], "7.0.13": [with_rows(64, 0)]}


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        ({"functions": ["rep stos? in clear_page*"]}, [1024, 64]),
        ({"functions": ["__cond_resched"]}, [1026, 0]),
        ({"functions": ["rep stos* in *"], "of": "region"}, [65536, 1 << 20]),
        ({"functions": ["rep stos* in *"], "divide": 1024}, [1, 16]),
        ({"functions": ["rep stos* in *"], "per": "operation"}, [1024 / PAGES, 64 / PAGES]),
        # A clone is its function, and a split-off piece of it is entered from itself.
        ({"functions": ["folio_zero_user"]}, [PAGES, PAGES]),
        ({"functions": ["folio_zero_user"], "count": "insns"}, [20 * PAGES, 20 * PAGES]),
        ({"functions": ["folio_zero_user"], "count": "insns", "per": "operation"}, [20, 20]),
    ],
)
def test_figure_is_what_study_says(figure: dict[str, object], expected: list[float | None]) -> None:
    assert values(run(TWO, study=study(name="figure", **figure))) == expected


def test_what_ran_nowhere_is_absent_and_not_zero() -> None:
    record = run(TWO, study=study(name="x", functions=["clear_misspelt", "rep movs*"]))
    assert values(record) == [None, None]
    assert cells(record)[0].absent == "nothing called clear_misspelt or rep movs* ran anywhere"


def test_what_ran_at_another_point_of_the_matrix_is_zero_here() -> None:
    record = run(TWO, study=study(name="x", functions=["__cond_resched"]))
    axes = [{"preempt": "none"}, {"preempt": "full"}]
    arms = [replace(one, axes=own) for one, own in zip(record.arms, axes, strict=True)]
    record = replace(record, arms=tuple(arms))
    found = findings.figure_tables(record)
    assert [table.point for table in found] == ["preempt=none", "preempt=full"]
    assert [table.rows[0].cells[0].value for table in found] == [1026, 0]


def test_an_extent_of_no_calls_and_of_no_metric_is_absent() -> None:
    none = {"6.19.14": [with_rows(1024, 1)], "7.0.13": [with_rows(0, 1)]}
    record = run(none, study=study(name="x", functions=["rep stos*"], of="region"))
    assert values(record) == [65536, None]
    assert cells(record)[1].absent == "its functions did not run"
    record = run(none, study=study(name="x", functions=["rep stos*"], of="area"))
    assert {cell.absent for cell in cells(record)} == {"the workload told no metric area"}


def test_arms_without_valid_counts_say_why() -> None:
    own: dict[str, list[TrialResult | None]] = {
        "6.19.14": [with_rows(1024, 1)],
        "7.0.13": [failed(Outcome.SKIP, "preempt=none: the kernel offers only full")],
        "7.1.13": [None],
        "7.2.13": [replace(with_rows(7, 1), outcome=Outcome.INVALID, reasons=("thp_pages is 0",))],
    }
    found = cells(run(own, study=study(name="x", functions=["rep stos*"])))
    assert [cell.value for cell in found] == [1024, None, None, None]
    assert found[1].absent == "preempt=none: the kernel offers only full"
    assert found[2].absent == "it has no counts"
    assert found[3].absent


def test_a_study_without_figures_has_none() -> None:
    record = run(TWO)
    assert findings.figure_tables(record) == ()
    assert show.show_figures(findings.figure_tables(record)) == []


def test_text_json_and_csv_have_them() -> None:
    named = study(name="clear calls", functions=["rep stos*"], what="how\noften")
    report = findings.report(run(TWO, study=named))
    shown = page.plain(show.show(report))
    assert "figures of the study\nkernel   clear calls\n6.19.14        1,024\n" in shown
    assert "7.0.13            64\n\nclear calls: how often\n" in shown
    assert (
        json.loads(written("json", show, report))["figures"][0]["rows"][0]["cells"][1]["value"]
        == 64
    )


def test_a_wide_table_is_cut_and_absences_are_told_once() -> None:
    names = [f"a figure with a rather long name {number}" for number in range(4)]
    own = "".join(f'\n[[figures]]\nname = "{name}"\nfunctions = ["rep stos*"]\n' for name in names)
    skip = failed(Outcome.SKIP, "the kernel offers only full")
    record = run({"6.19.14": TWO["6.19.14"], "7.0.13": [skip]}, study=STUDY + own)
    lines = page.plain(show.show_figures(findings.figure_tables(record))).splitlines()
    assert max(map(len, lines)) <= page.WIDTH
    assert all(any(name in line for line in lines) for name in names)
    assert lines.count("absent: 7.0.13: the kernel offers only full") == 1
