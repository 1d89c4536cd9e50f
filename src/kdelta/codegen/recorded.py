# SPDX-License-Identifier: GPL-2.0-or-later
"""What a stored run kept beside its counts: call paths, kinds of work, and the code that ran."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta import arch
from kdelta.analysis import calls
from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.explanation import Explanation, base_name
from kdelta.analysis.work import WorkExplanation, compared
from kdelta.codegen.source_lines import RanFunction
from kdelta.disassembly.objdump import ExecutedInsn, executed
from kdelta.journal import artifacts, raw_counts
from kdelta.journal.run import RunRecord
from kdelta.probes.calls import PathNode
from kdelta.sample import KernelIdentity

Trees = Sequence[Sequence[PathNode]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanPiece:
    """A function, or a part that the compiler split off, at its place, with what ran of it."""

    symbol: str
    start: int
    instructions: tuple[ExecutedInsn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCode:
    """What ran under one kernel; kernel: None where no trial says."""

    kernel: KernelIdentity | None
    pieces: tuple[RanPiece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begins:
    """Where functions that ran under one kernel begin, by their names in the source."""

    kernel: KernelIdentity | None
    functions: Mapping[str, RanFunction]


def ran(folder: Path, record: RunRecord, side: Sequence[tuple[int, str]], function: str) -> RanCode:
    """What ran of a function in windows of one kernel.  side: trial and phase of each."""
    counted: list[tuple[int, bytes, int]] = []
    places: dict[tuple[int, int], str] = {}
    names: dict[int, str] = {}
    kernel = None
    for index, phase in side:
        told = artifacts.kept_details(folder, index).functions
        own = [name for name in told if function in (name, base_name(name))]
        places |= {place: name for name in own for place in told[name]}
        names |= {start: name for name in told for start, _ in told[name]}
        trial = next(one for one in record.trials if one.index == index)
        if trial.result is None:
            continue
        kernel = record.arms[trial.arm].kernel
        counted += raw_counts.typical_windows(folder, index, trial.result)[phase].instructions()
    architecture = arch.of(kernel.arch) if kernel else arch.native()
    return RanCode(
        kernel=kernel,
        pieces=tuple(
            RanPiece(
                symbol=name,
                start=start,
                instructions=executed(counted, start, end, architecture, names),
            )
            for (start, end), name in places.items()
        ),
    )


def reached(
    folder: Path, record: RunRecord, side: Sequence[tuple[int, str]]
) -> tuple[set[int], dict[int, tuple[int, str]]]:
    """The addresses that ran in windows of one kernel, and its functions: start, end and name."""
    addresses: set[int] = set()
    places: dict[int, tuple[int, str]] = {}
    of_trial: dict[int, dict[str, set[int]]] = {}
    for index, phase in side:
        trial = next(one for one in record.trials if one.index == index)
        if trial.result is None:
            continue
        if index not in of_trial:
            of_trial[index] = raw_counts.executed(folder, index, trial.result)
            told = artifacts.kept_details(folder, index).functions
            places |= {start: (end, name) for name in told for start, end in told[name]}
        addresses |= of_trial[index][phase]
    return addresses, places


def reached_functions(
    addresses: Collection[int], places: Mapping[int, tuple[int, str]]
) -> list[RanFunction]:
    """The functions at these places of which addresses ran."""
    ran = sorted(addresses)
    found = []
    for start, (end, name) in sorted(places.items()):
        own = ran[bisect_left(ran, start) : bisect_left(ran, end)]
        if own:
            found.append(RanFunction(name=name, start=start, addresses=tuple(own)))
    return found


def begins(folder: Path, record: RunRecord, side: Sequence[tuple[int, str]]) -> Begins:
    """Where the functions begin that ran in windows of one kernel."""
    kernel = None
    found: dict[str, RanFunction] = {}
    for index, _ in side:
        told = artifacts.kept_details(folder, index).functions
        trial = next(one for one in record.trials if one.index == index)
        kernel = record.arms[trial.arm].kernel
        # The shortest name first: a part that was split off begins elsewhere.
        for symbol in sorted(told, key=lambda name: (len(name), name)):
            start = told[symbol][0][0]
            one = RanFunction(name=symbol, start=start, addresses=(start,))
            found.setdefault(base_name(symbol), one)
    return Begins(kernel=kernel, functions=found)


class Recorded:
    """What a run kept beside counts of an explanation's windows; raises SpecError for what not."""

    def __init__(
        self, folder: Path, record: RunRecord, whole: Explanation, point: str | None
    ) -> None:
        """whole: the explanation with all functions."""
        self._folder = folder
        self._record = record
        self._whole = whole
        self._point = point
        self._paths: CallExplanation | None = None

    def paths(self, found: Explanation) -> CallExplanation:
        """The difference by call paths; found: the explanation, always the same."""
        self._paths = self._paths or calls.explained(found, *self.trees())
        return self._paths

    def trees(self) -> list[Trees]:
        """The call trees of the old and the new kernel."""
        return [
            [artifacts.kept_calls(self._folder, at)[phase] for at, phase in side]
            for side in self._sides
        ]

    def work(self) -> WorkExplanation:
        """Kinds of work, memory and values."""
        old, new = (
            [(artifacts.kept_details(self._folder, at), phase) for at, phase in side]
            for side in self._sides
        )
        return compared(self._whole, old, new)

    def ran(self, function: str = "") -> tuple[RanCode, RanCode]:
        """What ran under the old and the new kernel, of a function or of all."""
        old, new = (ran(self._folder, self._record, side, function) for side in self._sides)
        return old, new

    def begins(self) -> tuple[Begins, Begins]:
        """Where the functions of the old and the new kernel begin."""
        old, new = (begins(self._folder, self._record, side) for side in self._sides)
        return old, new

    @property
    def _sides(self) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        return calls.sources(self._record, self._whole, self._point)
