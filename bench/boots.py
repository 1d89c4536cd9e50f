# SPDX-License-Identifier: GPL-2.0-or-later
"""Plain boots: what kdelta's restored and counted guests are compared with.

A plain boot is one guest of the same QEMU, machine, kernel and initramfs, without our plugin and
without a checkpoint; it runs the same program with the same arguments.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from commands import BenchError
from kdelta import arch, guest, workload
from kdelta.guests import orders
from kdelta.guests.orders import Order
from kdelta.guests.qemu import Launch, Qemu
from kdelta.guests.session import Guest
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.run import counting

_TIMEOUT_S = 300.0


def program_of(scenario: str, architecture: arch.Arch) -> tuple[Path, list[str]]:
    """The static program of a scenario, and its arguments in a trial."""
    found, chosen = workload.parse_reference(scenario)
    arguments = chosen.arguments(iterations=counting.WINDOWS, warmup=counting.WARMUP)
    return guest.program(found.program, architecture), arguments


def plain_boot(emulator: Qemu, settings: MachineSettings, kernel: Kernel, scenario: str) -> float:
    """Seconds from starting QEMU until the program has ended and QEMU is gone."""
    program, arguments = program_of(scenario, settings.target)
    initramfs = guest.initramfs(settings.target)
    begun = time.monotonic()
    told = (Order("identity"), orders.run(arguments))
    launch = Launch(image=kernel.image, initramfs=initramfs, orders=told, program=program)
    with Guest(emulator, settings, launch) as booted:
        printed, status = booted.finish(_TIMEOUT_S).ran()
    if status:
        raise BenchError(f"the plain boot of {kernel.release} failed: {printed[-500:]}")
    return time.monotonic() - begun


def plain_boots(
    emulator: Qemu,
    settings: MachineSettings,
    kernels: Sequence[Kernel],
    scenario: str,
    at_once: int,
) -> float:
    """Seconds for a plain boot of each kernel, as many at once as kdelta runs."""
    begun = time.monotonic()
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        tasks = [
            pool.submit(plain_boot, emulator, settings, kernel, scenario) for kernel in kernels
        ]
        for task in tasks:
            task.result()
    return time.monotonic() - begun
