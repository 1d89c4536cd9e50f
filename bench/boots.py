# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots that kdelta's restored and counted guests are compared with.

A plain boot is what a user boots by hand: the release's own bzImage in the same QEMU and machine,
by an ordinary command line, with a clock of its own (no -icount), address randomisation, and all
that the kernel does when it boots.  Only PID 1 is kdelta's, so that it runs the same program with
the same arguments and ends with it.

A short boot is the one that kdelta itself makes before it counts: by instructions (-icount), and
without tests of cryptography and entropy of jitter.  Neither has our plugin or a checkpoint.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from commands import BenchError
from kdelta import arch, guest, process, workload
from kdelta.guests import orders, qemu
from kdelta.guests.orders import Order
from kdelta.guests.qemu import Launch, Qemu
from kdelta.guests.session import Guest
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import LEFT_OUT, MachineSettings
from kdelta.run import counting

_TIMEOUT_S = 300.0
_POLL_S = 0.005
_OF_COUNTING = ("-icount", "-rtc", "-seed")  # options with one word
_KASLR_OFF = " nokaslr"


def program_of(scenario: str, architecture: arch.Arch) -> tuple[Path, list[str]]:
    """The static program of a scenario, and its arguments in a trial."""
    found, chosen = workload.parse_reference(scenario)
    arguments = chosen.arguments(iterations=counting.WINDOWS, warmup=counting.WARMUP)
    return guest.program(found.program, architecture), arguments


def _launch(settings: MachineSettings, kernel: Kernel, scenario: str) -> Launch:
    program, arguments = program_of(scenario, settings.target)
    told = (Order("identity"), orders.run(arguments))
    initramfs = guest.initramfs(settings.target)
    return Launch(image=kernel.image, initramfs=initramfs, orders=told, program=program)


def short_boot(emulator: Qemu, settings: MachineSettings, kernel: Kernel, scenario: str) -> float:
    """Seconds from starting QEMU until the program has ended and QEMU is gone."""
    launch = _launch(settings, kernel, scenario)
    begun = time.monotonic()
    with Guest(emulator, settings, launch) as booted:
        printed, status = booted.finish(_TIMEOUT_S).ran()
    if status:
        raise BenchError(f"the short boot of {kernel.release} failed: {printed[-500:]}")
    return time.monotonic() - begun


def plain_boot(emulator: Qemu, settings: MachineSettings, kernel: Kernel, scenario: str) -> float:
    """The same of a plain boot.  Raises BenchError."""
    launch = _launch(settings, kernel, scenario)
    begun = time.monotonic()
    with ExitStack() as files:

        def made(name: str) -> int:
            descriptor = os.memfd_create(name)
            files.callback(os.close, descriptor)
            return descriptor

        port, serial, console, told = map(made, ("port", "serial", "console", "orders"))
        os.write(told, "".join(f"{order.line}\n" for order in launch.orders).encode())
        channels = qemu.Channels(port=port, serial=serial, console=console, orders=told)
        argv = plain(qemu.command(emulator, settings, launch, channels))
        child = process.start(
            argv, env=emulator.environment, pass_fds=channels.inherited, die_with_caller=True
        )
        files.callback(process.end, child)
        found = orders.answers(launch.orders, b"")
        while len(found.answered) < len(launch.orders):
            _pause(child, kernel, time.monotonic() - begun)
            said = next(filter(None, (_content(one) for one in (port, serial))), b"")
            found = orders.answers(launch.orders, said)
        printed, status = found.ran()
    if status:
        raise BenchError(f"the plain boot of {kernel.release} failed: {printed[-500:]}")
    return time.monotonic() - begun


def plain(argv: Sequence[str]) -> list[str]:
    """kdelta's command line of a guest without what makes it short and repeat itself."""
    words = list(argv)
    for option in _OF_COUNTING:
        at = words.index(option)
        del words[at : at + 2]
    at = words.index("-append") + 1
    for told in (LEFT_OUT, _KASLR_OFF):
        if told not in words[at]:
            raise BenchError(f"a boot for counting no longer has{told}: what is a plain one?")
        words[at] = words[at].replace(told, "")
    return words


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _pause(child: subprocess.Popen[bytes], kernel: Kernel, taken: float) -> None:
    if child.poll() is not None or taken > _TIMEOUT_S:
        raise BenchError(f"the plain boot of {kernel.release} ended or takes too long")
    time.sleep(_POLL_S)


def boots(
    emulator: Qemu,
    settings: MachineSettings,
    kernels: Sequence[Kernel],
    scenario: str,
    at_once: int,
    *,
    short: bool = False,
) -> float:
    """Seconds for a boot of each kernel, plain or short, as many at once as kdelta runs."""
    begun = time.monotonic()
    boot = partial(short_boot if short else plain_boot, emulator, settings)
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        for task in [pool.submit(boot, kernel, scenario) for kernel in kernels]:
            task.result()
    return time.monotonic() - begun
