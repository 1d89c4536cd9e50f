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
from kdelta.errors import (
    BootError,
    Cancelled,
    FullError,
    GuestError,
    InfraError,
    KdeltaError,
    TimeOutError,
)
from kdelta.guests import orders, session
from kdelta.guests.orders import Order
from kdelta.guests.qemu import Launch
from kdelta.guests.session import Guest, RestoreError
from kdelta.machine.axes import Lacking, MachineSettings

SETTINGS = MachineSettings()
LAUNCH = Launch(image=Path("bzImage"), initramfs=Path("initramfs"))
IDENTITY = Order("identity")


def boot(
    folder: Path,
    behaviour: str,
    *told: Order,
    cancelled: threading.Event | None = None,
    program: Path | None = None,
) -> Guest:
    launch = replace(LAUNCH, orders=told, program=program)
    return Guest(fake_qemu.install(folder, behaviour), SETTINGS, launch, cancelled=cancelled)


def failed(guest: Guest, error: type[Exception], cause: str, wait_s: float = 10) -> Exception:
    """How its orders end."""
    with guest, pytest.raises(error, match=cause) as caught:
        guest.finish(wait_s)
    return caught.value


def test_orders_and_answers(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF" + bytes(300_000))
    told = (IDENTITY, Order("seed 3"), orders.run(["--protocol", "x"]))
    with boot(tmp_path, "obeys", *told, program=program) as guest:
        answers = guest.finish(10)
        greeting = guest.greeting()
    assert answers.identity(SETTINGS).release == "6.17.13+deb13-cloud-amd64"
    assert answers.ran() == ("took 300004, --protocol x\n", 5)
    assert greeting == answers.identity(SETTINGS)


def test_a_guest_that_has_answered_is_not_waited_for(tmp_path: Path) -> None:
    with boot(tmp_path, "stays", IDENTITY) as guest:
        assert guest.finish(10).identity(SETTINGS).release
        assert not guest.has_ended


def test_the_command_can_be_read_with_its_orders(tmp_path: Path) -> None:
    with boot(tmp_path, "obeys", IDENTITY, orders.run(["a"])) as guest:
        guest.finish(10)
    command, *told = guest.command_text.splitlines()
    assert command.startswith(str(tmp_path))
    assert told == ["# identity", "# run a"]


def test_an_order_that_fails_is_the_last(tmp_path: Path) -> None:
    refused = Order("write /sys/x refused", lambda status: f"errno {status}")
    failed(boot(tmp_path, "obeys", refused, orders.run([])), Lacking, "errno 22")


def test_no_symbols_is_the_guests_fault(tmp_path: Path) -> None:
    cause = "cannot do 'kallsyms': No such file"
    failed(boot(tmp_path, "obeys", Order("kallsyms")), GuestError, cause)


@pytest.mark.parametrize(
    ("behaviour", "error", "cause"),
    [
        ("truncates", GuestError, "QEMU ended with exit status 0"),
        ("lies", GuestError, "QEMU ended with exit status 0"),
        ("hangs", TimeOutError, r"\Atimed out after 1 s \(--timeout\): "),
        ("stops", InfraError, "the guest did not do its orders: QEMU was stopped"),
        ("old", GuestError, "another protocol"),
        ("resets", BootError, "exit status 0: last console line: something else"),
        ("terminated", InfraError, "QEMU was ended by signal 15; somebody did"),
        ("killed", InfraError, "ended by signal 9; is memory short"),
        ("refuses", InfraError, "-plugin: invalid option.*kdelta doctor"),
    ],
)
def test_whose_fault_an_end_is(
    tmp_path: Path, behaviour: str, error: type[KdeltaError], cause: str
) -> None:
    wait_s = 1 if behaviour in ("hangs", "stops") else 10
    failed(boot(tmp_path, behaviour, IDENTITY), error, cause, wait_s)


def test_a_guest_without_a_greeting_times_out(tmp_path: Path) -> None:
    began = time.monotonic()
    cause = r"\Atimed out after 1 s \(--timeout\): the console is empty"
    failed(boot(tmp_path, "deaf"), BootError, cause, 1)
    assert time.monotonic() - began < 5


def test_a_guest_that_got_no_cpu_is_this_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_MOST_PATIENCE", 2)
    monkeypatch.setattr(process, "_denied_s", lambda _pid: time.monotonic())
    cause = r"QEMU had to wait \d s for a CPU; this machine is too busy"
    failed(boot(tmp_path, "deaf"), InfraError, cause, 1)


def test_a_panic_is_quoted_and_the_console_kept(tmp_path: Path) -> None:
    guest = boot(tmp_path, "panics", IDENTITY)
    found = failed(guest, BootError, "exit status 0: Kernel panic - not syncing: no init")
    assert isinstance(found, BootError)
    assert found.console == ("[1.0] Kernel panic - not syncing: no init\n[1.1] ---\n")
    assert guest.console_text == found.console


def test_what_a_panic_comes_of_is_quoted_before_it() -> None:
    console = (
        "[1.0] kernel BUG at mm/mincore.c:38!\n[1.0] Oops: invalid opcode: 0000 [#1]\n"
        "[1.1] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\n"
    )
    assert session._reason(console) == "kernel BUG at mm/mincore.c:38!"


def test_garbage_on_the_console_is_bounded_and_printable(tmp_path: Path) -> None:
    found = failed(boot(tmp_path, "garbles", IDENTITY), BootError, "the end")
    assert isinstance(found, BootError)
    text = found.console
    assert len(text) < (1 << 20) + 100
    assert "bytes left out here]" in text
    assert all(char.isprintable() or char in "\n\t" for char in text)


@pytest.mark.parametrize("behaviour", ["floods", "shouts"])
def test_endless_output_neither_fills_memory_nor_blocks(tmp_path: Path, behaviour: str) -> None:
    began = time.monotonic()
    guest = boot(tmp_path, behaviour, IDENTITY)
    failed(guest, GuestError, "the guest wrote more than 80 MiB", 20)
    assert time.monotonic() - began < 12
    assert len(guest.console_text) < (1 << 20) + 100


@pytest.mark.parametrize(
    ("behaviour", "error", "cause"),
    [
        ("does not take it", RestoreError, "load of migration failed"),
        ("refuses", InfraError, "-plugin: invalid option"),
        ("cannot write", FullError, "is the disk full"),
        ("has no register", InfraError, "a register cannot be read"),
    ],
)
def test_a_checkpoint_is_at_fault_only_where_qemu_does_not_take_it(
    tmp_path: Path, behaviour: str, error: type[InfraError], cause: str
) -> None:
    """Checkpoints were thrown away and made again for a disk of runs that was full."""
    (tmp_path / "state").touch()
    launch = replace(LAUNCH, restore=tmp_path, orders=(IDENTITY,))
    guest = Guest(fake_qemu.install(tmp_path, behaviour), SETTINGS, launch)
    assert type(failed(guest, InfraError, cause)) is error


def test_a_restored_guest_greets_nobody(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    launch = replace(LAUNCH, restore=tmp_path, orders=(IDENTITY,))
    with Guest(fake_qemu.install(tmp_path, "obeys"), SETTINGS, launch) as guest:
        assert guest.finish(10).identity(SETTINGS).seen.cpus == 1


def test_a_guest_whose_memory_no_longer_fits_its_disk(tmp_path: Path) -> None:
    """Its memory is a file only while it is to be saved; what SIGBUS means else nobody can say."""
    emulator = fake_qemu.install(tmp_path, "out of its file")
    for save, told in ((tmp_path, "the disk is full; free some space"), (None, "signal 7")):
        launch = replace(LAUNCH, save=save, orders=(IDENTITY,))
        found = failed(Guest(emulator, SETTINGS, launch), InfraError, told)
        assert isinstance(found, FullError) is bool(save)


def test_cancelling_ends_the_wait(tmp_path: Path) -> None:
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    with boot(tmp_path, "deaf", cancelled=cancelled) as guest, pytest.raises(Cancelled):
        guest.finish(30)


def test_leaving_ends_the_process_and_leaves_no_file_open(tmp_path: Path) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    with boot(tmp_path, "deaf") as guest:
        pid = guest._child.pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_missing_program(tmp_path: Path) -> None:
    emulator = fake_qemu.install(tmp_path, "obeys")
    emulator.program.unlink()
    launch = replace(LAUNCH, orders=(IDENTITY,))
    with pytest.raises(InfraError), Guest(emulator, SETTINGS, launch) as guest:
        guest.finish(10)


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
