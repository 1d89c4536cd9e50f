# SPDX-License-Identifier: GPL-2.0-or-later
"""The raw counts that a trial kept: FOLDER/trials/0007/counts.bin.gz, what the plugin wrote.

They are compared with the result that was made of them, and say which window stands for a phase and
which addresses ran in it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import operator
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Protocol, TypeVar

from kdelta import files
from kdelta.attribution import insns, stream
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.journal.bundle import Difference
from kdelta.journal.results import trial_folder
from kdelta.printable import printable
from kdelta.sample import PhaseCounts, TrialRecord, TrialResult
from kdelta.verdict.windows import choose

_MOST_RAW = 1 << 29  # bytes of one trial's counts, unpacked
_COUNTS = "counts.bin.gz"


def differences(
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


def typical_windows(
    folder: Path, index: int, result: TrialResult
) -> dict[str, insns.CountedWindow]:
    """Of each phase of a trial the window that stands for it, without its call paths.

    Raises SpecError when the run did not keep it, StoreError when it is damaged.
    """
    path, counts = _kept(folder, index, partial(read, paths=False))
    return {
        phase.phase: insns.typical(own, phase.layouts)
        for phase, own in _of_phases(path, result, counts.windows)
    }


def executed(folder: Path, index: int, result: TrialResult) -> dict[str, set[int]]:
    """The addresses that ran in those windows, by phase; raises as typical_windows()."""
    path, windows = _kept(folder, index, lambda path: executed_windows(_stream(path), str(path)))
    return {
        phase.phase: addresses(own, phase.layouts)
        for phase, own in _of_phases(path, result, windows)
    }


class _Counted(Protocol):
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


_W = TypeVar("_W", bound=_Counted)
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
    """The windows of each phase, found by their counts."""
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


_OTHER = stream.KINDS - {stream.CODE, stream.WINDOW}


@dataclass(frozen=True, slots=True)
class ExecutedWindow:
    """A window as its record has it.

    code: of each slot its number and then its addresses; sizes: of each slot how many these are.
    """

    words: array[int]
    code: dict[int, array[int]]
    sizes: dict[int, int]
    place: str

    @property
    def phase(self) -> int:
        """Its number in the marks."""
        return self.words[1]

    @property
    def user(self) -> int:
        """Instructions."""
        return self.words[2]

    @property
    def kernel(self) -> int:
        """Instructions."""
        return self.words[3]

    def slots(self) -> set[int]:
        """The slots that ran.  Raises InfraError where they are not what was counted."""
        slots, counts = self.words[stream.WINDOW_HEAD :: 2], self.words[stream.WINDOW_HEAD + 1 :: 2]
        total = self.user + self.kernel
        try:
            counted = sum(map(operator.mul, map(self.sizes.__getitem__, slots), counts))
        except KeyError:
            raise stream.damaged("a window has code that was not told", self.place) from None
        if len(slots) != len(counts) or counted != total:
            raise stream.damaged(f"a window of {total} instructions has {counted}", self.place)
        return set(compress(slots, counts))


def executed_windows(content: bytes, place: str) -> list[ExecutedWindow]:
    """Those of a stream, in execution order; place: of it, for complaints.

    Raises InfraError when it is none.
    """
    code: dict[int, array[int]] = {}
    sizes: dict[int, int] = {}
    found = []
    for kind, words in stream.opened(content, place).records(_OTHER):
        if kind == stream.WINDOW:
            found.append(ExecutedWindow(words, code, sizes, place))
        elif code.setdefault(words[0], words) is words:
            sizes[words[0]] = len(words) - 1
        else:
            raise stream.damaged("code is told twice", place)
    return found


def addresses(own: Sequence[ExecutedWindow], layouts: int = 1) -> set[int]:
    """What ran in the window that stands for those of one phase, or in those that do."""
    totals = [window.user + window.kernel for window in own]
    chosen = choose(totals, [bool(window.words[5]) for window in own], layouts).indices
    slots: set[int] = set()
    for index in chosen:
        slots |= own[index].slots()
    found: set[int] = set()
    for slot in slots:
        found.update(own[0].code[slot][1:])
    return found
