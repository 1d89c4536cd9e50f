# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache directory: things that can be made again, of kinds that one table declares.

An *entry* is a folder that never changes.  It appears whole or not at all, with a list of its
files.  A user checks it by that list, or makes it anew, and holds it: other processes remove only
entries that nobody holds.  What changes while it is used (the apt root, sources, warm build
directories) lies *in place* and has its own rules.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache as remember
from pathlib import Path

import msgspec

from kdelta import files, locks
from kdelta.errors import FullError, InfraError, SpecError
from kdelta.kinds import KINDS
from kdelta.locks import BusyError, Holdings

_LOCK_S = 6 * 3600.0
_LOCKS = "locks"
_HELD = "entries"  # the file of all holds
_MAKING, _GONE = ".making-", ".gone-"
_COMPARED, _SIZE, _MOST_DIGITS = ".compared.json", ".size", 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one kind of thing takes: number of entries, bytes."""

    kind: str
    entries: int
    size: int


def root() -> Path:
    """The cache directory (XDG_CACHE_HOME honoured)."""
    import platformdirs

    place = platformdirs.user_cache_path("kdelta")
    if ":" in str(place) or min(map(ord, str(place))) < ord(" "):
        cause = "the cache's path has a colon or a control character"
        raise SpecError(cause, place=str(place), action="set XDG_CACHE_HOME to another")
    return place


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
    kind: str, key: str, make: Callable[[Path], None], check: Callable[[Path], object] | None = None
) -> Path:
    """The entry under a key; where no whole one is, `make` fills a scratch folder that becomes it.
    check: when it raises, the entry goes again.  Other processes leave it until this one ends.
    Raises InfraError when the cache cannot be written, and what `make` raises.
    """
    return _entry(kind, key, make, check, Holdings.keep)


@contextmanager
def lent(kind: str, key: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """The same while the context lasts: no thread of this process removes it either."""
    with ExitStack() as held:

        def take(holds: Holdings, name: str) -> bool:
            taken = holds.take(name)
            if taken:
                held.callback(holds.drop, name)
            return taken

        yield _entry(kind, key, make, None, take)


def _entry(
    kind: str,
    key: str,
    make: Callable[[Path], None],
    check: Callable[[Path], object] | None,
    hold: Callable[[Holdings, str], bool],
) -> Path:
    if there := _found(kind, key, hold):
        return there
    final = folder(kind) / key
    with locked(_lock(final)), writing(final):
        if there := _found(kind, key, hold):  # another process may have been quicker
            return there
        _delete(_put_away(final))
        _make(final, make)
        try:
            if check is not None:
                check(final)
        except BaseException:
            _delete(_put_away(final))
            raise
        hold(_holds(), _lock(final))
    make_room(kind, keep=final)
    return final


def found(kind: str, key: str) -> Path | None:
    """The whole entry of a key; it counts as used, and stays until this process ends."""
    return _found(kind, key, Holdings.keep)


def _found(kind: str, key: str, hold: Callable[[Holdings, str], bool]) -> Path | None:
    place = root() / kind / key
    if not files.is_whole(place, KINDS[kind].read):
        return None
    # Another process may have removed it before this hold, but cannot after it.
    if not hold(_holds(), _lock(place)) or not place.exists():
        return None
    mark_used(place)
    return place


def keep(place: Path) -> bool:
    """Have other processes leave an entry until this one ends; False when one removes it now."""
    return _holds().keep(_lock(place)) and place.exists()


def has(kind: str, key: str) -> bool:
    """True when there is a whole entry of a kind under a key; none of its files is read."""
    return files.is_whole(root() / kind / key, ())


def entries(kind: str, start: str = "") -> tuple[Path, ...]:
    """All entries of a kind that are whole and whose key starts so, sorted by key."""
    known = (path for path in children(kind) if path.name.startswith(start))
    return tuple(path for path in known if files.is_whole(path, ()))


def recorded(path: Path) -> str:
    """SHA-256 of a file of an entry when it was made; "" for a file of no entry."""
    return next((row.sha256 for row in files.listed(path.parent) if row.path == path.name), "")


def unchanged(place: Path) -> bool:
    """True when all files of an entry are as they were made.  One that was read whole is not read
    again until a file's last change, which cannot be set back, is another.
    """
    note = place / _COMPARED
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        seen = files.looked_at(place)
        if note.is_file() and note.read_bytes() == seen:
            return True
        if files.is_whole(place, ("*",)):
            files.write_aside(note, seen)
            return True
    return files.is_whole(place, ("*",))


def discard(place: Path) -> None:
    """Remove an unusable entry: the next caller makes it anew."""
    with locked(_lock(place)), writing(place):
        _delete(_put_away(place))


def mark_used(place: Path) -> None:
    """Note that something was used now: eviction begins with the longest unused."""
    with contextlib.suppress(OSError):  # a read-only cache still serves
        os.utime(place)


def _make(final: Path, make: Callable[[Path], None]) -> None:
    # Nobody else makes this entry now: an existing scratch folder is a killed process's.
    scratch = final.with_name(f"{_MAKING}{final.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        make(scratch)
        files.make_list(scratch)
        files.sync_tree(scratch)
        scratch.rename(final)
        files.sync(final.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


# -- room -----------------------------------------------------------------------------------------


def make_room(kind: str, keep: Path | None = None) -> None:
    """Remove leftovers, and beyond a kind's limit what is longest unused, but not `keep`.

    A kind that is a link is another cache's, whose locks are not ours: it is left alone.
    """
    if (root() / kind).is_symlink():
        return
    with locked(f"room-{kind}"):  # two evictions at once would both remove as much as is needed
        limit = KINDS[kind].limit_bytes
        if limit is not None:
            _evict(kind, limit, keep)
    _sweep(root() / kind)


def _evict(kind: str, limit: int, keep: Path | None) -> None:
    rows = []
    for path in children(kind):
        with contextlib.suppress(FileNotFoundError):
            rows.append((path.stat().st_mtime, path, _size(path)))
    total = sum(size for _, _, size in rows)
    for _, path, size in sorted(rows):
        if total <= limit:
            return
        if path != keep and remove(path):
            total -= size


def remove(place: Path) -> bool:
    """Remove something from the cache; False when somebody makes it, uses it or has it locked."""
    name = _lock(place)
    try:
        with locked(name, timeout=0), writing(place):
            with _holds().removing(name) as free:
                away = _put_away(place) if free else None
            if away:
                _delete(away)
    except BusyError:
        return False
    return free


def _put_away(place: Path) -> Path:
    """Rename what may be there out of the way, to be deleted."""
    away = place.with_name(f"{_GONE}{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        place.rename(away)
    return away


def _delete(path: Path) -> None:
    if files.is_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sweep() -> None:
    """Delete what killed processes left in the whole cache."""
    for kind in KINDS:
        with contextlib.suppress(InfraError, OSError):  # a read-only cache still serves
            _sweep(root() / kind)


def _sweep(place: Path) -> None:
    if place.is_symlink():
        return
    for path in place.glob(f"{_GONE}*"):
        _delete(path)
    for path in place.glob(f"{_MAKING}*"):
        maker = _lock(path.with_name(path.name.removeprefix(_MAKING)))
        with contextlib.suppress(BusyError), locked(maker, timeout=0):
            _delete(path)


def usage(progress: Callable[[str, float], object] = lambda *_: None) -> tuple[Usage, ...]:
    """What the cache holds, one row per kind, largest first."""
    rows = []
    for kind in present():
        size, paths = 0, children(kind)
        for at, path in enumerate(paths):
            progress(f"summing up {kind}", at / len(paths))
            size += _size(path)
        rows.append(Usage(kind=kind, entries=len(paths), size=size))
    return tuple(sorted(rows, key=lambda row: -row.size))


def present() -> list[str]:
    """The kinds that the cache holds."""
    places = root().iterdir() if root().is_dir() else ()
    return sorted(place.name for place in places if place.is_dir() and place.name != _LOCKS)


def clear(kind: str) -> int:
    """Remove all of one kind; returns how many stay because somebody uses them."""
    left = sum(not remove(path) for path in children(kind))
    _sweep(root() / kind)
    with contextlib.suppress(OSError):  # not empty
        (root() / kind).rmdir()
    return left


def children(kind: str) -> list[Path]:
    """All of a kind, sorted by key, whole or not."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(p for p in (root() / kind).iterdir() if not p.name.startswith("."))
    return []


def _size(place: Path) -> int:
    """Bytes of all files at or below a place; of an entry, as its list says.  A workplace has
    100,000 of them, and a note of their sum since it was last used.
    """
    rows, note = files.listed(place), place / _SIZE
    if rows:
        return sum(max(row.size if row.stored is None else row.stored, 0) for row in rows)
    with contextlib.suppress(OSError, ValueError):
        if note.stat().st_mtime_ns >= place.stat().st_ctime_ns:
            return int(files.content(note, _MOST_DIGITS))
    total, left = 0, [str(place)]
    while left:
        path = left.pop()
        with contextlib.suppress(OSError):  # evicted by another process meanwhile
            facts = os.lstat(path)
            if stat.S_ISDIR(facts.st_mode):
                left += [one.path for one in os.scandir(path)]
            elif path != str(note):
                total += min(facts.st_size, facts.st_blocks * 512)
    if place.parent.name in KINDS and KINDS[place.parent.name].in_place:
        with contextlib.suppress(OSError):  # a read-only cache still serves
            files.write_aside(note, f"{total}".encode(), lasting=False)
            mark_used(note)  # its name changed the folder, too
    return total


# -- in place, and locks --------------------------------------------------------------------------


@contextmanager
def workplace(kind: str, key: str) -> Iterator[Path]:
    """A folder that changes, exclusive while the context lasts; made when missing."""
    place = folder(kind) / key
    with locked(_lock(place)):
        with writing(place):
            place.mkdir(exist_ok=True)
        mark_used(place)
        try:
            yield place
        finally:
            mark_used(place)  # what was summed up meanwhile holds no longer


@contextmanager
def passing(kind: str) -> Iterator[Path]:
    """A temporary folder beside the entries of a kind, removed when the context ends."""
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


_HOLDS_MUTEX = threading.Lock()
_HOLDS: list[Holdings] = []  # at most one: that of the cache directory as it is set now


def _holds() -> Holdings:
    path = root() / _LOCKS / _HELD
    with _HOLDS_MUTEX:
        if not _HOLDS or _HOLDS[0].path != path:
            for before in _HOLDS:
                before.close()
            _HOLDS[:] = [Holdings(path)]
        return _HOLDS[0]


@contextmanager
def locked(name: str, timeout: float = _LOCK_S, place: Path | None = None) -> Iterator[None]:
    """Hold the lock of that name; see locks.locked.  place: by default with the others of the
    cache.  Raises BusyError and InfraError.
    """
    path = (place or root() / _LOCKS) / f"{name}.lock"
    with ExitStack() as held:
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locks.locked(path, timeout))
        yield


def lease_place() -> Path:
    """Where the locks of leases are: apart from the others, of which there are thousands, or, where
    the cache cannot be written but has what is needed, in a folder of this process, which then
    knows of no other's leases.
    """
    place = root() / _LOCKS / "leases"
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    if os.access(place, os.W_OK):
        return place
    with _HOLDS_MUTEX:  # or two threads make one each, and one of them goes
        return Path(_own_place().name)


@remember
def _own_place() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kdelta-leases-")


def held(beginning: str, place: Path | None = None) -> tuple[str, ...]:
    """Names of the locks with that beginning that somebody holds at this moment."""
    place = place or root() / _LOCKS
    with writing(place):
        return tuple(p.stem for p in place.glob(f"{beginning}*.lock") if locks.is_held(p))


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn an OSError of the body, which uses `place`, into an InfraError that says what to do."""
    try:
        yield
    except OSError as error:
        if files.is_full(error):
            raise disk_full(place) from error
        cause = f"the cache cannot be written: {error.strerror or error}"
        action = "make it writable, or point XDG_CACHE_HOME elsewhere"
        raise InfraError(cause, place=str(error.filename or place), action=action) from error


def disk_full(place: Path) -> FullError:
    """The error of a cache whose disk is full."""
    action = "free some space, or point XDG_CACHE_HOME elsewhere, and run again"
    return FullError("the disk is full", place=str(place), action=action)
