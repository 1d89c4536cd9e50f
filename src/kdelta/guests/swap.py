# SPDX-License-Identifier: GPL-2.0-or-later
"""Swap in a guest: an NVMe disk that QEMU gives it, or zram, with modules where it needs them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdelta.cache import writing
from kdelta.guests.session import Guest
from kdelta.kernels import modules
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import SWAP_DEVICES, MachineSettings
from kdelta.machine.readback import Lacking
from kdelta.source import kconfig

BYTES = 256 << 20
# Before 6.12 zram asks the crypto layer for its compressor, which cannot load a module here.
_MODULES = ("lz4", "zram")
# One compressor for all kernels: their own defaults differ.
_COMPRESSOR = "lz4"
_BLOCK = "/sys/block/zram0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What a guest's swap needs from outside.

    disk: the file of its disk; modules: to load, in order; without: why there are none, or "".
    """

    disk: Path | None = None
    modules: tuple[Path, ...] = ()
    without: str = ""


@contextmanager
def backing(settings: MachineSettings, kernel: Kernel, folder: Path) -> Iterator[Backing]:
    """What a kernel needs for the swap that the settings ask for; a disk lies in `folder`.

    Raises InfraError when modules cannot be fetched or a file cannot be made.
    """
    if settings.swap == "disk":
        disk = folder / "swap.img"
        try:
            with writing(disk), disk.open("wb") as file:
                file.truncate(BYTES)  # sparse: it takes what is swapped out
            yield Backing(disk=disk)
        finally:
            disk.unlink(missing_ok=True)
    elif settings.swap == "zram" and not _built_in(kernel):
        yield _modules(kernel)
    else:
        yield Backing()


def turn_on(machine: Guest, settings: MachineSettings, given: Backing, timeout: float) -> None:
    """Let a guest that waits for orders swap as the settings ask.

    Raises Lacking when its kernel cannot.
    """
    if not settings.swap:
        return
    if settings.swap == "zram":
        _make_zram(machine, given, timeout)
    device = SWAP_DEVICES[settings.swap]
    status = machine.swap_on(device, timeout)
    if status == errno.ENOENT and settings.swap == "disk":
        raise Lacking(f"swap: the kernel has no {device} (CONFIG_BLK_DEV_NVME=y)")
    if status:
        raise Lacking(f"swap: swapon {device}: {os.strerror(status)}")


def _make_zram(machine: Guest, given: Backing, timeout: float) -> None:
    for module in given.modules:
        if status := machine.load_module(module, timeout):
            raise Lacking(f"swap: loading {module.stem}: {os.strerror(status)}")
    for name, value in (("comp_algorithm", _COMPRESSOR), ("disksize", str(BYTES))):
        status = machine.write(f"{_BLOCK}/{name}", value, timeout)
        if status == errno.ENOENT:
            why = given.without or "its package has no such module"
            raise Lacking(f"swap: the kernel has no zram built in, and {why}")
        if status:
            raise Lacking(f"swap: zram does not take {name} {value}: {os.strerror(status)}")


def _modules(kernel: Kernel) -> Backing:
    try:
        return Backing(modules=modules.load_order(kernel, _MODULES))
    except modules.NoModules as reason:
        return Backing(without=str(reason))


def _built_in(kernel: Kernel) -> bool:
    """True when a known configuration has zram in the image."""
    config = kernel.config
    return config is not None and kconfig.parse(config.read_text()).get("ZRAM") == "y"
