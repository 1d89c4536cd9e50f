# SPDX-License-Identifier: GPL-2.0-or-later
"""What of this machine a guest and a timed trial hold, and when it is free again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kdelta import cache
from kdelta.errors import Cancelled, InfraError, SpecError
from kdelta.host import leases
from kdelta.machine.axes import MachineSettings

HOLD_GUEST = """
import os, threading, time
from kdelta.host import leases
from kdelta.machine.axes import MachineSettings
with leases.lease_guest(MachineSettings(cpus=len(os.sched_getaffinity(0)) + 1), threading.Event()):
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
    with pytest.raises(InfraError, match="/proc/meminfo says no MemTotal"):
        leases.memory_mib()


def test_one_more_than_there_are_cores(machine: Machine) -> None:
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
    assert most == 3


def test_a_guest_takes_as_many_cores_as_it_has_cpus(machine: Machine) -> None:
    machine(4, 99999)
    with leases.lease_guest(MachineSettings(cpus=2), threading.Event()):
        assert not waits(MachineSettings(cpus=2))
        assert waits(MachineSettings(cpus=4))
        with leases.lease_guest(MachineSettings(cpus=2), threading.Event()):
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
    with subprocess.Popen([sys.executable, "-c", HOLD_GUEST], stdout=subprocess.PIPE) as other:
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


def test_a_cache_that_cannot_be_written_lends_to_this_process(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(1, 8192)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/kdelta")
    with leases.lease_guest(ONE, threading.Event()):
        assert not waits(ONE)
        with leases.lease_guest(ONE, threading.Event()):
            assert waits(ONE)


NEVER = threading.Event()
Host = Callable[..., Path]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Makes a root directory with a topology, on which this process may use all CPUs."""

    def make(*threads: Sequence[int], isolated: str = "", mine: Sequence[int] = ()) -> Path:
        every = {cpu for core in threads for cpu in core}
        folder = tmp_path / "root/sys/devices/system/cpu"
        for core in threads:
            for cpu in core:
                topology = folder / f"cpu{cpu}/topology"
                topology.mkdir(parents=True)
                (topology / "core_cpus_list").write_text(",".join(map(str, core)) + "\n")
        (folder / "isolated").write_text(isolated + "\n")
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(mine) or every)
        return tmp_path / "root"

    return make


def names(found: Sequence[leases.Core]) -> list[int]:
    return [core.cpu for core in found]


def test_threads_of_a_core_are_one_core_and_cpu_0_comes_last(host: Host) -> None:
    found = leases.cores(host((0, 4), (1, 5), (2, 6), (3, 7)))
    assert [core.threads for core in found] == [(1, 5), (2, 6), (3, 7), (0, 4)]
    assert names(found) == [1, 2, 3, 0]
    assert [0 in core.threads for core in found] == [False, False, False, True]


def test_isolated_cores_come_first(host: Host) -> None:
    root = host((0,), (1,), (2,), (3,), isolated="2-3")
    found = leases.cores(root, allowed=range(4))
    assert names(found) == [2, 3, 1, 0]
    assert [core.isolated for core in found] == [True, True, False, False]


def test_half_isolated_core_is_not_isolated(host: Host) -> None:
    assert not any(
        core.isolated for core in leases.cores(host((0, 2), (1, 3), isolated="3"), range(4))
    )


def test_only_allowed_cpus_are_used_but_siblings_are_known(host: Host) -> None:
    found = leases.cores(host((0, 4), (1, 5), mine=[5]))
    assert [(core.cpu, core.threads) for core in found] == [(5, (1, 5))]


def test_machine_that_tells_no_topology(tmp_path: Path) -> None:
    assert [core.threads for core in leases.cores(tmp_path, allowed=[0, 1])] == [(1,), (0,)]


def test_isolated_cpus_are_taken_although_nobody_starts_with_them(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under isolcpus=2,3: every process begins with 0 and 1, and may ask for more."""
    root = host((0,), (1,), (2,), (3,), isolated="2-3")
    asked: dict[int, set[int]] = {}
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda _, mask: asked.update({threading.get_ident(): set(mask)})
    )
    mine = {0, 1}
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _: asked.get(threading.get_ident(), mine) & {0, 1, 2, 3}
    )
    assert names(leases.cores(root)) == [2, 3, 1, 0]
    mine = {1}  # the user's own choice
    assert names(leases.cores(root)) == [1]


def test_cpu_0_is_left_alone_while_others_suffice(host: Host) -> None:
    found = leases.cores(host((0,), (1,), (2,)))
    assert names(leases.eligible(found, 2)) == [1, 2]
    assert names(leases.eligible(found, 3)) == [1, 2, 0]
    with pytest.raises(
        SpecError, match=r"4 CPUs are wanted.* there are 3 cores; ask for at most 3"
    ):
        leases.eligible(found, 4)


def test_leases_of_threads_never_overlap(host: Host) -> None:
    root = host((0, 8), (1, 9), (2, 10), (3, 11))
    running: list[int] = []
    clashes: list[int] = []
    finished: list[int] = []
    guard = threading.Lock()

    def work(count: int) -> None:
        for _ in range(5):
            with leases.lease_cpus(count, NEVER, root) as leased:
                with guard:
                    clashes.extend(cpu for cpu in leased if cpu in running)
                    running.extend(leased)
                assert len(set(leased)) == count
                time.sleep(0.002)
                with guard:
                    for cpu in leased:
                        running.remove(cpu)
        finished.append(count)

    threads = [threading.Thread(target=work, args=(count,)) for count in (1, 2, 3, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(finished) == [1, 1, 2, 3]
    assert not clashes
    assert not running


def test_lease_shares_the_machine(host: Host) -> None:
    root = host((0,), (1,), (2,))
    with leases.lease_cpus(1, NEVER, root) as first, leases.lease_cpus(1, NEVER, root) as second:
        assert (first, second) == ((1,), (2,))
    with leases.lease_cpus(2, NEVER, root) as both:
        assert both == (1, 2)


def test_waiting_ends_when_cancelled_and_gives_back_what_it_had(host: Host) -> None:
    root = host((0,), (1,), (2,))
    cancelled = threading.Event()
    with leases.lease_cpus(1, NEVER, root):
        threading.Timer(0.2, cancelled.set).start()
        with pytest.raises(Cancelled), leases.lease_cpus(2, cancelled, root):
            pytest.fail("the second core was never free")
        with leases.lease_cpus(1, NEVER, root) as leased:
            assert leased == (2,)


HOLD = """
import sys, threading, time
from pathlib import Path
from kdelta.host import leases
with leases.lease_cpus(1, threading.Event(), Path(sys.argv[1])) as leased:
    print(*leased, flush=True)
    time.sleep(60)
"""


def test_lease_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    """Real processes on this machine's real CPUs."""
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            theirs = int(other.stdout.readline())
            best = leases.eligible(leases.cores(tmp_path), 1)
            assert theirs == best[0].cpu
            assert (cache.lease_place() / f"core-{theirs}.lock").exists()
            late = threading.Event()
            threading.Timer(0.3, late.set).start()
            with pytest.raises(Cancelled), leases.lease_cpus(len(best), late, tmp_path):
                pytest.fail("the other process has one of them")
        finally:
            other.send_signal(signal.SIGKILL)
    with leases.lease_cpus(1, NEVER, tmp_path) as leased:
        assert leased == (theirs,)
