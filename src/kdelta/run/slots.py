# SPDX-License-Identifier: GPL-2.0-or-later
"""How many guests run at once on this machine, over all kdelta processes of this user."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kdelta import cache
from kdelta.errors import Cancelled

QEMU_MIB = 300  # what QEMU itself takes beside the guest's memory
_MEMINFO = Path("/proc/meminfo")
_POLL_S = 0.05


def limit(cpus: int, memory_mib: int) -> int:
    """Guests of this size that this machine's cores and available memory hold; at least 1."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores // cpus, available_mib() // (memory_mib + QEMU_MIB)))


def available_mib() -> int:
    """MemAvailable of /proc/meminfo in MiB."""
    return _meminfo("MemAvailable:")


def memory_mib() -> int:
    """MemTotal of /proc/meminfo in MiB."""
    return _meminfo("MemTotal:")


def _meminfo(key: str) -> int:
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) >> 10
    return 0


@contextmanager
def lease(count: int, cancelled: threading.Event) -> Iterator[None]:
    """Hold one of `count` slots that all processes share; wait for one.

    A slot is a locked file: it is free again however its holder ends.
    Raises Cancelled when `cancelled` is set while waiting.
    """
    with ExitStack() as held:
        while cancelled.is_set() or not any(_taken(number, held) for number in range(count)):
            if cancelled.wait(_POLL_S):
                raise Cancelled
        yield


def _taken(number: int, held: ExitStack) -> bool:
    try:
        held.enter_context(cache.locked(f"guest-{number}", timeout=0))
    except cache.BusyError:
        return False
    return True
