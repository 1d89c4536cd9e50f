# SPDX-License-Identifier: GPL-2.0-or-later
"""One function in kernel images, and what a stored exact run kept beside its counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta import arch
from kdelta.analysis import calls
from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.explanation import Explanation, base_name
from kdelta.analysis.work import WorkExplanation, compared
from kdelta.codegen.table import Cell, CodeTable, Executed, hottest, references
from kdelta.disassembly.code import ExecutedInsn, executed_code
from kdelta.disassembly.image import opened
from kdelta.errors import KdeltaError, SpecError
from kdelta.journal import artifacts, raw_counts
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.probes.calls import PathNode
from kdelta.sample import Outcome, TrialRecord

COLUMN = "image"
PATCHED = (
    "Code as in the images' files: what a kernel patches while it boots (alternatives, static "
    "keys, static calls) is shown as it was built"
)

Resolve = Callable[[str, str, str], Kernel]  # reference, architecture, flavour


def of_kernels(kernels: Sequence[Kernel], function: str) -> CodeTable:
    """The function in each image; one without it is a cell with its problem."""
    rows = tuple(dict.fromkeys(kernel.reference for kernel in kernels))
    by_reference = {kernel.reference: kernel for kernel in kernels}
    cells = tuple(_cell(by_reference[row], function) for row in rows)
    if all(cell.code is None for cell in cells):
        raise SpecError(cells[0].problem if cells else "no kernels are given")
    notes = [PATCHED]
    if len({kernel.arch for kernel in kernels}) > 1:
        notes.append("the kernels are of several architectures")
    others = (kernel for reference, kernel in by_reference.items() if reference != kernel.release)
    notes += [f"{kernel.reference} is {kernel.release}" for kernel in others]
    return CodeTable(
        function=function,
        place="in kernel images",
        title="",
        rows=rows,
        columns=(COLUMN,),
        banners={},
        cells=cells,
        notes=tuple(notes),
    )


def _cell(kernel: Kernel, function: str) -> Cell:
    try:
        image, name = opened(kernel.image, kernel.release), f"{function}.cold"
        code = image.function(function)
        cold = image.function(name) if name in image else None
        return Cell(row=kernel.reference, column=COLUMN, code=code, cold=cold)
    except KdeltaError as error:
        return Cell(row=kernel.reference, column=COLUMN, problem=error.cause)


def executed(
    folder: Path,
    record: RunRecord,
    table: CodeTable,
    phase: str,
    resolve: Resolve,
    *,
    scenario: tuple[str, str],
) -> tuple[tuple[Executed, ...], tuple[str, ...]]:
    """The function in each kernel of an exact run, with its counts; and what stood in the way.

    phase: its name, or "" for the one that executed most of the function.  resolve: gives a
    kernel's image again; it is used only when it is, byte for byte, the one that ran.  scenario:
    workload and scenario, of the run's: counts of several must not be mixed.
    """
    found, problems = [], []
    for trial in _first_trials(record, scenario):
        label = record.arms[trial.arm].label
        try:
            found.append(_executed(folder, record, trial, table, phase, resolve))
        except KdeltaError as error:
            problems.append(f"no counts of {label}: {error.cause}")
    return tuple(found), tuple(problems)


def _first_trials(record: RunRecord, scenario: tuple[str, str]) -> Iterator[TrialRecord]:
    """One good trial of each arm in a scenario: exact counts of the others are the same."""
    if not record.instrument.traits.repeats:
        raise SpecError(f"{record.run_id} is not an exact run", action="give one that counted")
    seen = set()
    for trial in record.trials:
        good = trial.result is not None and trial.result.outcome is Outcome.OK
        asked = (trial.workload, trial.scenario) == scenario
        if good and asked and trial.arm not in seen and not record.arms[trial.arm].control:
            seen.add(trial.arm)
            yield trial


def _executed(
    folder: Path,
    record: RunRecord,
    trial: TrialRecord,
    table: CodeTable,
    phase: str,
    resolve: Resolve,
) -> Executed:
    identity = record.arms[trial.arm].kernel
    exact = identity.reference if identity.name else f"deb:{identity.version}"
    kernel = resolve(exact, identity.arch, identity.flavour or "cloud")
    if kernel.image_sha256 != identity.image_sha256:
        raise SpecError(f"{identity.reference} is now another image than the run's")
    if trial.result is None:
        raise SpecError(f"trial {trial.index} has no result")
    image = opened(kernel.image, kernel.release)
    code = image.function(table.function, references(table))
    label = f"{record.run_id}, {record.arms[trial.arm].label}"
    start = image.start(table.function)
    found = hottest(folder, trial.index, trial.result, phase, start, code, label)
    return Executed(code=code, hot=found)


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
        one
        for start, end in places
        for one in executed_code(counted, start, end, architecture, names)
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
