# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta report` and `kdelta site`: a run as a mail, all runs as pages."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kdelta import programs
from kdelta.analysis import lab
from kdelta.analysis.claims import Claim, claim
from kdelta.bisect.journal import every as bisections
from kdelta.cli import options
from kdelta.cli.printing import output_path, say, write_output
from kdelta.cli.show import one_record
from kdelta.codegen.table import Recorded
from kdelta.errors import KdeltaError, SpecError
from kdelta.files import is_full
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.kernels import debian, reference
from kdelta.ladder.ladders import Ladder
from kdelta.printable import quoted
from kdelta.rendering import mail as mails
from kdelta.rendering import sentences
from kdelta.rendering import site as pages
from kdelta.source import maintainers
from kdelta.transplant import objects
from kdelta.verdict.comparison import LEAST_SEEDS
from kdelta.workload import file_of, is_file, loadable

_COMMIT = re.compile(r'[0-9a-f]{12,40} \("[^"]{1,200}"\)')
_SITE = re.compile(r"https?://[\w.-]+(?::\d{1,5})?(?:/[\w.~%/+-]*)?", re.ASCII)
_NAMED = 4  # functions that recipients are looked for by


@click.command()
@options.run_argument
@click.argument("old", type=options.RUN_KERNEL, required=False)
@click.argument("new", type=options.RUN_KERNEL, required=False)
@click.option("--mail", is_flag=True, expose_value=False, help="A mail in plain text: the default.")
@options.other_run(
    "--beside",
    help="A run of the other instrument: a regression of time with the path length behind it.",
)
@options.scenario_of_run("Of one scenario only.")
@click.option(
    "--introduced",
    default="",
    metavar="COMMIT",
    help='The commit, where it is known: with --tree any name of it, else ID12 ("subject").',
)
@click.option(
    "--tree",
    type=options.OLD_FOLDER,
    help="A kernel tree: its scripts/get_maintainer.pl is run to name the recipients.",
)
@options.output_option("File to write.  [default: standard output]", default="-")
@options.runs_directory
def report(
    run: str,
    runs: Path,
    old: str | None,
    new: str | None,
    beside: str | None,
    scenario: str,
    introduced: str,
    tree: Path | None,
    output: Path,
) -> None:
    """Write what RUN proves as a mail for a person to send; kdelta never sends anything.

    RUN is the identifier of a run, a unique beginning of it, "latest", or a run folder. The mail is
    of its largest step that got worse, or of the one from OLD to NEW.
    """
    if old and not new:
        raise SpecError(f"{old} is one kernel, a step has two", action="name the other, too")
    other = one_record(runs, beside) if beside else None
    record = one_record(runs, run)
    (carried,), sent = lab.without_folders([record])
    found = claim(carried, other, scenario=scenario, pair=(old, new) if old and new else None)
    if not found.report.ladders:
        raise SpecError("it has no trials", place=record.run_id, action="measure it: kdelta run")
    known = loadable(trial.workload for trial in record.trials)
    workloads = {sent.get(name, name): one for name, one in known.items()}
    own = found.ladder.workload
    program = next((programs.asked(file_of(one)) for one in sent if sent[one] == own), "")
    newest = not_counted(found.ladder) if found.headline and not found.timed else ""
    letter = mails.Letter(workloads=workloads, program=program, newest=newest)
    explained = found.explanation
    if explained and not found.timed:
        with contextlib.suppress(SpecError):
            kept = Recorded(RUNS.find(runs, run), carried, explained, found.ladder.point or None)
            letter = replace(letter, paths=kept.paths(explained))
    rows = (*explained.rising, *explained.falling) if explained else ()
    functions = [row.function for row in rows if row.function.isidentifier()][:_NAMED]
    if tree:
        files = defining(functions or [own], tree)
        to, cc = maintainers.recipients(tree, files)
        introduced = maintainers.as_fixed(tree, introduced) if introduced else ""
        letter = replace(letter, file=files[0], to=to, cc=cc)
    if introduced and not (_COMMIT.fullmatch(introduced) and introduced.isprintable()):
        action = 'write ID12 ("subject"), or name a --tree that has it'
        raise SpecError("is no commit with its subject", place="--introduced", action=action)
    letter = replace(letter, introduced=introduced)
    text = mails.written(found, letter)
    say(*_readiness(found, letter), err=True)  # first on a terminal
    write_output(text, output)


def defining(functions: Sequence[str], tree: Path) -> list[str]:
    """The first C file of a tree that defines each function.  Raises SpecError without any."""
    known = objects.definers(functions, tree)
    found = (known.get(objects.plain(name)) for name in dict.fromkeys(functions))
    # The same name in several places is most often one per architecture: the first is shared.
    each = (min(own, key=lambda name: (name.startswith("arch/"), name)) for own in found if own)
    if files := [f"{name[:-2]}.c" for name in dict.fromkeys(each)]:
        return files
    cause, action = f"the tree defines none of {', '.join(functions)}", "give one of the releases"
    raise SpecError(cause, place=str(tree), action=action)


def _readiness(found: Claim, letter: mails.Letter) -> Iterator[str]:
    """Whether a mail can be sent, else the one command that counts what it lacks."""
    single = any(len(rung.trials) == 1 for rung in (found.headline or found.ladder).rungs)
    alone = not letter.program and all(is_file(each.workload) for each in found.report.ladders)
    lacks = ["one trial of a kernel is no repetition"] * single
    lacks += [f"{letter.newest} is not counted"] * bool(letter.newest)
    lacks += ["no scenario of a known suite stands beside the loop"] * alone
    more = filter(None, [letter.newest])
    first, *words = mails.again(found, letter, *more, rounds=LEAST_SEEDS * single)
    command = " ".join([first, *["SCENARIO"] * alone, *words])
    step = f" {found.headline.step.old} {found.headline.step.new}" if found.headline else ""
    if lacks:
        yield f"Not ready: {'; '.join(lacks)}; `{command}`, and then `kdelta report latest{step}`"
    to_send = [] if letter.to else ["recipients (--tree ~/linux)"]
    if not letter.program:
        to_send.append(f"its attachment: `{' '.join(mails.exporting(found.ladder))}`")
    if to_send:
        yield f"{'To send it add' if lacks else 'Ready but for'} {' and '.join(to_send)}"
    elif not lacks:
        yield "Ready"


def not_counted(ladder: Ladder[Any]) -> str:
    """The newest series of the archive, as its index is here, if no kernel of a ladder is of it."""
    kernel = ladder.rungs[-1].kernel
    if not kernel.version:
        return ""
    flavour = reference.flavour_of(kernel.flavour, kernel.arch)
    offered = debian.offers(reference.opened(kernel.arch), flavour)
    newest = next((one.series for one in reversed(offered) if not one.is_candidate), "")
    counted = {sentences.series(rung) for rung in ladder.rungs}
    return "" if f"v{newest}" in counted else newest


_MARK = "kdelta-site.json"
_PAIRS = 4000  # all pairs of 89 kernels


@click.command()
@click.argument("out", type=options.FOLDER)
@click.option(
    "--address", default="", help="Where the site will be, an https address: writes a feed."
)
@options.runs_directory
def site(out: Path, runs: Path, address: str) -> None:
    """Write the pages of all runs into OUT: grid, histories, steps, any two kernels, functions.

    OUT is a folder that is not there yet, is empty, or was written so before; it is replaced whole.
    """
    if address and not _SITE.fullmatch(address):
        action = "write https://example.org/path"
        raise SpecError(f"{quoted(address)} is no address of a site", action=action)
    where = output_path(out, folder=True)
    if out.is_dir() and any(out.iterdir()) and not (out / _MARK).is_file():
        raise SpecError("holds something else", place=str(out), action="name a new folder")
    found = list(_read(runs))
    carried, _ = lab.without_folders(record for _, record in found)
    named = lab.named(carried)
    folders = (folder for folder, _ in found)
    every = {record.run_id: (folder, record) for folder, record in zip(folders, named, strict=True)}
    journals = bisections(runs) if runs.is_dir() else []
    commits = {one.state.run_id for one in journals if one.state.question.kind == "tree"}
    whole = lab.lab((record for _, record in every.values()), most_pairs=_PAIRS, aside=commits)

    def details(step: lab.LabStep) -> pages.StepDetail:
        # Of a step between two runs each has the half of what was kept beside the counts.
        recorded = Recorded(*every[step.run_id], step.explanation, step.point or None)
        work = calls = None
        with contextlib.suppress(KdeltaError):
            work = None if step.alone else recorded.work()
        with contextlib.suppress(KdeltaError):
            calls = None if step.alone else recorded.paths(step.explanation)
        found = pages.culprit(step, whole.steps, journals)
        return pages.StepDetail(work=work, calls=calls, culprit=found)

    known = loadable(step.explanation.workload for step in whole.steps)
    files = pages.written(whole, address=address, details=details, workloads=known)
    files[_MARK] = b'{"format": 1}\n'
    _replace(where, files)
    size = sum(map(len, files.values()))
    click.echo(f"{len(files)} files, {size / 1e6:.1f} MB: {out / 'index.html'}")


def _read(runs: Path) -> Iterator[tuple[Path, RunRecord]]:
    """Every run that can be read, the newest first; the others are reported on standard error."""
    for folder in RUNS.folders(runs) if runs.is_dir() else ():
        try:
            yield folder, RunJournal.open(folder).record()
        except KdeltaError as error:
            say(f"left out: {error.sentence()}", err=True)


def _replace(out: Path, files: dict[str, bytes]) -> None:
    """All files at once: the old site is whole until the new one is."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kdelta-site-", dir=out.parent) as scratch:
            fresh, old = Path(scratch, "new"), Path(scratch, "old")
            for name, text in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text)
            fresh.chmod(0o755)
            if out.exists():
                out.rename(old)
            try:
                fresh.rename(out)
            except OSError:
                if old.exists():
                    old.rename(out)
                raise
    except OSError as error:
        if is_full(error):
            raise
        cause = f"cannot be written: {error.strerror}"
        raise SpecError(cause, place=str(out), action="name another folder") from error
