# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta bisect probe`: exit statuses that `git bisect run` reads, and never a wrong "bad"."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import ladder_records as records
from bisect_bench import BOOT_FAILURE, counted
from command_line import ended
from git_history import Repository
from kdelta.bisect.evidence import EXIT_STATUS, Rule, answer, rule_of, rule_of_run
from kdelta.bisect.search import Mark
from kdelta.cli.bisect import EXIT_STOP
from kdelta.cli.bisect import probe_command as probe
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.sample import KernelIdentity, Outcome, PhaseCounts, TrialRecord, TrialResult
from kdelta.source.make import SourceError
from kdelta.study import spec

SCENARIO = f"{records.WORKLOAD}:{records.SCENARIO}"
KERNEL = KernelIdentity(
    reference="file:bzImage", release="6.17.0-g1a2b", version="", arch="amd64", flavour="",
    image_sha256="ab" * 32,
)  # fmt: skip


def said(value: float | TrialResult, rule: Rule, phase: str = "total") -> tuple[Mark, str]:
    result = value if isinstance(value, TrialResult) else counted(value)
    found = answer(result, KERNEL, SCENARIO, phase, rule)
    return found.answer, found.sentence


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (264.0, Mark.GOOD), (270.0, Mark.GOOD), (150.0, Mark.GOOD),
        (405.0, Mark.BAD), (700.0, Mark.BAD), (327.0, Mark.SKIP),
    ],
)  # fmt: skip
def test_between_two_values(value: float, wanted: Mark) -> None:
    found, sentence = said(value, rule_of(good=264, bad=405))
    assert found is wanted
    assert sentence.startswith(f"6.17.0-g1a2b: {value:.1f} instructions per page, total: ")
    assert wanted.name.lower() in sentence


def test_good_may_be_the_larger_value() -> None:
    rule = rule_of(good=405, bad=264)
    assert said(264.0, rule)[0] is Mark.BAD
    assert said(405.0, rule)[0] is Mark.GOOD


def test_a_limit() -> None:
    assert said(264.0, rule_of(below=300))[0] is Mark.GOOD
    assert said(405.0, rule_of(below=300))[0] is Mark.BAD
    assert said(405.0, rule_of(above=300))[0] is Mark.GOOD
    assert said(264.0, rule_of(above=300))[0] is Mark.BAD


def test_windows_that_scatter_across_the_limit_are_skipped() -> None:
    shape = counted(300.0)
    wide = PhaseCounts(
        phase="protect", operations=1, operation="page", user=(0,) * 8,
        kernel=tuple(range(290, 298)),
    )  # fmt: skip
    found, sentence = said(
        records.recounted(shape, phases=(wide,), functions=()), rule_of(below=294)
    )
    assert found is Mark.SKIP
    assert "scatter" in sentence


def test_one_phase() -> None:
    assert said(405.0, rule_of(good=100, bad=200), phase="touch")[0] is Mark.GOOD
    with pytest.raises(SpecError, match="no phase nonsense"):
        said(405.0, rule_of(good=100, bad=200), phase="nonsense")


@pytest.mark.parametrize(
    "result",
    [
        BOOT_FAILURE,
        records.failed(Outcome.SKIP, "no such system call"),
        replace(counted(264.0), outcome=Outcome.INVALID, reasons=("thp is always",)),
    ],
)
def test_what_cannot_be_compared_is_skipped_with_the_reason(result: TrialResult) -> None:
    found, sentence = said(result, rule_of(below=300))
    assert found is Mark.SKIP
    assert result.reason in sentence


@pytest.mark.parametrize(
    "values",
    [
        {}, {"good": 1.0}, {"bad": 1.0}, {"good": 1.0, "bad": 1.0}, {"good": 0.0, "bad": 1.0},
        {"below": -1.0}, {"below": 1.0, "above": 1.0}, {"good": 1.0, "bad": 2.0, "below": 1.0},
    ],
)  # fmt: skip
def test_what_is_no_rule(values: dict[str, float]) -> None:
    with pytest.raises(SpecError):
        rule_of(**values)


def stored() -> RunRecord:
    trials = tuple(
        TrialRecord(
            index=at, round=0, arm=at, workload=records.WORKLOAD, scenario=records.SCENARIO,
            attempts=1, result=counted(value),
        )
        for at, value in enumerate((264.0, 330.0, 405.0))
    )  # fmt: skip
    return RunRecord(
        run_id="run", name="run", title="", seed=0, rounds=1, created="", kdelta_version="",
        study=spec.from_text(records.STUDY, "study.toml"), trials=trials,
        arms=tuple(records.arm(at, f"6.{at}") for at in range(3)),
    )  # fmt: skip


def test_like_a_stored_run() -> None:
    rule = rule_of_run(stored(), SCENARIO, "total", "", "")
    assert rule.good == pytest.approx(264, abs=0.1)
    assert rule.bad == pytest.approx(405, abs=0.1)
    assert said(264.0, rule)[0] is Mark.GOOD
    named = rule_of_run(stored(), SCENARIO, "total", "6.1", "6.2")
    assert named.good == pytest.approx(330, abs=0.1)


@pytest.mark.parametrize(
    ("value", "handled", "wanted"),
    [
        (405.0, 4096, Mark.SKIP),
        (264.0, 4096, Mark.SKIP),
        (405.0, 8, Mark.BAD),  # a field of a structure
        (700.0, 4096, Mark.BAD),  # more, whatever a byte is worth
        (100.0, 4096, Mark.SKIP),
    ],
)
def test_what_copies_by_other_instructions_is_like_no_end(
    value: float, handled: int, wanted: Mark
) -> None:
    rule = rule_of_run(stored(), SCENARIO, "total", "", "")
    found, sentence = said(records.handling(counted(value), handled * records.PAGES), rule)
    assert found is wanted
    assert f"(string instructions: {handled:,} bytes)" in sentence
    assert ("bytes that string instructions copy" in sentence) is (wanted is Mark.SKIP)


def test_another_environment_stops_it() -> None:
    rule = rule_of_run(stored(), SCENARIO, "total", "", "")
    other = replace(records.ENVIRONMENT, qemu_version="7.2.22")
    result = records.result(records.Trial(per_page=264.0, environment=other))
    with pytest.raises(SpecError, match=r"must not be compared.*qemu_version"):
        said(result, rule)


def test_ends_of_a_run_that_do_not_differ_are_refused() -> None:
    with pytest.raises(SpecError, match="same value"):
        rule_of_run(stored(), SCENARIO, "touch", "", "")


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--nonsense"], ["mprotect:shared_dirty_full_toggle_64m", "--below", "x"],
        ["mprotect:shared_dirty_full_toggle_64m", "--kernel", "file:nowhere"],
        ["mprotect:no_such", "--below", "3", "--kernel", "file:nowhere"],
        ["mprotect:shared_dirty_full_toggle_64m", "--below", "3"],
        ["mprotect:shared_dirty_full_toggle_64m", "--below", "3", "--like-run", "x"],
    ],
)  # fmt: skip
def test_every_error_stops_git(
    tmp_path: Path,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ended(capsys, "bisect", "probe", *arguments)
    assert done.status == EXIT_STOP, done.err
    assert done.err.strip()


def test_a_source_that_does_not_build_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def unbuildable(*_: object) -> None:
        raise SourceError("linux@abc", first="mm/a.c:3: expected ;", log=Path("make.log"))

    monkeypatch.setattr("kdelta.cli.bisect._kernel", unbuildable)
    found = CliRunner().invoke(probe, [SCENARIO, "--kernel", "tree:.", "--below", "3"])
    assert found.exit_code == EXIT_STATUS[Mark.SKIP]
    assert found.output == "tree:.: skip: it does not build: mm/a.c:3: expected ;\n"


def test_a_bug_stops_git_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr("kdelta.cli.bisect.one_scenario", broken)
    found = CliRunner().invoke(probe, ["a:b", "--kernel", "x", "--below", "3"])
    assert getattr(found.exception, "exit_code", None) == EXIT_STOP


def test_git_reads_the_statuses_as_meant(tmp_path: Path) -> None:
    # Skips and answers lead git to the culprit; EXIT_STOP ends the bisection without one.
    repository = Repository(tmp_path / "linux")
    commits = repository.line([(f"c{at}", {"value": f"{at}\n"}) for at in range(12)])
    repository.git("reset", "-q", "--hard", "main")
    for code, found in (("125", True), (str(EXIT_STOP), False)):
        script = f'v=$(cat value); [ "$v" = 5 ] && exit {code}; [ "$v" -ge 8 ]; exit $((! $?))'
        repository.git("bisect", "start", "main", commits[0])
        done = subprocess.run(
            ["git", "bisect", "run", "sh", "-c", script],
            cwd=repository.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (f"{commits[8]} is the first bad commit" in done.stdout) is found
        repository.git("bisect", "reset")
