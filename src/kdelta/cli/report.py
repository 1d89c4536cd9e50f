# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta report` and `kdelta site`: a run, or all runs, as a mail or pages for others."""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from kdelta import cache, locks
from kdelta.analysis import lab
from kdelta.analysis.claims import Claim, claim
from kdelta.analysis.lab import LabStep
from kdelta.analysis.survey import STEP_PERCENT
from kdelta.bisect.journal import every as bisections
from kdelta.cli import execution, options
from kdelta.cli.explain import step_detail
from kdelta.cli.options import output_option, runs_directory
from kdelta.cli.printing import print_raw, write_output
from kdelta.cli.progress import reporting
from kdelta.cli.run import surveyed
from kdelta.cli.show import one_record
from kdelta.codegen.recorded import Recorded
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.files import content
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.kernels import debian, reference
from kdelta.kernels.debian import KernelOffer
from kdelta.metric import plural
from kdelta.rendering import mail as mails
from kdelta.rendering import page
from kdelta.rendering import site as pages
from kdelta.rendering.mail import Letter
from kdelta.rendering.steps import StepDetail, culprit
from kdelta.source import maintainers, tips
from kdelta.source.tips import Watched
from kdelta.study import spec
from kdelta.study.spec import Study
from kdelta.workload import Workload, loadable

_NAMED = 4  # functions that recipients are looked for by


@click.command()
@click.argument("run")
@click.option("--mail", is_flag=True, help="A mail in plain text, for a person to send.")
@click.option("--html", is_flag=True, help="A page: one file, nothing in it runs or is loaded.")
@click.option(
    "--beside",
    metavar="RUN",
    help="A run of the other instrument: a regression of time with the path length behind it.",
)
@click.option("--scenario", default="", metavar="NAME", help="Of one scenario only.")
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
@output_option("File to write, instead of standard output.")
@runs_directory
def report(
    run: str,
    runs: Path,
    beside: str | None,
    scenario: str,
    introduced: str,
    tree: Path | None,
    output: Path | None,
    *,
    mail: bool,
    html: bool,
) -> None:
    """Write what RUN proves as a mail or a page; kdelta never sends anything.

    RUN is the identifier of a run, a unique beginning of it, "latest", or a run folder.
    """
    if mail == html:
        raise click.UsageError("say what to write: --mail or --html")
    other = one_record(runs, beside) if beside else None
    own = one_record(runs, run)
    found = claim(own, other, scenario=scenario)
    workloads = loadable(ladder.workload for ladder in found.report.ladders)
    if html:
        exact = beside if beside and found.exact is not own else run
        text = page.written(found, workloads, _detail(found, runs, exact))
    else:
        letter = _letter(workloads, _functions(found), introduced, tree)
        text = mails.written(found, letter)
    if output:
        write_output(text, output)
    else:
        print_raw(text)


def _detail(found: Claim, runs: Path, run: str) -> StepDetail:
    """What the run of the counts kept beside those of the headline, as far as it can be read."""
    whole, counted = found.explanation, found.support or found.headline
    if whole is None or found.exact is None or counted is None or whole.refused:
        return StepDetail()
    recorded = Recorded(RUNS.find(runs, run), found.exact, whole, counted.ladder.point or None)
    return step_detail(recorded, whole)


def _letter(
    workloads: dict[str, Workload], functions: list[str], introduced: str, tree: Path | None
) -> Letter:
    who = maintainers.recipients(tree, functions) if tree and functions else None
    if tree and introduced:
        introduced = maintainers.as_fixed(tree, introduced)
    return Letter(
        workloads=workloads,
        introduced=introduced,
        file=who.files[0] if who else "",
        to=who.to if who else (),
        cc=who.cc if who else (),
    )


def _functions(found: Claim) -> list[str]:
    """Those that the difference is made of, or else what the workload is called."""
    explained = found.explanation
    rows = (*explained.rising, *explained.falling) if explained else ()
    names = [row.function for row in rows if row.function.isidentifier()]
    return names[:_NAMED] or [found.report.ladders[0].workload]


_MARK = "kdelta-site.json"
_PAIRS = 4000  # all pairs of 89 kernels
_MOST_TRIAGE = 4 << 20
EXIT_FAILED = 1  # a trial failed, as of kdelta run
_AT_ONCE = 32  # new kernels in a study; the kernel before each may come to them


# Options of what writes a site.
site_options = options.in_order(
    click.argument("out", type=options.FOLDER),
    click.option(
        "--triage",
        type=options.OLD_FILE,
        help="What people say of steps: lines SCENARIO OLD NEW STATE: WORDS.",
    ),
    click.option(
        "--address", default="", help="Where the site will be, an https address: writes a feed."
    ),
)


@click.group()
def site() -> None:
    """Write all runs as static pages; keep them up to date by a crontab."""


@site.command("write")
@site_options
@options.runs_directory
def write_command(out: Path, runs: Path, triage: Path | None, address: str) -> None:
    """Write the pages of all runs into OUT: grid, histories, steps, any two kernels, functions.

    OUT is a folder that is not there yet, is empty, or was written so before; it is replaced whole.
    """
    click.echo(write(out, runs, triage, address))


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


@_no_collector()
def write(out: Path, runs: Path, triage: Path | None, address: str) -> str:
    """Write the site of all runs, and say what it is.  Raises SpecError."""
    if address and not address.startswith(("https://", "http://")):
        raise SpecError("is no address of a site", place=address, action="begin it with https://")
    if out.is_dir() and any(out.iterdir()) and not (out / _MARK).is_file():
        raise SpecError("holds something else", place=str(out), action="name a new folder")
    states = _states(triage) if triage else lab.Triage()
    found = list(_read(runs))
    named = lab.named(record for _, record in found)
    every = {
        record.run_id: (folder, record) for (folder, _), record in zip(found, named, strict=True)
    }
    journals = bisections(runs) if runs.is_dir() else []
    commits = {one.state.run_id for one in journals if one.state.question.kind == "tree"}
    whole = lab.lab((record for _, record in every.values()), most_pairs=_PAIRS, aside=commits)

    def details(step: LabStep) -> StepDetail:
        # Of a step between two runs each has the half of what was kept beside the counts.
        recorded = Recorded(*every[step.run_id], step.explanation, step.point or None)
        detail = StepDetail() if step.alone else step_detail(recorded, step.explanation)
        return replace(detail, culprit=culprit(step, whole.steps, journals))

    known = loadable(step.explanation.workload for step in whole.steps)
    files = pages.written(whole, states, address=address, details=details, workloads=known)
    files[_MARK] = b'{"format": 1}\n'
    _replace(out, files)
    size = sum(map(len, files.values()))
    return f"{len(files)} files, {size / 1e6:.1f} MB: {out / 'index.html'}"


def _states(triage: Path) -> lab.Triage:
    try:
        text = content(triage, _MOST_TRIAGE).decode(errors="replace")
    except OSError as error:
        action = "give a text file, a line for each step"
        raise SpecError(f"{error.strerror or error}", place=str(triage), action=action) from error
    return lab.read_triage(text, str(triage))


def _read(runs: Path) -> Iterator[tuple[Path, RunRecord]]:
    """Every run that can be read, the newest first; the others are told."""
    for folder in RUNS.folders(runs) if runs.is_dir() else ():
        try:
            yield folder, RunJournal.open(folder).record()
        except KdeltaError as error:
            click.echo(f"left out: {error.sentence()}", err=True)


def _replace(out: Path, files: dict[str, bytes]) -> None:
    """All files at once: the old site is whole until the new one is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = Path(tempfile.mkdtemp(prefix=".kdelta-site-", dir=out.parent)), None
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
        if old:
            shutil.rmtree(old)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise SpecError(f"cannot be written: {error.strerror}", place=str(out)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """What is watched for: scenarios over kernels of one architecture and flavour."""

    scenarios: tuple[str, ...]
    arch: str
    flavour: str
    every: bool
    quiet: bool
    trees: tuple[Watched, ...]
    merges: int

    def study(self, references: Sequence[str], title: str) -> Study:
        """These kernels in all scenarios."""
        return spec.from_arguments(
            self.scenarios,
            references,
            name=lab.WATCH,
            title="".join(filter(str.isprintable, title))[:200],
            arch=self.arch,
            flavour=self.flavour,
            rounds=1,
            step_percent=STEP_PERCENT,
        )


@site.command()
@site_options
@options.only_option
@click.option(
    "--all", "every", is_flag=True, help="Every kernel of the archive, not the newest of a series."
)
@click.option(
    "--tree",
    "trees",
    multiple=True,
    metavar="PATH[@BRANCH][+...]",
    help="Also the tip of a git tree, when it has new commits; it is built, with what is added"
    " (+config=min). May be given again.",
)
@click.option(
    "--merges",
    type=click.IntRange(1, 32),
    default=1,
    show_default=True,
    help="Of a tree's new merges so many are counted, evenly spread, the tip among them.",
)
@options.kernel_options
@click.option("--list", "list_only", is_flag=True, help="Only say what would be counted.")
@click.option("--quiet", is_flag=True, help="Say nothing when nothing is new.")
@options.means_options
@options.runs_directory
def watch(
    out: Path,
    triage: Path | None,
    address: str,
    only: tuple[str, ...],
    trees: tuple[str, ...],
    runs: Path,
    means: options.Means,
    *,
    list_only: bool,
    **given: Any,
) -> None:
    """Ask the archive for new kernels, count the survey on them, and write the site OUT.

    One pass, for a crontab.  What was begun is finished first, and nothing is counted twice: a
    kernel is new when no run has counted it.  Beside each stands the kernel before it.  Exits
    with 1 when a trial failed.
    """
    watched = tuple(map(tips.watched, trees))
    wanted = _Watch(scenarios=tuple(surveyed(only)), trees=watched, **given)
    with _alone(runs):
        if list_only:
            studies, lost = _new(wanted, runs)
            for study in studies:
                click.echo(f"{study.title}: {plural(len(study.scenarios), 'scenario')}")
            if lost:
                raise lost
            return
        if wanted.quiet:
            logging.getLogger("kdelta").setLevel(logging.ERROR)
        begun = _unfinished(runs)
        failed = False
        for journal in begun:
            click.echo(f"going on with {journal.folder.name}")
            failed |= _fails(partial(execution.execute, journal, means, summary=True))
        studies, lost = _new(wanted, runs)
        for study in studies:
            click.echo(study.title)
            failed |= _fails(partial(execution.start, study, runs, means, summary=True))
        told = write(out, runs, triage, address)
    if begun or studies or not wanted.quiet:
        click.echo(told if begun or studies else f"nothing new; {told}")
    if lost:  # the rest was done
        raise lost
    if failed:
        click.get_current_context().exit(EXIT_FAILED)


@contextlib.contextmanager
def _alone(runs: Path) -> Iterator[None]:
    """Hold these runs' watch.  Raises InfraError while another process does."""
    name = f"watch-{cache.digest(str(runs.resolve()))[:16]}"
    try:
        with cache.locked(name, timeout=0):
            yield
    except locks.BusyError as error:
        if name not in error.place:
            raise
        raise InfraError(
            "another kdelta site watch is at work on these runs",
            place=str(runs),
            action="wait for it: it goes on by itself",
        ) from error


def _fails(work: Callable[[], None]) -> bool:
    """Measure; True when a trial failed, which the page has told."""
    try:
        work()
    except click.exceptions.Exit as ended:
        return bool(ended.exit_code)
    return False


def _unfinished(runs: Path) -> list[RunJournal]:
    """Earlier watches that are not finished, or that this machine failed, which is tried again."""
    found = []
    for folder in RUNS.folders(runs) if runs.is_dir() else ():
        with contextlib.suppress(KdeltaError):  # reading the runs will tell it
            journal = RunJournal.open(folder)
            if journal.study.name == lab.WATCH:
                found.append(journal)
    for journal in found:
        with journal.executing():
            journal.replan_failures()
    return [journal for journal in reversed(found) if not journal.is_finished()]


def _new(wanted: _Watch, runs: Path) -> tuple[list[Study], InfraError | None]:
    """The studies of what is new in the archive and in each tree; why not of the archive."""
    every = [record for _, record in _read(runs)]
    found, lost = [], None
    try:
        found = _of_archive(wanted, every)
    except InfraError as error:
        lost = error
    found += [study for tree in wanted.trees if (study := _of_tree(wanted, every, tree))]
    return found, lost


def _of_archive(wanted: _Watch, records: Sequence[RunRecord]) -> list[Study]:
    """As many as it takes: a study has 64 kernels at most, and each new one may need another."""
    offered, watched = _offers(wanted)
    machine = wanted.study([f"deb:{watched[0].version}"], "any").machine
    own = lab.flavoured(records, wanted.arch, wanted.flavour)
    known = lab.counted_kernels(own, wanted.scenarios, machine)
    new = debian.watched_and_new(offered, watched, known)
    found = []
    for at in range(0, len(new), _AT_ONCE):
        part = new[at : at + _AT_ONCE]
        names = [f"deb:{offer.version}" for offer in debian.with_predecessors(offered, part, known)]
        found.append(wanted.study(names, f"new: {', '.join(offer.version for offer in part)}"))
        known |= {offer.version for offer in part}
    return found


def _offers(wanted: _Watch) -> tuple[Sequence[KernelOffer], Sequence[KernelOffer]]:
    """All kernels of the archive, as it is now, and those that are watched."""
    with contextlib.nullcontext() if wanted.quiet else reporting() as progress:
        offered = reference.listing(wanted.arch, wanted.flavour, refresh=True, progress=progress)
    if not offered:
        raise SpecError(
            f"the archive offers no {wanted.flavour} kernel for {wanted.arch}",
            action="see: kdelta kernels list",
        )
    if wanted.every:
        return offered, offered
    series = debian.every_series(offered)
    kind = reference.flavour_of(wanted.flavour, wanted.arch)
    picked = debian.choose_together(series, offered, wanted.arch, kind)
    return offered, [one.offer for one in picked]


def _of_tree(wanted: _Watch, records: Sequence[RunRecord], tree: Watched) -> Study | None:
    """The tip of a tree, and merges before it, beside the nearest that has been counted."""
    have = [commit for name in lab.counted_references(records) if (commit := tree.commit(name))]
    found = tips.news(tree, have, most=wanted.merges)
    machine = wanted.study([tree.reference(found.tip)], "any").machine
    known = lab.counted_kernels(records, wanted.scenarios, machine)
    if tree.reference(found.tip) in known:
        return None
    told = plural(found.merges, "new merge") if found.before else "its first count"
    told = "its history was rewritten" if found.rewritten else told
    names = dict.fromkeys(
        tree.reference(commit) for commit in (found.before, *found.commits) if commit
    )
    return wanted.study(list(names), f"{tree.folder.name} at {found.tip[:12]}: {told}")
