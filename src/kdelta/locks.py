# SPDX-License-Identifier: GPL-2.0-or-later
"""Locks between processes, which the kernel releases however their holder ends, kill -9 included.

A *lock* is a file with one holder.  A *hold* may have many holders: it keeps what it names from
being removed while somebody uses it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kdelta.errors import InfraError

log = logging.getLogger(__name__)
_SILENT_S = 2.0  # of waiting before the user is said
_AGAIN_S = 60.0  # until the user is said again
_PROC = Path("/proc")
_SHORT = 24  # characters of a lock's name


class BusyError(InfraError):
    """Another thread or process holds a lock."""


_OURS: set[Path] = set()  # locks that threads of this process have


@contextmanager
def locked(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of that file.  Raises BusyError after timeout seconds, and OSError."""
    import filelock

    lock = filelock.FileLock(path, thread_local=False)
    begun, patience = time.monotonic(), _SILENT_S
    while not lock.is_locked:
        waited = time.monotonic() - begun
        try:
            lock.acquire(timeout=max(0.0, min(patience, timeout - waited)))
        except filelock.Timeout as error:
            if time.monotonic() - begun >= timeout:
                cause = f"another kdelta has held a lock for {timeout:.0f} s"
                action = "wait for it to end, or end it"
                raise BusyError(cause, place=str(path), action=action) from error
            if path not in _OURS:  # a thread of ours works on it, and shows that it does
                log.warning("waiting for another kdelta%s", _holder(path))
            patience = _AGAIN_S
    _OURS.add(path)
    try:
        yield
    finally:
        _OURS.discard(path)
        lock.release()


def is_held(path: Path) -> bool:
    """True while a thread or process has the lock of that file.  Raises OSError."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _holder(path: Path) -> str:
    holders = sorted(lock_holders([path]))
    name = path.stem if len(path.stem) <= _SHORT else f"{path.stem[:_SHORT]}..."
    if not holders:
        return f", which works on the same: {name}"
    words = f" (process {' or '.join(map(str, holders))}): it has {name}"
    return words + "".join(map(stopped, holders))


def stopped(pid: int) -> str:
    """The end of a sentence when a process is stopped; "" when it is not."""
    return f"; it is stopped: kill -CONT {pid} lets it go on" if is_stopped(pid) else ""


def lock_holders(files: Iterable[Path]) -> set[int]:
    """Numbers of the processes that hold a lock on one of these files (proc_locks(5))."""
    wanted = set()
    for path in files:
        with suppress(OSError):
            wanted.add(str(path.stat().st_ino))
    try:
        rows = [line.split() for line in (_PROC / "locks").read_text().splitlines()]
    except OSError:
        return set()
    return {
        int(row[4])
        for row in rows
        if len(row) > 5 and row[4].isdigit() and row[5].rpartition(":")[2] in wanted
    }


def is_stopped(pid: int) -> bool:
    """True for a process that is stopped; False for one that is gone, too."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


# struct flock of 64-bit Linux: type, whence, start, length, process (0).
_FLOCK = struct.Struct("hhqqi4x")
_TAKEN = (errno.EAGAIN, errno.EACCES)


class Holdings:
    """Who uses what, among processes that open one file: a shared lock on a byte of it
    (F_OFD_SETLK) holds a name, so one descriptor serves any number.  Nothing is held where the file
    cannot be opened or locked.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._mutex = path, threading.Lock()
        self._file: int | None = None
        self._lent, self._kept = Counter[str](), set[str]()

    def keep(self, name: str) -> bool:
        """Hold a name until this process ends or removes it; False: it is being removed."""
        with self._mutex:
            if name not in self._kept and not self._shared(name):
                return False
            self._kept.add(name)
            return True

    def take(self, name: str) -> bool:
        """Hold a name until `drop`, against this process too; False when it is being removed."""
        with self._mutex:
            if not self._shared(name):
                return False
            self._lent[name] += 1
            return True

    def drop(self, name: str) -> None:
        """End one hold of `take`."""
        with self._mutex:
            left = self._lent.pop(name, 1) - 1
            if left:
                self._lent[name] = left
            elif name not in self._kept:
                self._lock(name, fcntl.F_UNLCK)

    @contextmanager
    def removing(self, name: str) -> Iterator[bool]:
        """True when nobody holds a name, and until the (short) body ends nobody can."""
        with self._mutex:
            if name in self._lent or not self._lock(name, fcntl.F_WRLCK):
                yield False
                return
            self._kept.discard(name)
            try:
                yield True
            finally:
                self._lock(name, fcntl.F_UNLCK)

    def close(self) -> None:
        """Let go of everything."""
        with self._mutex:
            self._lent.clear()
            self._kept.clear()
            if self._file is not None:
                os.close(self._file)
            self._file = None

    def _shared(self, name: str) -> bool:
        return name in self._lent or name in self._kept or self._lock(name, fcntl.F_RDLCK)

    def _lock(self, name: str, kind: int) -> bool:
        """Lock or unlock the byte of a name; False when others have it."""
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):  # a hold needs no right to write
            if self._file is None:
                with contextlib.suppress(OSError):
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    self._file = os.open(self.path, flags | os.O_CLOEXEC, 0o644)
        file = self._file
        if file is None:
            return True
        start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 2
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0))
        except OSError as error:
            return error.errno not in _TAKEN
        return True
