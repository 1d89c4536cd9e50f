# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial keeps beside its result, compressed, in FOLDER/trials/0007.

counts.bin.gz     what the plugin wrote: which window stands for a phase, which addresses ran in it
calls.json.gz     its call paths, by phase
beside.json.gz    kinds of work, memory that is touched, values of functions, by phase
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kdelta import files
from kdelta.attribution import insns, stream
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.files import decoded
from kdelta.journal.results import trial_folder
from kdelta.printable import quoted
from kdelta.probes.calls import PathNode
from kdelta.probes.memory import MemoryRow
from kdelta.probes.sharing import FieldRow, SharingRow
from kdelta.probes.work import WorkRow
from kdelta.sample import Count, TrialResult

_MAX_BYTES = 256 << 20
_NOT_OURS = (msgspec.MsgspecError, ValueError)  # of decoding what is no UTF-8, too
_T = TypeVar("_T")


def keep(place: Path, name: str, value: Any) -> None:
    """Write call paths (CALLS: Trees) or details (DETAILS: TrialDetails) into a trial's folder."""
    content = gzip.compress(msgspec.json.encode(value), compresslevel=3, mtime=0)
    (place / name).write_bytes(content)


def _kept(
    folder: Path, index: int, name: str, form: type[_T], *, what: str, action: str
) -> tuple[Path, _T]:
    """Where a trial kept it, and the value; what: it is called, in the plural.  Raises SpecError
    when it kept none (action: that makes a run keep it), StoreError for a damaged or large one.
    """
    path = trial_folder(folder, index) / name
    try:
        return path, decoded(_unpacked(path, _MAX_BYTES), form)
    except FileNotFoundError:
        raise SpecError(f"the run kept no {what}", place=str(folder), action=action) from None
    except (OSError, EOFError, zlib.error, *_NOT_OURS) as error:
        cause = f"its {what} cannot be read: {files.words_of(error)}"
        raise StoreError(cause, place=str(path)) from error


def _unpacked(path: Path, most: int) -> bytes:
    """What a file holds, compressed.  Raises OSError for more bytes than that."""
    with gzip.open(io.BytesIO(files.content(path, most))) as packed:
        found = packed.read(most + 1)
    if len(found) > most:
        raise OSError(f"it unpacks to more than {most >> 20} MiB")
    return found


CALLS = "calls.json.gz"
_MAX_NODES = 1 << 20

Trees = dict[str, tuple[PathNode, ...]]
"""Of each phase the call tree of the window that stands for it, callers first."""


def kept_calls(folder: Path, index: int, phase: str) -> tuple[PathNode, ...]:
    """Those of a phase of a trial of the run in a folder.  Raises SpecError, StoreError."""
    action = "count them with: kdelta run ... --probe calls"
    path, trees = _kept(folder, index, CALLS, Trees, what="call paths", action=action)
    nodes = trees.get(phase, ())
    sound = all(-1 <= node.parent < at for at, node in enumerate(nodes))
    if len(nodes) > _MAX_NODES or not (sound and nodes):
        raise StoreError(f"its call paths of {quoted(phase)} are no tree", place=str(path))
    return nodes


DETAILS = "beside.json.gz"
MOST_VALUES = 256  # values of a histogram


class Histogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values that a probe read, and how often, most first; missing: why it read none.

    Beyond MOST_VALUES values: others of them, which were read others_count times.
    """

    values: dict[str, Count] = {}
    others: Count = 0
    others_count: Count = 0
    missing: str = ""


class TrialDetails(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of each phase, of the window that stands for it.

    work: kinds of instructions, by function.  memory: touched, where --probe memory asked for it,
    else None; sharing: so of --probe sharing, with fields.  values: by probe as the study words it.
    functions: of all phases, where each function of the kernel that ran lies: first address, first
    behind.  members: of all phases, where each begins in the structs that were touched.
    """

    work: dict[str, tuple[WorkRow, ...]] = {}
    memory: dict[str, tuple[MemoryRow, ...]] | None = None
    sharing: dict[str, tuple[SharingRow, ...]] | None = None
    values: dict[str, dict[str, Histogram]] = {}
    functions: dict[str, tuple[tuple[int, int], ...]] = {}
    fields: dict[str, tuple[FieldRow, ...]] = {}
    members: dict[str, dict[str, int]] = {}


def kept_details(folder: Path, index: int, phase: str = "") -> TrialDetails:
    """Those of a trial of the run in a folder, of which this phase must be one.  Raises SpecError,
    StoreError.
    """
    action = "count again: kdelta run ... --new"
    path, found = _kept(folder, index, DETAILS, TrialDetails, what="kinds of work", action=action)
    wanted: dict[str, tuple[WorkRow, ...]] = {phase: ()} if phase else {}
    for name, rows in (wanted | found.work).items():
        if len({(row.function, row.kind) for row in rows}) != len(rows) or not rows:
            raise StoreError(f"its kinds of work of {quoted(name)} are no table", place=str(path))
    return found


_COUNTS = "counts.bin.gz"
_MOST_RAW = insns.MOST_BYTES
_END = struct.Struct("<4Q")


def read_counts(path: Path, *, paths: bool = True, whole: bool = False) -> insns.Counts:
    """What the plugin wrote, out of the file that a trial kept; paths: see insns.read.  whole: it
    has to end as QEMU ends it, behind its last window.  Raises FileNotFoundError; StoreError for
    one that is damaged, or unpacks to more than any trial writes.
    """
    try:
        content = _unpacked(path, _MOST_RAW)
        found = insns.of(content, path.name, paths=paths)
        end = content[-_END.size :]
        if whole and (
            len(content) % 8 or _END.unpack(end)[:3] != (stream.END, 2, len(found.windows))
        ):
            raise stream.damaged("its last record", str(path.name))
    except FileNotFoundError:
        raise
    except (KdeltaError, OSError, EOFError, zlib.error) as error:
        cause = f"its raw counts cannot be read: {files.words_of(error)}"
        raise StoreError(cause, place=str(path)) from error
    return found


def typical_windows(
    folder: Path, index: int, result: TrialResult
) -> dict[str, insns.CountedWindow]:
    """Of each phase the window that stands for it, without paths.  SpecError, StoreError."""
    path = trial_folder(folder, index) / _COUNTS
    try:
        windows = read_counts(path, paths=False).windows
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
