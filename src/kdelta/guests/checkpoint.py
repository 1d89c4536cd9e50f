# SPDX-License-Identifier: GPL-2.0-or-later
"""Boot once, restore per trial: a guest's whole state, taken where PID 1 finds no orders.

A checkpoint serves one kernel image, one machine with all its devices, one QEMU build and its
firmware.  It is used for exact counts only, never for time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kdelta import cache, files, guest
from kdelta.errors import InfraError
from kdelta.files import decoded
from kdelta.guests import qemu
from kdelta.guests.qemu import Channels, Launch, Qemu, firmware_digest
from kdelta.guests.session import Guest, RestoreError
from kdelta.machine.axes import MachineSettings

if TYPE_CHECKING:
    from qemu.qmp import QMPClient

_FORMAT = "4"
_POLL_S, _LOOK_S = 0.05, 1.0
_ANSWER_S = 60.0
_BEGIN_BYTES = 1 << 17  # of a bzImage: at most so much runs in real mode
_SOME_CHANNELS = Channels(
    port=0, serial=0, console=0, orders=0, qmp=0, state=0
)  # mere numbers do not change a guest


class _Meta(msgspec.Struct, frozen=True, kw_only=True):
    build_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A guest to restore.  folder: its state and its memory; build_id: of its kernel."""

    folder: Path
    build_id: str


@contextmanager
def lent(
    emulator: Qemu,
    settings: MachineSettings,
    image: Path,
    boot: int = 1,
    *,
    timeout: float,
    cancelled: threading.Event | None = None,
    fresh: bool = False,
) -> Iterator[Checkpoint]:
    """The checkpoint of this image on this machine: from the cache, else made, by a boot of at most
    timeout seconds.  Eviction leaves it alone while the context lasts.

    Its memory is not read yet: `cache.unchanged` does that, while QEMU already runs it.  fresh: for
    one use, from a boot of its own.
    """

    def make(scratch: Path) -> None:
        _make(scratch, emulator, settings, image, boot, timeout, cancelled)

    if fresh:
        with cache.passing("checkpoints") as folder:
            make(folder)
            yield _at(folder)
        return
    with cache.lent("checkpoints", key(emulator, settings, image, boot), make) as folder:
        yield _at(folder)


def _at(folder: Path) -> Checkpoint:
    try:
        meta = decoded((folder / "meta.json").read_bytes(), _Meta)
    except FileNotFoundError as error:  # another thread or process found it damaged
        raise RestoreError("the saved guest is gone", place=str(folder)) from error
    return Checkpoint(folder=folder, build_id=meta.build_id)


def key(emulator: Qemu, settings: MachineSettings, image: Path, boot: int = 1) -> str:
    """What decides a guest's state: files by content, and the command line without their paths."""
    facts = emulator.program.stat()
    # A fetched QEMU is its verified package; only its loader's path differs between caches.
    build = emulator.package or f"{facts.st_size} {facts.st_mtime_ns}"
    nameless = replace(emulator, program=Path("qemu"), arguments=())
    launch = Launch(
        image=Path("image"), initramfs=Path("initramfs"), save=Path("folder"), boot=boot
    )
    firmware = firmware_digest(emulator, settings.target)
    contents = map(files.digest_of, (image, guest.initramfs(settings.target)))
    line = qemu.command(nameless, settings, launch, _SOME_CHANNELS)
    return cache.digest(_FORMAT, emulator.banner, build, firmware, *contents, *line)


def _make(
    folder: Path,
    emulator: Qemu,
    settings: MachineSettings,
    image: Path,
    boot: int,
    timeout: float,
    cancelled: threading.Event | None,
) -> None:
    import asyncio

    from qemu.qmp import QMPError

    initramfs = guest.initramfs(settings.target, image)
    launch = Launch(image=image, initramfs=initramfs, save=folder, boot=boot)
    with Guest(emulator, settings, launch, with_qmp=True, cancelled=cancelled) as booted:
        try:
            asyncio.run(_watched(booted, timeout))
        except (QMPError, EOFError, OSError) as error:
            raise booted.without_control(error) from error
        meta = _Meta(build_id=booted.greeting().build_id)
    (folder / "meta.json").write_bytes(msgspec.json.encode(meta))
    with image.open("rb") as stream:
        begin = stream.read(_BEGIN_BYTES)
    if begin[0x202:0x206] == b"HdrS":
        (folder / qemu.BEGIN).write_bytes(begin)
    (folder / "console.log").write_text(booted.console_text)


async def _watched(booted: Guest, timeout: float) -> None:
    import asyncio

    saving = asyncio.ensure_future(_save(booted, timeout))
    while not (await asyncio.wait([saving], timeout=_LOOK_S))[0]:
        booted.look()
    await saving


async def _save(booted: Guest, timeout: float) -> None:
    import asyncio

    async with booted.control() as qmp:
        patience = booted.patience(timeout)
        # It stops once it found no orders and set the watchdog.
        with qmp.listener("STOP") as events:
            while events.empty():
                booted.look()
                if booted.has_ended or not patience.left:
                    raise booted.overdue("PID 1 did not greet", patience)
                await asyncio.sleep(_POLL_S)
        booted.greeting()
        try:
            await asyncio.wait_for(_migrated(qmp), _ANSWER_S)
        except TimeoutError as error:
            cause = f"QEMU did not save the guest within {_ANSWER_S:.0f} s"
            raise InfraError(cause) from error


async def _migrated(qmp: QMPClient) -> None:
    import asyncio

    await qmp.execute("migrate-set-capabilities", qemu.SHARED_IS_THERE)
    await qmp.execute("migrate", {"uri": qemu.MIGRATION})
    while True:
        answer = await qmp.execute("query-migrate")
        status = answer.get("status") if isinstance(answer, dict) else None
        if status == "completed":
            return
        if status in ("failed", "cancelled"):
            why = answer.get("error-desc", status) if isinstance(answer, dict) else status
            cause = f"QEMU cannot save the guest: {why}"
            action = "is the disk full? free space, or set XDG_CACHE_HOME to another disk"
            raise InfraError(cause, place=str(cache.root()), action=action)
        await asyncio.sleep(0.01)
