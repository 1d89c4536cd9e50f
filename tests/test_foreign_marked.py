# SPDX-License-Identifier: GPL-2.0-or-later
"""What a table says of itself: directions in comments, plans, conditions, columns beside."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreign_records import imported
from kdelta.analysis import judgement
from kdelta.errors import SpecError
from kdelta.foreign import reader, series
from kdelta.foreign.record import Contents
from kdelta.metric import Better

BOOTS = range(6)


def read(folder: Path, text: str, name: str = "a.csv") -> Contents:
    """What a file of that text says."""
    path = folder / name
    path.write_text(text)
    return reader.read([path])[1]


def table(head: str, row: str, first: str = "") -> str:
    """Rows of two arms; {arm}, {boot} and {value} stand for what differs."""
    lines = [
        row.format(arm=arm, boot=boot, value=100 + 10 * at + boot, at=at)
        for at, arm in enumerate(("6.16", "6.17"))
        for boot in BOOTS
    ]
    return first + "\n".join((head, *lines)) + "\n"


@pytest.mark.parametrize(
    ("said", "better"),
    [
        ("# lower is better", Better.LOWER),
        ("# Higher values are better", Better.HIGHER),
        ("# smaller = better, 8 CPUs", Better.LOWER),
        ("# some remark", Better.NONE),
    ],
)
def test_a_comment_says_which_direction_is_better(
    said: str, better: Better, tmp_path: Path
) -> None:
    lines = [f"{boot},{100 + boot},{110 + boot}" for boot in BOOTS]
    found = read(tmp_path, "\n".join((said, "boot,base,patched", *lines)) + "\n")
    assert [metric.better for metric in found.metrics] == [better]


def test_a_comment_against_the_name_of_a_column_is_asked_about(tmp_path: Path) -> None:
    text = table("kernel,boot,score", "{arm},{boot},{value}", "# lower is better\n")
    with pytest.raises(reader.UndescribedError, match="which is it") as caught:
        read(tmp_path, text)
    assert 'better = "lower"' in caught.value.proposal


def test_a_column_says_which_direction_is_better(tmp_path: Path) -> None:
    rows = "{arm},{boot},rate,{value},True\n{arm},{boot},delay,1{value},False"
    found = read(tmp_path, table("kernel,boot,bench,value,higher_is_better", rows))
    directions = {metric.name: metric.better for metric in found.metrics}
    assert directions == {"rate": Better.HIGHER, "delay": Better.LOWER}


def test_units_of_two_kinds_are_refused(tmp_path: Path) -> None:
    text = table("kernel,boot,bw,bw_unit", "{arm},{boot},{value},M{at}B/s")
    text = text.replace("M0B", "MB").replace("M1B", "MiB")
    with pytest.raises(SpecError, match="not in the unit and direction of bw above: M"):
        read(tmp_path, text)


def test_a_column_of_plans_is_held_against_the_rows(tmp_path: Path) -> None:
    found = read(tmp_path, table("kernel,boot,ns,runs_planned", "{arm},{boot},{value},9"))
    (case,) = series.cases(found)
    assert [(len(one.boots), one.planned) for one in case.series] == [(6, 9), (6, 9)]


def test_a_list_that_is_shorter_than_its_count_has_lost_runs(tmp_path: Path) -> None:
    text = "kernel\truns\tvalues_ms\n6.16\t4\t1;2;3;4\n6.17\t4\t1;2\n"
    (case,) = series.cases(read(tmp_path, text, "a.tsv"))
    counts = [sum(bool(boot.values) for boot in one.boots) for one in case.series]
    assert counts == [4, 2]
    assert [one.planned for one in case.series] == [4, 4]


@pytest.mark.parametrize(("published", "told"), [("2.33", False), ("2.3", False), ("2.36", True)])
def test_a_mean_has_the_digits_that_it_is_printed_with(
    published: str, *, told: bool, tmp_path: Path
) -> None:
    text = f"kernel,run1,run2,run3,avg,unit\n6.16,1,2,4,{published},ns\n6.17,1,2,4,2.333,ns\n"
    (case,) = series.cases(read(tmp_path, text))
    assert bool(case.remarks) == told


@pytest.mark.parametrize(
    ("column", "cell", "told"),
    [
        ("freq_mhz", "{at}{value}", "freq_mhz differs between the arms"),
        ("freq_mhz", "3{boot}00", ""),
        ("HZ", "{at}50", "HZ changes with the arm"),
        ("version_family", "{arm}-lts", ""),
    ],
)
def test_what_differs_with_the_arm_is_told(
    column: str, cell: str, told: str, tmp_path: Path
) -> None:
    found = read(tmp_path, table(f"kernel,boot,{column},ns", f"{{arm}},{{boot}},{cell},{{value}}"))
    assert any(told in note for note in found.notes) if told else not found.notes


def test_a_command_line_is_a_fact_of_the_machine(tmp_path: Path) -> None:
    found = read(tmp_path, table("kernel,boot,cmdline,ns", "{arm},{boot},hz={at},{value}"))
    (case,) = series.cases(found)
    assert [one.fact("cmdline") for one in case.series] == ["hz=0", "hz=1"]


def test_a_mean_of_audits_is_state(tmp_path: Path) -> None:
    rows = [
        f"{arm},{metric},{value},9"
        for arm, huge in (("6.16", "0.0"), ("6.17", "16384.0"))
        for metric, value in (("anon_huge_kb_mean", huge), ("touch_ns", "50.0"))
    ]
    text = "\n".join(("exact_version,metric,mean,ok_runs", *rows)) + "\n"
    (audit,) = series.audits(read(tmp_path, text))
    assert audit.differing == ("anon_huge_kb_mean",)


def test_state_that_differs_elsewhere_is_told_of_summaries_too(tmp_path: Path) -> None:
    """They are undecided anyway; without it the published change would seem to be the kernel's."""
    (tmp_path / "s.state.csv").write_text("kernel,anon_huge_kb\n6.16,0\n6.17,2048\n")
    text = "kernel,mean_touch_ns,sd,n\n6.16,100,1,9\n6.17,50,1,9\n"
    (tmp_path / "t.touch.csv").write_text(text)
    found = judgement.judge("x", imported(tmp_path), judgement.JudgementChoice())
    reasons = [pair.comparison.reasons for one in found.findings for pair in one.pairs]
    assert any("anon_huge_kb 0 against 2048" in text for told in reasons for text in told)
