# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests, workloads and QEMUs that fail: each ends its own trial, says why, keeps the console."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from boot import lab
from boot.lab import Machine
from kdelta import workload
from kdelta.errors import BootError, GuestFault, InfraError, SpecError
from kdelta.guests import qemu
from kdelta.machine.axes import MachineSettings
from kdelta.run.counting import run_trial
from kdelta.sample import Outcome, TrialResult

pytestmark = pytest.mark.boot

MEBIBYTE = 1 << 20


def fail(machine: Machine, how: str, folder: Path, timeout_s: float = 60.0) -> TrialResult:
    """Run the workload `faulty` in a trial."""
    scenario = workload.load("mincore").scenarios[0]
    program = lab.PROGRAMS / "faulty.c"
    bench = machine.bench(timeout_s=timeout_s)
    return run_trial(bench, machine.kernel, structs.replace(scenario, name=how), program, folder)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("panic", "Kernel panic - not syncing: sysrq triggered crash"),
        ("reboot", "QEMU ended with exit status 0"),
        ("crash", "the workload ended with status 139 (as by SIGSEGV): it printed nothing"),
        (
            "memory",
            "the guest's memory ran out: the workload ended with status 137 (as by SIGKILL)",
        ),
        ("partial", 'the workload ended with status 3: "no newline at the end"'),
        ("garbage", "not printable ASCII"),
        ("silent", "the workload printed nothing"),
        ("unclosed", "the workload ended with status 3"),
    ],
)
def test_a_failing_guest_is_typed_and_explained(
    how: str, reason: str, machine: Machine, tmp_path: Path
) -> None:
    began = time.monotonic()
    result = fail(machine, how, tmp_path / "0000")
    assert time.monotonic() - began < 300  # not until the time of a hang is over
    own = how in ("partial", "silent", "unclosed")  # the end is the program's own
    assert result.outcome is (Outcome.PROGRAM_ERROR if own else Outcome.GUEST_ERROR)
    assert reason in result.reason
    assert not result.exact.phases
    assert (tmp_path / result.artifacts["command"].partition("/")[2]).is_file()


def test_the_console_of_a_panic_is_kept(machine: Machine, tmp_path: Path) -> None:
    result = fail(machine, "panic", tmp_path / "0000")
    assert result.artifacts["console"].endswith("0000/console.log")
    console = (tmp_path / "0000" / "console.log").read_text()
    assert "sysrq: Trigger a crash" in console
    assert "Call Trace" in console


@pytest.mark.parametrize("how", ["hang", "spin"])
def test_a_hanging_workload_ends_at_the_timeout(how: str, machine: Machine, tmp_path: Path) -> None:
    began = time.monotonic()
    result = fail(machine, how, tmp_path / "0000", timeout_s=5)
    assert 5 <= time.monotonic() - began < 200
    assert result.outcome is Outcome.TIME_OUT
    assert "timed out after 5 s (--timeout)" in result.reason


def test_endless_output_is_cut_off(machine: Machine, tmp_path: Path) -> None:
    result = fail(machine, "flood", tmp_path / "0000")
    assert result.outcome is Outcome.GUEST_ERROR
    assert "the program printed more than 64 MiB" in result.reason
    assert sum(path.stat().st_size for path in (tmp_path / "0000").iterdir()) < 64 * MEBIBYTE


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["0"] * 33, "an order has more than 32 arguments"),
        (["f" * 4096], "an order has 4095 bytes or more"),
    ],
)
def test_an_order_that_pid_1_cannot_pass_on_is_refused(
    arguments: list[str], reason: str, machine: Machine
) -> None:
    with pytest.raises(GuestFault, match=reason):
        machine.count(lab.PROGRAMS / "peek.c", *arguments)


def test_a_kernel_that_panics_at_boot(machine: Machine, tmp_path: Path) -> None:
    settings = MachineSettings(cmdline="rdinit=/nonexistent")
    result = fail(replace(machine, settings=settings), "silent", tmp_path / "0000")
    assert result.outcome is Outcome.BOOT_ERROR
    assert "Kernel panic - not syncing: VFS: Unable to mount root fs" in result.reason
    assert "Call Trace" in (tmp_path / "0000" / "console.log").read_text()


def test_an_image_with_a_damaged_payload(machine: Machine, tmp_path: Path) -> None:
    image = bytearray(machine.kernel.image.read_bytes())
    middle = len(image) // 2
    image[middle : middle + 4096] = bytes(4096)
    (tmp_path / "bzImage").write_bytes(image)
    broken = replace(machine, kernel=replace(machine.kernel, image=tmp_path / "bzImage"))
    with pytest.raises(BootError, match=r"timed out after 3 s \(--timeout\)"):
        broken.checkpoint(timeout=3)


def test_what_the_guest_did_not_get_is_invalid(machine: Machine, tmp_path: Path) -> None:
    small = replace(machine, settings=MachineSettings(cmdline="mem=700M"))
    load, scenario = workload.parse_reference("mincore:no_thp_pte_scan_4m")
    result = run_trial(small.bench(), small.kernel, scenario, load.program, tmp_path / "0000")
    assert result.outcome is Outcome.INVALID
    assert "asked for 1024" in result.reason


def test_a_plugin_that_does_not_load_is_this_machines_fault(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "insns.so"
    broken.write_bytes(b"\x7fELF and nothing more")
    saved = (machine.checkpoint().folder / "state").stat()  # needs no plugin
    monkeypatch.setattr(qemu, "plugin", lambda: broken)
    with pytest.raises(InfraError, match=r"insns\.so"):
        fail(machine, "silent", tmp_path / "0000")
    assert (machine.checkpoint().folder / "state").stat().st_ino == saved.st_ino


def test_a_kernel_that_cannot_have_the_cpu_model(machine: Machine) -> None:
    strange = replace(machine, settings=MachineSettings(cpu_model="nonsense"))
    with pytest.raises(InfraError, match="nonsense"):
        strange.checkpoint()


def test_a_cpu_that_this_qemu_has_not_is_refused_before_a_boot(machine: Machine) -> None:
    emulator = machine.bench().emulator
    qemu.check_cpu(emulator, MachineSettings(cpu_model="qemu64,+avx2"))
    for name, told in (
        ("nonsense", "has no CPU nonsense: unable to find"),
        ("qemu64,+avx512f,+avx2", r"write what it gives: qemu64,\+avx2;"),
    ):
        with pytest.raises(SpecError, match=told):
            qemu.check_cpu(emulator, MachineSettings(cpu_model=name))
