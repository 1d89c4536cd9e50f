# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache directory: content-addressed things that can be made again."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdelta.errors import InfraError

_LOCK_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one kind of thing takes: number of entries, bytes."""

    kind: str
    entries: int
    size: int


def root() -> Path:
    """The cache directory (XDG_CACHE_HOME honoured)."""
    import platformdirs

    return platformdirs.user_cache_path("kdelta")


def digest(*parts: bytes | str) -> str:
    """SHA-256 over parts, each with its length, so that no two lists collide."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


@contextmanager
def locked(path: Path, timeout: float = _LOCK_S) -> Iterator[None]:
    """Hold the lock file at `path`; other processes wait.  Raises InfraError after timeout."""
    import filelock

    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path)
        try:
            lock.acquire(timeout=timeout)
        except filelock.Timeout as error:
            raise InfraError(
                f"another kdelta has held a lock for {timeout:.0f} s",
                place=str(path),
                action="wait for it to end, or end it",
            ) from error
    try:
        yield
    finally:
        lock.release()


def entry(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """Directory cache/kind/key; when absent, `make` fills a scratch directory that becomes it.

    Raises InfraError when the cache cannot be written; whatever `make` raises passes through and
    leaves nothing behind.
    """
    final = root() / kind / key
    if final.is_dir():
        mark_used(final)
        return final
    with locked(root() / "locks" / f"{kind}-{key[:16]}.lock"), writing(final):
        if final.is_dir():
            return final
        # Nobody else makes this entry now: a scratch directory that is there is a killed process's.
        scratch = final.parent / f".making-{key}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            make(scratch)
            scratch.rename(final)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    return final


def mark_used(path: Path) -> None:
    """Remember that an entry was used now: eviction takes the longest unused first."""
    try:
        os.utime(path)
    except OSError:
        return  # a read-only cache still serves


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn an OSError of the body, which uses `place`, into an InfraError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(place) from error
        raise InfraError(
            f"the cache cannot be written: {error.strerror or error}",
            place=str(error.filename or place),
            action="make it writable, or point XDG_CACHE_HOME elsewhere",
        ) from error


def disk_full(place: Path) -> InfraError:
    """The error of a cache whose disk is full."""
    return InfraError(
        "the disk is full",
        place=str(place),
        action="free some space, or point XDG_CACHE_HOME elsewhere, and run again",
    )


def evict(kind: str, limit: int, keep: Path | None = None) -> list[Path]:
    """Remove the longest unused entries of a kind until they fit limit bytes; never `keep`."""
    entries = sorted(_entries(kind), key=lambda path: path.stat().st_mtime)
    sizes = {path: tree_size(path) for path in entries}
    total = sum(sizes.values())
    removed = []
    for path in entries:
        if total <= limit:
            break
        if path == keep:
            continue
        shutil.rmtree(path, ignore_errors=True)
        total -= sizes[path]
        removed.append(path)
    return removed


def usage() -> tuple[Usage, ...]:
    """What the cache holds, one row per kind, largest first."""
    if not root().is_dir():
        return ()
    rows = []
    for folder in root().iterdir():
        if folder.is_dir() and folder.name != "locks":
            entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
            rows.append(Usage(kind=folder.name, entries=len(entries), size=tree_size(folder)))
    return tuple(sorted(rows, key=lambda row: -row.size))


def tree_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_size
            except FileNotFoundError:
                continue  # evicted by another process meanwhile
    return total


def _entries(kind: str) -> list[Path]:
    folder = root() / kind
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
