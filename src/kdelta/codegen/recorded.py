# SPDX-License-Identifier: GPL-2.0-or-later
"""What a stored run kept beside its counts: call paths, kinds of work, and the code that ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta import arch
from kdelta.analysis import calls
from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.explanation import Explanation, base_name
from kdelta.analysis.work import WorkExplanation, compared
from kdelta.disassembly.objdump import ExecutedInsn, executed
from kdelta.journal import artifacts, raw_counts
from kdelta.journal.run import RunRecord
from kdelta.probes.calls import PathNode

Trees = Sequence[Sequence[PathNode]]


def ran(
    folder: Path, record: RunRecord, side: Sequence[tuple[int, str]], function: str
) -> tuple[ExecutedInsn, ...]:
    """What ran of a function and its clones; side: trial and phase of each window of a kernel."""
    counted: list[tuple[int, bytes, int]] = []
    places: dict[tuple[int, int], None] = {}
    names: dict[int, str] = {}
    architecture = arch.native()
    for index, phase in side:
        told = artifacts.kept_details(folder, index).functions
        for name in told:
            if function in (name, base_name(name)):
                places |= dict.fromkeys(told[name])
        names |= {start: name for name in told for start, _ in told[name]}
        trial = next(one for one in record.trials if one.index == index)
        if trial.result is None:
            continue
        architecture = arch.of(record.arms[trial.arm].kernel.arch)
        counted += raw_counts.typical_windows(folder, index, trial.result)[phase].instructions()
    return tuple(
        one for start, end in places for one in executed(counted, start, end, architecture, names)
    )


@dataclass(slots=True)
class Recorded:
    """What a run kept beside counts of an explanation's windows; raises SpecError for what not.

    whole: the explanation with all functions.
    """

    folder: Path
    record: RunRecord
    whole: Explanation
    point: str | None
    _paths: CallExplanation | None = None

    def paths(self, found: Explanation) -> CallExplanation:
        """The difference by call paths; found: the explanation, always the same."""
        self._paths = self._paths or calls.explained(found, *self.trees())
        return self._paths

    def trees(self) -> list[Trees]:
        """The call trees of the old and the new kernel."""
        kept = artifacts.kept_calls
        return [[kept(self.folder, at)[phase] for at, phase in side] for side in self._sides]

    def work(self) -> WorkExplanation:
        """Kinds of work, memory and values."""
        kept = artifacts.kept_details
        old, new = ([(kept(self.folder, at), phase) for at, phase in side] for side in self._sides)
        return compared(self.whole, old, new)

    def ran(self, function: str) -> tuple[tuple[ExecutedInsn, ...], tuple[ExecutedInsn, ...]]:
        """What ran of a function under the old and the new kernel."""
        old, new = (ran(self.folder, self.record, side, function) for side in self._sides)
        return old, new

    @property
    def _sides(self) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        return calls.sources(self.record, self.whole, self.point)
