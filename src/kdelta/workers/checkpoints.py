# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints that go to workers: packed, and found by the SHA-256 of that.

Two boots of a kernel may leave different states, so that a window holds another tick.  All workers
therefore restore one guest, and their counts are the same to the byte.
"""

from __future__ import annotations

import gzip
import logging
import os
import re
import tarfile
import threading
import zlib
from pathlib import Path

import msgspec

from kdelta import cache, workload
from kdelta.errors import GuestFault, InfraError
from kdelta.files import digest_of, listed
from kdelta.guests import checkpoint
from kdelta.host import leases
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import How
from kdelta.sample import TrialRecord

log = logging.getLogger(__name__)
KEY = re.compile(r"[0-9a-f]{64}")
MOST_INPUT = 256 << 20  # bytes of a packed checkpoint
_KIND, _BROUGHT = "checkpoints", "brought"
_NAMES = frozenset({"meta.json", "ram", "state", "console.log"})
_MOST_FILE = 1 << 40
_ZEROS = bytes(1 << 16)
_DAMAGED = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error),
    *(EOFError, ValueError, FileExistsError),
)


class SentCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint that is sent: its key, the SHA-256 of what is sent, the digest of its files."""

    key: str
    packed: str
    listed: str


class SharedCheckpoints:
    """The checkpoints that a run's workers get; this machine makes and keeps each of them."""

    def __init__(self, scratch: Path, cancelled: threading.Event) -> None:
        """scratch: a folder for what is sent."""
        self._scratch, self._cancelled = scratch, cancelled
        self._known: dict[str, tuple[SentCheckpoint, Path] | None] = {}
        self._mutex, self._locks = threading.Lock(), dict[str, threading.Lock]()

    def of(
        self, trial: TrialRecord, how: How, bench: Bench, own: MachineSettings, kernel: Kernel
    ) -> tuple[SentCheckpoint, Path] | None:
        """A trial's checkpoint and file; None where a guest boots itself, or does not boot."""
        scenario = workload.load(trial.workload).scenario(trial.scenario)
        settings = with_needs(own, scenario.needs)
        if bench.fresh_boot or how.fresh_boot or settings.swap == "disk":
            return None
        key = checkpoint.key(bench.emulator, settings, kernel.image)
        with self._mutex:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                self._known[key] = self._packed(key, bench, settings, kernel)
            return self._known[key]

    def _packed(
        self, key: str, bench: Bench, settings: MachineSettings, kernel: Kernel
    ) -> tuple[SentCheckpoint, Path] | None:
        try:
            folder = self._found(key, bench, settings, kernel)
        except (GuestFault, InfraError) as error:
            log.warning("no checkpoint of %s goes to the workers: %s", kernel.release, error)
            return None
        file = self._scratch / key
        pack(folder, file)
        if file.stat().st_size > MOST_INPUT:
            file.unlink()
            return None
        return SentCheckpoint(key=key, packed=digest_of(file), listed=_content(folder)), file

    def _found(self, key: str, bench: Bench, settings: MachineSettings, kernel: Kernel) -> Path:
        if there := cache.found(_KIND, key):
            if cache.unchanged(there):
                return there
            cache.discard(there)
        guest, cancelled = (bench.emulator, settings, kernel.image), self._cancelled
        with leases.lease_guest(settings, cancelled):
            found = checkpoint.take_or_find(*guest, timeout=bench.timeout_s, cancelled=cancelled)
        return found.folder


def arrive(sent: SentCheckpoint, packed: Path) -> None:
    """Put a checkpoint that was sent where trials look for it.  Raises InfraError."""
    if not KEY.fullmatch(sent.key):
        raise InfraError("a checkpoint's name is no SHA-256")

    def make(place: Path) -> None:
        unpack(packed, place)
        (place / _BROUGHT).write_text(sent.packed)

    for _ in range(2):
        folder = cache.entry(_KIND, sent.key, make)
        # A file with holes is listed by what lies between them, and these may be others there.
        brought = folder / _BROUGHT
        own = brought.read_bytes() if brought.is_file() else b""
        if _content(folder) == sent.listed or own == sent.packed.encode():
            return
        cache.discard(folder)  # of another boot
    raise InfraError("a checkpoint that was sent is not the one that was announced")


def _content(folder: Path) -> str:
    rows = [row for row in listed(folder) if row.path in _NAMES]
    return cache.digest(*(f"{row.path} {row.size} {row.sha256}" for row in rows))


def pack(folder: Path, target: Path) -> None:
    """Write a checkpoint's files into one; its holes are zeros, which take no room there."""
    with tarfile.open(target, "w:gz", compresslevel=1) as packed:
        for path in sorted(folder.iterdir()):
            if path.name in _NAMES:
                packed.add(path, path.name)


def unpack(packed: Path, folder: Path) -> None:
    """The files of a packed checkpoint with their holes, into a folder.  Raises InfraError."""
    try:
        with tarfile.open(packed, "r:gz") as files:
            for member in files:
                content = files.extractfile(member) if member.isreg() else None
                if member.name not in _NAMES or content is None or member.size > _MOST_FILE:
                    raise ValueError("another file than a checkpoint has")
                with (folder / member.name).open("xb") as out:
                    while piece := content.read(len(_ZEROS)):
                        if _ZEROS.startswith(piece):
                            out.seek(len(piece), os.SEEK_CUR)
                        else:
                            out.write(piece)
                    out.truncate(member.size)
    except _DAMAGED as error:
        raise InfraError(f"a checkpoint that was sent is damaged: {error}") from error
