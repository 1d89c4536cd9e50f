# SPDX-License-Identifier: GPL-2.0-or-later
"""What an import lacks, said in the first paragraph: nothing that is there, all that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreign_records import imported, noise
from kdelta.analysis import judgement
from kdelta.analysis.judgement import Judgement, JudgementChoice
from kdelta.foreign.sets import told_apart
from kdelta.rendering import judge as page
from kdelta.rendering.columns import plain

ORDER = "the order in which they were run (a column order)"
STATE = "the page state (columns such as anon_huge_kb)"


def rows(boots: int = 8, *, more: str = "", new: float = 110.0, cells: str = "") -> str:
    """A table of boots in fine figures; more: names of columns, cells: of every row."""
    jitter = noise(7)
    lines = [
        f"{arm},{boot},{jitter.gauss(level, level / 100):.3f}{cells}"
        for boot in range(1, boots + 1)
        for arm, level in (("6.16", 100.0), ("6.17", new))
    ]
    return "\n".join([f"kernel,boot,ns{more}", *lines]) + "\n"


def judged(folder: Path, *tables: str) -> Judgement:
    for number, table in enumerate(tables):
        place = folder / "d" / f"s{number}" / "r.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(table)
    return judgement.judge("test", imported(folder / "d"), JudgementChoice())


def first(found: Judgement) -> str:
    """The paragraph above the table and the details."""
    return " ".join(plain(page.show(found, details=False)).partition("\n\n")[0].split())


def waited(found: Judgement) -> set[str]:
    """What a verdict waits for."""
    return set(found.answer.needs) - set(found.answer.unknown)


def test_a_verdict_waits_for_no_more_than_it_does(tmp_path: Path) -> None:
    found = judged(tmp_path, rows(9))
    assert "REGRESSION" in first(found)
    assert found.answer.needs == ()
    assert found.answer.unknown == (ORDER, STATE)
    assert f"the data do not say: {ORDER}; {STATE}" in first(found)


def test_boots_that_would_decide_are_counted(tmp_path: Path) -> None:
    found = judged(tmp_path, rows(6))
    (need,) = waited(found)
    assert need.startswith("about ")
    assert need.endswith("more boots an arm")


def test_units_that_may_differ_are_what_is_missing(tmp_path: Path) -> None:
    found = judged(tmp_path, rows(new=1002.0))
    assert {need.partition(" (")[0] for need in waited(found)} == {"whether the units are the same"}


def test_a_state_that_differs_elsewhere_is_what_is_missing(tmp_path: Path) -> None:
    audited = rows(more=",anon_huge_kb", cells=",0")
    lines = [
        line[:-1] + "2048" if line.startswith("6.17") else line for line in audited.splitlines()
    ]
    found = judged(tmp_path, "\n".join(lines) + "\n", rows())
    assert waited(found) >= {STATE}
    assert STATE not in found.answer.unknown


@pytest.mark.parametrize(
    ("column", "cell"),
    [("failed_pages", "3"), ("unexpected_results", "1"), ("verify_ok", "false")],
)
def test_runs_whose_results_are_wrong_are_told_with_the_check(
    tmp_path: Path, column: str, cell: str
) -> None:
    found = judged(tmp_path, rows(more=f",{column}", cells=f",{cell}"))
    said = first(found)
    assert "runs that do not fail" in waited(found)
    assert "the values themselves" not in said
    assert f"runs that failed or are without a value: 6.16 0/8 boots (ns; {column} {cell})" in said
    assert "one after the other" not in plain(page.show(found))  # nothing says so


def test_a_check_that_failed_behind_a_summary_is_told(tmp_path: Path) -> None:
    table = "kernel,mean_ns,sd,n,failed_pages\n6.16,100,1,9,2\n6.17,110,1,9,0\n"
    found = judged(tmp_path, table)
    assert "runs that failed or are without a value: 6.16 (ns; failed_pages 2)" in first(found)
    shown = plain(page.show(found))
    assert "6.16: runs behind the summary failed: failed_pages 2" in shown


def test_a_published_deviation_is_shown(tmp_path: Path) -> None:
    shown = plain(page.show(judged(tmp_path, "kernel,mean_ns,sd,n\n6.16,100,2,9\n6.17,110,1,9\n")))
    (row,) = [line for line in shown.splitlines() if line.startswith("6.16  ")]
    assert row.split() == ["6.16", "9/9", "-", "100.00", "2.000", "2.00"]


def test_what_was_counted_twice_or_copied_stands_in_the_answer(tmp_path: Path) -> None:
    planned = judged(tmp_path / "a", rows(more=",runs_planned", cells=",5"))
    assert "doubtful: 6.16: 8 results of 5 runs" in first(planned)
    once = rows(5)
    twice = judged(tmp_path / "b", once + once.partition("\n")[2])
    assert "come again, one after the other as before: were they copied?" in first(twice)
    ticks = [
        f"{arm},{boot},{15625 * (4 + (boot + at) % 2 + at)}"
        for boot in range(9)
        for at, arm in enumerate(("6.16", "6.17"))
    ]
    coarse = judged(tmp_path / "c", "kernel,boot,ns\n" + "\n".join(ticks) + "\n")
    assert "doubtful: 6.16: all values lie on a lattice of step 15625 ns" in first(coarse)


def test_a_tick_over_a_power_of_two_is_a_lattice_with_all_its_digits(tmp_path: Path) -> None:
    for number, tick in enumerate((1000 / 1024, 4 / 4096)):
        cells = [
            f"{arm},{boot},{tick * (1 + (boot + at) % 2 + at)!r}"
            for boot in range(9)
            for at, arm in enumerate(("6.16", "6.17"))
        ]
        table = "kernel,boot,us\n" + "\n".join(cells) + "\n"
        said = first(judged(tmp_path / str(number), table))
        assert f"lattice of step {tick:.6g} us" in said


def test_no_interval_is_not_printed_as_infinite(tmp_path: Path) -> None:
    shown = plain(page.show(judged(tmp_path, rows(1), rows(1)), details=False))
    assert "+10.85 % (too few for an interval)" in shown
    assert "inf" not in shown.replace("interval", "")


def test_sets_are_called_by_what_tells_them_apart() -> None:
    assert told_apart(["x/a/r", "x/b/r"]) == {"x/a/r": "a", "x/b/r": "b"}
    assert told_apart(["x/may", "x/june"]) == {"x/may": "may", "x/june": "june"}
    assert told_apart(["x/a/1/r", "x/b/1/r", "x/a/2/r"])["x/b/1/r"] == "b/1"
    assert told_apart(["x", "x/y/x"]) == {"x": "x", "x/y/x": "x/y/x"}


@pytest.mark.parametrize(
    ("unit", "value", "said"),
    [
        ("faults", 0, "values of zero: no ratio to them"),
        ("faults", -5, "negative values: the counter or the arithmetic is wrong"),
        ("us", 0, "times of zero: the samples are too short"),
        ("us", -5, "negative times: the clock or the arithmetic is wrong"),
    ],
)
def test_only_of_times_the_clock_is_blamed(
    tmp_path: Path, unit: str, value: int, said: str
) -> None:
    lines = [
        f"{arm},x,{unit},lower,{boot},{value if boot == 3 else 10.5 + boot / 7:.3f}"
        for boot in range(8)
        for arm in ("6.16", "6.17")
    ]
    path = tmp_path / "a.csv"
    path.write_text("kernel,name,unit,better,boot,value\n" + "\n".join(lines) + "\n")
    shown = plain(page.show(judgement.judge("test", imported(path), JudgementChoice())))
    assert said in " ".join(shown.split())
    assert ("clock" in shown.partition("What other")[0]) is (unit == "us")


def test_what_is_invalid_for_it_is_not_doubtful_too(tmp_path: Path) -> None:
    lines = [
        f"{arm},{arm}-job-{boot // 2},{boot},{10.5 + boot / 7:.3f}"
        for boot in range(8)
        for arm in ("6.16", "6.17")
    ]
    found = judged(tmp_path, "kernel,run_id,boot,ns\n" + "\n".join(lines) + "\n")
    assert found.answer.invalid
    assert found.answer.doubtful == ()
