# SPDX-License-Identifier: GPL-2.0-or-later
"""Swap in a guest: an NVMe disk that QEMU gives it, or zram, with modules where it needs them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kdelta.cache import writing
from kdelta.files import digest_of
from kdelta.guests.orders import Order, why
from kdelta.kernels import modules
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import SWAP_DEVICES, MachineSettings
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
                file.truncate(BYTES)  # sparse: it occupies only what is swapped out
            yield Backing(disk=disk)
        finally:
            disk.unlink(missing_ok=True)
    elif settings.swap == "zram" and not _built_in(kernel):
        yield _modules(kernel)
    else:
        yield Backing()


def reads(settings: MachineSettings, kernel: Kernel) -> str:
    """Digest of the configuration that decides whether modules are loaded; "" where none does."""
    config = kernel.config
    return digest_of(config) if settings.swap == "zram" and config else ""


def orders(settings: MachineSettings, given: Backing) -> tuple[Order, ...]:
    """The orders that let a guest swap as the settings ask, and name its modules."""
    if not settings.swap:
        return ()
    device = SWAP_DEVICES[settings.swap]
    zram = tuple(_zram(given)) if settings.swap == "zram" else ()
    told = (Order("modules"),) if given.modules else ()
    return (*zram, Order(f"swapon {device}", partial(_no_device, settings.swap, device)), *told)


def _no_device(kind: str, device: str, status: int) -> str:
    if status == errno.ENOENT and kind == "disk":
        return f"swap: the kernel has no {device} (CONFIG_BLK_DEV_NVME=y)"
    return f"swap: swapon {device}: {why(status)}"


def _zram(given: Backing) -> Iterator[Order]:
    for module in given.modules:
        yield Order(f"module {module.stem}", partial(_no_module, module.stem))
    for name, value in (("comp_algorithm", _COMPRESSOR), ("disksize", str(BYTES))):
        yield Order(f"write {_BLOCK}/{name} {value}", partial(_no_zram, given, name, value))


def _no_module(name: str, status: int) -> str:
    return f"swap: loading {name}: {why(status)}"


def _no_zram(given: Backing, name: str, value: str, status: int) -> str:
    if status == errno.ENOENT:
        without = given.without or "its package has no such module"
        return f"swap: the kernel has no zram built in, and {without}; swap on a disk needs none"
    return f"swap: zram does not take {name} {value}: {why(status)}"


def _modules(kernel: Kernel) -> Backing:
    try:
        return Backing(modules=modules.load_order(kernel, _MODULES))
    except modules.NoModules as reason:
        return Backing(without=str(reason))


def _built_in(kernel: Kernel) -> bool:
    """True when a known configuration has zram in the image."""
    config = kernel.config
    return config is not None and kconfig.parse(config.read_text()).get("ZRAM") == "y"
