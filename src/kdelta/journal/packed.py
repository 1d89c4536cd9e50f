# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial kept beside its counts, as compressed JSON in its folder."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kdelta import files
from kdelta.errors import SpecError, StoreError
from kdelta.files import decoded
from kdelta.journal.results import trial_folder

_MAX_BYTES = 256 << 20
_NOT_OURS = (msgspec.MsgspecError, ValueError, RecursionError)  # of decoding what is no UTF-8, too
_T = TypeVar("_T")


def keep(place: Path, name: str, value: Any) -> None:
    """Write a value into a trial's folder."""
    content = gzip.compress(msgspec.json.encode(value), compresslevel=3, mtime=0)
    (place / name).write_bytes(content)


def kept(
    folder: Path, index: int, name: str, form: type[_T], *, what: str, action: str
) -> tuple[Path, _T]:
    """Where a trial of the run in a folder kept it, and the value.

    what: it is called, in the plural; action: that makes a run keep it.  Raises SpecError when it
    kept none, StoreError when it is damaged or too large.
    """
    path = trial_folder(folder, index) / name
    try:
        packed = files.content(path, _MAX_BYTES)
        with gzip.open(io.BytesIO(packed)) as stream:
            text = stream.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise StoreError(f"it unpacks to more than {_MAX_BYTES >> 20} MiB", place=str(path))
        return path, decoded(text, form)
    except FileNotFoundError:
        raise SpecError(f"the run kept no {what}", place=str(folder), action=action) from None
    except (OSError, EOFError, zlib.error, *_NOT_OURS) as error:
        raise StoreError(f"its {what} cannot be read: {error}", place=str(path)) from error
