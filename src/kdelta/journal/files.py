# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of a journal: JSON of a known type, written whole or not at all, read strictly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from kdelta.errors import StoreError
from kdelta.files import NotPlainError, content, decoded, is_full, sync, write_aside
from kdelta.printable import printable

_NOT_OURS = (msgspec.MsgspecError, ValueError, RecursionError)  # of decoding a foreign file
_MOST_BYTES = 1 << 28
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


def read(path: Path, kind: type[_T], *, action: str = "") -> _T | None:
    """The value that a file holds; None: there is no such file.

    Raises StoreError that names the file for one that cannot be read, is cut short, or is no such
    value; action: what to do then.
    """
    with disk_errors(path):
        try:
            data = content(path, _MOST_BYTES)
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
        raise StoreError(
            f"the run cannot be read or written: {error.strerror or error}",
            place=str(error.filename or place),
            action="check that the folder exists and belongs to you",
        ) from error


def disk_full(place: Path) -> StoreError:
    """The error of a full disk: nothing finished is lost, and the run resumes."""
    return StoreError(
        "the disk is full",
        place=str(place),
        action="finished trials are kept: free some space, then give the same command to resume",
    )
