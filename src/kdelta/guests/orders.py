# SPDX-License-Identifier: GPL-2.0-or-later
"""Orders to PID 1 of a guest, and its answers: the protocol of guest/init.c; orders for swap.

Orders lie in a file that the guest finds at its start and obeys up to the first that fails; all
answers come in one piece when it has done so.  A guest swaps to an NVMe disk that QEMU gives it, or
to zram, with modules where it needs them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kdelta.cache import writing
from kdelta.errors import GuestError
from kdelta.files import digest_of
from kdelta.kernels import modules
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import Lacking, MachineSettings, lacking
from kdelta.machine.identity import SWAP_DEVICES, GuestIdentity, parse_identity
from kdelta.source import kconfig

_PROTOCOL = 2
_HEAD = re.compile(rb"kdelta-answer (-?\d{1,10}) (\d{1,10})\n")
_STATUS = re.compile(r"-?\d{1,10}")
_READY = re.compile(rb"(?:^|\n)kdelta-ready (\d{1,4}) ([01]) (\d{1,6})\n")


@dataclass(frozen=True, slots=True)
class Order:
    """A line for PID 1; lacks: what a kernel lacks that fails it with this errno, if one can."""

    line: str
    lacks: Callable[[int], str] | None = None

    @property
    def word(self) -> str:
        """What it orders."""
        return self.line.partition(" ")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """The numbers by which two guests of one kernel differ (guest/seed.h); 0 leaves it alone.
    boot: of which saved boot the guest is; each drew other keys of hashes, for example.
    """

    ticks: int = 0
    memory: int = 0
    random: int = 0
    addresses: int = 0
    boot: int = 1

    @property
    def order(self) -> Order:
        """What has PID 1 do it."""
        return Order(f"seed {self.ticks} {self.memory} {self.random} {self.addresses}")


FIRST_SEED = Seed(ticks=1, memory=1, random=1)


@dataclass(frozen=True, slots=True)
class Answers:
    """Texts and statuses of the orders that were obeyed, in their order."""

    orders: tuple[Order, ...]
    answered: tuple[tuple[str, int], ...]

    def text(self, line: str) -> str:
        """The answer to an order.  Raises GuestError when there is none."""
        return self._of(line)[0]

    def ran(self) -> tuple[str, int]:
        """What the program printed, and its exit status."""
        return next(self._of(order.line) for order in self.orders if order.word == "run")

    def identity(self, settings: MachineSettings) -> GuestIdentity:
        """What the guest is, with the files that were set in it.  Raises Lacking."""
        known = parse_identity(self.text("identity").splitlines())
        read = {path: self.text(f"read {path}").strip() for path, _ in settings.files}
        identity = replace(known, files=read)
        if lack := lacking(settings, identity):
            raise Lacking(lack)
        return identity

    def _of(self, line: str) -> tuple[str, int]:
        for order, answer in zip(self.orders, self.answered, strict=False):
            if order.line == line:
                return answer
        raise GuestError(f"the guest did not answer {line.partition(' ')[0]!r}")


def of_settings(settings: MachineSettings) -> tuple[Order, ...]:
    """The orders that set what is set in a running guest, and read it back."""
    found = []
    for path, value in settings.files:
        refused = partial(_failed, f"the kernel does not take {value!r} in {path}")
        found += [Order(f"write {path} {value}", refused), Order(f"read {path}")]
    return (*found, Order("identity"))


def _failed(what: str, status: int) -> str:
    return f"{what}: {why(status)}"


def why(status: int) -> str:
    """The words for an errno."""
    return os.strerror(status) if status > 0 else "no answer"


def run(arguments: Sequence[str]) -> Order:
    """The order that runs the program."""
    return Order(" ".join(["run", *arguments]))


def attempt(line: str) -> Order:
    """An order whose failure ends nothing else: `attempted` says whether it failed."""
    return Order(f"try {line}")


def attempted(text: str) -> tuple[str, int]:
    """The answer and status of an order that was tried.  Raises GuestError for garbage."""
    found, _, status = text.removesuffix("\n").rpartition("\n")
    if not _STATUS.fullmatch(status):
        raise GuestError("the guest did not say what came of an order")
    return found, int(status)


def greeting(said: bytes) -> GuestIdentity | None:
    """What a guest that booted wrote of itself; None while it is not there.  Raises GuestError."""
    match = _READY.search(said)
    if not match:
        return None
    if int(match[1]) != _PROTOCOL:
        raise GuestError("PID 1 speaks another protocol", action="clear it: kdelta cache clear")
    text = said[match.end() : match.end() + int(match[3])]
    if len(text) < int(match[3]):
        return None
    return parse_identity(text.decode(errors="replace").splitlines())


def answers(orders: Sequence[Order], said: bytes) -> Answers:
    """The answers in what a guest wrote, as far as they are whole.  Raises Lacking, GuestError."""
    found: list[tuple[str, int]] = []
    booted = _READY.search(said)
    at = booted.end() + int(booted[3]) if booted else 0
    while len(found) < len(orders) and (head := _HEAD.match(said, at)):
        at = head.end() + int(head[2])
        if at > len(said):
            break
        text = said[head.end() : at].decode(errors="replace")
        found.append((text, int(head[1])))
    order, status = (orders[len(found) - 1], found[-1][1]) if found else (Order("run"), 0)
    if status and order.word != "run":  # the program's own failures are the caller's
        if order.lacks is None:
            raise GuestError(f"the guest cannot do {order.word!r}: {why(status)}")
        raise Lacking(order.lacks(status))
    return Answers(tuple(orders), tuple(found))


SWAP_BYTES = 256 << 20
# Before 6.12 zram asks the crypto layer for its compressor, which cannot load a module here.
_ZRAM_MODULES = ("lz4", "zram")
# One compressor for all kernels: their own defaults differ.
_COMPRESSOR = "lz4"
_ZRAM_BLOCK = "/sys/block/zram0"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapBacking:
    """What a guest's swap needs: a disk's file; modules to load in order, or why without."""

    disk: Path | None = None
    modules: tuple[Path, ...] = ()
    without: str = ""


@contextmanager
def swap_backing(settings: MachineSettings, kernel: Kernel, folder: Path) -> Iterator[SwapBacking]:
    """What a kernel needs for its swap; a disk lies in `folder`.  Raises InfraError."""
    known = kernel.config.read_text() if kernel.config else ""
    if settings.swap == "disk":
        disk = folder / "swap.img"
        try:
            with writing(disk), disk.open("wb") as file:
                file.truncate(SWAP_BYTES)  # sparse: it occupies only what is swapped out
            yield SwapBacking(disk=disk)
        finally:
            disk.unlink(missing_ok=True)
    elif settings.swap == "zram" and kconfig.parse(known).get("ZRAM") != "y":
        try:
            given = SwapBacking(modules=modules.modules_in_order(kernel, _ZRAM_MODULES))
        except modules.NoModules as reason:
            given = SwapBacking(without=str(reason))
        yield given
    else:
        yield SwapBacking()


def swap_digest(settings: MachineSettings, kernel: Kernel) -> str:
    """Digest of the configuration that decides whether modules are loaded; "" where none does."""
    config = kernel.config
    return digest_of(config) if settings.swap == "zram" and config else ""


def swap_orders(settings: MachineSettings, given: SwapBacking) -> tuple[Order, ...]:
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
    return _failed(f"swap: swapon {device}", status)


def _zram(given: SwapBacking) -> Iterator[Order]:
    for module in given.modules:
        failed = partial(_failed, f"swap: loading {module.stem}")
        yield Order(f"module {module.stem}", failed)
    for name, value in (("comp_algorithm", _COMPRESSOR), ("disksize", str(SWAP_BYTES))):
        yield Order(f"write {_ZRAM_BLOCK}/{name} {value}", partial(_no_zram, given, name, value))


def _no_zram(given: SwapBacking, name: str, value: str, status: int) -> str:
    if status == errno.ENOENT:
        without = given.without or "its package has no such module"
        return f"swap: the kernel has no zram built in, and {without}; swap on a disk needs none"
    return _failed(f"swap: zram does not take {name} {value}", status)
