# SPDX-License-Identifier: GPL-2.0-or-later
"""The survey: many scenarios in one table, its steps with their functions, what is left out."""

from __future__ import annotations

import dataclasses
import re

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import ladder_records as records
from kdelta import workload
from kdelta.analysis.lab import Survey, surveyed
from kdelta.cli.run import survey as command
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.rendering import show
from kdelta.sample import Outcome, TrialResult
from kdelta.study import plan, spec
from kdelta.table import columns as page


def two_scenarios(other: TrialResult | None) -> RunRecord:
    """The published ladder, and beside it a scenario whose last kernel is `other`."""
    one = records.ladder(1)
    labels = [arm.label for arm in one.arms]
    flat = [records.result(records.trial_of("6.16.12")) for _ in labels[:-1]]
    trials = tuple(
        replace(trial, index=len(one.trials) + at, scenario="flat", result=result)
        for at, (trial, result) in enumerate(zip(one.trials, [*flat, other], strict=True))
    )
    return replace(one, trials=(*one.trials, *trials))


def text(found: Survey, *, details: bool = True) -> str:
    return page.plain(show.show_survey(found, details=details))


def test_steps_are_named_with_pair_and_functions() -> None:
    found = surveyed(two_scenarios(records.result(records.trial_of("6.16.12"))))
    shown = text(found)
    step = next(c for c in found.changes if c.explanation.new.startswith("6.17"))
    assert step.explanation.old.startswith("6.16")
    assert "prot_commit_flush_ptes" in shown
    assert found.changes[0] is step, "the largest comes first"


def test_a_change_in_which_the_counts_scatter_is_marked_undecided() -> None:
    wide = tuple(range(0, 240 * records.PAGES, 30 * records.PAGES))
    moved = records.Trial(per_page=301.7 * 1.2 + 100, windows=wide)
    found = surveyed(two_scenarios(records.result(moved)))
    assert not [step for step in found.changes if step.name.endswith(":flat")]
    row = next(row for row in found.rows if row.name.endswith(":flat"))
    assert [cell.undecided for cell in row.cells] == [False] * (len(row.cells) - 1) + [True]
    shown = text(found)
    assert re.search(r"^~mprotect:flat .*%\?", shown, re.MULTILINE)
    assert max(map(len, page.plain(show.show_survey(found), 80).splitlines())) <= 80
    assert " and 1 undecided comparison, the largest first:" in " ".join(shown.split())
    assert "The largest that is undecided: mprotect:flat, 7.1.3 -> 7.2.1: the spread" in shown


def longer_touch(times: int) -> TrialResult:
    """A trial whose phase `touch` is so many times as long, which its sum hardly shows."""
    plain = records.result(records.trial_of("6.16.12"))
    protect, touch = plain.exact.phases
    more = (times - 1) * touch.kernel[0]
    phases = (protect, replace(touch, kernel=tuple(count + more for count in touch.kernel)))
    functions = [
        replace(row, insns=row.insns + more)
        if (row.phase, row.function) == ("touch", "handle_mm_fault")
        else row
        for row in plain.exact.functions
    ]
    return records.recounted(plain, phases=phases, functions=tuple(functions))


def test_a_phase_that_the_sum_hides_is_a_step_of_its_own() -> None:
    found = surveyed(two_scenarios(longer_touch(2)), step_percent=30)
    rows = [dataclasses.replace(row, inexact=True, layouts=31) for row in found.rows]
    marked = text(dataclasses.replace(found, rows=tuple(rows)), details=False)
    assert "~: a median, the counts hardly repeat; #: the mean over 31 layouts" in marked
    flat = next(row for row in found.rows if row.name.endswith(":flat"))
    assert flat.cells[-1].ratio is not None
    assert abs(flat.cells[-1].ratio - 1) < 0.3
    assert [*flat.phases] == ["touch"]
    own = [change for change in found.changes if change.name.endswith(":flat")]
    assert [(change.explanation.phase, change.phases) for change in own] == [("touch", ())]
    shown = text(found)
    assert ":flat, touch alone: " in shown
    assert "handle_mm_fault" in shown
    assert "\n  touch  " in shown


def test_a_step_of_the_sum_names_its_phases() -> None:
    found = surveyed(two_scenarios(records.result(records.trial_of("6.16.12"))), step_percent=30)
    (step,) = (c for c in found.changes if c.explanation.new.startswith("6.17"))
    assert [name for name, _ in step.phases] == ["protect"]
    assert "(protect x2." in text(found)
    assert not any(row.phases for row in found.rows), "they say no more than the sum"


def test_a_mean_over_layouts_is_marked_and_tells_how_many_are_hit() -> None:
    phase = replace(
        records.result(records.Trial(per_page=1)).exact.phases[0], operations=4, user=(100,) * 8,
        layouts=4,
    )  # fmt: skip

    def trial(dear: int, usual: int = 40_000) -> TrialResult:
        kernel = tuple(2 * usual if at % 4 < dear else usual for at in range(8))
        own = replace(phase, kernel=kernel)
        functions = records.functions("protect", sum(kernel[:4]) + 400, {})
        return records.recounted(
            records.result(records.Trial(per_page=1)), phases=(own,), functions=tuple(functions)
        )

    def shown(now: TrialResult) -> str:
        return text(surveyed(records.run({"6.18.15": [trial(0)], "7.1.13": [now]})))

    assert "#mprotect:" in shown(trial(1, 60_000))
    assert "the mean over 4 layouts" in shown(trial(1, 60_000))
    assert "x1.873; layouts hit: 0 -> 1" in shown(trial(1, 60_000))
    open_ = " ".join(shown(trial(1)).split())  # no step: what is hit depends on the program
    assert "layouts hit:" not in open_
    assert "+25%?" in open_
    assert "REGRESSION over all layouts" in open_


def test_a_change_of_too_few_seeds_says_so() -> None:
    named = {"get_page_from_freelist": 1.0}
    arms = {
        label: [records.result(records.Trial(per_page=per_page, functions=named))]
        for label, per_page in (("6.16.12", 300.0), ("6.17.13", 305.0))
    }
    record = records.run(arms)
    assert "+2%?" in text(surveyed(record))
    told = page.plain(show.show(surveyed(record).report))
    assert told.endswith("toggle_64m --kernels 6.16,6.17 --rounds 3`\n")
    other = replace(record, study=spec.with_settings(record.study, cpus=2))
    assert "With 3" not in page.plain(show.show(surveyed(other).report))
    assert "seeds" not in text(surveyed(records.run(arms), step_percent=5.0))


@pytest.mark.parametrize(
    ("other", "note"),
    [
        (records.failed(Outcome.SKIP, "no mseal"), "skip"),
        (records.failed(Outcome.GUEST_ERROR, "panic"), "failed"),
        (None, "not run"),
    ],
)
def test_a_kernel_without_a_count_says_why(other: TrialResult | None, note: str) -> None:
    found = surveyed(two_scenarios(other))
    flat = next(row for row in found.rows if row.name.endswith(":flat"))
    assert (flat.cells[-1].per_operation, flat.cells[-1].note) == (None, note)
    assert f" {note}\n" in text(found)


def test_the_table_has_the_threshold_of_the_study() -> None:
    record = two_scenarios(records.result(records.trial_of("6.16.12")))
    lenient = replace(record, study=spec.with_settings(record.study, step_percent=50))
    assert surveyed(record).report.step_percent == 1.0
    assert surveyed(lenient).report.step_percent == 50.0
    assert len(surveyed(lenient).changes) < len(surveyed(record).changes)


def test_there_are_enough_scenarios_and_a_pattern_chooses() -> None:
    meant = [
        scenario
        for name in workload.names()
        for scenario in workload.load(name).scenarios
        if scenario.survey
    ]
    assert 80 <= len(meant) <= 100
    assert all("exact" in scenario.instruments for scenario in meant)
    listed = (
        CliRunner()
        .invoke(command, ["--list", "--only", "unmap:*", "--kernels", "6.12,6.17"])
        .output
    )
    assert "unmap:munmap\n" in listed
    assert "fault:" not in listed
    words = ["--list", "--only", "fault_fork:*", "--kernels", "6.12,6.17"]
    assert "by kdelta run: fault_fork:fork_touch_thp" in CliRunner().invoke(command, words).stderr
    refused = CliRunner().invoke(command, ["--list", "--only", "nothing:*", "--kernels", "6.12"])
    assert isinstance(refused.exception, SpecError)


def test_the_field_is_what_robots_have_names_for_and_is_one_study() -> None:
    survey, field = plan.surveyed(), plan.surveyed(field=True)
    assert set(survey) < set(field)
    assert len(field) >= 150
    alone = {"loops_names:open_threads"}
    assert alone <= set(field) - set(survey)
    assert plan.surveyed(["loops_names:open_threads"]) == list(alone)  # a pattern reaches it
    assert plan.surveyed(["*:dup"], probe="sharing") == ["turns:dup"]
    study = spec.from_arguments(field, ["6.12", "7.2"], name="survey", arch="amd64")
    assert len(study.scenarios) == len(field)


def test_a_survey_of_variants_says_that_all_are_against_the_original() -> None:
    """It said "from the kernel before", and showed the change from the original."""
    labels = ["6.17.8", "6.17.8+slow", "6.17.8+slower"]
    results = (records.result(records.Trial(per_page=value)) for value in (300, 400, 500))
    record = records.run({label: [one] for label, one in zip(labels, results, strict=True)})
    built = records.with_kernels(record, lambda arm: {"source": "tree 1", "name": arm.label})
    said = " ".join(text(surveyed(built)).split())
    assert "then the change from 6.17.8;" in said
    assert "+33% +67%" in said
    assert said.startswith("2 steps above 1 % in 1 scenario over 3 kernels, the largest first:")
    assert "then the change from the kernel before;" in " ".join(text(surveyed(record)).split())


def test_commits_of_one_tree_are_told_apart_in_the_head() -> None:
    commits = [f"6.17.8-g{at}bc965f6fcdc,min" for at in (8, 9)]
    one = records.result(records.trial_of("6.16.12"))
    lines = text(surveyed(records.run({label: [one] for label in commits}))).splitlines()
    head = next(line for line in lines if line.startswith("scenario")).split()[1:]
    assert len(head) == len(set(head)) == 2
