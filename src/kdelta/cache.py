# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache directory: things that can be made again, each kind of them declared in one table.

An *entry* is a folder that never changes.  It appears whole or not at all, with a list of its
files; whoever uses it finds it whole by that list, or makes it anew.  What changes while it is used
(the apt root, sources, warm build directories) lies *in place* and has its own rules.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kdelta.errors import InfraError, SpecError
from kdelta.files import (
    is_folder,
    is_full,
    is_whole,
    listed,
    looked_at,
    make_list,
    sync,
    sync_tree,
    write_aside,
)  # fmt: skip

if TYPE_CHECKING:
    from filelock import BaseFileLock

log = logging.getLogger(__name__)
_LOCK_S = 6 * 3600.0
_SILENT_S = 2.0  # that a lock is waited for without a word
_AGAIN_S = 60.0  # after which it is told again
_OURS: set[str] = set()  # names of locks that threads of this process have
_LOCKS = "locks"
_MAKING, _GONE = ".making-", ".gone-"
_COMPARED = ".compared.json"


@dataclass(frozen=True, slots=True)
class CacheKind:
    """One kind of thing that the cache holds.

    limit_mib: beyond it the longest unused ones go; the environment variable `variable` sets
    another one.  read: which files of an entry are read and compared with their SHA-256 when a
    process first uses it; of the others the size is.
    """

    name: str  # of its folder
    holds: str
    key: str  # what one of them is found by
    again: str  # how one that is gone comes back
    limit_mib: int | None = None
    read: tuple[str, ...] = ("*",)

    @property
    def variable(self) -> str:
        """The environment variable that sets the limit; "" without one."""
        return f"KDELTA_{self.name.upper()}_MIB" if self.limit_mib is not None else ""

    @property
    def limit_bytes(self) -> int | None:
        """Most that all of them may take on disk.  Raises SpecError for a bad setting."""
        text = os.environ.get(self.variable, str(self.limit_mib)) if self.variable else None
        if text is not None and not text.isdecimal():
            raise SpecError(f"not a number of MiB: {text!r}", place=self.variable)
        return None if text is None else int(text) << 20

    @property
    def limit(self) -> str:
        """How it is bounded, in words."""
        if self.limit_mib is None:
            return "none"
        return f"{self.limit_mib} MiB, `{self.variable}`; the longest unused go first"


_FETCHED, _COMPILED = "fetched from the archive", "compiled on this machine"
_ALL = (
    CacheKind("apt", "private apt roots: package lists, downloads under way", "architecture",
              "fetched from the mirror"),
    CacheKind("images", "kernel images and their configurations", "SHA-256 of their package",
              _FETCHED),
    CacheKind("modules", "kernel modules in loading order (zram)", "SHA-256 of their package",
              _FETCHED),
    CacheKind("qemu", "QEMU versions of the archive, unpacked", "package version, guest",
              _FETCHED, read=()),
    CacheKind("toolchains", "compilers of the archive, unpacked", "package version",
              _FETCHED, read=()),
    CacheKind("build", "plugin, PID 1, workload programs", "sources, flags, compiler", _COMPILED),
    CacheKind("initramfs", "PID 1 in an archive", "its content", _COMPILED),
    CacheKind("checkpoints", "booted guests to restore trials from, about 110 MB each",
              "image, initramfs, machine, QEMU build", "booted",
              limit_mib=4096, read=("meta.json", "state")),
    CacheKind("symbols", "functions of kernels by address", "SHA-256 of the image",
              "read from a booted guest"),
    CacheKind("events", "where kernels enter interrupts, exceptions and other tasks",
              "SHA-256 of the image, architecture", "found in the symbols"),
    CacheKind("selftests", "QEMUs that counted known programs right",
              "QEMU build, CPU model, plugin, program", "tested again"),
    CacheKind("results", "what was counted: results of trials, in 256 folders",
              "all that a trial depends on", "counted again", limit_mib=1024),
    CacheKind("inputs", "images and programs that a controller sent to a worker here",
              "SHA-256 of their content", "sent again", limit_mib=2048),
    CacheKind("vmlinux", "kernels unpacked from their images, for their code", "image",
              "unpacked", limit_mib=1024),
    CacheKind("debug", "line tables of kernels, about 280 MB each, and of objects compiled again",
              "SHA-256 of the image; tree, configuration, compiler, object",
              "fetched from the archive when asked, or compiled", limit_mib=4096, read=()),
    CacheKind("exports", "scenarios as C files that build alone",
              "their program and headers, kdelta's code", "written again", limit_mib=64),
    CacheKind("sources", "source trees of kernels, as git objects", "git tree id",
              "fetched from the archive, or read again"),
    CacheKind("trees", "checked-out sources with warm build directories, about 2 GB each",
              "line of trees", "checked out and built", limit_mib=20480),
    CacheKind("builds", "kernels built from source", "tree, configuration, compiler",
              "built", limit_mib=8192),
    CacheKind("build-logs", "what make said of sources that do not build", "as builds", "built"),
    CacheKind("ccache", "compilers' results, of ccache, which keeps its limit of 4 GiB itself",
              "ccache's", "built"),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one kind of thing takes: number of entries, bytes."""

    kind: str
    entries: int
    size: int


class BusyError(InfraError):
    """Another thread or process holds a lock."""


def root() -> Path:
    """The cache directory (XDG_CACHE_HOME honoured)."""
    import platformdirs

    return platformdirs.user_cache_path("kdelta")


def folder(kind: str) -> Path:
    """The folder of a kind; made when it is not there."""
    place = root() / KINDS[kind].name
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
    return place


def digest(*parts: bytes | str) -> str:
    """SHA-256 over parts, each with its length, so that no two lists collide."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


# -- entries --------------------------------------------------------------------------------------


def entry(
    kind: str,
    key: str,
    make: Callable[[Path], None],
    check: Callable[[Path], object] | None = None,
) -> Path:
    """The entry of a kind under a key; when there is none that is whole, `make` fills a scratch
    folder that becomes it.

    check: looks at what was made, in its place; when it raises, the entry is removed again.
    Raises InfraError when the cache cannot be written; whatever `make` raises passes through and
    leaves nothing behind.
    """
    there = found(kind, key)
    if there is not None:
        return there
    final = folder(kind) / key
    with locked(_lock(final)), writing(final):
        there = found(kind, key)  # another process may have been quicker
        if there is not None:
            return there
        _remove(final)
        _make(final, make)
        try:
            if check is not None:
                check(final)
        except BaseException:
            _remove(final)
            raise
    make_room(kind, keep=final)
    return final


def found(kind: str, key: str) -> Path | None:
    """The entry of a kind under a key if it is there and whole.  It counts as used now."""
    place = root() / kind / key
    if not is_whole(place, KINDS[kind].read):
        return None
    mark_used(place)
    return place


def has(kind: str, key: str) -> bool:
    """True when there is a whole entry of a kind under a key; none of its files is read."""
    return is_whole(root() / kind / key, ())


def entries(kind: str, start: str = "") -> tuple[Path, ...]:
    """All entries of a kind that are whole and whose key starts so, sorted by key."""
    known = (path for path in _children(kind) if path.name.startswith(start))
    return tuple(path for path in known if is_whole(path, ()))


def recorded(path: Path) -> str:
    """SHA-256 that a file of an entry had when it was made; "" when it is in none."""
    return next((row.sha256 for row in listed(path.parent) if row.path == path.name), "")


def unchanged(place: Path) -> bool:
    """True when all files of an entry are as they were made, those too that are not always read.

    What one process has read whole no other reads again, for as long as nothing writes to it: the
    time of a file's last change, which cannot be set back, is noted in the entry.
    """
    note = place / _COMPARED
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        seen = looked_at(place)
        if note.is_file() and note.read_bytes() == seen:
            return True
        if is_whole(place, ("*",)):
            write_aside(note, seen)
            return True
    return is_whole(place, ("*",))


def discard(place: Path) -> None:
    """Remove an entry that turned out to be of no use: the next one is made anew."""
    with locked(_lock(place)), writing(place):
        _remove(place)


def mark_used(place: Path) -> None:
    """Remember that something was used now: the longest unused goes first."""
    with contextlib.suppress(OSError):  # a read-only cache still serves
        os.utime(place)


def _make(final: Path, make: Callable[[Path], None]) -> None:
    """Fill a scratch folder, list its files, bring it to the disk and put it in place."""
    # Nobody else makes this entry now: a scratch folder that is there is a killed process's.
    scratch = final.with_name(f"{_MAKING}{final.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        make(scratch)
        make_list(scratch)
        sync_tree(scratch)
        scratch.rename(final)
        sync(final.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


# -- room -----------------------------------------------------------------------------------------


def make_room(kind: str, keep: Path | None = None) -> None:
    """Remove what killed processes left of a kind and, beyond its limit, the longest unused.

    Never `keep`, and nothing that somebody makes or has locked.
    """
    with locked(f"room-{kind}"):  # two that evict at once would both remove as much as is needed
        limit = KINDS[kind].limit_bytes
        if limit is not None:
            _evict(kind, limit, keep)
    _sweep(root() / kind)


def _evict(kind: str, limit: int, keep: Path | None) -> None:
    rows = []
    for path in _children(kind):
        with contextlib.suppress(FileNotFoundError):
            rows.append((path.stat().st_mtime, path, _size(path)))
    total = sum(size for _, _, size in rows)
    for _, path, size in sorted(rows):
        if total <= limit:
            return
        if path != keep and remove(path):
            total -= size


def remove(place: Path) -> bool:
    """Remove something from the cache; False when somebody makes it or has it locked."""
    try:
        with locked(_lock(place), timeout=0), writing(place):
            _remove(place)
    except BusyError:
        return False
    return True


def _remove(place: Path) -> None:
    """Put it out of the way in one step, then delete it; under its lock."""
    away = place.with_name(f"{_GONE}{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        place.rename(away)
        _delete(away)


def _delete(path: Path) -> None:
    if is_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sweep(place: Path) -> None:
    """Delete what killed processes were about to delete or make."""
    for path in place.glob(f"{_GONE}*"):
        _delete(path)
    for path in place.glob(f"{_MAKING}*"):
        maker = _lock(path.with_name(path.name.removeprefix(_MAKING)))
        with contextlib.suppress(BusyError), locked(maker, timeout=0):
            _delete(path)


def usage() -> tuple[Usage, ...]:
    """What the cache holds, one row per kind, largest first."""
    if not root().is_dir():
        return ()
    rows = [
        Usage(kind=place.name, entries=len(_children(place.name)), size=_size(place))
        for place in root().iterdir()
        if place.is_dir() and place.name != _LOCKS
    ]
    return tuple(sorted(rows, key=lambda row: -row.size))


def clear(kind: str) -> int:
    """Remove all of one kind; how many had to be left because somebody uses them."""
    left = sum(not remove(path) for path in _children(kind))
    _sweep(root() / kind)
    with contextlib.suppress(OSError):  # not empty
        (root() / kind).rmdir()
    return left


def _children(kind: str) -> list[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(p for p in (root() / kind).iterdir() if not p.name.startswith("."))
    return []


def _size(place: Path) -> int:
    """Bytes of all files at or below a place; of an entry, as its list says."""
    rows = listed(place)
    if rows:
        return sum(max(row.size if row.stored is None else row.stored, 0) for row in rows)
    total = 0
    paths = (Path(at) / name for at, _, names in os.walk(place) for name in names)
    for path in (place, *paths):
        with contextlib.suppress(FileNotFoundError):  # evicted by another process meanwhile
            facts = path.lstat()
            total += 0 if is_folder(path) else min(facts.st_size, facts.st_blocks * 512)
    return total


# -- in place, and locks --------------------------------------------------------------------------


@contextmanager
def workplace(kind: str, key: str) -> Iterator[Path]:
    """A folder that changes, ours alone while the context lasts; made when it is not there."""
    place = folder(kind) / key
    with locked(_lock(place)):
        with writing(place):
            place.mkdir(exist_ok=True)
        mark_used(place)
        yield place


@contextmanager
def passing(kind: str) -> Iterator[Path]:
    """A folder among the entries of a kind that is none, and goes when the context ends."""
    key = uuid.uuid4().hex
    place = folder(kind) / f"{_MAKING}{key}"
    with locked(_lock(place.with_name(key))):
        with writing(place):
            place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
    (root() / _LOCKS / f"{kind}-{key}.lock").unlink(missing_ok=True)


def _lock(place: Path) -> str:
    return f"{place.parent.name}-{place.name}"


@contextmanager
def locked(name: str, timeout: float = _LOCK_S) -> Iterator[None]:
    """Hold the lock of that name; other threads and processes wait, and the latter say so.

    Raises BusyError when it cannot be had within timeout seconds.  However its holder ends, it is
    free again.
    """
    import filelock

    path = root() / _LOCKS / f"{name}.lock"
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path, thread_local=False)
        try:
            _acquire(lock, name, timeout)
        except filelock.Timeout as error:
            raise BusyError(
                f"another kdelta has held a lock for {timeout:.0f} s",
                place=str(path),
                action="wait for it to end, or end it",
            ) from error
    _OURS.add(name)
    try:
        yield
    finally:
        _OURS.discard(name)
        lock.release()


def _acquire(lock: BaseFileLock, name: str, timeout: float) -> None:
    """Take a lock; where another process keeps it for a while, tell the user what is waited for."""
    import filelock

    begun, patience = time.monotonic(), _SILENT_S
    while True:
        waited = time.monotonic() - begun
        try:
            lock.acquire(timeout=max(0.0, min(patience, timeout - waited)))
        except filelock.Timeout:
            waited = time.monotonic() - begun
            if waited >= timeout:
                raise
        else:
            return
        if name not in _OURS:  # a thread of ours works on it, and shows that it does
            log.warning("waiting for another kdelta, which works on the same: %s", name)
        patience = _AGAIN_S


def held(beginning: str) -> tuple[str, ...]:
    """Names of the locks with that beginning that somebody holds at this moment."""
    found = []
    for path in (root() / _LOCKS).glob(f"{beginning}*.lock"):
        try:
            with locked(path.stem, timeout=0):
                continue
        except BusyError:
            found.append(path.stem)
    return tuple(found)


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn an OSError of the body, which uses `place`, into an InfraError that says what to do."""
    try:
        yield
    except OSError as error:
        if is_full(error):
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
