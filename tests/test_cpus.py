# SPDX-License-Identifier: GPL-2.0-or-later
"""Leased CPUs: which ones, and that nobody else has them meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kdelta import cache
from kdelta.errors import Cancelled, InfraError, SpecError
from kdelta.host import leases

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
    assert [core.housekeeping for core in found] == [False, False, False, True]


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


def test_single_core_machine_leases_it(host: Host) -> None:
    with leases.lease_cpus(1, NEVER, host((0,))) as leased:
        assert leased == (0,)


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
            assert (cache.root() / "locks" / f"core-{theirs}.lock").exists()
            late = threading.Event()
            threading.Timer(0.3, late.set).start()
            with pytest.raises(Cancelled), leases.lease_cpus(len(best), late, tmp_path):
                pytest.fail("the other process has one of them")
        finally:
            other.send_signal(signal.SIGKILL)
    with leases.lease_cpus(1, NEVER, tmp_path) as leased:
        assert leased == (theirs,)


def test_unwritable_cache_is_an_error_of_this_machine(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InfraError, match="the cache cannot be written"):
        leases.lease_cpus(1, NEVER, host((0,))).__enter__()
