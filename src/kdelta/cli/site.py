# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta site`: all runs as static files."""

from __future__ import annotations

import contextlib
import gc
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.options import runs_directory
from kdelta.errors import KdeltaError, SpecError

if TYPE_CHECKING:
    from kdelta.analysis.lab import LabStep
    from kdelta.journal.run import RunRecord
    from kdelta.rendering.steps import StepDetail

_MARK = "kdelta-site.json"
_PAIRS = 4000  # all pairs of 89 kernels


@click.command()
@click.option(
    "--address",
    default="",
    help="Where the site will be, an https address: writes a feed.",
)
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@runs_directory
def site(out: Path, runs: Path, address: str) -> None:
    """Write the pages of all runs into OUT: grid, histories, steps, any two kernels, functions.

    OUT is a folder that is not there yet, is empty, or was written so before; it is replaced whole.
    """
    with _no_collector():
        click.echo(_write(out, runs, address))


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Values of a lab are millions and none is in a cycle: looking for some takes a quarter."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _write(out: Path, runs: Path, address: str) -> str:
    from kdelta.analysis import lab
    from kdelta.bisect.journal import every as bisections
    from kdelta.rendering import site as pages
    from kdelta.rendering.steps import culprit
    from kdelta.workload import loadable

    if address and not address.startswith(("https://", "http://")):
        raise SpecError("is no address of a site", place=address, action="begin it with https://")
    if out.is_dir() and any(out.iterdir()) and not (out / _MARK).is_file():
        raise SpecError("holds something else", place=str(out), action="name a new folder")
    found = list(_read(runs))
    named = lab.named(record for _, record in found)
    every = {
        record.run_id: (folder, record) for (folder, _), record in zip(found, named, strict=True)
    }
    journals = bisections(runs) if runs.is_dir() else []
    commits = {one.state.run_id for one in journals if one.state.question.kind == "tree"}
    whole = lab.lab((record for _, record in every.values()), most_pairs=_PAIRS, aside=commits)

    def details(step: LabStep) -> StepDetail:
        detail = _detail(step, *every[step.run_id])
        return replace(detail, culprit=culprit(step, whole.steps, journals))

    known = loadable(step.explanation.workload for step in whole.steps)
    files = pages.written(whole, address=address, details=details, workloads=known)
    files[_MARK] = b'{"format": 1}\n'
    _replace(out, files)
    size = sum(map(len, files.values()))
    return f"{len(files)} files, {size / 1e6:.1f} MB: {out / 'index.html'}"


def _detail(step: LabStep, folder: Path, record: RunRecord) -> StepDetail:
    """What the run of a step kept beside its counts, as far as it can be read.

    Of a step between two runs nothing: each has the half of it.
    """
    from kdelta.analysis.calls import explained
    from kdelta.codegen.recorded import Recorded
    from kdelta.rendering.steps import StepDetail

    if step.alone:
        return StepDetail()
    work = calls = None
    recorded = Recorded(folder, record, step.explanation, step.point or None)
    with contextlib.suppress(KdeltaError):
        work = recorded.work()
    with contextlib.suppress(KdeltaError):
        calls = explained(step.explanation, *recorded.trees())
    return StepDetail(work=work, calls=calls)


def _read(runs: Path) -> Iterator[tuple[Path, RunRecord]]:
    """Every run that can be read, the newest first; the others are reported on standard error."""
    from kdelta.journal.run import RUNS, RunJournal

    for folder in RUNS.folders(runs) if runs.is_dir() else ():
        try:
            yield folder, RunJournal.open(folder).record()
        except KdeltaError as error:
            click.echo(f"left out: {error.sentence()}", err=True)


def _replace(out: Path, files: dict[str, bytes]) -> None:
    """All files at once: the old site is whole until the new one is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".kdelta-site-", dir=out.parent))
    try:
        fresh.chmod(0o755)
        for name, text in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=".kdelta-old-", dir=out.parent))
            out.rename(old / "site")
            fresh.rename(out)
            shutil.rmtree(old)
        else:
            fresh.rename(out)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise SpecError(f"cannot be written: {error.strerror}", place=str(out)) from error
