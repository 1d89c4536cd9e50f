# SPDX-License-Identifier: GPL-2.0-or-later
"""The raw counts that a trial kept: FOLDER/trials/0007/counts.bin.gz, what the plugin wrote.

They say which window stands for a phase, and which addresses ran in it.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path

from kdelta import files
from kdelta.attribution import insns, stream
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.journal.results import trial_folder
from kdelta.sample import TrialResult

_MOST_RAW = insns.MOST_BYTES
_COUNTS = "counts.bin.gz"
_END = struct.Struct("<4Q")


def read(path: Path, *, paths: bool = True, whole: bool = False) -> insns.Counts:
    """What the plugin wrote, out of the file that a trial kept; paths: see insns.read.  whole: it
    has to end as QEMU ends it, behind its last window.  Raises FileNotFoundError; StoreError for
    one that is damaged, or unpacks to more than any trial writes.
    """
    try:
        return _read(path, paths=paths, whole=whole)
    except FileNotFoundError:
        raise
    except (KdeltaError, OSError, EOFError, zlib.error) as error:
        raise StoreError(f"its raw counts cannot be read: {error}", place=str(path)) from error


def _read(path: Path, *, paths: bool, whole: bool) -> insns.Counts:
    with gzip.open(io.BytesIO(files.content(path, _MOST_RAW)), "rb") as packed:
        content = packed.read(_MOST_RAW + 1)
    if len(content) > _MOST_RAW:
        raise OSError(f"it unpacks to more than {_MOST_RAW >> 20} MiB")
    found = insns.of(content, path.name, paths=paths)
    end = content[-_END.size :]
    if whole and (len(content) % 8 or _END.unpack(end)[:3] != (stream.END, 2, len(found.windows))):
        raise stream.damaged("its last record", str(path.name))
    return found


def typical_windows(
    folder: Path, index: int, result: TrialResult
) -> dict[str, insns.CountedWindow]:
    """Of each phase the window that stands for it, without paths.  SpecError, StoreError."""
    path = trial_folder(folder, index) / _COUNTS
    try:
        windows = read(path, paths=False).windows
    except FileNotFoundError:
        action = "count again: kdelta run ... --new"
        raise SpecError("the run kept no raw counts", place=str(path), action=action) from None
    by_number: dict[int, list[insns.CountedWindow]] = {}
    for window in windows:
        by_number.setdefault(window.phase, []).append(window)
    found = {}
    for phase in result.exact.phases:
        kept = [*phase.user], [*phase.kernel]
        for own in by_number.values():
            if ([one.user for one in own], [one.kernel for one in own]) == kept:
                found[phase.phase] = insns.typical(own, phase.layouts)
                break
        else:
            raise StoreError("its raw counts are another trial's", place=str(path))
    return found
