# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest's process and its channels, against a program that plays QEMU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import fake_qemu
from kdelta import process
from kdelta.errors import BootError, Cancelled, GuestError, InfraError
from kdelta.guests.qemu import Launch
from kdelta.guests.session import Guest, RestoreError
from kdelta.machine.axes import MachineSettings

SETTINGS = MachineSettings()
LAUNCH = Launch(image=Path("bzImage"), initramfs=Path("initramfs"))


def boot(folder: Path, behaviour: str, cancelled: threading.Event | None = None) -> Guest:
    return Guest(fake_qemu.install(folder, behaviour), SETTINGS, LAUNCH, cancelled=cancelled)


def test_orders_and_answers(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF" + bytes(300_000))
    with boot(tmp_path, "serves") as guest:
        assert guest.wait_ready(10) is True
        assert not guest.speaks_serial
        assert guest.identity(10).release == "6.17.13+deb13-cloud-amd64"
        assert guest.run(program, ["--protocol", "x"], 10) == ("took 300004, --protocol x\n", 5)
        assert guest.identity(10).seen.cpus == 1


def test_no_symbols_is_the_guests_fault(tmp_path: Path) -> None:
    with boot(tmp_path, "serves") as guest, pytest.raises(GuestError, match="KALLSYMS"):
        guest.kallsyms(10)


def test_a_guest_without_a_greeting_times_out(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        boot(tmp_path, "deaf") as guest,
        pytest.raises(BootError, match=r"did not greet within 1 s: the console is empty"),
    ):
        guest.wait_ready(1)
    assert time.monotonic() - began < 5


def test_a_panic_is_quoted_and_the_console_kept(tmp_path: Path) -> None:
    with boot(tmp_path, "panics") as guest, pytest.raises(BootError) as caught:
        guest.wait_ready(10)
    assert "exit status 0: Kernel panic - not syncing: no init" in caught.value.cause
    assert caught.value.console == ("[1.0] Kernel panic - not syncing: no init\n[1.1] ---\n")


def test_without_a_reason_the_last_line_is_quoted(tmp_path: Path) -> None:
    with (
        boot(tmp_path, "resets") as guest,
        pytest.raises(BootError, match="last console line: something else"),
    ):
        guest.wait_ready(10)


def test_garbage_on_the_console_is_bounded_and_printable(tmp_path: Path) -> None:
    with boot(tmp_path, "garbles") as guest, pytest.raises(BootError, match="the end") as caught:
        guest.wait_ready(10)
    text = caught.value.console
    assert len(text) < (1 << 20) + 100
    assert "bytes left out here]" in text
    assert all(char.isprintable() or char in "\n\t" for char in text)


@pytest.mark.parametrize("behaviour", ["floods", "shouts"])
def test_endless_output_neither_fills_memory_nor_blocks(tmp_path: Path, behaviour: str) -> None:
    began = time.monotonic()
    with boot(tmp_path, behaviour) as guest:
        guest.wait_ready(10)
        expected = "sent more than 64 MiB" if behaviour == "floods" else "within 2 s"
        with pytest.raises(GuestError, match=expected):
            guest.ask("identity", 20 if behaviour == "floods" else 2)
    assert time.monotonic() - began < 12
    assert len(guest.console_text) < (1 << 20) + 100


def test_a_refused_option_is_this_machines_fault(tmp_path: Path) -> None:
    with (
        boot(tmp_path, "refuses") as guest,
        pytest.raises(InfraError, match="-plugin: invalid option") as caught,
    ):
        guest.wait_ready(10)
    assert "kdelta doctor" in caught.value.action


def test_a_checkpoint_that_qemu_refuses_is_told_from_its_other_faults(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.touch()
    launch = replace(LAUNCH, restore=state)
    with (
        Guest(fake_qemu.install(tmp_path, "refuses"), SETTINGS, launch) as guest,
        pytest.raises(RestoreError, match="-plugin: invalid option"),
    ):
        guest.identity(10)


def test_a_killed_qemu_is_this_machines_fault(tmp_path: Path) -> None:
    with (
        boot(tmp_path, "killed") as guest,
        pytest.raises(InfraError, match="ended by signal 9"),
    ):
        guest.wait_ready(10)


def test_a_pid_1_of_another_kdelta(tmp_path: Path) -> None:
    with boot(tmp_path, "old") as guest, pytest.raises(GuestError, match="another protocol"):
        guest.wait_ready(10)


def test_cancelling_ends_the_wait(tmp_path: Path) -> None:
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    with boot(tmp_path, "deaf", cancelled) as guest, pytest.raises(Cancelled):
        guest.wait_ready(30)


def test_leaving_ends_the_process(tmp_path: Path) -> None:
    with boot(tmp_path, "deaf") as guest:
        pid = guest._child.pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_a_missing_program(tmp_path: Path) -> None:
    emulator = fake_qemu.install(tmp_path, "serves")
    emulator.program.unlink()
    with pytest.raises(InfraError), Guest(emulator, SETTINGS, LAUNCH) as guest:
        guest.wait_ready(10)


@pytest.mark.skipif(process.which("setpriv") is None, reason="util-linux is not installed")
def test_no_guest_outlives_a_killed_caller(tmp_path: Path) -> None:
    """The caller is killed at once: often before the guest could ask to end with it."""
    script = f"""if True:
        import os, signal, sys
        from kdelta import process
        process.start(["sleep", "61", {str(tmp_path)!r}], die_with_caller=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    for _ in range(10):
        subprocess.run([sys.executable, "-c", script], check=False, timeout=30)
    time.sleep(0.3)
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if names(path, tmp_path)]
    assert left == []


def names(cmdline: Path, folder: Path) -> bool:
    try:
        return os.fsencode(folder) in cmdline.read_bytes()
    except OSError:
        return False
