# SPDX-License-Identifier: GPL-2.0-or-later
"""The raw counts that a trial kept: FOLDER/trials/0007/counts.bin.gz, what the plugin wrote.

They are compared with the result that was made of them, and say which window stands for a phase and
which addresses ran in it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kdelta import files
from kdelta.attribution import insns
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.journal.bundle import Difference
from kdelta.journal.results import trial_folder
from kdelta.printable import printable
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
