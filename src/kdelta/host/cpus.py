# SPDX-License-Identifier: GPL-2.0-or-later
"""CPUs leased to timed trials: no two of them, in any kdelta process of a user, share a core."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdelta.errors import SpecError
from kdelta.host import leases
from kdelta.procfs import cpu_list

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
    isolated = set(_listed(root / _CPUS / "isolated"))
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
def lease(
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
            leases.wait("cpus", turn, cancelled)
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
            if core.cpu not in taken and leases.take(f"core-{core.threads[0]}", held):
                taken.append(core.cpu)
        if len(taken) < count:
            leases.pause(cancelled)


def _listed(path: Path) -> tuple[int, ...]:
    try:
        return cpu_list(path.read_text().strip())
    except OSError:
        return ()


def _siblings(root: Path, cpu: int) -> tuple[int, ...]:
    """The hardware threads of a CPU's core; itself alone where the kernel does not tell."""
    topology = root / _CPUS / f"cpu{cpu}" / "topology"
    for name in ("core_cpus_list", "thread_siblings_list"):  # the second: before Linux 5.3
        threads = _listed(topology / name)
        if cpu in threads:
            return threads
    return (cpu,)


def _usable(isolated: Collection[int]) -> set[int]:
    """The CPUs that this process has, and the isolated ones that it could have.

    isolcpus= takes CPUs out of everybody's set; a user who chose a set with taskset keeps it.
    """
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
