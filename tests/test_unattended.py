# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta resume --install-resume` on a machine that boots whatever it is told to: it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kdelta.cli.main import main
from kdelta.errors import InfraError
from kdelta.host import facts, reboot
from kdelta.journal.run import RunJournal
from kdelta.run.timed import HostTrials
from kdelta.sample import HostFacts, Outcome, TrialRecord, TrialResult

STUDY = """\
name = "two-kernels"
title = "Two kernels of this host"
instrument = "time"
scenarios = ["mincore:no_thp_pte_scan_4m"]
kernels = ["host:6.1", "host:6.12"]
[plan]
seed = 2
[time]
replicate = "boot"
sandwich = false
"""
MANY = 20


@dataclass
class Machine:
    """A host of two kernels; what it is told is done at once."""

    release: str = "6.1"
    unit: str = ""  # the release that the installed unit expects
    boots: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)

    def facts(self, **_: object) -> HostFacts:
        return HostFacts(release=self.release, boot_id=f"boot-{len(self.boots)}")

    def install(self, _command: Sequence[str], *, expected: str) -> None:
        self.unit = expected

    def remove(self) -> None:
        self.unit = ""

    def boot(self, release: str) -> None:
        self.release = release
        self.boots.append(release)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine()
    monkeypatch.delenv(reboot.EXPECTED, raising=False)
    monkeypatch.setattr(facts, "read", one.facts)
    monkeypatch.setattr(reboot, "installed", lambda: ("6.1", "6.12"))
    monkeypatch.setattr(reboot, "next_boot_commands", lambda _: ("reboot",))
    monkeypatch.setattr(reboot, "install_resume", one.install)
    monkeypatch.setattr(reboot, "remove_resume", one.remove)
    monkeypatch.setattr(reboot, "boot_once", one.boot)
    return one


def kdelta(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def left_alone(machine: Machine, runs: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Begin and let the machine's unit go on; the last exit status."""
    study = runs.parent / "study.toml"
    study.write_text(STUDY)
    kdelta("run", study, "--runs", runs)
    status = kdelta("resume", "--install-resume", "--runs", runs)
    while machine.unit and len(machine.boots) < MANY:
        monkeypatch.setenv(reboot.EXPECTED, machine.unit)
        status = kdelta("resume", "--install-resume", "--runs", runs)
    return status


def test_two_kernels_that_fail_do_not_boot_each_other_for_ever(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_trials: HostTrials, _trial: TrialRecord, *_: object) -> TrialResult:
        machine.tried.append(machine.release)
        raise InfraError("the fan is broken")

    monkeypatch.setattr(HostTrials, "measure", measure)
    assert left_alone(machine, tmp_path / "runs", monkeypatch) == 1
    assert len(machine.boots) <= 2, machine.boots
    assert set(machine.tried) == {"6.1", "6.12"}, "each had its turn"
    (folder,) = (path.parent for path in (tmp_path / "runs").glob("*/run.json"))
    results = [trial.result for trial in RunJournal.open(folder).record().trials]
    assert [one.outcome for one in results if one] == [Outcome.INFRA_ERROR] * 2
    assert machine.unit == ""


def test_a_machine_that_falls_over_in_a_trial_is_left_alone_in_the_end(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCutError(BaseException):
        """Ends a process without any of its clean-up."""

    def measure(_trials: HostTrials, _trial: TrialRecord, *_: object) -> TrialResult:
        raise PowerCutError

    monkeypatch.setattr(HostTrials, "measure", measure)
    runs = tmp_path / "runs"
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(PowerCutError):
        main(["run", str(tmp_path / "study.toml"), "--runs", str(runs)])
    monkeypatch.setenv(reboot.EXPECTED, "6.1")
    again = ["resume", "--install-resume", "--runs", str(runs)]
    falls = 0
    while falls < MANY:
        try:
            main(again)
        except PowerCutError:
            machine.boot("6.1")
            falls += 1
        except SystemExit as ended:
            assert ended.code == 3  # noqa: PT017
            break
    assert falls == 3
    monkeypatch.delenv(reboot.EXPECTED)
    with pytest.raises(PowerCutError):  # the user may try again
        main(again)


def test_progress_begins_the_count_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reboot.EXPECTED, "6.1")
    file = tmp_path / "boots.json"
    for ended in (0, 0, 0, 1, 1, 1, 2):
        reboot.check_progress(file, ended)
    reboot.check_progress(file, 2)
    reboot.check_progress(file, 2)
    with pytest.raises(InfraError, match="3 boots in a row of this machine have ended no trial"):
        reboot.check_progress(file, 2)
