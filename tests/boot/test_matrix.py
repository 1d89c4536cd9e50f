# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines of a matrix as guests see them, a survey that is killed, and the audit of both."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from boot.command import Command, ended, until
from kdelta.journal.run import RunJournal
from kdelta.sample import TrialResult

pytestmark = pytest.mark.boot

STUDY = """\
name = "axes"
title = "what a guest is given"
scenarios = ["mincore:no_thp_pte_scan_4m"]
kernels = ["6.12", "6.17"]

[machine]
thp = "madvise"
hugepages_2m = 4

[matrix]
nodes = [1, 2]
preempt = ["full", "lazy"]
"""
PRESETS = """\
name = "presets"
title = "each preset of amd64"
scenarios = ["fault:anon"]
kernels = ["6.1", "7.1"]

[matrix]
cpu_model = ["everyday", "icelake", "zen3"]
"""
SURVEY = ("survey", "--only", "control:getppid", "--only", "unmap:munmap", "--kernels", "6.12,6.17")


def test_guests_get_every_point_and_say_so(command: Command, tmp_path: Path) -> None:
    (tmp_path / "axes.toml").write_text(STUDY)
    shown = command.run("run", str(tmp_path / "axes.toml"))
    record = RunJournal.open(command.folder()).record()
    results: dict[tuple[str, str], TrialResult] = {}
    for trial in record.trials:
        assert trial.result is not None
        arm = record.arms[trial.arm]
        results[arm.kernel.reference, arm.point] = trial.result
    for (kernel, point), result in results.items():
        if kernel == "6.12" and "lazy" in point:
            assert result.outcome == "skip"
            assert "preempt=lazy: the kernel offers only none, voluntary, full" in result.reason
            continue
        assert result.outcome == "ok", result.reason
        assert result.facts
        assert str(result.facts.seen.nodes) == point.split()[0].removeprefix("nodes=")
        assert result.facts.seen.preempt == point.split()[1].removeprefix("preempt=")
        assert result.facts.seen.thp == "madvise"
        pools = {field.value for field in result.state if field.name == "hugetlb_2m_total"}
        assert pools == {"4"}
    assert "nodes=2 preempt=full" in shown

    audit = command.run("audit", "latest")
    assert "all_cpu_match yes" in audit
    assert "completed 8/8 (2 skipped)" in audit


def test_a_machine_that_does_not_fit_starts_nothing(command: Command) -> None:
    text = command.run(
        *("run", "mincore:no_thp_pte_scan_4m", "--kernels", "6.17", "--memory-mib", "65536"),
        status=2,
    )
    assert "does not fit into this machine" in text
    assert not command.runs.exists()


def test_a_killed_survey_goes_on_and_ends_in_one_table(command: Command) -> None:
    process = command.start(*SURVEY)
    until(command.results)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = command.results()
    assert 1 <= len(kept) < 4
    text = ended(command.start(*SURVEY), 0)
    assert "resuming survey-" in text
    assert {**command.results(), **kept} == command.results()
    assert "control:getppid" in text
    assert "unmap:munmap" in text
    assert "above 5 % in 2 scenarios over 2 kernels" in text
    again = command.run("show", "latest", "--summary")
    assert again in text


def test_every_preset_is_the_cpu_that_it_names_and_clears_by_string_instruction(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "presets.toml").write_text(PRESETS)
    command.run("run", str(tmp_path / "presets.toml"))
    record = RunJournal.open(command.folder()).record()
    for trial in record.trials:
        assert trial.result is not None
        assert trial.result.outcome == "ok", trial.result.reason
        # A CPU whose REP is not taken for good clears pages in a loop, ten times as long.
        functions = {row.function for row in trial.result.exact.functions}
        assert any(name.startswith("rep stos") for name in functions), functions
    assert {arm.point for arm in record.arms} == {
        f"cpu_model={name}" for name in ("everyday", "icelake", "zen3")
    }


def test_a_preset_is_the_same_cpu_where_there_are_two(command: Command) -> None:
    """CPUID says then that there are several: no part of the CPU's name."""
    command.run("run", "control:getppid", "--kernels", "6.12,6.17", "--cpus", "2")
    for trial in RunJournal.open(command.folder()).record().trials:
        assert trial.result is not None
        assert trial.result.outcome == "ok", trial.result.reason
