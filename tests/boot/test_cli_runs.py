# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole runs through the command line: failures beside good trials, interrupts, broken disks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from boot import lab
from boot.command import Command, ended, until
from kdelta import cache, data, workload
from kdelta.journal.run import RUNS, RunJournal
from kdelta.run.counting import run_trial
from kdelta.run.exact import ExactTrials
from kdelta.run.runner import AS_PLANNED, How, Runner
from kdelta.sample import TrialRecord, TrialResult

pytestmark = pytest.mark.boot

GOOD = "mincore:no_thp_pte_scan_4m"
KERNELS = ("--kernels", "6.16,6.17")
ONE_KERNEL = ("--kernels", "6.17")
MANY = ("run", GOOD, "mincore:no_thp_pte_scan_64m", *KERNELS, "--rounds", "3")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    workloads = tmp_path / "workloads"
    workloads.mkdir()
    for folder in (data.directory("workloads"), lab.PROGRAMS):
        for path in folder.iterdir():
            if folder != lab.PROGRAMS or path.stem == "faulty":
                (workloads / path.name).symlink_to(path)
    return Command(tmp_path / "runs", workloads)


def record(command: Command) -> list[TrialResult | None]:
    return [trial.result for trial in RunJournal.open(command.folder()).record().trials]


def outcomes(command: Command) -> list[str]:
    return sorted(str(result.outcome) if result else "none" for result in record(command))


def test_failures_do_not_stop_others(command: Command) -> None:
    text = command.run("run", GOOD, "faulty:panic", *KERNELS, status=1)
    assert outcomes(command) == ["guest-error"] * 2 + ["ok"] * 2
    assert "Kernel panic - not syncing: sysrq triggered crash" in " ".join(text.split())
    consoles = list(command.runs.glob("*/trials/*/console.log"))
    assert any("sysrq triggered crash" in path.read_text() for path in consoles)
    command.no_guests()


def test_a_guest_that_hangs_is_given_up(command: Command) -> None:
    text = command.run("run", "faulty:hang", *KERNELS, "--timeout", "20", status=3)
    assert outcomes(command) == ["time-out"] * 2
    assert "timed out after 20 s (--timeout)" in " ".join(text.split())
    command.no_guests()


def counted(command: Command, *arguments: str) -> tuple[str, Path, list[TrialResult]]:
    """What `kdelta run` says, the newest run, and its results by kernel and round."""
    said = command.run("run", GOOD, *KERNELS, "--rounds", "2", *arguments)
    folder = RUNS.find(command.runs, "latest")
    trials = RunJournal.open(folder).record().trials
    ordered = sorted(trials, key=lambda trial: (trial.arm, trial.round))
    return said, folder, [trial.result for trial in ordered if trial.result]


def test_nothing_is_counted_twice(command: Command) -> None:
    command.environment["KDELTA_RESULTS_MIB"] = "64"
    said, _, new = counted(command, "--again")
    assert "from the store" not in said
    assert not any(result.stored for result in new)
    said, folder, old = counted(command)
    assert "4 of 4 trials from the store" in said
    whole = command.run("show", "latest", "--details")
    assert "4 of 4 trials are from the store, " in " ".join(whole.split())
    assert all(result.stored for result in old)
    assert [result.data for result in old] == [result.data for result in new]
    # What asks for more needs nothing of the run that counted.
    assert all((folder / path).is_file() for each in old for path in each.artifacts.values())
    said, _, again = counted(command, "--again")
    assert "from the store" not in said
    assert [result.data for result in again] == [result.data for result in new]


class OneFails(ExactTrials):
    """Trial 2 runs another program than was planned."""

    def measure(self, trial: TrialRecord, folder: Path, _how: How = AS_PLANNED) -> TrialResult:
        if trial.index != 2:
            return super().measure(trial, folder)
        scenario = workload.parse_reference(GOOD)[1]
        bench, kernel = lab.machine("6.17").bench(), lab.kernel("6.17")
        return run_trial(bench, kernel, scenario, lab.PROGRAMS / "faulty.c", folder)


def test_one_failure_of_four_reads_3_of_4(command: Command) -> None:
    planned(command, "--rounds", "4", *KERNELS)
    journal = RunJournal.open(command.folder())
    trials = OneFails(lab.machine("6.17").bench(), [lab.kernel("6.16"), lab.kernel("6.17")])
    with journal.executing():
        Runner(journal, trials, lambda _event: None).run(2)
    assert outcomes(command) == ["ok"] * 7 + ["program-error"]
    text = command.run("show", "latest")
    assert " 3/4 " in text
    assert " 4/4 " in text
    assert "the workload ended with status 3" in text


def planned(command: Command, *arguments: str) -> None:
    """Leave a run with every trial still to do."""
    process = command.start("run", GOOD, *arguments)
    until(lambda: list(command.runs.glob("*/run.json")))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert command.results() == {}


def test_kill_loses_nothing_and_leaves_no_guest(command: Command) -> None:
    process = command.start(*MANY)
    until(lambda: len(command.results()) >= 2 and command.guests())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    command.no_guests()
    kept = command.results()
    assert 2 <= len(kept) < 12
    # Again, at the very moment when a guest appears.
    process = command.start("resume")
    until(command.guests)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    command.no_guests()
    text = command.run("resume")
    assert outcomes(command) == ["ok"] * 12
    assert {name: content for name, content in command.results().items() if name in kept} == kept
    assert " 3/3 " in text


def test_an_interrupt_stops_cleanly_and_resumes(command: Command) -> None:
    process = command.start(*MANY)
    until(lambda: len(command.results()) >= 1 and command.guests())
    os.kill(process.pid, signal.SIGINT)
    text = ended(process, 130)
    assert f"go on with: kdelta resume {command.folder().name}" in " ".join(text.split())
    assert "Traceback" not in text
    command.no_guests()
    kept = command.results()
    # The same command goes on, too.
    text = command.run(*MANY)
    assert f"resuming {command.folder().name}" in text
    assert outcomes(command) == ["ok"] * 12
    assert {name: content for name, content in command.results().items() if name in kept} == kept


def test_one_study_twice_at_once_is_refused(command: Command) -> None:
    process = command.start(*MANY)
    until(command.guests)
    text = command.run(*MANY, status=3)
    assert f"is being executed by process {process.pid}" in text
    assert "Traceback" not in text
    ended(process, 0)
    assert outcomes(command) == ["ok"] * 12


def test_two_studies_at_once(command: Command) -> None:
    both = [
        command.start("run", f"mincore:no_thp_pte_scan_{size}", *KERNELS) for size in ("4m", "64m")
    ]
    for process in both:
        ended(process, 0)
    assert len(list(command.runs.iterdir())) == 2


def test_a_full_disk_keeps_what_is_finished(command: Command) -> None:
    """A small disk fills during the run; once it is larger, resuming finishes."""
    command.runs.mkdir()
    script = """
        mount -t tmpfs -o size=400k none "$KDELTA_RUNS" || exit 99
        "$@" run mincore:no_thp_pte_scan_4m --kernels 6.16,6.17 --rounds 4 -j 1; echo "first $?"
        ls "$KDELTA_RUNS"/*/trials/*/result.json | wc -l
        mount -o remount,size=64m "$KDELTA_RUNS" || exit 99
        "$@" resume; echo "second $?"
        """
    text = command.run(prefix=[*namespace("--mount"), "sh", "-c", script, "sh"])
    assert "the disk is full" in text or "is the disk full?" in text  # kdelta's file, or QEMU's
    assert "first 3" in text
    assert "second 0" in text
    assert " 4/4 " in text


def test_a_result_that_was_cut_short_is_told_and_measured_again(command: Command) -> None:
    command.run("run", GOOD, *KERNELS)
    path = command.folder() / "trials" / "0001" / "result.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert f"{path}: the file is damaged" in " ".join(command.run("show", "latest").split())
    command.run("resume")
    assert outcomes(command) == ["ok"] * 2


def test_offline_with_a_warm_cache(command: Command) -> None:
    for name in ("6.16", "6.17"):
        lab.kernel(name)
    text = command.run("run", GOOD, *KERNELS, prefix=namespace("--net"))
    assert outcomes(command) == ["ok"] * 2
    assert "SAME" in text


def test_offline_with_an_empty_cache(command: Command, tmp_path: Path) -> None:
    command.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    text = command.run("run", GOOD, *KERNELS, status=3, prefix=namespace("--net"))
    assert "Traceback" not in text
    assert "kdelta: " in text
    assert not command.runs.exists()


def test_a_cache_that_cannot_be_written(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    command.environment["XDG_CACHE_HOME"] = str(tmp_path / "file")
    image = lab.kernel("6.17").image
    text = command.run("run", GOOD, "--kernels", f"file:{image}", status=3)
    assert "the cache cannot be" in text
    assert "XDG_CACHE_HOME" in text
    assert "Traceback" not in text


def test_a_read_only_cache_serves_what_it_holds(command: Command) -> None:
    command.run("run", GOOD, *ONE_KERNEL, "--again")
    there = cache.root()
    (told,) = (path.read_text() for path in command.runs.glob("*/trials/*/command.txt"))
    assert not [path for path in (there, command.runs) if str(path) in told]
    script = f'mount --bind {there} {there} && mount -o remount,bind,ro {there} && exec "$@"'
    sealed = [*namespace("--mount"), "sh", "-c", script, "sh"]
    command.run("run", GOOD, *ONE_KERNEL, "--again", "--new", prefix=sealed)
    other = command.run("run", GOOD, *ONE_KERNEL, "--memory-mib", "999", status=3, prefix=sealed)
    assert f"{there}/locks/checkpoints-" in "".join(other.split())
    assert "the cache cannot be written: Read-only file system" in other


@pytest.mark.parametrize(
    ("size", "hole", "why"), [(5_000_000, 0, "truncated"), (None, 4096, "its payload is damaged")]
)
def test_an_image_that_is_not_whole_is_refused(
    command: Command, tmp_path: Path, size: int | None, hole: int, why: str
) -> None:
    content = bytearray(lab.kernel("6.17").image.read_bytes()[:size])
    content[5_000_000 : 5_000_000 + hole] = bytes(hole)
    image = tmp_path / "bzImage"
    image.write_bytes(content)
    text = command.run("run", GOOD, "--kernels", f"6.17,file:{image}", status=2)
    assert why in text
    assert str(image) in text


def test_results_of_two_qemus_that_passed_the_self_test_are_compared(command: Command) -> None:
    command.run("run", GOOD, *ONE_KERNEL, "--rounds", "2", "--qemu", lab.emulator().version)
    # The arm's second trial is lost, and made again with another QEMU.
    folder = command.folder()
    (folder / "trials" / "0001" / "result.json").unlink()
    text = command.run("resume", "--qemu", lab.other_emulator().version)
    assert outcomes(command) == ["ok"] * 2
    versions = {
        result.environment.qemu_version
        for result in record(command)
        if result and result.environment
    }
    assert len(versions) == 2
    assert "environments differ" not in text


def namespace(*kinds: str) -> list[str]:
    """unshare these kinds of namespaces; an ordinary user gets a user namespace as well."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, *kinds]
