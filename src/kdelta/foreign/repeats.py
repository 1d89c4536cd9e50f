# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows that stand in data twice, and runs that stand under two arms; pure.

None of it is left out: what was copied by mistake only who wrote the data knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kdelta.foreign.loading import LoadedFile
from kdelta.foreign.record import Contents, ForeignReading, SourceFile
from kdelta.printable import printable

_IN_A_ROW = 4  # values that stand again in the same order: chance does that to coarse ones only
_FINE = 0.5  # share of values that have to differ from each other where that is looked at
_NUMBERED = re.compile(r"[A-Za-z]*[-_ #]?\d{1,6}", re.ASCII)  # run3: every arm has one
_NAME = 60
_TOLD = 3
_LITTLE = 64  # bytes of files that may well be alike: a figure or two
MISPLACED = "one arm may be wrong"
COPIED = "were they copied? They are counted as they stand"


def files(sources: Sequence[SourceFile]) -> tuple[str, ...]:
    """Sentences on files that are equal to the byte."""
    alike: dict[str, list[str]] = {}
    for source in sources:
        if source.size > _LITTLE:
            alike.setdefault(source.sha256, []).append(source.name)
    return tuple(
        f"{' and '.join(names[:_TOLD])} are the same to the byte: {COPIED}"
        for names in alike.values()
        if len(names) > 1
    )[:_TOLD]


def notes(contents: Contents, files: Sequence[LoadedFile]) -> tuple[str, ...]:
    """Sentences on both, of tables and what was read from them."""
    rows = [text for file in files for text in _rows(file)]
    return (*rows, *(() if rows else _blocks(contents.readings)), *_runs(contents.readings))


def _rows(file: LoadedFile) -> Iterator[str]:
    """Lines that are equal in all cells, though a column says which run each is of."""
    known = file.mapping.columns if file.mapping else None
    if known is None or not (known.position or known.run or known.boot):
        return
    lines = file.source.lines
    if not (known.position or known.run or known.round) and not _fine(file):
        return  # several rows of a boot, on a coarse clock
    again = len(lines) - len({line.cells for line in lines})
    if again:
        told = f"{again} of {len(lines)} rows stand there twice, with the same run"
        yield f"{file.source.name}: {told}: {COPIED}"


def _fine(file: LoadedFile) -> bool:
    """True when most rows have a figure of their own in each column of figures."""
    mapping, lines = file.mapping, file.source.lines
    columns = [one.value for one in mapping.metrics.values() if one.value] if mapping else []
    places = [file.source.columns.index(name) for name in columns if name in file.source.columns]
    return bool(places) and all(
        len({line.cells[at] for line in lines}) > _FINE * len(lines) for at in places
    )


def _blocks(readings: Sequence[ForeignReading]) -> Iterator[str]:
    """Values of an arm that come again one after the other as before."""
    arms: dict[tuple[str, str, object], list[float]] = {}
    for one in readings:
        if one.value is not None:
            arms.setdefault((one.arm, one.metric, one.group), []).append(one.value)
    found = [(arm, metric, _again(own), len(own)) for (arm, metric, _), own in arms.items()]
    found = [one for one in found if one[2]]
    if found:
        told = [
            f"{printable(arm, _NAME)}, {printable(metric, _NAME)}: {again} of {count} values"
            for arm, metric, again, count in found[:_TOLD]
        ]
        more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
        yield f"{'; '.join(told)}{more} come again, one after the other as before: {COPIED}"


def _again(values: Sequence[float]) -> int:
    if len(set(values)) < _FINE * len(values):
        return 0
    seen: dict[tuple[float, ...], int] = {}
    copied: set[int] = set()
    for at in range(len(values) - _IN_A_ROW + 1):
        row = tuple(values[at : at + _IN_A_ROW])
        first = seen.setdefault(row, at)
        if first + _IN_A_ROW <= at and len(set(row)) == _IN_A_ROW:
            copied.update(range(at, at + _IN_A_ROW))
    return len(copied)


def _runs(readings: Sequence[ForeignReading]) -> Iterator[str]:
    arms: dict[str, dict[str, None]] = {}
    for one in readings:
        if one.run and not _NUMBERED.fullmatch(one.run):
            arms.setdefault(one.run, {})[one.arm] = None
    shared = {run: list(names) for run, names in arms.items() if len(names) > 1}
    if shared:
        run, names = next(iter(shared.items()))
        more = f", and {len(shared) - 1} more runs" if len(shared) > 1 else ""
        both = printable(" and ".join(names), _NAME)
        yield f"run {printable(run, _NAME)} stands under {both}{more}: {MISPLACED}"
