# SPDX-License-Identifier: GPL-2.0-or-later
"""How many guests run at once on this machine, over all kdelta processes of this user.

A guest holds the CPUs and the memory that it was given: guests of different sizes share the machine
without taking more than there is.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from kdelta import cache
from kdelta.files import write_aside
from kdelta.host import leases
from kdelta.machine.axes import MachineSettings
from kdelta.procfs import lock_holders, meminfo, process_state

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
def lease(
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
            leases.wait("guests", turn, cancelled)
            tell = time.monotonic() + _SILENT_S
            while cancelled.is_set() or not _fits(guest.cpus, cores, mib):
                if time.monotonic() > tell and (said := _others()):
                    log.warning("waiting for room for a guest, which %s", said)
                    tell = float("inf")
                leases.pause(cancelled)
            names = (_NAME.format(cpus=guest.cpus, mib=mib, number=n) for n in count())
            next(name for name in names if leases.take(name, held))
        yield


def _fits(cpus: int, cores: int, mib: int) -> bool:
    """True when a guest has room beside those that run."""
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
    """In words, which other processes of kdelta have guests; "" for none."""
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
