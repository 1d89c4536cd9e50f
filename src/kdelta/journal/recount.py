# SPDX-License-Identifier: GPL-2.0-or-later
"""The raw counts of a run's trials against the results that were made of them."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from kdelta.attribution import insns
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.journal.bundle import Difference
from kdelta.journal.results import trial_folder
from kdelta.printable import printable
from kdelta.sample import TrialRecord, TrialResult

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


def read(path: Path, *, paths: bool = True, encodings: bool = True) -> insns.Counts:
    """What the plugin wrote, out of the file that a trial kept; paths, encodings: see insns.read.

    Raises KdeltaError, OSError, EOFError or zlib.error for another one, and for what unpacks to
    more than any trial writes.
    """
    with tempfile.NamedTemporaryFile(prefix="kdelta-counts-") as raw:
        size = 0
        with gzip.open(path, "rb") as packed:
            while piece := packed.read(1 << 20):
                size += len(piece)
                if size > _MOST_RAW:
                    raise OSError(f"it unpacks to more than {_MOST_RAW >> 20} MiB")
                raw.write(piece)
        raw.flush()
        return insns.read(Path(raw.name), paths=paths, encodings=encodings)


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


def standing(
    folder: Path, index: int, result: TrialResult, *, encodings: bool = True
) -> dict[str, insns.CountedWindow]:
    """Of each phase of a trial the window that stands for it, without its call paths.

    encodings: with the bytes of its instructions, which take as long to read as all else.
    Raises SpecError when the run did not keep it, StoreError when it is damaged.
    """
    path = trial_folder(folder, index) / _COUNTS
    try:
        counts = read(path, paths=False, encodings=encodings)
    except FileNotFoundError:
        raise SpecError(
            "the run kept no raw counts",
            place=str(path),
            action="count again: kdelta run ... --new",
        ) from None
    except (KdeltaError, OSError, EOFError, zlib.error) as error:
        raise StoreError(f"its raw counts cannot be read: {error}", place=str(path)) from error
    found: dict[str, insns.CountedWindow] = {}
    for phase in result.exact.phases:
        for number in {window.phase for window in counts.windows}:
            own = [window for window in counts.windows if window.phase == number]
            if ([w.user for w in own], [w.kernel for w in own]) == ([*phase.user], [*phase.kernel]):
                found[phase.phase] = insns.typical(own, phase.layouts)
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
