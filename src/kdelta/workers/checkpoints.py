# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints that go to workers: packed without their holes, found by the SHA-256 of that.

Two boots of a kernel may leave different states, so that a window holds another tick.  All workers
therefore restore one guest, and their counts are the same to the byte.  The first worker that gets
a kernel boots it, so as many kernels boot at once as there are workers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from kdelta import cache, workload
from kdelta.errors import GuestFault, InfraError
from kdelta.files import decoded, digest_of, listed
from kdelta.guests import checkpoint
from kdelta.host import slots
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import How
from kdelta.sample import TrialRecord
from kdelta.workers.messages import MOST_INPUT, SentCheckpoint

log = logging.getLogger(__name__)
_KIND, _BROUGHT = "checkpoints", "brought"
_NAMES = frozenset({"meta.json", "ram", "state", "console.log"})
_MOST_HEADER = 16 << 20
_MOST_FILE = 1 << 40
_PIECE = 1 << 20
_KEY = re.compile(r"[0-9a-f]{64}")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a checkpoint.  parts: where something is written, and how many bytes."""

    name: str
    size: int
    parts: tuple[tuple[int, int], ...]


class SharedCheckpoints:
    """The checkpoints that a run's workers get; this machine keeps each of them."""

    def __init__(self, scratch: Path, cancelled: threading.Event) -> None:
        """scratch: a folder for what is sent."""
        self._scratch, self._cancelled = scratch, cancelled
        self._known: dict[str, tuple[SentCheckpoint, Path] | None] = {}
        self._mutex = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def of(
        self,
        trial: TrialRecord,
        how: How,
        bench: Bench,
        own: MachineSettings,
        kernel: Kernel,
        worker: Callable[[str], bytes],
    ) -> tuple[SentCheckpoint, Path] | None:
        """The checkpoint of a trial and its file; None for one that boots by itself.

        worker: makes the one of a key and gives it packed, or raises InfraError; then it is made
        here.  A kernel that does not come up has none (nothing is given): what a worker makes of it
        is its result.
        """
        settings = settings_of(trial, own)
        if bench.fresh_boot or how.fresh_boot or settings.swap == "disk":
            return None
        key = checkpoint.key(bench.emulator, settings, kernel.image)
        with self._mutex:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                up = _whole(key) is not None or self._receive(key, worker)
                self._known[key] = self._packed(key, bench, settings, kernel) if up else None
            return self._known[key]

    def _receive(self, key: str, worker: Callable[[str], bytes]) -> bool:
        """Have a checkpoint of a worker here, if it makes one; False: its kernel does not boot."""
        file = self._scratch / f"{key}.received"
        try:
            if not file.write_bytes(worker(key)):
                log.warning("no checkpoint goes to the workers: the kernel did not come up at one")
                return False
            cache.entry(_KIND, key, lambda place: unpack(file, place))
        except InfraError as error:
            log.warning("a checkpoint is made here, since no worker made it: %s", error)
        finally:
            file.unlink(missing_ok=True)
        return True

    def _packed(
        self, key: str, bench: Bench, settings: MachineSettings, kernel: Kernel
    ) -> tuple[SentCheckpoint, Path] | None:
        try:
            folder = self._found(bench, settings, kernel)
        except (GuestFault, InfraError) as error:
            log.warning("no checkpoint of %s goes to the workers: %s", kernel.release, error)
            return None
        file = self._scratch / key
        pack(folder, file)
        if file.stat().st_size > MOST_INPUT:
            file.unlink()
            return None
        return SentCheckpoint(key=key, packed=digest_of(file), listed=_content(folder)), file

    def _found(self, bench: Bench, settings: MachineSettings, kernel: Kernel) -> Path:
        """The checkpoint's folder, made where there is none."""
        key = checkpoint.key(bench.emulator, settings, kernel.image)
        if there := _whole(key):
            return there
        with slots.lease(settings, self._cancelled, None):
            return made(bench, settings, kernel, self._cancelled)


def settings_of(trial: TrialRecord, own: MachineSettings) -> MachineSettings:
    """The machine of a trial: its arm's, with what its scenario needs."""
    return with_needs(own, workload.load(trial.workload).scenario(trial.scenario).needs)


def made(
    bench: Bench, settings: MachineSettings, kernel: Kernel, cancelled: threading.Event
) -> Path:
    """The folder of a kernel's checkpoint, whole; boots where there is none.

    Raises GuestFault for a kernel that does not come up, InfraError, Cancelled.
    """
    key = checkpoint.key(bench.emulator, settings, kernel.image)
    if there := _whole(key):
        return there
    found = checkpoint.take_or_find(
        bench.emulator, settings, kernel.image, timeout=bench.timeout_s, cancelled=cancelled
    )
    return found.folder


def _whole(key: str) -> Path | None:
    """The folder of a checkpoint that is there and undamaged; a damaged one goes."""
    there = cache.found(_KIND, key)
    if there is not None and not cache.unchanged(there):
        cache.discard(there)
        return None
    return there


def arrive(sent: SentCheckpoint, packed: Path) -> None:
    """Have a checkpoint that was sent where trials look for it, instead of any other one.

    Raises InfraError for what is none.
    """
    if not _KEY.fullmatch(sent.key):
        raise InfraError("a checkpoint's name is no SHA-256")
    for _ in range(2):
        folder = cache.entry(_KIND, sent.key, lambda place: _unpacked(place, sent, packed))
        if _content(folder) == sent.listed or _brought(folder) == sent.packed:
            return
        cache.discard(folder)  # of another boot
    raise InfraError("a checkpoint that was sent is not the one that was announced")


def _unpacked(place: Path, sent: SentCheckpoint, packed: Path) -> None:
    unpack(packed, place)
    (place / _BROUGHT).write_text(sent.packed)


def _brought(folder: Path) -> str:
    try:
        return (folder / _BROUGHT).read_text()
    except (OSError, ValueError):
        return ""


def _content(folder: Path) -> str:
    """What a checkpoint's files hold, by their list."""
    rows = [row for row in listed(folder) if row.path in _NAMES]
    return cache.digest(*(f"{row.path} {row.size} {row.sha256}" for row in rows))


# ---- the packed form: a line that says where what lies, then all of it, compressed ------------


def pack(folder: Path, target: Path) -> None:
    """Write a checkpoint's files into one, without their holes."""
    paths = [path for path in sorted(folder.iterdir()) if path.name in _NAMES]
    files = [_File(path.name, path.stat().st_size, tuple(_parts(path))) for path in paths]
    squeeze = zlib.compressobj(1)
    with target.open("wb") as out:
        out.write(msgspec.json.encode(files) + b"\n")
        for path, file in zip(paths, files, strict=True):
            with path.open("rb") as content:
                for at, size in file.parts:
                    content.seek(at)
                    for begin in range(0, size, _PIECE):
                        piece = content.read(min(_PIECE, size - begin))
                        out.write(squeeze.compress(piece))
        out.write(squeeze.flush())


def unpack(packed: Path, folder: Path) -> None:
    """The files of a packed checkpoint, into an empty folder.  Raises InfraError."""
    try:
        with packed.open("rb") as content:
            header = content.readline(_MOST_HEADER)
            files = decoded(header, list[_File])
            names = [file.name for file in files]
            if not set(names) <= _NAMES or len(set(names)) != len(names):
                raise ValueError("other files than a checkpoint has")  # noqa: TRY301
            stream = _Stream(content)
            for file in files:
                _write(folder / file.name, file, stream)
            stream.end()
    except (msgspec.MsgspecError, ValueError, zlib.error, EOFError) as error:
        raise InfraError(f"a checkpoint that was sent is damaged: {error}") from error


def _write(path: Path, file: _File, stream: _Stream) -> None:
    """A file with its holes."""
    end = 0
    if not 0 <= file.size <= _MOST_FILE:
        raise ValueError("a size that no checkpoint has")
    with path.open("wb") as out:
        out.truncate(file.size)
        for at, size in file.parts:
            if at < end or size <= 0 or at + size > file.size:
                raise ValueError("parts that overlap, or lie outside")
            out.seek(at)
            for begin in range(0, size, _PIECE):
                out.write(stream.read(min(_PIECE, size - begin)))
            end = at + size


def _parts(path: Path) -> Iterator[tuple[int, int]]:
    """Where a file has something; all of it where its file system knows no holes."""
    with path.open("rb") as content:
        end, at = os.fstat(content.fileno()).st_size, 0
        while at < end:
            with contextlib.suppress(OSError):
                begin = os.lseek(content.fileno(), at, os.SEEK_DATA)
                at = os.lseek(content.fileno(), begin, os.SEEK_HOLE)
                yield begin, at - begin
                continue
            return  # nothing but a hole is left


class _Stream:
    """What was compressed, piece by piece."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._open = source, zlib.decompressobj()

    def read(self, size: int) -> bytes:
        """So many bytes.  Raises EOFError when there are fewer."""
        found = bytearray()
        while len(found) < size:
            packed = self._open.unconsumed_tail or self._source.read(_PIECE)
            piece = self._open.decompress(packed, size - len(found))
            if not packed and not piece:
                raise EOFError("it ends too early")
            found += piece
        return bytes(found)

    def end(self) -> None:
        """Raise ValueError when there is more."""
        packed = self._open.unconsumed_tail or self._source.read(_PIECE)
        if self._open.decompress(packed, 1) or self._open.unused_data or self._source.read(1):
            raise ValueError("it holds more than it says")
