# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial keeps beside its result, in FOLDER/trials/0007.

counts.bin.gz     the raw counts, as the plugin wrote them
calls.json.gz     its call paths, by phase
beside.json.gz    kinds of work, memory that is touched, values of functions, by phase

Raw counts are compared with the result that was made of them, and say which window stands for a
phase and which addresses ran in it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kdelta import files
from kdelta.attribution import insns
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.files import decoded
from kdelta.journal.bundle import Difference
from kdelta.journal.results import trial_folder
from kdelta.printable import printable
from kdelta.probes.calls import PathNode
from kdelta.probes.memory import MemoryRow
from kdelta.probes.work import WorkRow
from kdelta.sample import PhaseCounts, TrialRecord, TrialResult

_MOST_RAW = 1 << 29  # bytes of one trial's counts, unpacked
_COUNTS = "counts.bin.gz"


def differences(
    folder: Path, trials: tuple[TrialRecord, ...], ids: Mapping[tuple[str, str], int]
) -> Iterator[Difference]:
    """What results are not as the raw counts say; ids: a phase's number, by workload and name."""
    for trial in trials:
        path = trial_folder(folder, trial.index) / _COUNTS
        result = trial.result
        if result is None or not result.exact.phases or result.copied:
            continue
        name = path.relative_to(folder.parent).as_posix()
        if not path.is_file():
            yield Difference(file=name, what="is missing: the counts cannot be made again")
            continue
        try:
            windows = read(path).windows
        except (KdeltaError, OSError, EOFError, zlib.error) as error:
            cause = error.cause if isinstance(error, KdeltaError) else str(error)
            yield Difference(file=name, what=f"cannot be read: {printable(cause, 200)}")
            continue
        own = _ids(trial, path.parent, ids)
        for phase in result.exact.phases:
            if _counts([w for w in windows if w.phase == own.get(phase.phase)]) != _kept(phase):
                what = f"phase {phase.phase}: result.json has other windows than were counted"
                yield Difference(file=name, what=what)


def read(path: Path, *, paths: bool = True) -> insns.Counts:
    """What the plugin wrote, out of the file that a trial kept; paths: see insns.read.

    Raises KdeltaError, OSError, EOFError or zlib.error for another one, and for what unpacks to
    more than any trial writes.
    """
    with gzip.open(io.BytesIO(files.content(path, _MOST_RAW)), "rb") as packed:
        content = packed.read(_MOST_RAW + 1)
    if len(content) > _MOST_RAW:
        raise OSError(f"it unpacks to more than {_MOST_RAW >> 20} MiB")
    with tempfile.NamedTemporaryFile(prefix="kdelta-counts-") as raw:
        raw.write(content)
        raw.flush()
        return insns.read(Path(raw.name), paths=paths)


def _ids(trial: TrialRecord, folder: Path, ids: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """The numbers of a trial's phases; those of a C file without a TOML are in what it printed."""
    name = Path(trial.workload).stem
    known = {phase: number for (load, phase), number in ids.items() if load == name}
    if known:
        return known
    with contextlib.suppress(OSError):
        words = [line.split() for line in (folder / "workload.txt").read_text().splitlines()]
        found = [each for each in words if len(each) == 5 and each[0] == "phase"]
        return {name: int(number) for _, number, name, _, _ in found if number.isdecimal()}
    return {}


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
    except (KdeltaError, OSError, EOFError, zlib.error) as error:
        raise StoreError(f"its raw counts cannot be read: {error}", place=str(path)) from error
    by_number: dict[int, list[insns.CountedWindow]] = {}
    for window in windows:
        by_number.setdefault(window.phase, []).append(window)
    found = {}
    for phase in result.exact.phases:
        own = next((each for each in by_number.values() if _counts(each) == _kept(phase)), None)
        if own is None:
            raise StoreError("its raw counts are another trial's", place=str(path))
        found[phase.phase] = insns.typical(own, phase.layouts)
    return found


def _counts(windows: Sequence[insns.CountedWindow]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(each.user for each in windows), tuple(each.kernel for each in windows)


def _kept(phase: PhaseCounts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(phase.user), tuple(phase.kernel)


_MAX_BYTES = 256 << 20
_NOT_OURS = (msgspec.MsgspecError, ValueError, RecursionError)  # of decoding what is no UTF-8, too
_T = TypeVar("_T")


def keep(place: Path, name: str, value: Any) -> None:
    """Write call paths (CALLS: Trees) or details (DETAILS: TrialDetails) into a trial's folder."""
    content = gzip.compress(msgspec.json.encode(value), compresslevel=3, mtime=0)
    (place / name).write_bytes(content)


def _kept_file(
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


CALLS = "calls.json.gz"
_MAX_NODES = 1 << 20

Trees = dict[str, tuple[PathNode, ...]]
"""Of each phase the call tree of the window that stands for it, callers first."""


def kept_calls(folder: Path, index: int) -> Trees:
    """Those of a trial of the run in a folder.  Raises SpecError, StoreError."""
    action = "count them with: kdelta run ... --probe calls"
    path, trees = _kept_file(folder, index, CALLS, Trees, what="call paths", action=action)
    if not all(map(_is_tree, trees.values())):
        raise StoreError("its call paths are no trees", place=str(path))
    return trees


def _is_tree(nodes: tuple[PathNode, ...]) -> bool:
    return len(nodes) <= _MAX_NODES and all(
        -1 <= node.parent < at and node.calls >= 0 and node.insns >= 0
        for at, node in enumerate(nodes)
    )


DETAILS = "beside.json.gz"
MOST_VALUES = 256  # values of a histogram


class Histogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values that a probe read, and how often, most first; missing: why it read none.

    Beyond MOST_VALUES values: others of them, which were read others_count times.
    """

    values: dict[str, int] = {}
    others: int = 0
    others_count: int = 0
    missing: str = ""


class TrialDetails(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of each phase, of the window that stands for it.

    work: kinds of instructions, by function.  memory: touched, where --probe memory asked for it,
    else None.  values: by probe as the study words it.  functions: of all phases, where each
    function of the kernel that ran lies: first address, first behind.
    """

    work: dict[str, tuple[WorkRow, ...]] = {}
    memory: dict[str, tuple[MemoryRow, ...]] | None = None
    values: dict[str, dict[str, Histogram]] = {}
    functions: dict[str, tuple[tuple[int, int], ...]] = {}


def kept_details(folder: Path, index: int) -> TrialDetails:
    """Those of a trial of the run in a folder.  Raises SpecError, StoreError."""
    action = "count again: kdelta run ... --new"
    return _kept_file(folder, index, DETAILS, TrialDetails, what="kinds of work", action=action)[1]
