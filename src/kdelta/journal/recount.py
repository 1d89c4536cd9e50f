# SPDX-License-Identifier: GPL-2.0-or-later
"""The raw counts of a run's trials against the results that were made of them."""

from __future__ import annotations

import contextlib
import gzip
import io
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from kdelta import files
from kdelta.attribution import insns
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.journal import reached
from kdelta.journal.bundle import Difference
from kdelta.journal.results import trial_folder
from kdelta.printable import printable
from kdelta.sample import PhaseCounts, TrialRecord, TrialResult

_MOST_RAW = 1 << 29  # bytes of one trial's counts, unpacked
_COUNTS = "counts.bin.gz"


def recounted(
    folder: Path, trials: tuple[TrialRecord, ...], ids: Mapping[tuple[str, str], int]
) -> Iterator[Difference]:
    """What of the results of a run's folder is not what its raw counts say.

    ids: the number of a phase in the marks, by workload and name.
    """
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
            counts = read(path)
        except (KdeltaError, OSError, EOFError, zlib.error) as error:
            cause = error.cause if isinstance(error, KdeltaError) else str(error)
            yield Difference(file=name, what=f"cannot be read: {printable(cause, 200)}")
            continue
        for what in _apart(_ids(trial, path.parent, ids), result, counts):
            yield Difference(file=name, what=what)


def read(path: Path, *, paths: bool = True) -> insns.Counts:
    """What the plugin wrote, out of the file that a trial kept; paths: see insns.read.

    Raises KdeltaError, OSError, EOFError or zlib.error for another one, and for what unpacks to
    more than any trial writes.
    """
    with tempfile.NamedTemporaryFile(prefix="kdelta-counts-") as raw:
        raw.write(_stream(path))
        raw.flush()
        return insns.read(Path(raw.name), paths=paths)


def _stream(path: Path) -> bytes:
    with gzip.open(io.BytesIO(files.content(path, _MOST_RAW)), "rb") as packed:
        stream = packed.read(_MOST_RAW + 1)
    if len(stream) > _MOST_RAW:
        raise OSError(f"it unpacks to more than {_MOST_RAW >> 20} MiB")
    return stream


def _ids(trial: TrialRecord, folder: Path, ids: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """The numbers of a trial's phases by their names.

    Those of a C file without a TOML are in what it printed.
    """
    name = Path(trial.workload).stem
    known = {phase: number for (load, phase), number in ids.items() if load == name}
    if known:
        return known
    with contextlib.suppress(OSError):
        words = [line.split() for line in (folder / "workload.txt").read_text().splitlines()]
        found = [each for each in words if len(each) == 5 and each[0] == "phase"]
        return {name: int(number) for _, number, name, _, _ in found if number.isdecimal()}
    return {}


def standing(folder: Path, index: int, result: TrialResult) -> dict[str, insns.CountedWindow]:
    """Of each phase of a trial the window that stands for it, without its call paths.

    Raises SpecError when the run did not keep it, StoreError when it is damaged.
    """
    path, counts = _kept(folder, index, partial(read, paths=False))
    return {
        phase.phase: insns.typical(own, phase.layouts)
        for phase, own in _of_phases(path, result, counts.windows)
    }


def retired(folder: Path, index: int, result: TrialResult) -> dict[str, set[int]]:
    """The addresses that ran in those windows, by phase; raises as standing()."""
    path, windows = _kept(folder, index, lambda path: reached.windows(_stream(path), str(path)))
    return {
        phase.phase: reached.addresses(own, phase.layouts)
        for phase, own in _of_phases(path, result, windows)
    }


class _Window(Protocol):
    """What tells windows of a stream apart."""

    @property
    def phase(self) -> int:
        """Its number in the marks."""

    @property
    def user(self) -> int:
        """Instructions."""

    @property
    def kernel(self) -> int:
        """Instructions."""


_W = TypeVar("_W", bound=_Window)
_Read = TypeVar("_Read")


def _kept(folder: Path, index: int, read_it: Callable[[Path], _Read]) -> tuple[Path, _Read]:
    """Where a trial's raw counts lie, and what is read of them."""
    path = trial_folder(folder, index) / _COUNTS
    try:
        return path, read_it(path)
    except FileNotFoundError:
        raise SpecError(
            "the run kept no raw counts",
            place=str(path),
            action="count again: kdelta run ... --new",
        ) from None
    except (KdeltaError, OSError, EOFError, zlib.error) as error:
        raise StoreError(f"its raw counts cannot be read: {error}", place=str(path)) from error


def _of_phases(
    path: Path, result: TrialResult, windows: Sequence[_W]
) -> list[tuple[PhaseCounts, list[_W]]]:
    """The windows of each phase, which are told by their counts."""
    by_number: dict[int, list[_W]] = {}
    for window in windows:
        by_number.setdefault(window.phase, []).append(window)
    found = []
    for phase in result.exact.phases:
        told = [*phase.user], [*phase.kernel]
        for own in by_number.values():
            if ([one.user for one in own], [one.kernel for one in own]) == told:
                found.append((phase, own))
                break
    if len(found) != len(result.exact.phases):
        raise StoreError("its raw counts are another trial's", place=str(path))
    return found


def _apart(ids: Mapping[str, int], result: TrialResult, counts: insns.Counts) -> Iterator[str]:
    for phase in result.exact.phases:
        number = ids.get(phase.phase)
        own = [window for window in counts.windows if window.phase == number]
        user, kernel = tuple(w.user for w in own), tuple(w.kernel for w in own)
        if (user, kernel) != (phase.user, phase.kernel):
            yield f"phase {phase.phase}: result.json has other windows than were counted"
