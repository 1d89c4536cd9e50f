# SPDX-License-Identifier: GPL-2.0-or-later
"""How many guests run at once, over threads and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kdelta.errors import Cancelled, InfraError
from kdelta.host import leases
from kdelta.machine.axes import MachineSettings

HOLD = """
import os, threading, time
from kdelta.host import leases
from kdelta.machine.axes import MachineSettings
with leases.lease_guest(MachineSettings(cpus=len(os.sched_getaffinity(0))), threading.Event()):
    print("held", flush=True)
    time.sleep(60)
"""
ONE = MachineSettings()
Machine = Callable[..., None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make this machine one of so many cores and so much available memory."""
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(leases, "_ROOT", tmp_path)

    def become(cores: int, mib: int) -> None:
        monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(cores)))
        text = f"MemTotal: 99999999 kB\nMemAvailable: {mib << 10} kB\n"
        (tmp_path / "proc/meminfo").write_text(text)

    return become


def waits(guest: MachineSettings, jobs: int | None = None) -> bool:
    """True when a guest finds no room."""
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    with suppress(Cancelled), leases.lease_guest(guest, cancelled, jobs):
        return False
    return True


def test_the_guests_at_work_are_as_many_as_fit(machine: Machine, tmp_path: Path) -> None:
    machine(8, 8192)
    assert leases.available_mib() == 8192
    assert leases.at_once([ONE]) == 6
    assert leases.at_once([MachineSettings(cpus=4)]) == 2
    assert leases.at_once([MachineSettings(cpus=4), ONE]) == 6
    assert leases.at_once([MachineSettings(cpus=16, memory_mib=65536)]) == 1
    (tmp_path / "proc/meminfo").write_text("nothing\n")
    assert leases.at_once([ONE]) == 1


def test_no_more_than_there_are_cores(machine: Machine) -> None:
    machine(2, 99999)
    inside, most = 0, 0
    mutex = threading.Lock()

    def work(_number: int) -> None:
        nonlocal inside, most
        with leases.lease_guest(ONE, threading.Event()):
            with mutex:
                inside += 1
                most = max(most, inside)
            time.sleep(0.1)
            with mutex:
                inside -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most == 2


def test_a_guest_takes_as_many_cores_as_it_has_cpus(machine: Machine) -> None:
    machine(4, 99999)
    with leases.lease_guest(MachineSettings(cpus=2), threading.Event()):
        assert not waits(MachineSettings(cpus=2))
        assert waits(MachineSettings(cpus=3))
        with leases.lease_guest(ONE, threading.Event()):
            assert waits(MachineSettings(cpus=2))
            assert not waits(MachineSettings(cpus=2), jobs=3), "-j: whatever cores there are"


def test_guests_of_different_memory_do_not_take_more_than_there_is(machine: Machine) -> None:
    machine(8, 6000)
    with leases.lease_guest(MachineSettings(memory_mib=4096), threading.Event()):
        assert waits(MachineSettings(memory_mib=2048))
        machine(8, 1400)  # what runs has used its memory: what is left is what nobody was given
        assert not waits(ONE)
        with leases.lease_guest(ONE, threading.Event()):
            assert waits(MachineSettings(memory_mib=256))


def test_memory_that_others_took_meanwhile_is_not_given(machine: Machine) -> None:
    machine(8, 6000)
    with leases.lease_guest(ONE, threading.Event()):
        machine(8, 1000)
        assert waits(ONE)


def test_what_is_larger_than_the_machine_runs_alone(machine: Machine) -> None:
    machine(2, 1000)
    with leases.lease_guest(MachineSettings(cpus=16, memory_mib=65536), threading.Event()):
        assert waits(MachineSettings(memory_mib=256))


def test_a_large_guest_comes_to_its_turn(machine: Machine) -> None:
    machine(2, 99999)
    ended = threading.Event()

    def small() -> None:
        while not ended.is_set():
            with suppress(Cancelled), leases.lease_guest(ONE, ended):
                time.sleep(0.05)

    with ThreadPoolExecutor(3) as pool:
        busy = [pool.submit(small) for _ in range(3)]
        began = time.monotonic()
        with leases.lease_guest(MachineSettings(cpus=2), threading.Event()):
            waited = time.monotonic() - began
        ended.set()
        for one in busy:
            one.result(10)
    assert waited < 10


def test_another_process_counts_is_told_and_may_be_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert waits(ONE)
        assert not caplog.text
        monkeypatch.setattr(leases, "_SILENT_S", 0.0)
        assert waits(ONE)
        told = f"waiting for room for a guest, which kdelta process {other.pid} has"
        assert caplog.messages == [told]
        other.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, other.pid, os.WSTOPPED)
        assert waits(ONE)
        again = f"{told}; stopped is {other.pid}: kill -CONT {other.pid} lets it go on"
        assert caplog.messages == [told, again]
        other.send_signal(signal.SIGKILL)
    began = time.monotonic()
    with leases.lease_guest(ONE, threading.Event()):
        assert time.monotonic() - began < 2


def test_an_unusable_cache_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with (
        pytest.raises(InfraError, match="the cache cannot be"),
        leases.lease_guest(ONE, threading.Event()),
    ):
        pass
