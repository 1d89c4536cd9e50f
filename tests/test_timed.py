# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs timed on this host, and the trials of the time instrument."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from command_line import ended
from kdelta import arch, guest, output, process, workload
from kdelta.errors import Cancelled, GuestError, InfraError, SpecError
from kdelta.host import facts, leases, native
from kdelta.run import arms
from kdelta.run.timed import HostTrials, Timing, check_here, time_here
from kdelta.sample import Outcome, StateField, TrialRecord, TrialResult
from kdelta.study import plan, spec
from kernel_tree import script

NEVER = threading.Event()
HOST = next((a for a in arch.ARCHES.values() if a.uname == os.uname().machine), None)


def run(program: Path, *arguments: str, timeout: float = 20.0) -> process.Completed:
    cpu = max(os.sched_getaffinity(0))
    return native.run(program, arguments, (cpu,), timeout=timeout, cancelled=NEVER)


def test_program_runs_on_the_leased_cpu_only(tmp_path: Path) -> None:
    program = script(tmp_path / "program", "grep Cpus_allowed_list /proc/self/status")
    with leases.lease_cpus(1, NEVER) as leased:
        done = native.run(program, [], leased, timeout=20, cancelled=NEVER)
    assert done.stdout.split() == ["Cpus_allowed_list:", str(leased[0])]
    assert done.returncode == 0


def test_environment_is_same_for_everyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDELTA_LONG", "x" * 5000)
    seen = run(script(tmp_path / "program", "env | sort; pwd")).stdout.splitlines()
    seen = [each for each in seen if not each.startswith(("PWD", "_=", "SHLVL"))]
    assert seen == ["LC_ALL=C", "PATH=/usr/bin:/bin", "/"]


def test_workload_is_told_tree_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDELTA_WORKLOAD_TREE", "/a tree")
    monkeypatch.setenv("KDELTA_WORKLOAD_OTHER", "x")
    program = script(
        tmp_path / "program", 'echo "<$KDELTA_WORKLOAD_TREE> <$KDELTA_WORKLOAD_OTHER>"'
    )
    assert run(program).stdout == "</a tree> <>\n"


def test_arguments_status_and_errors_come_back(tmp_path: Path) -> None:
    done = run(script(tmp_path / "program", 'echo "$1|$2"; echo bad >&2; exit 77'), "a b", "$HOME")
    assert (done.stdout, done.stderr, done.returncode) == ("a b|$HOME\n", "bad\n", 77)
    assert done.argv[-3:] == (str(tmp_path / "program"), "a b", "$HOME")


def test_signal_is_a_status_above_128(tmp_path: Path) -> None:
    assert run(script(tmp_path / "program", "kill -SEGV $$")).returncode == 139


def test_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    program = script(tmp_path / "program", "sleep 60 & echo $$; exec >&- 2>&-; wait")
    begun = time.monotonic()
    with pytest.raises(GuestError, match="program did not end within 0 s"):
        run(program, timeout=0.3)
    assert time.monotonic() - begun < 10
    assert not process.run(["pgrep", "-f", str(program)], timeout=10, check=False).stdout


def test_program_that_prints_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_MAX_OUTPUT", 1 << 20)
    with pytest.raises(GuestError, match="program printed more than 1 MiB"):
        run(script(tmp_path / "program", "exec yes"))


def test_errors_without_end_are_cut(tmp_path: Path) -> None:
    done = run(script(tmp_path / "program", "yes | head -c 1000000 >&2; echo done"))
    assert done.stdout == "done\n"
    assert len(done.stderr) < 200_000


def test_cancelling_ends_the_program(tmp_path: Path) -> None:
    program = script(tmp_path / "program", "exec sleep 60")
    cpus = (max(os.sched_getaffinity(0)),)
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        native.run(program, [], cpus, timeout=60, cancelled=cancelled)
    assert time.monotonic() - begun < 10


def test_program_that_is_no_program(tmp_path: Path) -> None:
    done = run(tmp_path / "nothing")
    assert done.returncode == 127
    assert "nothing" in done.stderr


def test_machine_without_coreutils(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "program", "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match="env is not installed"):
        run(program)


@pytest.mark.program
@pytest.mark.skipif(HOST is None, reason="no guest architecture is this machine's")
def test_real_workload_speaks_the_protocol_here() -> None:
    assert HOST is not None
    mincore, scenario = workload.parse_reference("mincore:no_thp_pte_scan_4m")
    program = guest.program(mincore.program, arch.of(HOST.debian))
    done = run(program, *scenario.arguments(iterations=3, warmup=1))
    reading = output.parse_output(done.stdout, mincore, scenario)
    assert reading.exit_code == done.returncode
    assert done.returncode in (0, 1)  # 1: an ordinary user cannot audit the pages
    if done.returncode == 0:
        assert len(reading.samples) == 3
        assert all(sample.nanoseconds > 0 for sample in reading.samples)


TRIAL = TrialRecord(
    index=0, round=0, arm=0, workload="mprotect", scenario="shared_dirty_full_toggle_16m"
)


def study(text: str = "") -> spec.Study:
    head = 'name = "t"\ntitle = "t"\ninstrument = "time"\n'
    return spec.from_text(
        f'{head}scenarios = ["mprotect:single_protect"]\nkernels = ["host"]\n{text}', "t.toml"
    )


TIMING = Timing(study=study("[time]\niterations = 3\nwarmup = 1"))


def timed(folder: Path) -> TrialResult:
    load, scenario = workload.parse_reference("mprotect:shared_dirty_full_toggle_16m")
    with leases.lease_cpus(1, TIMING.cancelled) as leased:
        return time_here(TIMING, load, scenario, leased, folder)


@pytest.mark.program
def test_a_trial_on_this_host_yields_raw_samples_and_what_the_machine_was(tmp_path: Path) -> None:
    result = timed(tmp_path / "trials" / "0000")
    if os.geteuid() != 0:
        assert result.outcome is Outcome.SKIP
        pytest.skip(result.reason)
    assert result.outcome in (Outcome.OK, Outcome.INVALID), result.reason
    assert [phase.phase for phase in result.timed.phases] == ["protect", "restore", "touch"]
    assert all(len(phase.nanoseconds) == 3 for phase in result.timed.phases)
    assert all(phase.operations == 4096 for phase in result.timed.phases)
    assert not result.exact.phases
    assert not result.exact.functions
    assert result.facts
    assert result.facts.boot_id == facts.read().boot_id
    assert result.kernel is not None
    assert result.kernel.release == facts.read().release
    assert set(result.artifacts) == {"command", "workload"}


@pytest.mark.program
def test_the_machine_is_told_as_it_was_before_the_trial(tmp_path: Path) -> None:
    result = timed(tmp_path / "trials" / "0000")
    if result.outcome is Outcome.SKIP:
        pytest.skip(result.reason)
    assert result.facts
    assert result.facts.host
    assert result.facts.host.release == os.uname().release
    assert result.facts.host.seen.memory_mib
    assert result.facts.workload_exit == 0
    assert all(isinstance(doubt, str) for doubt in result.facts.doubts)


@pytest.mark.program
@pytest.mark.parametrize(
    ("user", "values", "outcome", "reason"),
    [
        (0, ["unknown"], Outcome.INVALID, "is unknown"),
        (1000, ["unknown"], Outcome.SKIP,
         "^only root may read the page state that this scenario needs: "),
        (1000, ["unknown", "7"], Outcome.INVALID, ""),
    ],
)  # fmt: skip
def test_a_state_that_is_wrong_or_cannot_be_read_is_no_number(
    user: int, values: list[str], outcome: Outcome, reason: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def failures(reading: output.Reading) -> tuple[StateField, ...]:
        return tuple(replace(reading.state[0], value=value) for value in values)

    judge = SimpleNamespace(**{**vars(output), "contract_failures": failures})
    monkeypatch.setattr("kdelta.run.trial.output", judge)
    monkeypatch.setattr("os.geteuid", lambda: user)
    result = timed(tmp_path / "trials" / "0000")
    assert result.outcome is outcome, result.reason
    assert re.search(reason, result.reason)
    assert bool(result.timed.phases) is (outcome is not Outcome.SKIP)


@pytest.mark.program
def test_a_trial_tells_how_long_it_took(tmp_path: Path) -> None:
    trials = HostTrials(TIMING, ["host"])
    result = trials.measure(TRIAL, tmp_path / "trials" / "0000")
    assert result.wall_s > 0
    if result.outcome is Outcome.SKIP:
        pytest.skip(result.reason)
    windows = sum(sum(phase.nanoseconds) for phase in result.timed.phases)
    assert 0 < windows / 1e9 < result.wall_s < 60


@pytest.mark.parametrize(
    ("kernels", "sentence"),
    [
        (["host:6.18.1", "host:6.17.2"],
         r't: kernels: host:6\.17\.2 is not .* \(6\.18\.1-amd64\); .* "host": --on lab\.toml'),
        (["host:6.18.1"], "t: time.replicate: kdelta does not reboot this host for a trial;"),
    ],
)  # fmt: skip
def test_what_needs_a_boot_of_this_host_is_refused_and_leaves_no_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kernels: list[str],
    sentence: str,
) -> None:
    running = replace(facts.read(), release="6.18.1-amd64")
    monkeypatch.setattr(facts, "read", lambda **_: running)
    here = spec.with_settings(study('[time]\nreplicate = "boot"\n'), kernels=kernels)
    (tmp_path / "study.toml").write_text(spec.to_toml(here))
    done = ended(capsys, "run", tmp_path / "study.toml", "--runs", tmp_path / "runs")
    assert done.status == 2
    assert re.search(sentence, done.err)
    assert not (tmp_path / "runs").exists()


def test_the_running_kernel_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    running = replace(facts.read(), release="6.18.1-amd64")
    monkeypatch.setattr(facts, "read", lambda **_: running)
    check_here(study(), ["host:6.18.1", "host"])
    with pytest.raises(SpecError, match="is not the kernel that this host runs"):
        check_here(study(), ["host:6.18.2"])


def test_a_sandwich_opens_with_the_first_arm_and_closes_with_the_control() -> None:
    aa = study("[plan]\nrounds = 4\n")
    assert [trial.arm for trial in plan.make_plan(aa, 1)] == [0, 1] * 4
    named = arms.records(aa, None)
    assert [(arm.label, arm.control) for arm in named] == [("host", False), ("host again", True)]
    assert arms.planned(aa) == ("host", "host")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[time]\nmachine = "tcg"\n', "evidence of nothing"),
        ("[time]\nsandwich = false\n", "compares nothing"),
    ],
)
def test_what_cannot_be_timed_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        study(text)


def test_archive_kernels_cannot_be_timed_on_the_host() -> None:
    with pytest.raises(SpecError, match="not a kernel that this host can run"):
        spec.with_settings(study(), kernels=["6.17", "6.18"])
    with pytest.raises(SpecError, match="need a boot for each trial"):
        spec.with_settings(study(), kernels=["host", "host:6.18"])
