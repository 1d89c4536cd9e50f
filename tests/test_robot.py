# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta ask`: the robot's table and fields are read, no sentence is, and what lacks is asked."""

from __future__ import annotations

import quopri
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import robot_mails
from kdelta.check import counting, robot
from kdelta.check.compare import CountDifference
from kdelta.check.page import Direction, FunctionPart
from kdelta.cli.main import cli
from kdelta.errors import SpecError
from kdelta.rendering import check
from robot_mails import FORMS, NO_REPORTS, Form

ANSWERED = next(form for form in FORMS if form.metric == "unixbench.score")


def saved(folder: Path, text: str) -> Path:
    path = folder / "report.eml"
    path.write_text(text, encoding="iso-8859-1")
    return path


def asked(folder: Path, text: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["ask", str(saved(folder, text)), *options])


def sentence(result: Result) -> str:
    assert isinstance(result.exception, SpecError)
    return result.exception.sentence()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_table_and_the_fields_are_read_and_no_sentence(form: Form, tmp_path: Path) -> None:
    found = robot.read(saved(tmp_path, form.mail))
    assert (found.commit, found.parent, found.title) == (
        robot_mails.COMMIT, "fedcba9876", "mm: a change"
    )  # fmt: skip
    row = robot.chosen(found, "" if form.better else form.metric)
    assert (row.metric, row.percent, found.devices) == (form.metric, form.percent, form.devices)
    assert (row.better or "") == form.better
    assert row.old > 0
    assert abs(100 * (row.new / row.old - 1) - row.percent) < 0.5
    if form.scenario:
        assert robot.scenario_of(found, row) == form.scenario
    else:
        with pytest.raises(SpecError, match=r"no scenarios are known to repeat .*--scenario"):
            robot.scenario_of(found, row)


def test_a_profile_is_no_row() -> None:
    """Its changes are of percent points, and say nothing of whose function it is."""
    mail = FORMS[0].mail
    assert "perf-profile.self.cycles-pp.do_brk_flags" in mail
    rows = list(robot._rows(mail))
    assert [row.metric for row in rows] == ["aim9.page_test.ops_per_sec"]


def test_rows_of_perf_stat_are_rows_and_a_second_table_is_not_read(tmp_path: Path) -> None:
    rows = "     93.5 \xb1  2%      +4.9%       98.1        perf-stat.i.cache-miss-rate%\n"
    rows += "      0.00 \xb1150%   +7.3e+02%       0.00 \xb1 99%  other\n"
    rows += "      1.00          -100.0%       0.00        perf-sched.sch_delay.max.ms\n"
    rows += "    412345           -10.8%     367812        aim9.page_test.ops_per_sec\n"
    rows += "***************\n         %stddev     %change         %stddev\n"
    rows += "    412345           -10.8%     367812        aim9.brk_test.ops_per_sec\n"
    text = robot_mails.mail("aim9", "no sentence at all", "test: page_test", rows)
    found = robot.read(saved(tmp_path, text))
    assert [row.metric for row in found.rows] == [
        "perf-stat.i.cache-miss-rate%", "perf-sched.sch_delay.max.ms", "aim9.page_test.ops_per_sec"
    ]  # fmt: skip
    assert robot.chosen(found, "").metric == "aim9.page_test.ops_per_sec"
    assert robot.chosen(found, "perf-stat.i.cache-miss-rate%").percent == 4.9


def test_what_the_mail_does_not_declare_is_asked_by_its_option(tmp_path: Path) -> None:
    latency = next(form for form in FORMS if not form.better)
    said = sentence(asked(tmp_path, latency.mail))
    assert "no rows of lmbench3 with a known direction" in said
    assert "--metric NAME: lmbench3.PIPE.latency.us" in said
    said = sentence(asked(tmp_path, latency.mail, "--metric", latency.metric))
    assert "--better more or --better less" in said
    said = sentence(asked(tmp_path, latency.mail, "--metric", "lmbench3.PIPE.latency.ms"))
    assert "did you mean lmbench3.PIPE.latency.us?" in said
    options = ("--metric", latency.metric, "--better", "less")
    said = sentence(asked(tmp_path, latency.mail, *options))
    assert f"--kernels tree:PATH@fedcba9876,tree:PATH@{robot_mails.COMMIT[:12]}" in said
    said = sentence(asked(tmp_path, ANSWERED.mail, "--kernels", "6.16"))
    assert "6.16 are not two kernels" in said
    said = sentence(asked(tmp_path, ANSWERED.mail, "--scenario", "control:getpid"))
    assert "did you mean getppid?" in said


def test_two_rows_with_a_direction_are_one_too_many(tmp_path: Path) -> None:
    rows = (
        "    100   -5.0%   95  vm-scalability.median\n    100  -6.0%  94  vm-scalability.throughput"
    )
    mail = robot_mails.mail("vm-scalability", "a change", "test: anon-w-seq", rows)
    said = sentence(asked(tmp_path, mail))
    assert "2 rows of vm-scalability" in said
    assert "--metric NAME: vm-scalability.median, vm-scalability.throughput" in said


def test_a_name_of_two_scenarios_is_asked(tmp_path: Path) -> None:
    """aim9 has two tests in one mail: of the parameter, and of the metric."""
    rows = "    412345           -10.8%     367812        aim9.page_test.ops_per_sec\n"
    mail = robot_mails.mail("aim9", "a change", "test: brk_test", rows)
    found = robot.read(saved(tmp_path, mail))
    with pytest.raises(SpecError, match="2 scenarios are known to repeat aim9 brk_test page_test"):
        robot.scenario_of(found, robot.chosen(found, ""))


@pytest.mark.parametrize("text", [*NO_REPORTS, "", FORMS[0].mail[:400], "\0" * 100])
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no report of the kernel test robot: it lacks its"):
        robot.read(saved(tmp_path, text))


def test_a_sentence_alone_is_no_table(tmp_path: Path) -> None:
    mail = robot_mails.mail("aim9", "a -10.8% regression of aim9.page_test.ops_per_sec", "test: x")
    with pytest.raises(SpecError, match="it lacks its table"):
        robot.read(saved(tmp_path, mail))


def test_a_report_within_parts_and_quoted_printable_is_read(tmp_path: Path) -> None:
    form = FORMS[0]
    head, _, body = form.mail.partition("\n\n")
    quoted = quopri.encodestring(body.encode("iso-8859-1")).decode()
    parts = (
        f"{head.splitlines()[0]}\nMIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="x"\n\n--x\n'
        'Content-Type: text/plain; charset="iso-8859-1"\n'
        f"Content-Transfer-Encoding: quoted-printable\n\n{quoted}\n--x\n"
        "Content-Type: application/x-xz\nContent-Transfer-Encoding: base64\n\nAAAA\n--x--\n"
    )
    found = robot.read(saved(tmp_path, parts))
    assert (found.rows[0].percent, found.suite) == (form.percent, "aim9")


def test_control_characters_of_a_report_reach_nobody(tmp_path: Path) -> None:
    text = FORMS[0].mail.replace("mm: a change", "\x1b[31mmm: a change")
    assert "\x1b" not in robot.read(saved(tmp_path, text)).title


def difference(after: float | None, **other: object) -> CountDifference:
    fields: dict[str, object] = {"sure": True, "reason": "", "functions": ()} | other
    return CountDifference(before=100.0, after=after, **fields)  # type: ignore[arg-type]


def answer(folder: Path, found: CountDifference, better: Direction = Direction.MORE) -> str:
    row = robot.chosen(robot.read(saved(folder, ANSWERED.mail)), "")
    where = "control:getppid, 6.16 -> 6.17"
    return "\n".join(check.robot_answer(row, better, found, where))


def test_how_much_a_path_explains(tmp_path: Path) -> None:
    """A path of 25 % more instructions is a rate of 80 %; the table has -11 %."""
    said = answer(tmp_path, difference(125.0))
    assert said.startswith(
        "Path length explains 11.0 of 11 % (control:getppid, 6.16 -> 6.17: path +25.00 %)."
    )
    assert answer(tmp_path, difference(105.0)).startswith("Path length explains 4.8 of 11 %")
    assert answer(tmp_path, difference(95.0)).startswith("Not explained by path length, which went")
    less = answer(tmp_path, difference(95.0), Direction.LESS)
    assert less.startswith("Path length explains 5.0 of 11 %")
    assert answer(tmp_path, difference(100.0)).startswith("Not a path length: it is the same to")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (difference(None, reason="it does not boot"), "it was not counted: it does not boot"),
        (difference(95.0, signless="-4 bytes"), "-4 bytes"),
        (difference(95.0, sure=False), "the count scatters more than it differs"),
        (difference(95.0, sure=False, reason="two compilers"), "two compilers"),
    ],
)
def test_what_counts_do_not_decide_is_not_claimed(
    found: CountDifference, why: str, tmp_path: Path
) -> None:
    assert answer(tmp_path, found) == f"Cannot be said: {why}."


def test_no_function_of_a_profile_is_the_commits_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[object] = []
    functions = (FunctionPart(function="do_brk_flags", delta=5.0),)

    def count_pair(old: str, new: str, names: list[str], *_: object, **__: object) -> list[object]:
        asked_for.extend([old, new, *names])
        return [(None, None)]

    found = difference(105.0, functions=functions, leading=("do_brk_flags",))
    monkeypatch.setattr(counting, "count_pair", count_pair)
    monkeypatch.setattr("kdelta.cli.imports.count_difference", lambda _old, _new: found)
    ended = asked(tmp_path, ANSWERED.mail, "--kernels", "6.16, 6.17")
    assert ended.exit_code == 0
    assert asked_for == ["6.16", "6.17", "control:getppid"]
    assert "Path length explains 4.8 of 11 %" in ended.output
    assert "do_brk_flags" not in ended.output
    monkeypatch.setattr(
        "kdelta.cli.imports.count_difference", lambda _old, _new: difference(95.0, sure=False)
    )
    assert asked(tmp_path, ANSWERED.mail, "--kernels", "6.16,6.17").exit_code == 4
