# SPDX-License-Identifier: GPL-2.0-or-later
"""CPUs and memory of this machine, leased over all kdelta processes of this user.

No two timed trials share a core.  A guest holds the CPUs and the memory that it was given, so that
guests of different sizes take no more than there is.  A lease is a locked file: it is free again
however its holder ends.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kdelta import cache
from kdelta.errors import Cancelled, InfraError, SpecError
from kdelta.files import write_aside
from kdelta.host.facts import text_of
from kdelta.locks import BusyError, is_stopped, lock_holders
from kdelta.machine.axes import MachineSettings
from kdelta.procfs import cpu_list, meminfo

_POLL_S = 0.05


def _take(name: str, held: ExitStack) -> bool:
    try:
        held.enter_context(cache.locked(name, 0, cache.lease_place()))
    except BusyError:
        return False
    return True


@contextmanager
def _turn(name: str, cancelled: threading.Event) -> Iterator[None]:
    """Hold a lock that others of kdelta wait for, too, in turn.  Raises Cancelled."""
    with ExitStack() as held:
        while not _take(name, held):
            _pause(cancelled)
        yield


def _pause(cancelled: threading.Event) -> None:
    if cancelled.wait(_POLL_S):
        raise Cancelled


_CPUS = "sys/devices/system/cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A core.  threads: all its hardware threads, ascending; cpu: a trial's, the others stay
    unused; isolated: the scheduler puts nothing on it by itself.  The housekeeping core is that of
    CPU 0, which takes most interrupts.
    """

    threads: tuple[int, ...]
    cpu: int
    isolated: bool


def cores(root: Path = Path("/"), allowed: Collection[int] | None = None) -> tuple[Core, ...]:
    """The cores that a trial may have: isolated ones first, the housekeeping one last.  root: of
    /sys; allowed: CPUs, by default this process's and those isolated ones that it may take.
    """
    isolated = set(cpu_list(text_of(root / _CPUS / "isolated")))
    usable = _usable(isolated) if allowed is None else allowed
    found: dict[tuple[int, ...], Core] = {}
    for cpu in sorted(usable):
        topology = root / _CPUS / f"cpu{cpu}" / "topology"
        files = ("core_cpus_list", "thread_siblings_list")  # the second: before Linux 5.3
        told = (cpu_list(text_of(topology / name)) for name in files)
        threads = next((each for each in told if cpu in each), (cpu,))
        core = Core(threads=threads, cpu=cpu, isolated=isolated.issuperset(threads))
        found.setdefault(threads, core)
    return tuple(sorted(found.values(), key=lambda c: (0 in c.threads, not c.isolated, c.threads)))


def eligible(found: Sequence[Core], count: int) -> tuple[Core, ...]:
    """Those that a lease of `count` chooses from.  The housekeeping core, which has the machine's
    interrupts, is one only when the others are too few.  Raises SpecError.
    """
    quiet = tuple(core for core in found if 0 not in core.threads)
    if len(quiet) >= count:
        return quiet
    if len(found) >= count:
        return tuple(found)
    cause = f"{count} CPUs are wanted, each on a core of its own, and there are {len(found)} cores"
    raise SpecError(cause, action=f"ask for at most {len(found)}")


@contextmanager
def lease_cpus(
    count: int, cancelled: threading.Event, root: Path = Path("/")
) -> Iterator[tuple[int, ...]]:
    """Hold `count` CPUs, each on a core of its own; wait, in turn, so that nobody starves.  A core
    is a locked file, free again however its holder ends.  Raises Cancelled, SpecError for too few
    cores.
    """
    choice = eligible(cores(root), count)
    with ExitStack() as held:
        with _turn("cpus", cancelled):
            cpus = _gather(choice, count, held, cancelled)
        yield cpus


def _gather(
    choice: Sequence[Core], count: int, held: ExitStack, cancelled: threading.Event
) -> tuple[int, ...]:
    taken: list[int] = []
    while True:
        for core in choice:
            if core.cpu not in taken and _take(f"core-{core.threads[0]}", held):
                taken.append(core.cpu)
            if len(taken) == count:
                return tuple(taken)
        _pause(cancelled)


def _usable(isolated: Collection[int]) -> set[int]:
    """Its CPUs and the isolated ones, unless its user chose a set with taskset."""
    mine = os.sched_getaffinity(0)
    if not isolated:
        return mine

    def permitted() -> set[int]:  # by its cpuset: what a thread gets that asks for all
        with suppress(OSError):  # then the set it has is the answer
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        return os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as thread:
        allowed = thread.submit(permitted).result()
    return allowed if mine == allowed - set(isolated) else mine


log = logging.getLogger(__name__)

QEMU_MIB = 300  # what QEMU itself takes beside the guest's memory
_ROOT = Path("/")
_NAME = "guest-{cpus}-{mib}-{number}"  # a held lock, which says what its guest takes
_SILENT_S = 10.0  # of waiting for other processes
_MORE = 1  # cores than there are: while one guest starts or ends it leaves its own to others
_SIZE = re.compile(r"guest-(\d+)-(\d+)-\d+")


def at_once(guests: Iterable[MachineSettings]) -> int:
    """How many guests a run should have at work: as many of the smallest as fit; at least 1."""
    free, cores = available_mib(), len(os.sched_getaffinity(0)) + _MORE
    sizes = ((guest.cpus, guest.memory_mib + QEMU_MIB) for guest in guests)
    return max(1, *(min(cores // cpus, free // mib) for cpus, mib in sizes))


def available_mib() -> int:
    """MemAvailable of /proc/meminfo in MiB."""
    return meminfo(_ROOT).get("MemAvailable", 0) >> 10


def memory_mib() -> int:
    """MemTotal of /proc/meminfo in MiB.  Raises InfraError without one."""
    if not (found := meminfo(_ROOT).get("MemTotal", 0)):
        raise InfraError("/proc/meminfo says no MemTotal", action="mount -t proc proc /proc")
    return found >> 10


@contextmanager
def lease_guest(
    guest: MachineSettings, cancelled: threading.Event, jobs: int | None = None
) -> Iterator[None]:
    """Hold what a guest takes of this machine; wait for it, in turn.  jobs: so many of this size at
    once, whatever cores there are.  One larger than the machine runs alone.  Raises Cancelled.
    """
    cores = max(len(os.sched_getaffinity(0)) + _MORE, (jobs or 0) * guest.cpus)
    mib = guest.memory_mib + QEMU_MIB
    with ExitStack() as held:
        with _turn("guests", cancelled):
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
    place = cache.lease_place()
    sizes = [_SIZE.fullmatch(name) for name in cache.held("guest-", place)]
    running = [(int(size[1]), int(size[2])) for size in sizes if size]
    budget = place / "guests.mib"  # what was available when none ran
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
    places = cache.lease_place().glob("guest-*.lock")
    holders = lock_holders(places) - {os.getpid()}
    stopped = sorted(filter(is_stopped, holders))
    named, again = ", ".join(map(str, sorted(holders))), " ".join(map(str, stopped))
    words = f"kdelta processes {named} have" if holders else ""
    words = f"kdelta process {named} has" if len(holders) == 1 else words
    return words + f"; stopped is {again}: kill -CONT {again} lets it go on" * bool(stopped)
