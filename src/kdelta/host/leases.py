# SPDX-License-Identifier: GPL-2.0-or-later
"""CPUs and memory of this machine, leased over all kdelta processes of this user.

No two timed trials share a core.  A guest holds the CPUs and the memory that it was given, so that
guests of different sizes take no more than there is.  A lease is a locked file: it is free again
however its holder ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kdelta import cache
from kdelta.errors import Cancelled, SpecError
from kdelta.files import write_aside
from kdelta.host.facts import text_of
from kdelta.locks import BusyError
from kdelta.machine.axes import MachineSettings
from kdelta.procfs import cpu_list, lock_holders, meminfo, process_state

_POLL_S = 0.05


def _take(name: str, held: ExitStack) -> bool:
    """Hold a lock until `held` is left; False when another process has it."""
    try:
        held.enter_context(cache.locked(name, timeout=0))
    except BusyError:
        return False
    return True


def _wait(name: str, held: ExitStack, cancelled: threading.Event) -> None:
    while not _take(name, held):
        _pause(cancelled)


def _pause(cancelled: threading.Event) -> None:
    if cancelled.wait(_POLL_S):
        raise Cancelled


_CPUS = "sys/devices/system/cpu"
_HOUSEKEEPER = 0  # takes most interrupts and timers of a machine that was not told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """One core.

    threads: all its hardware threads, ascending; cpu: the one a trial runs on, the others stay
    unused meanwhile; isolated: the scheduler puts nothing on it by itself.
    """

    threads: tuple[int, ...]
    cpu: int
    isolated: bool

    @property
    def housekeeping(self) -> bool:
        """CPU 0 is one of its threads."""
        return _HOUSEKEEPER in self.threads


def cores(root: Path = Path("/"), allowed: Collection[int] | None = None) -> tuple[Core, ...]:
    """The cores that a trial may have, best first: isolated ones, the housekeeping one last.

    root: where /sys is; allowed: CPUs to choose from (those that this process may use and, unless
    the user has restricted it, the isolated ones).
    """
    isolated = set(cpu_list(text_of(root / _CPUS / "isolated")))
    usable = _usable(isolated) if allowed is None else allowed
    found: dict[tuple[int, ...], Core] = {}
    for cpu in sorted(usable):
        threads = _siblings(root, cpu)
        core = Core(threads=threads, cpu=cpu, isolated=isolated.issuperset(threads))
        found.setdefault(threads, core)
    return tuple(sorted(found.values(), key=lambda c: (c.housekeeping, not c.isolated, c.threads)))


def eligible(found: Sequence[Core], count: int) -> tuple[Core, ...]:
    """Those of the cores that a lease of `count` chooses from.

    The housekeeping core is among them only when the others are too few, so that with one core
    more than that a trial never meets the machine's interrupts.  Raises SpecError when even all
    are too few.
    """
    quiet = tuple(core for core in found if not core.housekeeping)
    if len(quiet) >= count:
        return quiet
    if len(found) >= count:
        return tuple(found)
    raise SpecError(
        f"{count} CPUs are wanted, each on a core of its own, and there are {len(found)} cores",
        action=f"ask for at most {len(found)}",
    )


@contextmanager
def lease_cpus(
    count: int, cancelled: threading.Event, root: Path = Path("/")
) -> Iterator[tuple[int, ...]]:
    """Hold `count` CPUs, each on a core of its own whose other threads are held with it; wait.

    A core is a locked file: it is free again however its holder ends.  Who waits for several
    gathers them in turn, so that neither two of them wait for each other nor one starves.
    Raises Cancelled when `cancelled` is set while waiting, SpecError when there are too few cores.
    """
    choice = eligible(cores(root), count)
    with ExitStack() as held:
        with ExitStack() as turn:
            _wait("cpus", turn, cancelled)
            cpus = _gather(choice, count, held, cancelled)
        yield cpus


def _gather(
    choice: Sequence[Core], count: int, held: ExitStack, cancelled: threading.Event
) -> tuple[int, ...]:
    taken: list[int] = []
    while True:
        for core in choice:
            if len(taken) == count:
                return tuple(taken)
            if core.cpu not in taken and _take(f"core-{core.threads[0]}", held):
                taken.append(core.cpu)
        if len(taken) < count:
            _pause(cancelled)


def _siblings(root: Path, cpu: int) -> tuple[int, ...]:
    """The hardware threads of a CPU's core; itself alone where the kernel does not tell."""
    topology = root / _CPUS / f"cpu{cpu}" / "topology"
    for name in ("core_cpus_list", "thread_siblings_list"):  # the second: before Linux 5.3
        threads = cpu_list(text_of(topology / name))
        if cpu in threads:
            return threads
    return (cpu,)


def _usable(isolated: Collection[int]) -> set[int]:
    """Its CPUs and the isolated ones, unless its user chose a set with taskset."""
    mine = os.sched_getaffinity(0)
    permitted = _permitted() if isolated else mine
    untouched = mine == permitted - set(isolated)
    return permitted if untouched else mine


def _permitted() -> set[int]:
    """The CPUs that this process's cpuset allows, found out by a thread that asks for all."""
    answer: list[set[int]] = []

    def ask() -> None:
        with contextlib.suppress(OSError):  # then the set it has is the answer
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        answer.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return answer[0]


log = logging.getLogger(__name__)

QEMU_MIB = 300  # what QEMU itself takes beside the guest's memory
_ROOT = Path("/")
_PROC = Path("/proc")
_NAME = "guest-{cpus}-{mib}-{number}"  # a held lock, which says what its guest takes
_SILENT_S = 10.0  # of waiting for other processes
_SIZE = re.compile(r"guest-(\d+)-(\d+)-\d+")


def at_once(guests: Iterable[MachineSettings]) -> int:
    """How many guests a run should have at work: as many of the smallest as fit; at least 1."""
    free, cores = available_mib(), _cores()
    sizes = ((guest.cpus, guest.memory_mib + QEMU_MIB) for guest in guests)
    return max(1, *(min(cores // cpus, free // mib) for cpus, mib in sizes))


def available_mib() -> int:
    """MemAvailable of /proc/meminfo in MiB."""
    return meminfo(_ROOT).get("MemAvailable", 0) >> 10


def memory_mib() -> int:
    """MemTotal of /proc/meminfo in MiB."""
    return meminfo(_ROOT).get("MemTotal", 0) >> 10


@contextmanager
def lease_guest(
    guest: MachineSettings, cancelled: threading.Event, jobs: int | None = None
) -> Iterator[None]:
    """Hold what a guest takes of this machine; wait for it.

    jobs: run so many guests of this size at once although there are fewer cores.  A guest that is
    larger than the machine runs alone.  Who waits is served in turn, so that a large guest comes
    to it.  What is held is free again however its holder ends.  Raises Cancelled when `cancelled`
    is set while waiting.
    """
    cores = max(_cores(), (jobs or 0) * guest.cpus)
    mib = guest.memory_mib + QEMU_MIB
    with ExitStack() as held:
        with ExitStack() as turn:
            _wait("guests", turn, cancelled)
            tell = time.monotonic() + _SILENT_S
            while cancelled.is_set() or not _fits(guest.cpus, cores, mib):
                if time.monotonic() > tell and (said := _others()):
                    log.warning("waiting for room for a guest, which %s", said)
                    tell = float("inf")
                _pause(cancelled)
            names = (_NAME.format(cpus=guest.cpus, mib=mib, number=n) for n in count())
            next(name for name in names if _take(name, held))
        yield


def _fits(cpus: int, cores: int, mib: int) -> bool:
    sizes = [_SIZE.fullmatch(name) for name in cache.held("guest-")]
    running = [(int(size[1]), int(size[2])) for size in sizes if size]
    budget = cache.root() / "locks" / "guests.mib"  # what was available when none ran
    if not running:
        with cache.writing(budget):
            write_aside(budget, str(available_mib()).encode())
        return True
    most = available = available_mib()
    with suppress(OSError, ValueError):
        most = int(budget.read_text())
    return (
        cpus + sum(taken for taken, _ in running) <= cores
        and mib + sum(taken for _, taken in running) <= most
        and mib <= available
    )


def _others() -> str:
    places = (cache.root() / "locks").glob("guest-*.lock")
    holders = lock_holders(_PROC, places) - {os.getpid()}
    stopped = {pid for pid in holders if process_state(_PROC, pid) == "T"}
    if not holders:
        return ""
    named = ", ".join(map(str, sorted(holders)))
    words = f"kdelta process {named} has" if len(holders) == 1 else f"kdelta processes {named} have"
    if stopped:
        again = " ".join(map(str, sorted(stopped)))
        words += f"; stopped is {again}: kill -CONT {again} lets it go on"
    return words


def _cores() -> int:
    return len(os.sched_getaffinity(0))
