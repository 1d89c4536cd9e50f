# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of a journal, and its folder.

A file is JSON of a known type, written whole or not at all, and read strictly.  A folder has a new
name, is held for one process, and is found again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

from kdelta import locks
from kdelta.errors import SpecError, StoreError
from kdelta.files import NotPlainError, content, decoded, is_full, sync, write_aside
from kdelta.printable import few, meant, printable

_NOT_OURS = (msgspec.MsgspecError, ValueError)  # of decoding a foreign file
MOST_BYTES = 24 << 20
_MOST = 300  # characters of what is wrong with one
_T = TypeVar("_T")


def write(path: Path, value: object) -> None:
    """Replace a file by a value, on the disk when this returns.  Raises StoreError."""
    write_bytes(path, msgspec.json.encode(value))


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file by these bytes, on the disk when this returns.  Raises StoreError."""
    with disk_errors(path.parent):
        is_new = not path.parent.is_dir()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, data)
        sync(path.parent)
        if is_new:
            sync(path.parent.parent)


def read(path: Path, kind: type[_T], *, most: int = MOST_BYTES, action: str = "") -> _T | None:
    """The value of a file, None: there is none.  Raises StoreError; action: what to do then."""
    with disk_errors(path):
        try:
            data = content(path, most)
        except FileNotFoundError:
            return None
        except NotPlainError as error:
            raise damaged(path, error.strerror or "", action=action) from error
    try:
        return decoded(data, kind)
    except _NOT_OURS as error:
        raise damaged(path, printable(str(error), _MOST), action=action) from error


def damaged(path: Path, why: str, *, action: str = "") -> StoreError:
    """The error of a file that does not hold what it should."""
    return StoreError(f"the file is damaged: {why}", place=str(path), action=action)


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """Turn an OSError of the body into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise disk_full(place) from error
        cause = f"the run cannot be read or written: {error.strerror or error}"
        action = "check that the folder exists and belongs to you"
        raise StoreError(cause, place=str(error.filename or place), action=action) from error


def disk_full(place: Path) -> StoreError:
    """The error of a full disk: nothing finished is lost, and the run resumes."""
    action = "finished trials are kept: free some space, then give the same command to resume"
    return StoreError("the disk is full", place=str(place), action=action)


_SHOWN = 10


def new_folder(root: Path, name: str, now: datetime) -> Path:
    """Make a new empty folder under `root`; safe against other processes.

    Its name is what was measured and the time, such as NAME-20261120-101500.
    """
    base = f"{name}-{now:%Y%m%d-%H%M%S}"
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = root / (f"{base}-{number}" if number > 1 else base)
            with suppress(FileExistsError):
                folder.mkdir()
                break
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderKind:
    """A kind of folder under a common root: `file` in it makes it one.

    word: what it is called; first: what to do when there is none.
    """

    file: str
    word: str
    first: str

    def folders(
        self, root: Path, but: Callable[[Path], bool] = lambda _folder: False
    ) -> list[Path]:
        """Those under `root`, newest first.  but: of which nothing is read.  Raises SpecError."""
        if os.path.lexists(root) and not root.is_dir():
            raise SpecError("it is no folder", place=str(root), action="name one with --runs")
        with disk_errors(root):
            known = (path.parent for path in root.glob(f"[!.]*/{self.file}"))
            found = [each for each in known if not each.is_symlink() and not but(each)]
        return sorted(found, key=self._created, reverse=True)

    def find(self, root: Path, text: str) -> Path:
        """The one of that name, beginning of a name, path, or "latest".  Raises SpecError."""
        known = self.folders(root)
        if text == "latest" and known:
            return known[0]
        if exact := [folder for folder in known if folder.name == text]:
            return exact[0]
        if text and (Path(text) / self.file).exists():
            return Path(text)
        matches = [folder for folder in known if text and folder.name.startswith(text)]
        if len(matches) == 1:
            return matches[0]
        cause, action = f"there are no {self.word}s yet", self.first
        if matches:
            cause = f'"{text}" is the beginning of {len(matches)} {self.word}s'
            action = f"there are {few([each.name for each in matches], _SHOWN)}"
        elif known:
            near = meant(text, ["latest", *(folder.name for folder in known)])
            cause = f'no {self.word} is called "{text}"'
            action = f"{near}there are {few([each.name for each in known], _SHOWN)}"
        raise SpecError(cause, place=str(root), action=action)

    def _created(self, folder: Path) -> tuple[str, int]:
        """When it was made, then the order of one second; "" where opening it says why."""
        with suppress(StoreError, OSError):
            written = (folder / self.file).stat().st_mtime_ns
            head = read(folder / self.file, _Created)
            return (head.created if head else "", written)
        return "", 0


class _Created(msgspec.Struct, frozen=True):
    created: str = ""


def check_plain(folder: Path) -> None:
    """Raise StoreError for a folder with links or pipes in it: a write would leave it, or wait."""
    with disk_errors(folder):
        for place, folders, names in os.walk(folder):
            for name in (*folders, *names):
                if why := _not_plain(Path(place, name)):
                    cause = f"nothing is written into a run's folder with {why} in it"
                    action = "remove that, or go on with a copy of the plain files"
                    raise StoreError(cause, place=str(Path(place, name)), action=action)


def _not_plain(path: Path) -> str:
    """What an entry of a folder is that is neither a folder nor a file of this name alone."""
    try:
        facts = path.lstat()
    except FileNotFoundError:  # another process executes the run
        return ""
    if stat.S_ISDIR(facts.st_mode):
        return ""
    if stat.S_ISLNK(facts.st_mode):
        return "a symbolic link"
    if not stat.S_ISREG(facts.st_mode):
        return "a pipe, a socket or a device"
    return "a file that has other names, too," if facts.st_nlink > 1 else ""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder for this process.  Raises StoreError, also as check_plain does."""
    check_plain(folder)
    lock = folder / "lock"
    with ExitStack() as own:
        try:
            with disk_errors(folder):
                own.enter_context(locks.locked(lock, 0))
        except locks.BusyError as error:
            holders = map(str, sorted(locks.lock_holders([lock])))
            cause = (
                f"run {folder.name} is being executed by process {' '.join(holders) or 'unknown'}"
            )
            raise StoreError(cause, action="wait for it, or end that process first") from error
        yield


def is_held(folder: Path) -> bool:
    """True while a process holds a folder."""
    try:
        return (folder / "lock").is_file() and locks.is_held(folder / "lock")
    except OSError:  # somebody else's
        return False
