# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a mail: what it claims, how it looks, and what its checks find before it is sent."""

from __future__ import annotations

import dataclasses
import html
import json
import quopri
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click.testing
import pytest
from msgspec.structs import replace

import ladder_records
import robot_mails
import timed_records
from kdelta.analysis.claims import Tag, claim
from kdelta.analysis.gate import GateCase
from kdelta.check import compare, robot
from kdelta.check.page import Direction, FunctionPart
from kdelta.cli.main import cli
from kdelta.cli.report import defining, report
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.kernels import debian
from kdelta.metric import Grade
from kdelta.rendering import check
from kdelta.rendering.mail import Letter, written
from kdelta.sample import Outcome
from kdelta.source import maintainers
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.workload import load
from kernel_tree import git
from robot_mails import FORMS, NO_REPORTS, Form
from run_records import kept

WORKLOADS = {"mprotect": load("mprotect")}
LETTER = Letter(workloads=WORKLOADS)


def timed(levels: list[float]) -> RunRecord:
    return timed_records.run(levels)


def exact_of(record: RunRecord, totals: list[float]) -> RunRecord:
    """An exact run of the scenario and the kernels of a timed one."""
    found = ladder_records.run(
        {
            arm.label: [ladder_records.result(ladder_records.Trial(per_page=total))] * 3
            for arm, total in zip(record.arms, totals, strict=False)
        },
        scenario="single_protect",
        study=ladder_records.STUDY.replace("shared_dirty_full_toggle_64m", "single_protect"),
    )
    return ladder_records.with_kernels(
        found, lambda arm: {"release": timed_records.kernel(arm.index).release}
    )


def test_a_ladder_as_a_mail() -> None:
    text = written(claim(ladder_records.ladder()), LETTER)
    assert text.startswith(
        "Subject: [RFC] mm/mprotect: 92 % more instructions from v6.16 to v6.17\n\nHi,\n\n"
    )
    flat = " ".join(text.split())
    assert (
        "Hi, mprotect() of resident memory (all of 64 MiB, shared anonymous) went from 401.7"
        " instructions per page on 6.16.12 to 769.8 on 6.17.13: 92 % more instructions, which is"
        " more work (counted exactly, under emulation; how long it takes was not measured). By"
        " function it is prot_commit_flush_ptes +"
    ) in flat
    assert "Is it expected?" in flat
    assert "6.17.13   769.8  x1.916, more work" in text
    assert "3 wanted facts; each holds, and is the same on every" in flat
    assert "prot_commit_flush_ptes" in text.partition("Mechanism")[2].partition("not claimed")[0]
    assert "kdelta workload export mprotect:" in flat
    perf_stat = "perf stat -e instructions:k,instructions:u \\"
    perf_stat += " ./shared_dirty_full_toggle_64m --iterations 100"
    assert "divided by 100 and by 16,384, is the count per page, with interrupts." in flat
    assert "user + kernel instructions per page; fewer is better" in flat
    assert "change_pte_range()" not in flat, "no path of the workload"
    assert "(attached: shared_dirty_full_toggle_64m.c) kdelta" in flat
    assert perf_stat in flat
    assert "7.2.1, the newest here, has it still: 788.0 per page." in flat
    assert "regzbot is not asked" in flat
    assert "#regzbot" not in text


def test_what_a_set_of_loops_has_in_common_is_not_told_of_one() -> None:
    loops = load("loops_calls")
    record = ladder_records.ladder()
    trials = [
        replace(each, workload="loops_calls", scenario="sched_yield") for each in record.trials
    ]
    found = claim(replace(record, trials=trials))
    text = written(found, Letter(workloads={"loops_calls": loops}))
    assert "Subject: [RFC] sched_yield: 92 % more" in text
    assert "\n\nsched_yield() where nobody else wants the CPU went from 401.7" in text
    assert "get_signal" not in text


@pytest.mark.parametrize(
    ("workload", "scenario", "told"),
    [
        ("advise", "collapse", "MADV_COLLAPSE of resident base pages into huge pages went from"),
        ("memcg", "fault_depth_4", "Memory charged to a cgroup (15 pages mapped, written to and"),
        ("unmap", "brk_page", "brk() up by one page and down again went from"),
        ("madvise_pageout", "pageout_anon_16m_nohugepage",
         "madvise(MADV_PAGEOUT) of anonymous memory, and the next write to it (16 MiB, MADV_NOH"),
        ("unknown", "one", "unknown:one went from"),
    ],
)  # fmt: skip
def test_the_operation_is_told_in_words(workload: str, scenario: str, told: str) -> None:
    record = ladder_records.ladder()
    trials = [replace(one, workload=workload, scenario=scenario) for one in record.trials]
    known = {} if workload == "unknown" else {workload: load(workload)}
    text = written(claim(replace(record, trials=trials)), Letter(workloads=known))
    assert f"Hi, {told}" in " ".join(text.split())


def test_a_commit_is_looked_for_between_releases_only() -> None:
    found = claim(ladder_records.ladder())
    text = written(found, LETTER)
    assert "--tree ~/linux --good v6.16 --bad v6.17" in text
    assert "was not looked for" in " ".join(text.split())
    known = written(found, Letter(workloads=WORKLOADS, introduced='0123456789ab ("mm: x")'))
    assert "It came with 0123456789ab" in known
    assert "kdelta bisect" not in known
    built = ladder_records.with_kernels(ladder_records.ladder(), lambda _: {"version": ""})
    trees = written(claim(built), LETTER)
    assert "Is it expected?" in trees
    assert "kdelta bisect" not in trees


def test_a_mail_of_many_scenarios_is_of_the_largest() -> None:
    record = ladder_records.ladder()
    names = [f"scenario_{at:02}" for at in range(12)]
    trials = [replace(one, scenario=name) for name in names for one in record.trials]
    broken = replace(trials[-1], result=ladder_records.failed(Outcome.BOOT_ERROR, "no boot at all"))
    found = claim(replace(record, trials=[*trials[:-1], broken]))
    flat = " ".join(written(found, LETTER).split())
    assert flat.count("instructions per page; fewer is better") == 6
    assert re.search(r"Of [56] scenarios that changed, too, there is nothing here", flat)
    assert "no boot at all" in flat, "also where the scenario has no table"


def test_kernels_of_one_series_are_told_by_their_names_and_a_program_by_its_command() -> None:
    record = ladder_records.with_kernels(ladder_records.ladder(), lambda _: {"release": "6.17.8"})
    text = written(claim(record), dataclasses.replace(LETTER, program="ls /usr/bin"))
    assert text.startswith(
        "Subject: [RFC] mm/mprotect: 92 % more instructions from 6.16.12 to 6.17.13"
    )
    assert "Reproducer\n  perf stat -e instructions:k,instructions:u ls /usr/bin\n" in text
    assert " -- ls /usr/bin\n" in text
    assert ".c" not in text.partition("Reproducer")[2].partition("regzbot")[0]


def test_what_hardly_repeats_is_told_as_on_the_page_of_the_run() -> None:
    """And what stands against the counts, but no advice to who made the program."""
    record = ladder_records.ladder()
    base = ladder_records.Trial(per_page=769.8)
    wild = [
        replace(one, result=ladder_records.result(dataclasses.replace(base, windows=range(9))))
        if one.arm == 1
        else one
        for one in record.trials
    ]
    flat = " ".join(written(claim(replace(record, trials=tuple(wild))), LETTER).split())
    assert "(counted (~: a median, since counts hardly repeat) under emulation; how" in flat
    assert "Only 11 % of the windows" in flat
    assert "warning: protect: counts hardly repeat, so the median window is shown (~)" in flat
    assert "--probe calls" not in flat


def test_a_mail_calls_commits_by_their_subjects() -> None:
    record = replace(ladder_records.ladder(), subjects={"6.17.13": "mm: 12 batches of \x1b[2J"})
    found = claim(record)
    assert '6.17.13: "mm: 12 batches of ?[2J"' in written(found, LETTER)


def test_a_mail_on_one_scenario_tells_the_limits_of_no_other() -> None:
    record = ladder_records.ladder()
    why = "the kernel has no mseal()"
    lacking = tuple(
        replace(
            trial, index=trial.index + len(record.trials), scenario="sealed",
            result=ladder_records.failed(Outcome.SKIP, why),
        )
        for trial in record.trials
    )  # fmt: skip
    both = replace(record, trials=(*record.trials, *lacking))
    assert why in " ".join(written(claim(both), LETTER).split())
    one = written(claim(both, scenario=f"mprotect:{ladder_records.SCENARIO}"), LETTER)
    assert why not in " ".join(one.split())


def test_every_line_fits_whatever_the_names() -> None:
    found = ladder_records.ladder()
    arms = tuple(replace(arm, label=arm.label + "-" + "long" * 30) for arm in found.arms)
    mail = claim(replace(found, arms=arms))
    assert max(map(len, written(mail, LETTER).splitlines())) <= 72


def test_names_of_strangers_make_no_headers_and_no_colours() -> None:
    found = ladder_records.ladder()
    arms = tuple(
        replace(
            arm,
            label=f"{arm.label}\nBcc: a@example.org\n\x1b[31m\u202e",
            kernel=replace(arm.kernel, release="", version="\x1b]0;x\x07\nTo: b@example.org"),
        )
        for arm in found.arms
    )
    text = written(claim(replace(found, arms=arms)), LETTER)
    assert all(char == "\n" or char.isprintable() for char in text)
    assert text.partition("\n\n")[0].count("\n") == 0
    assert "'deb:?]0;x? To: b@example.org'" in text


def test_more_time_with_a_longer_path_is_a_regression() -> None:
    time = timed([100.0, 160.0, 100.0])
    found = claim(time, exact_of(time, [401.7, 769.8]))
    assert found.tag is Tag.REGRESSION
    assert claim(exact_of(time, [401.7, 769.8]), time).tag is Tag.REGRESSION
    text = written(found, LETTER)
    flat = " ".join(text.split())
    assert text.startswith("Subject: [REGRESSION] mm/mprotect: ")
    assert " % more time from v6.0 to v6.1\n" in text
    assert "Path length supports it: 769.8 instructions instead of 401.7" in flat
    assert "#regzbot introduced: v6.0..v6.1" in text
    assert "#regzbot title: mm/mprotect: " in text
    assert "timed on real hardware" in flat
    named = written(found, Letter(workloads=WORKLOADS, introduced='0123456789ab ("mm: x")'))
    assert "#regzbot introduced: 0123456789ab\n" in named
    assert 'Fixes: 0123456789ab ("mm: x")' in named


@pytest.mark.parametrize(
    ("totals", "why"),
    [
        (None, "no instructions were counted"),
        ([401.7, 401.8], "finds no step in path length"),
        ([769.8, 401.7], "Path length contradicts it"),
    ],
)
def test_more_time_alone_is_no_regression(totals: list[float] | None, why: str) -> None:
    time = timed([100.0, 160.0, 100.0])
    found = claim(time, exact_of(time, totals) if totals else None)
    text = written(found, LETTER)
    assert found.tag is Tag.RFC
    assert why in " ".join(text.split())
    assert "#regzbot" not in text


def test_no_change_is_told_without_a_tag() -> None:
    trials = [ladder_records.result(ladder_records.Trial(per_page=300.0))] * 2
    text = written(claim(ladder_records.run({"6.1.1": trials, "6.2.1": trials})), LETTER)
    assert text.startswith("Subject: mprotect: no change of path length over 2 kernels\n")


def test_failures_are_told_and_nothing_decided_is_no_mail() -> None:
    good = ladder_records.result(ladder_records.Trial(per_page=300.0))
    bad = ladder_records.failed(Outcome.BOOT_ERROR, "it hung")
    more = ladder_records.result(ladder_records.Trial(per_page=400.0))
    found = claim(ladder_records.run({"6.1.1": [good] * 2, "6.2.1": [more, bad]}))
    text = written(found, LETTER)
    assert "1 of 4 trials carry no data" in text
    assert "boot-error: it hung" in " ".join(text.split())
    with pytest.raises(SpecError, match="no comparison of this run is decided"):
        written(claim(ladder_records.run({"6.1.1": [good], "6.2.1": [bad]})), LETTER)


# ---- recipients and earlier mails ----------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "mm").mkdir()
    (tmp_path / "arch").mkdir()
    (tmp_path / "scripts/get_maintainer.pl").write_text(
        'print "A B <a\\@example.org> (maintainer:MM (CORE))\\n";\n'
        'print "linux-mm\\@example.org (open list:MM)\\n" if "@ARGV" =~ m{-f mm/mprotect.c$};\n'
    )
    (tmp_path / "mm/mprotect.c").write_text(
        "static long\nchange_pte_range(struct mmu_gather *tlb,\n\t\tint x)\n{\n}\n"
    )
    (tmp_path / "mm/other.c").write_text("void f(void)\n{\n\tchange_pte_range(tlb, 1);\n}\n")
    return tmp_path


def test_recipients_are_those_of_the_file_that_defines_the_function(tree: Path) -> None:
    files = defining(["change_pte_range"], tree)
    assert files == ["mm/mprotect.c"]
    to, cc = maintainers.recipients(tree, files)
    assert (to, cc) == (["A B <a@example.org>"], ["linux-mm@example.org"])
    letter = Letter(workloads=WORKLOADS, file="mm/vma.c", to=to, cc=cc, newest="7.3")
    text = written(claim(ladder_records.ladder()), letter)
    head = "To: A B <a@example.org>\nCc: linux-mm@example.org\nSubject: [RFC] mm/mprotect: 92 %"
    assert text.startswith(head)
    told = "788.0 per page. From 6.1.176 to 7.2.1 it is x2.134 in all. 7.3 exists and was not"
    assert told in " ".join(text.split())


def test_what_is_no_kernel_tree_or_lacks_the_function(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="defines none of nowhere_defined"):
        defining(["nowhere_defined"], tree)
    (tree / "scripts/get_maintainer.pl").unlink()
    with pytest.raises(SpecError, match="not a kernel tree"):
        maintainers.recipients(tmp_path, ["mm/mprotect.c"])


# ---- the command ---------------------------------------------------------------------------


def test_the_command_writes_a_mail_and_never_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kept(ladder_records.ladder(), tmp_path / "run")
    run = click.testing.CliRunner().invoke
    mail = tmp_path / "mail.txt"
    done = run(report, [str(folder), "--mail", "-o", str(mail)])
    assert done.exit_code == 0, done.output
    assert mail.read_text().startswith("Subject: [RFC] mm/mprotect: 92 % more instructions")
    assert done.stderr.startswith("Ready but for recipients (--tree ~/linux) and its attachment: `")
    assert run(report, [str(folder)]).output == done.stderr + mail.read_text()
    once = kept(replace(ladder_records.ladder(1), run_id="once"), tmp_path / "once")
    newest = SimpleNamespace(is_candidate=False, series="7.3")
    monkeypatch.setattr(debian, "offers", lambda *_: (newest, SimpleNamespace(is_candidate=True)))
    said = " ".join(run(report, [str(once)]).stderr.split())
    assert said.startswith("Not ready: one trial of a kernel is no repetition; 7.3 is not counted")
    assert "--kernels 6.16.12,6.17.13,7.3 --rounds 3`, and" in said.replace("\\ ", "")
    newest.series = "7.2"
    assert "is not counted" not in run(report, [str(folder)]).stderr
    later = run(report, [str(folder), "7.1.3", "7.2"])
    assert isinstance(later.exception, SpecError)
    assert "no step from 7.1.3 to 7.2.1 is decided" in str(later.exception)
    step = claim(ladder_records.ladder()).headline
    assert step
    other = next(one for one in step.ladder.steps if one.old != step.step.old)
    own = run(report, [str(folder), other.old, other.new]).stdout
    assert f"on {other.old} to " in " ".join(own.split())


def test_a_file_of_ones_own_goes_with_the_mail_and_its_folder_does_not(tmp_path: Path) -> None:
    record = ladder_records.ladder()
    own = [replace(trial, workload="/srv/own/own.c") for trial in record.trials]
    study = replace(record.study, scenarios=(f"/srv/own/own.c:{own[0].scenario}",))
    folder = kept(replace(record, trials=tuple(own), study=study), tmp_path / "run")
    done = click.testing.CliRunner().invoke(report, [str(folder)])
    assert done.stdout.startswith("Subject: [RFC] ./own.c: 92 % more instructions")
    assert "/srv/own" not in done.output
    said = " ".join(done.stderr.replace("\\", "").split())
    assert said.startswith("Not ready: no scenario of a known suite stands beside the loop; `")
    assert f"`kdelta run ./own.c:{own[0].scenario} SCENARIO --kernels" in said
    name = f"own-{own[0].scenario}"
    assert f"(attached: {name}.c)\n  kdelta workload export ./own.c:" in done.output
    assert f"-o {name}.c" in done.output
    assert "State of the pages\n  ./own.c:" in done.output


# `kdelta ask`: the robot's table and fields are read, no sentence is, and what lacks is asked


UNFAULTED = SimpleNamespace(faults=0.0)
ANSWERED = next(form for form in FORMS if form.metric == "unixbench.score")


def saved(folder: Path, text: str) -> Path:
    path = folder / "report.eml"
    path.write_text(text, encoding="iso-8859-1")
    return path


def asked(folder: Path, text: str, *options: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["ask", str(saved(folder, text)), *options])


def sentence(result: click.testing.Result) -> str:
    assert isinstance(result.exception, SpecError)
    return result.exception.sentence()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_table_and_the_fields_are_read_and_no_sentence(form: Form, tmp_path: Path) -> None:
    found = robot.read(saved(tmp_path, form.mail))
    assert (found.commit, found.parent, found.title) == (
        robot_mails.COMMIT, "fedcba9876", "mm: a change"
    )  # fmt: skip
    row = robot.chosen(found, "" if form.better else form.metric)
    assert (row.metric, row.percent) == (form.metric, form.percent)
    assert (row.better or "") == form.better
    if form.scenario:
        assert robot.scenario_of(found, row) == form.scenario
    else:
        with pytest.raises(SpecError, match=r"no scenarios are known to repeat .*--scenario"):
            robot.scenario_of(found, row)


def test_rows_of_perf_stat_are_rows_and_a_profile_or_a_second_table_is_not(tmp_path: Path) -> None:
    rows = "     93.5 \xb1  2%      +4.9%       98.1        perf-stat.i.cache-miss-rate%\n"
    rows += "      0.00 \xb1150%   +7.3e+02%       0.00 \xb1 99%  other\n"
    rows += "      1.00          -100.0%       0.00        perf-sched.sch_delay.max.ms\n"
    rows += "    412345           -10.8%     367812        aim9.page_test.ops_per_sec\n"
    rows += "***************\n         %stddev     %change         %stddev\n"
    rows += "    412345           -10.8%     367812        aim9.brk_test.ops_per_sec\n"
    text = robot_mails.mail("aim9", "no sentence at all", "test: page_test", rows)
    found = robot.read(saved(tmp_path, text))
    assert [row.metric for row in found.rows] == [
        "perf-stat.i.cache-miss-rate%", "other", "perf-sched.sch_delay.max.ms",
        "aim9.page_test.ops_per_sec",
    ]  # fmt: skip
    assert robot.chosen(found, "").metric == "aim9.page_test.ops_per_sec"
    assert robot.chosen(found, "perf-stat.i.cache-miss-rate%").percent == 4.9


def test_what_the_mail_does_not_declare_is_asked_by_its_option(tmp_path: Path) -> None:
    latency = next(form for form in FORMS if not form.better)
    said = sentence(asked(tmp_path, latency.mail))
    assert "no rows of lmbench3 with a known direction" in said
    other = ANSWERED.mail.replace(": x\n", ": unixbench.other, -49.0% regression\n", 1)
    assert 'names "unixbench.other", of which the table has no row' in sentence(
        asked(tmp_path, other)
    )
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


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("-10.8%  ", "+10.8%  ", "412345 to 367812 is no change of +10.8 %"),
        ("367812", "367", "412345 to 367 is no change of -10.8 %"),
        ("412345  ", "-412345 ", "values that nothing counts: -412345 and 367812"),
        ("412345  ", "1e308 ", "values that nothing counts: 1e+308 and 367812"),
        ("[mm] 0123456789:", "[mm] 9999999999:", "its Subject is of 9999999999, and its table of"),
        ("  4123", f"    412345 -9.0% 375234 {FORMS[0].metric}\n  4123", "two rows aim9"),
        ("\ncommit: 0", '\ncommit: 123456789abc ("x")\ncommit: 0', "2 fields commit:"),
        (
            "From: ",
            "From a Mon Jan 1 00:00:00 2024\nFrom b Mon Jan 1 00:00:01 2024\nFrom: ",
            "2 mails",
        ),
    ],
)
def test_a_mail_that_contradicts_itself_is_refused(
    was: str, now: str, said: str, tmp_path: Path
) -> None:
    assert said in sentence(asked(tmp_path, FORMS[0].mail.replace(was, now, 1)))


def perf(rate: float, **rows: tuple[float, float]) -> str:
    """A mail of will-it-scale with rows of perf stat beside its rate."""
    own = {
        "will-it-scale.per_process_ops": (1000.0, 1000 * rate),
        **{name.replace("__", "-").replace("_dot_", "."): pair for name, pair in rows.items()},
    }
    text = "".join(
        f"  {old:.6g}  {100 * (new / old - 1):+.1f}%  {new:.6g}  {name}\n"
        for name, (old, new) in own.items()
    )
    mode = "nr_task: 16; mode: process; test: page_fault1"
    return robot_mails.mail("will-it-scale", "a change", mode, text)


PATH, CPI = "perf__stat_dot_overall_dot_path__length", "perf__stat_dot_overall_dot_cpi"
IPC, TOTAL = "perf__stat_dot_overall_dot_ipc", "perf__stat_dot_total_dot_instructions"
WORK, FAULTS = "will__it__scale_dot_workload", "will__it__scale_dot_time_dot_minor_page_faults"
SECOND, DONE = "perf__stat_dot_ps_dot_page__faults", "perf__stat_dot_ps_dot_instructions"


@pytest.mark.parametrize(
    ("mail", "most"),
    [
        (perf(0.90, **{PATH: (5e4, 5.5e4), CPI: (1.0, 1.01)}), "path length, which a"),
        (perf(0.80, **{PATH: (5e4, 4.9e4), CPI: (1.0, 1.27)}), "cycles per instruction (caches"),
        (perf(0.70, **{PATH: (5e4, 5e4), IPC: (1.0, 1.0)}), "time that was not on a CPU"),
        (perf(1.25, **{TOTAL: (9e9, 9e9), WORK: (100, 125), IPC: (1, 1.01)}), "path length, which"),
        (perf(0.90, **{PATH: (5e4, 5.5e4)}), "path length, which a"),
        (perf(0.90, **{PATH: (5e4, 5.1e4)}), "instructions per second (caches, waiting)"),
    ],
    ids=["path", "cycles", "waiting", "shorter, by totals", "path alone", "no path"],
)
def test_the_figures_of_the_mail_itself_are_answered_first(
    mail: str, most: str, tmp_path: Path
) -> None:
    ended = asked(tmp_path, mail)
    assert ended.exit_code == 0
    told = " ".join(ended.output.split())
    assert re.match(r"Path length: -?\d+ % of the [-+]\d+ % of \S+, by the mail's own fig", told)
    assert f" So {most}" in told
    shares = [int(each) for each in re.findall(r"\((-?\d+) % of it\)", told)]
    assert "+0.0 %" not in told
    assert abs(sum(shares) - 100) <= 1
    assert f"--kernels tree:PATH@fedcba9876,tree:PATH@{robot_mails.COMMIT[:12]}" in ended.output
    assert ("which lines its tasks share: `kdelta ask" in told) == ("path length" not in most)


@pytest.mark.parametrize(
    ("rows", "counted", "said"),
    [
        ({FAULTS: (205, 205), WORK: (1e5, 1e5)}, 15.0, "takes 0.00205 page faults an operation"),
        ({FAULTS: (1e5, 1e5), WORK: (1e5, 1e5)}, 0.0, "and the scenario 0: it is another loop"),
        ({SECOND: (2e6, 2e6), DONE: (5e9, 5e9), PATH: (5e3, 5e3)}, 0.0, "takes 2 page faults"),
        ({FAULTS: (1e5, 1e5), WORK: (1e5, 1e5)}, 2.1, "page faults an operation, and the scena"),
        ({FAULTS: (1e5, 1e5), WORK: (1e5, 1e5)}, 1.9, ""),
        ({FAULTS: (205, 205), WORK: (1e5, 1e5)}, 0.0, ""),
        ({FAULTS: (1e5, 1e5)}, 0.0, ""),
    ],
)
def test_a_scenario_takes_page_faults_where_the_test_does(
    rows: dict[str, tuple[float, float]], counted: float, said: str, tmp_path: Path
) -> None:
    found = robot.other_faults(robot.read(saved(tmp_path, perf(0.9, **rows))), counted)
    assert (said in found, bool(said)) == (True, bool(found))


def test_what_runs_in_user_space_has_no_path(tmp_path: Path) -> None:
    row = "  1.97e+08            -5.1%   1.87e+08        stress-ng.vdso.ops_per_sec"
    mail = robot_mails.mail("stress-ng", "a change", "nr_threads: 100%; test: vdso", row)
    ended = asked(tmp_path, mail)
    assert ended.output.startswith("The test runs in the vDSO, in user space: no path of the kern")
    assert ended.exit_code == 0
    assert "no scenarios" in sentence(asked(tmp_path, mail.replace("vdso", "ring-pipe")))


def test_a_test_of_several_tasks_is_counted_in_turns(tmp_path: Path) -> None:
    row = "      1020            +7.1%       1092        x.ops_per_sec"
    for parameters, names in {
        "nr_task: 100%; mode: thread; test: futex4": ["futex4"],
        "nr_task: 1; mode: thread; test: futex4": [],
        "nr_task: 16; mode: thread; test: brk2": [],
        "nr_threads: 100%; test: open": ["open_one_file", "open_own_files", "open_own_threads"],
        "nr_threads: 100%; test: sock": [],
    }.items():
        found = robot.read(saved(tmp_path, robot_mails.mail("x", "a change", parameters, row)))
        assert robot.in_turns(found, None) == [f"turns:{name}" for name in names]


def test_a_lock_is_named_where_its_cycles_grew(tmp_path: Path) -> None:
    mail = perf(0.69, **{PATH: (5e4, 5e4), CPI: (1.0, 1.45)})
    own = "cycles-pp.native_queued_spin_lock_slowpath"
    row = f"     22.10 \xb1  2%     +31.2       53.30 \xb1  1%  perf-profile.self.{own}\n"
    trace = row.replace(f"self.{own}", f"calltrace.{own}._raw_spin_lock.d_lookup.isra.0")
    fewer, spread = row.replace("+31.2", "-31.2"), row.replace("2%", "70%").replace("1%", "40%")
    (brk,) = re.findall(r".* \+0\.4 .*\n", mail)
    more = brk.replace("+0.4", "+1.4")
    for rows, told in {
        row: "native_queued_spin_lock_slowpath, where tasks wait for a lock, takes +31.2 perc",
        row + trace: "age points of all cycles, mostly by _raw_spin_lock <- d_lookup.isra.0.",
        fewer: "most of it. Its profile names no lock.",
        spread: "most of it. Its profile names no lock.",
        "": "most of it. The mail has no profile.",
        more: "names no lock; by itself do_brk_flags changed most, by +1.4 perc",
    }.items():
        assert told in " ".join(asked(tmp_path, mail.replace(brk, rows)).output.split())
    longer = perf(0.69, **{PATH: (5e4, 7.2e4), CPI: (1.0, 1.0)})
    spins = asked(tmp_path, longer.replace("      1.20 \xb1", f"{row}      1.20 \xb1"))
    assert "spinning is path, too, and in no count." in " ".join(spins.output.split())


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("6000 +6.0% 6360 overall.path-length; 0.06 -4.4% 0.05 overall.ipc",
         "path length, which a count can explain, is most of it"),
        ("60 +4.6% 63 overall.path-length; 1.00 +4.2% 1.04 overall.cpi", "no part is most of"),
        ("60 \xb1 9% +11.0% 66 \xb1 3% overall.path-length; 1.00 +0.1% 1.00 overall.cpi",
         "do not say what the -10 % of will-it-scale.per_process_ops is"),
        ("9e9 -9.9% 8.1e9 ps.instructions; 1.00 +0.0% 1.00 overall.cpi", "time that was not on"),
        ("60 +1% 61 overall.path-length; 1.0 +1% 1.01 overall.cpi; 9 +0% 9 ps.cpu-cycles",
         "perf-stat.ps.cpu-cycles +0 % contradicts the -8.2 % that will-it-scale.per_process_ops"),
        ("66 +10% 73 overall.path-length; 1 +1% 1 overall.cpi; 9 -9% 8 ps.instructions",
         "perf-stat.ps.instructions -9 % contradicts the -1.0 % that"),
        ("60 +11% 66 overall.path-length; 1 +0% 1 overall.cpi; 50 -30% 35 will-it-scale.x_ops",
         "will-it-scale.x_ops -30 % contradicts the -10.0 %"),
    ],
    ids=["few", "no part", "spread", "of a second", "other cycles", "another path", "two tests"],
)  # fmt: skip
def test_parts_are_claimed_as_far_as_the_table_goes(rows: str, told: str, tmp_path: Path) -> None:
    lines = re.sub(r" (?!will-it)(?=\S+(?:;|$))", " perf-stat.", rows).replace("; ", "\n")
    mail = perf(0.9).replace("per_process_ops\n", f"per_process_ops\n{lines}\n")
    ended = asked(tmp_path, mail, "--metric", "will-it-scale.per_process_ops")
    assert told in (" ".join(ended.output.split()) or str(ended.exception))
    assert ended.exit_code == (4 if "do not say" in told else 1 if "contradicts" in told else 0)
    assert "names no scenario" in sentence(asked(tmp_path, mail, "--scenario", "bogus"))


def test_a_change_within_the_spread_of_its_runs_is_none(tmp_path: Path) -> None:
    mail = perf(0.997, **{PATH: (5e4, 5e4), CPI: (1.0, 1.002)})
    rate = "  1000  -0.3%  997  will-it"
    assert rate in mail
    ended = asked(tmp_path, mail.replace(rate, "  1000 \xb1  2%  -0.3%  997 \xb1  1%  will-it"))
    assert ended.exit_code == 4
    assert "decide nothing: both values deviate by 2 % and 1 %." in ended.output


def test_the_table_is_of_the_test_of_the_fields(tmp_path: Path) -> None:
    form = next(form for form in FORMS if "threads" in form.name)
    start = form.mail.index("commit: \n")
    block = form.mail[start:]
    rule = "=" * 89 + "\nmode/nr_task/option_a/test/testcase:\n"
    own, tasks, test = (
        f"{rule}  thread/{values}/will-it-scale\n\n"
        for values in ("100%/Fill Up/page_fault1", "16/Fill Up/page_fault1", "100%/Fill Up/brk1")
    )
    other = block.replace("-4.4%", "+9.9%")
    block = block.replace('  fedcba9876 ("mm: before it")', "  v6.12-rc4")
    third = block.replace('change")\n', 'change")\n  aaaaaaaaaa ("a fix")\n', 1)
    for note in (tasks, test):
        mail = form.mail[:start].replace("Hello,", f"{note}{other}Hello,")
        report = robot.read(saved(tmp_path, f"{mail}{own}{block}{'*' * 99}\n{other}"))
        assert (robot.chosen(report, "").percent, report.parent) == (-4.4, "v6.12-rc4")
    with pytest.raises(SpecError, match="with two commits"):
        robot.read(saved(tmp_path, mail + own + third))


def test_a_page_of_an_archive_and_a_wrong_charset_lose_no_row(tmp_path: Path) -> None:
    body = FORMS[0].mail.partition("\n\n")[2].replace("412345     ", "412345 \xb1  2%")
    page = f"<html><pre>{html.escape(body)}</pre>"
    for text in (
        page,
        FORMS[0].mail.partition("\n\n")[0] + "\n\n" + body.replace("\xb1", "\xc2\xb1"),
    ):
        report = robot.read(saved(tmp_path, text))
        assert (report.rows[0].spreads, report.title) == ((2, 0), "mm: a change")


def test_whether_the_kernels_have_the_commit_is_proven_or_said(tmp_path: Path) -> None:
    repo = tmp_path / "linux"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    for name in ("one", "two", "three"):
        git(repo, "commit", "-q", "--allow-empty", "-m", name)
    three, two, one = git(repo, "rev-list", "main").split()
    git(repo, "checkout", "-q", "-b", "other", one)
    git(repo, "commit", "-q", "--allow-empty", "-m", "apart")
    report = dataclasses.replace(robot.read(saved(tmp_path, ANSWERED.mail)), commit=two)

    def told(old: str, new: str) -> str:
        return robot.apart(report, *(f"tree:{repo}@{each}" for each in (old, new)))

    assert told(one, two) == ""
    assert "is one of 2 commits between" in told(one, three)
    assert "Nothing proves" in told("other", two)
    assert "Nothing proves" in told(two, three)
    with pytest.raises(SpecError, match="lacks it"):
        told(two, one)
    released = "6.17", f"6.17+undo={repo}@{two}"
    for first, last in (("6.17", "6.16"), ("6.17.8", "6.17.7"), ("deb:6.10.1-1", "6.9+x")):
        assert "Nothing proves" in robot.apart(report, last, first)
        with pytest.raises(SpecError, match=rf"{re.escape(first)} is newer .*in the other order"):
            robot.apart(report, first, last)
    assert robot.apart(report, released[1], released[0]) == ""
    with pytest.raises(SpecError, match="lacks it"):
        robot.apart(report, *released)
    (repo / "a.c").write_text("int own(void)\n")
    git(repo, "add", "a.c")
    git(repo, "commit", "-q", "-m", "own")
    report = dataclasses.replace(report, commit=(own := git(repo, "rev-parse", "HEAD").strip()))
    for kernels in (
        ("6.17", f"6.17+undo={repo}@{own}"),
        (f"tree:{repo}@{own}", f"tree:{repo}@{one}"),
    ):
        assert "+int own(void)" in robot.diff(report, *kernels)
    assert robot.diff(report, "6.16", "6.17") == ""


def test_two_rows_with_a_direction_are_one_too_many(tmp_path: Path) -> None:
    rows = (
        "    100   -5.0%   95  vm-scalability.median\n    100  -6.0%  94  vm-scalability.throughput"
    )
    mail = robot_mails.mail("vm-scalability", "a change", "test: anon-w-seq", rows)
    said = sentence(asked(tmp_path, mail))
    assert "2 rows of vm-scalability" in said
    assert "--metric NAME: vm-scalability.median, vm-scalability.throughput" in said
    subject = "0123456789:\n vm-scalability.median -5.0% regression"
    named = robot.read(saved(tmp_path, mail.replace("0123456789: x", subject)))
    assert robot.chosen(named, "").metric == "vm-scalability.median"
    with pytest.raises(SpecError, match=r"says \+500.0 % of vm-scalability.median, its table -5 %"):
        robot.read(saved(tmp_path, mail.replace("0123456789: x", subject.replace("-5.", "+500."))))


def test_a_name_of_two_scenarios_is_asked(tmp_path: Path) -> None:
    """aim9 has two tests in one mail: of the parameter, and of the metric."""
    rows = "    412345           -10.8%     367812        aim9.page_test.ops_per_sec\n"
    mail = robot_mails.mail("aim9", "a change", "test: brk_test", rows)
    found = robot.read(saved(tmp_path, mail))
    with pytest.raises(SpecError, match="2 scenarios are known to repeat aim9 brk_test page_test"):
        robot.scenario_of(found, robot.chosen(found, ""))


ENDLESS = re.sub(r"[-+][\d.]+%", f"-{'9' * 400}%", FORMS[0].mail)  # as a number, -inf


@pytest.mark.parametrize("text", [*NO_REPORTS, "", FORMS[0].mail[:400], "\0" * 100, ENDLESS])
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no report of the kernel test robot: it lacks its"):
        robot.read(saved(tmp_path, text))


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


def test_a_title_ends_with_its_line_and_is_printable(tmp_path: Path) -> None:
    for title in ("entry: inline f() and g()", "\x1b[31mmm: a change"):
        mail = FORMS[0].mail.replace("mm: a change", title)
        assert robot.read(saved(tmp_path, mail)).title == title.replace("\x1b", "?")


def difference(after: float | None) -> GateCase:
    no = Comparison(verdict=Verdict.SAME, grade=Grade.EXACT_PATH, reasons=())
    return GateCase(
        name="n", operation="call", old=100.0, new=after, skipped="", comparison=no, closes=False
    )


def answer(folder: Path, after: float | None, *how: Direction, why: str = "") -> str:
    row = robot.chosen(robot.read(saved(folder, ANSWERED.mail)), "")
    better, where = (*how, Direction.MORE)[0], "control:getppid, 6.16 -> 6.17"
    return "\n".join(check.robot_answer(row, better, difference(after), why, where))


def test_how_much_a_path_explains(tmp_path: Path) -> None:
    """A path of 25 % more instructions is a rate of 80 %; the table has -11 %."""
    said = answer(tmp_path, 125.0)
    assert said.startswith(
        "Path length explains 11.0 of 11 % (control:getppid, 6.16 -> 6.17: path +25.00 %)."
    )
    assert answer(tmp_path, 105.0).startswith("Path length explains 4.8 of 11 %")
    assert answer(tmp_path, 95.0).startswith("Not explained by path length, which went")
    less = answer(tmp_path, 95.0, Direction.LESS)
    assert less.startswith("Path length explains 5.0 of 11 %")
    assert answer(tmp_path, 100.0).startswith("Not a path length: it is the same to")
    assert answer(tmp_path, 95.0, why="-4 bytes") == "Cannot be said: -4 bytes."


def test_lines_that_tasks_share_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = dataclasses.replace(difference(104.0), name="turns:brk1_processes")
    counted: list[object] = []

    def count_pair(_old: str, _new: str, scenarios: list[str], **how: Any) -> list[object]:
        counted.append((*scenarios, how.get("probes")))
        return [(UNFAULTED, UNFAULTED)]

    monkeypatch.setattr(compare, "count_pair", count_pair)
    monkeypatch.setattr(compare, "between", lambda *_: (case, "its seeds differ"))
    part = FunctionPart(function="new: maple_node+64", delta=2.6)
    monkeypatch.setattr(compare, "objects", lambda *_: (part,))
    row = "      1020            -7.1%        948        will-it-scale.per_process_ops"
    parameters = "nr_task: 16; mode: process; test: brk1"
    mail = robot_mails.mail("will-it-scale", "a change", parameters, row)
    ended = asked(tmp_path, mail, "--kernels", "6.19,7.0")
    assert counted == [("unmap:brk_page", None), ("turns:brk1_processes", ["sharing"])]
    assert (
        "Lines that tasks take from each other (turns:brk1_processes): 100.00 -> 104.00 per call, "
        "SAME (its seeds differ): new: maple_node+64 (+2.6)." in " ".join(ended.output.split())
    )


def test_no_function_of_a_profile_is_the_commits_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[object] = []

    def count_pair(old: str, new: str, scenarios: list[str], **_: object) -> list[object]:
        asked_for.extend([old, new, *scenarios])
        return [(UNFAULTED, UNFAULTED)]

    monkeypatch.setattr(compare, "count_pair", count_pair)
    monkeypatch.setattr(compare, "between", lambda *_: (difference(105.0), ""))
    ended = asked(tmp_path, ANSWERED.mail, "--kernels", "6.16, 6.17", "--json")
    assert ended.exit_code == 4
    held = json.loads(ended.stdout)
    first, second, *_ = held["sentences"]
    assert first.startswith("Nothing proves that 0123456789ab lies between 6.16 and 6.17")
    assert "Path length explains 4.8 of 11 %" in second
    assert (held["scenario"], held["step"]["new"]) == ("control:getppid", "6.17")
    assert asked_for == ["6.16", "6.17", "control:getppid"]
    rates = asked(tmp_path, perf(0.9, **{PATH: (5e4, 5.5e4)}), "--kernels", "6.16,6.17").output
    assert rates.startswith("Path length: ")
    alone = f"6.17,6.17+undo=/linux@{robot_mails.COMMIT}"
    side = SimpleNamespace(kernel=None, faults=0.0)
    monkeypatch.setattr(compare, "count_pair", lambda *_, **__: [(side, side)])
    absent = {"g": "g did not run.", "": "it changes no function of the"}
    mail, undone = perf(0.9, **{PATH: (5e4, 5.5e4)}), ",".join(alone.split(",")[::-1])
    for changed, ran in (("", "f"), ("g", ""), ("g", "f"), ("f", "f")):
        code, side.functions = (frozenset(changed), False), frozenset(ran)
        monkeypatch.setattr(compare, "changed_code", lambda *_, code=code: code)
        told = asked(tmp_path, mail, "--kernels", undone).output
        why = absent.get(changed, "") if ran else ""
        first = f"Your test does not execute this commit: {why}"
        assert told.startswith(first) is bool(why)
        assert (" So path length" in told and "explains" in told) is not bool(why)
    monkeypatch.setattr(compare, "between", lambda *_: (difference(95.0), ""))
    side.functions = frozenset()
    for kernels in ("6.16,6.17", undone):
        said = " ".join(asked(tmp_path, mail, "--kernels", kernels).output.split())
        assert re.search(r"By the robot's figures path length is \d+ % of it; our count of", said)
        assert "went the other way" not in said
    monkeypatch.setattr(compare, "between", lambda *_: (difference(95.0), "it scatters"))
    assert asked(tmp_path, ANSWERED.mail, "--kernels", "6.16,6.17").exit_code == 4
