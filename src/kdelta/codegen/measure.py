# SPDX-License-Identifier: GPL-2.0-or-later
"""What each cell of a table executes, exactly: its object linked into one kernel, and booted.

The kernel is that of the first compiler; of it only the object is exchanged, so that a compiler
costs a link and not a whole build.  All compilers get the same configuration, but what they can
do may set other options in it, and with them other layouts of data: the workload's contract is
what shows that a kernel with a foreign object works.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kdelta import workload
from kdelta.archive.apt import Progress
from kdelta.codegen import hot
from kdelta.codegen.table import Cell, CodeTable, Executed, kept, marked, references
from kdelta.disassembly.image import opened
from kdelta.errors import BuildError, KdeltaError
from kdelta.guests import qemu
from kdelta.host import slots
from kdelta.journal.results import trial_folder
from kdelta.kernels import local
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run.counting import run_trial
from kdelta.run.guest_trial import Bench
from kdelta.sample import Outcome
from kdelta.source import build
from kdelta.source.kconfig import Config
from kdelta.source.make import SourceError
from kdelta.source.tree import SourceTree
from kdelta.toolchains import Toolchain

_IMAGE = "arch/x86/boot/bzImage"
_TARGET = "bzImage"
_TIMEOUT_S = 300.0
_ARCH = "amd64"


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
                    ready.make(_TARGET)
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
    kernel = local.resolve(f"file:{image}", _ARCH)
    run = image.with_suffix(".run")
    with slots.lease(bench.settings, bench.cancelled):
        result = run_trial(bench, kernel, scenario, program, trial_folder(run, 0))
    if result.outcome is not Outcome.OK:
        raise BuildError(f"{result.outcome}: {result.reason}")
    linked = opened(image, label)
    code = linked.function(table.function, references(table))
    start = linked.start(table.function)
    return Executed(code=code, hot=hot.hottest(run, 0, result, phase, start, code, label))
