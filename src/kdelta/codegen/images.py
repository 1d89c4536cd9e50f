# SPDX-License-Identifier: GPL-2.0-or-later
"""One function in kernel images; and what exact runs execute of it, stored or made here.

`measured` links the object of each cell into one kernel, that of the first compiler, so that a
compiler costs a link and not a whole build.  All compilers get the same configuration, but what
they can do may set other options in it, and with them other layouts of data: the workload's
contract is what shows that a kernel with a foreign object works.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kdelta import workload
from kdelta.archive.apt import Progress
from kdelta.codegen.table import Cell, CodeTable, Executed, hottest, kept, marked, references
from kdelta.disassembly.image import opened
from kdelta.errors import BuildError, KdeltaError, SpecError
from kdelta.guests import qemu
from kdelta.host import leases
from kdelta.journal.results import trial_folder
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel, kernel_of_file
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run.counting import run_trial
from kdelta.run.guest_trial import Bench
from kdelta.sample import Outcome, TrialRecord
from kdelta.source import build
from kdelta.source.kconfig import Config
from kdelta.source.make import SourceError
from kdelta.source.tree import SourceTree
from kdelta.toolchains import Toolchain

COLUMN = "image"
PATCHED = (
    "Code as in the images' files: what a kernel patches while it boots (alternatives, static "
    "keys, static calls) is shown as it was built"
)

Resolve = Callable[[str, str, str], Kernel]  # reference, architecture, flavour
_IMAGE = "arch/x86/boot/bzImage"
_TARGET = "bzImage"
_TIMEOUT_S = 300.0
_ARCH = "amd64"


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
    for reference, kernel in by_reference.items():
        if reference != kernel.release:
            notes.append(f"{reference} is {kernel.release}")
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
        image = opened(kernel.image, kernel.release)
        code = image.function(function)
        cold = f"{function}.cold"
        return Cell(
            row=kernel.reference,
            column=COLUMN,
            code=code,
            cold=image.function(cold) if cold in image else None,
        )
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
    exact = f"deb:{identity.version}" if identity.version else identity.reference
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


def measured(
    table: CodeTable,
    objects: Path,
    scenario: str,
    *,
    tree: SourceTree,
    config: Config,
    chain: Toolchain,
    phase: str = "",
    progress: Progress | None = None,
) -> CodeTable:
    """The table with counts in every cell that could be linked and run.

    objects: where `of_sources` kept them; scenario: "mincore:no_thp_pte_scan_64m"; tree, config,
    chain: of the kernel that they are linked into.  Cells of equal code run once.  What fails is a
    note.  Raises SpecError for a bad scenario, InfraError when nothing can be run here.
    """
    load, wanted = workload.parse_reference(scenario)
    bench = _bench(wanted, progress)
    notes: list[str] = []
    found: list[tuple[Cell, Executed]] = []
    with tempfile.TemporaryDirectory(prefix="kdelta-measure-") as name:
        folder = Path(name)
        cells = list(_distinct(table))
        images, problems = _linked(
            table.place, cells, objects, folder, tree, config, chain, progress
        )
        notes += problems
        for at, (cell, image) in enumerate(images):
            label = f"{scenario}, {cell.row} by {cell.column} in a kernel by {chain.name}"
            if progress:
                progress(f"measuring {len(images)} kernels", 100.0 * at / len(images))
            try:
                ran = _ran(bench, wanted, load.program, image, table, phase, label)
                found.append((cell, ran))
            except KdeltaError as error:
                notes.append(f"no counts of {cell.row} by {cell.column}: {error.cause}")
    result = marked(table, [executed for _, executed in found])
    return replace(result, notes=(*result.notes, *notes))


def _bench(scenario: workload.Scenario, progress: Progress | None) -> Bench:
    settings = with_needs(MachineSettings(arch=_ARCH), scenario.needs)
    return Bench(
        emulator=qemu.for_counting(settings.target, progress=progress),
        settings=settings,
        fresh_boot=False,
        timeout_s=_TIMEOUT_S,
        cancelled=threading.Event(),
    )


def _distinct(table: CodeTable) -> Iterator[Cell]:
    """One cell for each code: equal code executes equally."""
    seen = set()
    for column in table.columns:
        for cell in table.column_of(column):
            if cell.normal is not None and cell.normal not in seen:
                seen.add(cell.normal)
                yield cell


def _linked(
    target: str,
    cells: Sequence[Cell],
    objects: Path,
    folder: Path,
    tree: SourceTree,
    config: Config,
    chain: Toolchain,
    progress: Progress | None,
) -> tuple[list[tuple[Cell, Path]], list[str]]:
    """An image for each cell that links, and what does not."""
    images, problems = [], []
    with build.prepared(tree, config, chain, targets=[_TARGET], progress=progress) as ready:
        own = ready.output / target
        try:
            for at, cell in enumerate(cells):
                if progress:
                    progress(f"linking {len(cells)} kernels", 100.0 * at / len(cells))
                shutil.copyfile(kept(objects, cell.row, cell.column), own)
                os.utime(own)  # newer than its source: make links it and compiles nothing
                try:
                    ready.run([_TARGET])
                except SourceError as error:
                    problems.append(f"{cell.row} by {cell.column} does not link: {error.first}")
                    continue
                image = folder / f"{at}.bzImage"
                shutil.copyfile(ready.output / _IMAGE, image)
                images.append((cell, image))
        finally:
            own.unlink(missing_ok=True)  # make makes its own again
    return images, problems


def _ran(
    bench: Bench,
    scenario: workload.Scenario,
    program: Path,
    image: Path,
    table: CodeTable,
    phase: str,
    label: str,
) -> Executed:
    kernel = kernel_of_file(f"file:{image}", _ARCH)
    run = image.with_suffix(".run")
    with leases.lease_guest(bench.settings, bench.cancelled):
        result = run_trial(bench, kernel, scenario, program, trial_folder(run, 0))
    if result.outcome is not Outcome.OK:
        raise BuildError(f"{result.outcome}: {result.reason}")
    linked = opened(image, label)
    code = linked.function(table.function, references(table))
    start = linked.start(table.function)
    return Executed(code=code, hot=hottest(run, 0, result, phase, start, code, label))
