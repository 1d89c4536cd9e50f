# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta run` and `kdelta resume` as far as nothing boots: what is refused, and how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import run_records
from command_line import ended
from kdelta.cli import run as execution
from kdelta.errors import InfraError
from kdelta.journal.run import RunJournal
from kdelta.sample import Outcome, TrialResult
from kdelta.study import spec

GOOD = "mincore:no_thp_pte_scan_4m"
WITHOUT_SCENARIOS = """
from kdelta.cli import main, run as execution
execution.check_scenarios = lambda study: None
main.main(["resume", "one"])
"""
STUDY = f"""\
name = "demo"
title = "A demo"
scenarios = ["{GOOD}"]
kernels = ["6.16", "6.17"]
"""


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KDELTA_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mincore:nothing", "--kernels", "6.16,6.17"], 'no scenario "nothing"'),
        (["nothing:at_all", "--kernels", "6.16,6.17"], 'unknown workload "nothing"'),
        (["munmap", "--kernels", "6.16"], "no such study or scenario; did you mean unmap:munmap?"),
        (["munmap:munmap", "--kernels", "6.16"], "did you mean unmap:munmap?"),
        (["mlock_page", "--kernels", "6.16"], "no such study or scenario"),
        ([GOOD], "a scenario needs kernels"),
        ([GOOD, "--kernels", ""], "kernels"),
        ([GOOD, "--kernels", "6.16,6.17", "--rounds", "0"], "rounds"),
        ([GOOD, "--kernels", "6.16,6.17", "--memory-mib", "1"], "memory_mib"),
        ([GOOD, "study.toml", "--kernels", "6.16"], "one study file, or scenarios only"),
        (["nothing.toml"], "nothing.toml"),
        ([GOOD, "--kernels", "file:/nothing,file:/nowhere"], "/nothing"),
    ],
)
def test_wrong_input_is_one_sentence_and_makes_no_run(
    arguments: list[str], sentence: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = ended(capsys, "run", *arguments)
    assert (done.status, sentence in done.err) == (2, True), done.err
    assert not runs.exists()


def test_a_study_with_a_wrong_key_names_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "demo.toml"
    study.write_text(STUDY + "[machine]\ncpu = 2\n")
    done = ended(capsys, "run", study)
    assert done.status == 2
    assert str(study) in done.err
    assert "cpu" in done.err
    study.write_text(STUDY.replace(GOOD, "mincore:nothing"))
    done = ended(capsys, "run", study)
    assert (done.status, 'no scenario "nothing"' in done.err) == (2, True)


def test_no_run_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    done = ended(capsys, "resume")
    assert (done.status, "there are no runs yet" in done.err) == (2, True)


def test_a_run_that_another_process_executes(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kdelta.cli import run as command

    journal = RunJournal.create(runs / "one", run_records.new_run(run_id="one"))
    monkeypatch.setattr(command, "check_scenarios", lambda _study: None)
    monkeypatch.setattr(command, "_resolved", lambda _study, references: [None for _ in references])
    monkeypatch.setattr("kdelta.run.arms.check_same", lambda _record, _kernels: None)
    monkeypatch.setattr("kdelta.run.exact.bench_of", lambda *_, **__: None)
    monkeypatch.setattr("kdelta.run.exact.ExactTrials", lambda *_, **__: None)
    with journal.executing():
        done = ended(capsys, "resume", "one")
    assert done.status == 3
    assert f"run one is being executed by process {os.getpid()}" in done.err


def test_scenarios_that_keep_to_base_pages_are_named_where_mthp_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenarios = [
        "mprotect:anon_toggle_4m", "mprotect:anon_toggle_4m.64K", "mincore:mthp_64k_scan_4m",
    ]  # fmt: skip
    study = spec.from_arguments(scenarios, ["6.16", "6.17"])
    execution.check_scenarios(study)
    execution.check_scenarios(spec.with_settings(study, mthp="64kB=never"))
    assert capsys.readouterr().err == ""
    execution.check_scenarios(spec.with_settings(study, mthp="64kB=always"))
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(
        "note: mprotect:anon_toggle_4m keeps to base pages whatever mthp is;"
        " in folios it is mprotect:anon_toggle_4m.64K"
    )
    assert said.count("note: ") == 1


def test_a_finished_run_is_only_answered(runs: Path) -> None:
    folder = runs / "one"
    journal = RunJournal.create(folder, run_records.new_run(run_id="one"))
    run_records.execute(journal)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SCENARIOS], capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"Everything of this run: {folder}" in " ".join(done.stdout.split())


def test_a_run_of_which_all_failed_is_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "the program ended with status 1: it failed"
    lost = TrialResult(outcome=Outcome.PROGRAM_ERROR, reasons=(said,))
    journal = RunJournal.create(runs / "one", run_records.new_run(run_id="one"))
    with journal.executing():
        for trial in journal.pending():
            journal.claim(trial.index)
            journal.finish(trial.index, lost)
    with pytest.raises(InfraError, match=f"^all [0-9]+ trials failed: {said}; see "):
        execution.answer(journal)
    assert "12/12, 0 ok" in ended(capsys, "runs", "list", "--runs", str(runs)).out
