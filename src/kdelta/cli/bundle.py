# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta bundle make`: a run in one file that a stranger can check, reproduce and merge."""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import click

from kdelta.analysis.merging import combined, merged
from kdelta.cli import options
from kdelta.cli.printing import output_path, print_found, print_lines, reporting, say, write_output
from kdelta.cli.run import answer, check_scenarios, qemu_of, start
from kdelta.errors import SpecError, StoreError
from kdelta.guests import qemu
from kdelta.journal import artifacts
from kdelta.journal import bundle as packing
from kdelta.journal.files import read
from kdelta.journal.results import KeptResult
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.metric import plural
from kdelta.printable import printable
from kdelta.rendering.bundle import (
    MERGED_VIEW,
    Verified,
    show_verified,
    verified_files,
    write_run_files,
)
from kdelta.run import dependencies
from kdelta.run.recount import Recount

EXIT_DIFFERS, EXIT_UNVERIFIED = 1, 4
_RESULT = f"{packing.RUN}/trials/{{:04d}}/result.json"  # where a bundle has a trial's result
_MOST = 64  # bundles that are merged
_OF_RUN = re.compile(" ?Its functions: `kdelta explain [^`]*`")  # for who has the run
_README = """\
A run of kdelta: {title}

run {run_id}, made {created} with kdelta {kdelta_version} ({instrument})

Every file in here has its SHA-256 in MANIFEST.sha256.  Without kdelta:

    sha256sum --check MANIFEST.sha256
    less run/show.txt                  the tables and the verdicts
    less run/trials/0000/console.log   what each guest said, and so on

With it (on the bundle as it was sent, unpacked by kdelta itself):

    kdelta bundle verify FILE      what follows from raw counts, made again and compared
    kdelta bundle reproduce FILE   the same study measured here, compared to the instruction

run/study.toml          what was asked
run/run.json            the plan: kernels by package version and SHA-256, trials, seed
run/trials/NNNN/        per trial the result, raw counts, console, output, command
run/show.*, explain-*   the answers, which are made from the results alone
sources/                the programs that ran in the guest, and the counting plugin
reproducers/WORKLOAD/   each scenario as one C file, which tells how it is built
kernels/patches/        the patches and fragments of kernels that were built from source
kernels/configs/        configurations of the kernels, by the first 16 digits of their SHA-256
bundle.json             what the run depended on and is not in here, and why
"""


@click.group()
def bundle() -> None:
    """Pack a run for a stranger; check, reproduce and merge what others packed."""


_file = click.argument("file", type=options.OLD_FILE)


@bundle.command()
@options.run_argument
@options.output_option("File to write.  [default: RUN.tar here]")
@options.runs_directory
def make(run: str, runs: Path, output: Path | None) -> None:
    """Pack RUN with all that it depended on into one file, the same bytes each time."""
    journal = RunJournal.open(RUNS.find(runs, run))
    out = output_path(output or Path(f"{journal.folder.resolve().name}.tar"))
    record = journal.record()
    options.need(record.instrument)
    if not journal.is_finished():
        action = f"finish it first: kdelta resume {record.run_id}"
        raise StoreError("the run is not finished", place=str(journal.folder), action=action)
    for path in sorted(journal.folder.glob("trials/*/counts.bin.gz")):
        artifacts.read_counts(path, paths=False, whole=True)
    with journal.executing():
        write_run_files(record, journal.folder)
    files, absent = dependencies.dependencies(record)
    files[packing.README] = _readme(record)
    content = packing.packed(journal.folder, files)
    write_output(content, out)
    say(*(f"not in the bundle: {what}" for what in absent), err=True)
    click.echo(f"{sha256(content).hexdigest()}  {output or out.name}")


def _readme(record: RunRecord) -> bytes:
    told = ("title", "run_id", "created", "kdelta_version", "instrument")
    return _README.format(**{name: printable(getattr(record, name)) for name in told}).encode()


@bundle.command()
@_file
def verify(file: Path) -> None:
    """Check FILE, a bundle: make again what follows from raw counts and printed text.

    That is every hash, count, function, verdict and text. Kernels follow from the archive's images,
    which are fetched; guests and command lines from the study; sources are this kdelta's own. What
    only the machine that measured knows is listed as not verified. Names what differs and exits
    with 1 then, with 4 where results lack their source. Nothing of the bundle is executed.
    """
    unknown: list[str] = []
    with _unpacked(file) as folder:
        parts = list(_verified(folder, unknown))
        told = dependencies.note(folder)
        differs = any(differing for _, _, differing in parts)
        text = "" if differs else (folder / packing.RUN / "show.txt").read_text()
        then = "" if differs else _then(file, folder)
    says = _OF_RUN.sub("", printable(" ".join(text.partition("\n\n")[0].split())))
    absent = told.absent if told else (f"{dependencies.BUNDLE}, in a form that can be read",)
    print_lines(show_verified(parts, absent, says, unknown, then))
    if differs or any(differing is None for _, _, differing in parts):
        raise click.exceptions.Exit(EXIT_DIFFERS if differs else EXIT_UNVERIFIED)


def _again(file: Path, option: str = "") -> str:
    return f"`kdelta bundle reproduce {shlex.quote(str(file))}{option}`"


def _then(file: Path, folder: Path) -> str:
    """How a bundle that holds is measured again."""
    record, then = RunJournal.open(folder / packing.RUN).record(), _again(file)
    try:
        dependencies.again(record, folder, unless=_again(file, " --build"))
    except SpecError as error:
        then = error.sentence()
    return f"To measure the same here: {then}"


@contextlib.contextmanager
def _unpacked(file: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kdelta-bundle-") as name:
        with reporting():
            packing.unpack(file, Path(name))
        dependencies.check_format(Path(name), file)
        yield Path(name)


@contextlib.contextmanager
def whole(file: Path) -> Iterator[tuple[Path, RunRecord]]:
    """The folder and the run of a bundle that is what its manifest says.

    Raises SpecError for any other, and for one that is whole and cannot be read here.
    """
    with _unpacked(file) as folder:
        if packing.checked(folder):
            cause = "the bundle is not what its manifest says"
            action = f"see what differs with: kdelta bundle verify {shlex.quote(str(file))}"
            raise SpecError(cause, place=str(file), action=action)
        fault = ""
        try:
            record = RunJournal.open(folder / packing.RUN).record()
            options.need(record.instrument)
            if dependencies.note(folder) is None:
                fault = f"{dependencies.BUNDLE}: it says nothing that can be read here"
            if lost := [trial.index for trial in record.trials if trial.result is None]:
                fault = f"{_RESULT.format(lost[0])}: holds no result that can be read here"
        except (SpecError, StoreError) as error:
            fault = f"{error.place.removeprefix(f'{folder}/')}: {error.cause}"
        if fault:
            raise SpecError(fault, place=str(file), action=_written_by(folder))
        yield folder, record


def _written_by(folder: Path) -> str:
    """With which kdelta a bundle can be read that is whole and yet not understood."""
    told = dependencies.note(folder)
    version = printable(told.kdelta_version, 40) if told else "of another version"
    own = options.VERSION
    if version == own:
        return f"it is damaged, or another state of kdelta {own} wrote it: use that"
    return f"it was written by kdelta {version}, this is {own}: use that one"


def _verified(folder: Path, unknown: list[str]) -> Iterator[Verified]:
    count = sum(path.is_file() for path in folder.rglob("*")) - 1
    told = f"{plural(count, 'file')} against the manifest"
    differing = packing.checked(folder)
    hint = "" if differing else f"; {_written_by(folder)}"
    yield "files", told, differing
    try:
        record = RunJournal.open(folder / packing.RUN).record()
    except (SpecError, StoreError) as error:
        place = error.place.removeprefix(f"{folder}/")
        fault = packing.Difference(file=place, what=f"{error.cause}{hint}")
        yield "run", "its plan and study", (fault,)
        return
    options.need(record.instrument)
    lost = [
        packing.Difference(file=_RESULT.format(trial.index), what=f"holds no result{why or hint}")
        for trial in record.trials
        if trial.result is None
        for why in [_unread(folder, trial.index)]
    ]
    with reporting() as progress:
        again = Recount(folder, record, options.VERSION, progress)
        yield "plan", "kernels, trials and dates of run.json", (*again.plan(),)
        done = f"{plural(len(record.trials), 'trial')}, each made again of what it kept"
        found: tuple[packing.Difference, ...] | None = (*lost, *again.results())
        if again.without_source and not found:
            left = sum(trial.workload in again.without_source for trial in record.trials)
            done, found = f"{left} of {plural(len(record.trials), 'trial')}, without source", None
        yield "results", done, found
        files = (*again.programs(), *_told(folder, record))
    yield "programs", "as the sources and the run describe them", files
    yield verified_files(folder / packing.RUN, record)
    unknown += again.unknown


def _unread(folder: Path, index: int) -> str:
    """Why a trial's result cannot be read, behind a colon; "" without a file, or if it can."""
    try:
        read(folder / _RESULT.format(index), KeptResult)
    except StoreError as error:
        return f": {error.cause}"
    return ""


def _told(folder: Path, record: RunRecord) -> Iterator[packing.Difference]:
    """What README.txt and bundle.json say of the run."""
    path, own = folder / packing.README, (record.run_id, record.kdelta_version, record.instrument)
    if not path.is_file() or path.read_bytes() != _readme(record):
        yield packing.Difference(file=packing.README, what="is another run's")
    told = dependencies.note(folder)
    if told is None or (told.run_id, told.kdelta_version, told.instrument) != own:
        yield packing.Difference(file=dependencies.BUNDLE, what="is another run's")


@bundle.command()
@_file
@click.option(
    "--build",
    is_flag=True,
    help="Also what is built here: C files, and kernels, whose make runs what patches say.",
)
@options.means_options
@options.runs_directory
def reproduce(file: Path, runs: Path, means: options.Means, *, build: bool) -> None:
    """Measure the study of FILE, a bundle, here, and compare with what it says.

    Counts are equal to the instruction, or what else differs is named; of times the verdicts are
    compared. The programs are this kdelta's own, not the bundle's. Exits with 1 when it differs.
    """
    with whole(file) as (folder, theirs):
        unless = "" if build else _again(file, " --build")
        study = dependencies.again(theirs, folder, unless=unless, trust=means.trust)
        check_scenarios(study)
        wanted = means.wanted_qemu or qemu_for(theirs)
        means = replace(means, wanted_qemu=wanted, again=True)  # what was kept proves nothing
        ours = start(study, runs, means)
        others = [f"{one.file} {one.what}" for one in dependencies.unlike_sources(theirs, folder)]
    found = combined({file.name: theirs, "here": ours.record()})
    found = replace(found, reasons=(*found.reasons, *others))
    print_found("", MERGED_VIEW, found)
    with contextlib.suppress(click.exceptions.Exit):
        answer(ours)
    if not found.equal:
        click.get_current_context().exit(EXIT_DIFFERS)


@bundle.command()
@click.argument("bundles", nargs=-1, required=True, type=options.OLD_FILE)
@options.json_option
def merge(bundles: tuple[Path, ...], *, as_json: bool) -> None:
    """Make one finding of BUNDLES, which several machines made of one study.

    Counts have to be equal to the instruction, and of times the verdicts, or what else differs is
    named, and it exits with 1. Nothing is executed.
    """
    if len(bundles) > _MOST:
        raise SpecError(f"{len(bundles)} bundles are too many", action=f"name at most {_MOST}")
    names = [path.name for path in bundles]
    if len(set(names)) < len(names):
        names = [str(path) for path in bundles]
    if len(set(names)) < len(names):
        raise SpecError("a bundle is named twice", action="name each once")
    records = {}
    for name, path in zip(names, bundles, strict=True):
        with whole(path) as (_, record):
            records[name] = record
    found = merged(records)
    print_found("json" if as_json else "", MERGED_VIEW, found)
    if not found.equal:
        click.get_current_context().exit(EXIT_DIFFERS)


def qemu_for(theirs: RunRecord) -> str:
    """The QEMU that a run was counted with, fetched when the archive has it; "" for the usual one.

    Counts of two QEMUs that passed the same self-test are comparable, so another one will do.
    """
    version = qemu_of(theirs)
    if not theirs.instrument.traits.repeats or not version:
        return version
    with reporting() as progress:
        if qemu.obtained(theirs.study.machine.target, version, progress):
            return version
    say(f"the archive has no QEMU {version}: counting with the usual one", err=True)
    return ""
