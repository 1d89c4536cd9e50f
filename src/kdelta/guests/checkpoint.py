# SPDX-License-Identifier: GPL-2.0-or-later
"""Boot once, restore per trial: a guest's whole state, taken while PID 1 waits for its order.

A checkpoint serves one kernel image, one machine with all its devices, one QEMU build and its
firmware.  It is used for exact counts only, never for time.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from functools import cache as remember
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kdelta import cache, guest
from kdelta.attribution import symbols
from kdelta.errors import InfraError, KdeltaError
from kdelta.files import sha256_of
from kdelta.guests import qemu
from kdelta.guests.emulator import Qemu, firmware_digest
from kdelta.guests.qemu import Channels, Launch
from kdelta.guests.session import Guest
from kdelta.machine.axes import MachineSettings

if TYPE_CHECKING:
    from qemu.qmp import QMPClient

_FORMAT = "3"
_UNBOUNDED = 1 << 40  # bytes a second: the stream goes to a file
_ANSWER_S = 60.0
_SOME_CHANNELS = Channels(port=0, serial=0, console=0, qmp=0)  # their numbers decide nothing


class _Meta(msgspec.Struct, frozen=True, kw_only=True):
    settled: bool
    build_id: str
    serial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A guest to restore.

    settled: its background work had died down when it was taken.  build_id: of its kernel, whose
    symbols are in the cache.  serial: PID 1 takes orders on the serial line.
    """

    state: Path
    settled: bool
    build_id: str
    serial: bool


def take_or_find(
    emulator: Qemu,
    settings: MachineSettings,
    image: Path,
    *,
    timeout: float,
    cancelled: threading.Event | None = None,
) -> Checkpoint:
    """The checkpoint of this image on this machine: from the cache, else made.

    Its state is not read yet: `intact` does that, while QEMU already restores it.  Making it boots
    the kernel (at most timeout seconds) and caches the kernel's symbols too.
    """
    folder = cache.entry(
        "checkpoints",
        _key(emulator, settings, image),
        lambda scratch: _make(scratch, emulator, settings, image, timeout, cancelled),
    )
    meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=_Meta)
    return Checkpoint(
        state=folder / "state",
        settled=meta.settled,
        build_id=meta.build_id,
        serial=meta.serial,
    )


def discard(checkpoint: Checkpoint) -> None:
    """Remove a checkpoint that is damaged: the next one is made anew."""
    cache.discard(checkpoint.state.parent)


def _key(emulator: Qemu, settings: MachineSettings, image: Path) -> str:
    """What decides a guest's state: what is in the files, and the command line without their paths.

    All that a restored guest must have like the saved one is on that line.
    """
    build = emulator.program.stat()
    nameless = replace(emulator, program=Path("qemu"), arguments=())
    launch = Launch(image=Path("image"), initramfs=Path("initramfs"))
    return cache.digest(
        _FORMAT,
        emulator.banner,
        f"{build.st_size} {build.st_mtime_ns}",
        firmware_digest(emulator, settings.target),
        _digest(image),
        guest.initramfs(settings.target).read_bytes(),
        *qemu.command(nameless, settings, launch, _SOME_CHANNELS),
    )


def _make(
    folder: Path,
    emulator: Qemu,
    settings: MachineSettings,
    image: Path,
    timeout: float,
    cancelled: threading.Event | None,
) -> None:
    """Fill a checkpoint's folder by booting the guest and saving it."""
    state = folder / "state"
    with Guest(
        emulator,
        settings,
        Launch(image=image, initramfs=guest.initramfs(settings.target)),
        with_qmp=True,
        cancelled=cancelled,
    ) as booted:
        settled = booted.wait_ready(timeout)
        _save(booted, emulator, state)
        identity = booted.identity(_ANSWER_S)
        symbols.load(identity.build_id, lambda: booted.kallsyms(_ANSWER_S))
    meta = _Meta(
        settled=settled,
        build_id=identity.build_id,
        serial=booted.speaks_serial,
    )
    (folder / "meta.json").write_bytes(msgspec.json.encode(meta))
    (folder / "console.log").write_text(booted.console_text)


def intact(checkpoint: Checkpoint) -> bool:
    """True when the state is, to the byte, what was saved; read whole once per process."""
    try:
        return _digest(checkpoint.state) == cache.recorded(checkpoint.state)
    except OSError:
        return False


def _digest(path: Path) -> str:
    """SHA-256 of a file, which is read whole once per process."""
    stat = path.stat()
    return _read(path, stat.st_ino, stat.st_mtime_ns)


@remember
def _read(path: Path, _inode: int, _mtime: int) -> str:
    return sha256_of(path)


def _save(booted: Guest, emulator: Qemu, state: Path) -> None:
    """Write a running guest's state to a file and let the guest go on.

    The guest keeps running until QEMU has copied its memory: the state says "running", so that a
    restored guest runs at once.
    """
    try:
        with state.open("wb") as file:
            asyncio.run(_migrate(booted, file.fileno(), qemu.migration(emulator, state, "state")))
    except (KdeltaError, OSError):
        raise
    except Exception as error:  # qemu.qmp has no common base of its errors
        raise InfraError(f"QEMU cannot save the guest: {error}") from error


async def _migrate(booted: Guest, descriptor: int, where: str) -> None:
    async with booted.control() as qmp:
        await qmp.execute("migrate-set-parameters", {"max-bandwidth": _UNBOUNDED})
        qmp.send_fd_scm(descriptor)
        await qmp.execute("getfd", {"fdname": "state"})
        await qmp.execute("migrate", {"uri": where})
        await _completed(qmp)
        await qmp.execute("cont")


async def _completed(qmp: QMPClient) -> None:
    deadline = asyncio.get_running_loop().time() + _ANSWER_S
    while asyncio.get_running_loop().time() < deadline:
        answer = await qmp.execute("query-migrate")
        status = answer.get("status") if isinstance(answer, dict) else None
        if status == "completed":
            return
        if status in ("failed", "cancelled"):
            why = answer.get("error-desc", status) if isinstance(answer, dict) else status
            raise InfraError(
                f"QEMU cannot save the guest: {why}",
                place=str(cache.root()),
                action="is the disk full? free space, or set XDG_CACHE_HOME to another disk",
            )
        await asyncio.sleep(0.02)
    raise InfraError(f"QEMU did not save the guest within {_ANSWER_S:.0f} s")
