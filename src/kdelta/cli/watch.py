# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta watch`: what is new is counted, and a site of it kept; made for a crontab."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli import execution, survey
from kdelta.cli import site as pages
from kdelta.cli.means import Means, means_options
from kdelta.cli.options import only_option, runs_directory
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.metric import plural

if TYPE_CHECKING:
    from kdelta.journal.run import RunJournal, RunRecord
    from kdelta.kernels.debian import KernelOffer
    from kdelta.source.tips import Watched
    from kdelta.study.spec import Study

EXIT_FAILED = 1  # a trial failed, as of kdelta run
_AT_ONCE = 32  # new kernels in a study; the kernel before each may come to them


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
        from kdelta.analysis.lab import WATCH
        from kdelta.analysis.survey import STEP_PERCENT
        from kdelta.study import spec

        return spec.from_arguments(
            self.scenarios,
            references,
            name=WATCH,
            title="".join(filter(str.isprintable, title))[:200],
            arch=self.arch,
            flavour=self.flavour,
            rounds=1,
            step_percent=STEP_PERCENT,
        )


@click.command()
@pages.site_options
@only_option
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
@click.option("--arch", default="amd64", show_default=True, help="Debian's architecture name.")
@click.option("--flavour", default="cloud", show_default=True, help="Debian's kernel flavour.")
@click.option("--list", "list_only", is_flag=True, help="Only say what would be counted.")
@click.option("--quiet", is_flag=True, help="Say nothing when nothing is new.")
@means_options
@runs_directory
def watch(
    out: Path,
    triage: Path | None,
    address: str,
    only: tuple[str, ...],
    trees: tuple[str, ...],
    merges: int,
    arch: str,
    flavour: str,
    runs: Path,
    means: Means,
    *,
    every: bool,
    list_only: bool,
    quiet: bool,
) -> None:
    """Ask the archive for new kernels, count the survey on them, and write the site OUT.

    One pass, for a crontab.  What was begun is finished first, and nothing is counted twice: a
    kernel is new when no run has counted it.  Beside each stands the kernel before it.  Exits
    with 1 when a trial failed.
    """
    from kdelta.source import tips

    wanted = _Watch(
        scenarios=tuple(survey.scenarios(only)),
        arch=arch,
        flavour=flavour,
        every=every,
        quiet=quiet,
        trees=tuple(map(tips.watched, trees)),
        merges=merges,
    )
    with _alone(runs):
        if list_only:
            studies, lost = _new(wanted, runs)
            for study in studies:
                click.echo(f"{study.title}: {plural(len(study.scenarios), 'scenario')}")
            _told(lost)
            return
        if quiet:
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
        told = pages.write(out, runs, triage, address)
    if begun or studies or not quiet:
        click.echo(told if begun or studies else f"nothing new; {told}")
    _told(lost)
    if failed:
        click.get_current_context().exit(EXIT_FAILED)


def _told(lost: InfraError | None) -> None:
    """Say at the end that the archive could not be asked: the rest was done."""
    if lost:
        raise lost


@contextmanager
def _alone(runs: Path) -> Iterator[None]:
    """Hold these runs' watch.  Raises InfraError while another process does."""
    from kdelta import cache, locks

    name = f"watch-{cache.digest(str(runs.resolve()))[:16]}"
    try:
        with cache.locked(name, timeout=0):
            yield
    except locks.BusyError as error:
        if name not in error.place:
            raise
        raise InfraError(
            "another kdelta watch is at work on these runs",
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
    from kdelta.analysis.lab import WATCH
    from kdelta.journal.run import RUNS, RunJournal

    found = []
    for folder in RUNS.folders(runs) if runs.is_dir() else ():
        with contextlib.suppress(KdeltaError):  # reading the runs will tell it
            journal = RunJournal.open(folder)
            if journal.study.name != WATCH:
                continue
            found.append(journal)
    for journal in found:
        with journal.executing():
            journal.replan_failures()
    return [journal for journal in reversed(found) if not journal.is_finished()]


def _new(wanted: _Watch, runs: Path) -> tuple[list[Study], InfraError | None]:
    """The studies of what is new in the archive and in each tree; why not of the archive."""
    every = list(pages.records(runs))
    found = []
    lost = None
    try:
        found += _of_archive(wanted, every)
    except InfraError as error:
        lost = error
    found += [study for tree in wanted.trees if (study := _of_tree(wanted, every, tree))]
    return found, lost


def _of_archive(wanted: _Watch, records: Sequence[RunRecord]) -> list[Study]:
    """As many as it takes: a study has 64 kernels at most, and each new one may need another."""
    from kdelta.analysis import lab
    from kdelta.kernels import alike

    offered, watched = _offers(wanted)
    machine = wanted.study([f"deb:{watched[0].version}"], "any").machine
    own = lab.flavoured(records, wanted.arch, wanted.flavour)
    known = lab.counted_kernels(own, wanted.scenarios, machine)
    new = alike.fresh(offered, watched, known)
    found = []
    for at in range(0, len(new), _AT_ONCE):
        part = new[at : at + _AT_ONCE]
        names = [f"deb:{offer.version}" for offer in alike.beside(offered, part, known)]
        found.append(wanted.study(names, f"new: {', '.join(offer.version for offer in part)}"))
        known |= {offer.version for offer in part}
    return found


def _offers(wanted: _Watch) -> tuple[Sequence[KernelOffer], Sequence[KernelOffer]]:
    """All kernels of the archive, as it is now, and those that are watched."""
    from kdelta.cli.download import reporting
    from kdelta.kernels import alike, reference

    with contextlib.nullcontext() if wanted.quiet else reporting() as progress:
        offered = reference.listing(wanted.arch, wanted.flavour, refresh=True, progress=progress)
    if not offered:
        raise SpecError(
            f"the archive offers no {wanted.flavour} kernel for {wanted.arch}",
            action="see: kdelta kernels list",
        )
    if wanted.every:
        return offered, offered
    series = alike.every_series(offered)
    kind = reference.flavour_of(wanted.flavour, wanted.arch)
    picked = alike.pick(series, offered, wanted.arch, kind)
    return offered, [one.offer for one in picked]


def _of_tree(wanted: _Watch, records: Sequence[RunRecord], tree: Watched) -> Study | None:
    """The tip of a tree, and merges before it, beside the nearest that has been counted."""
    from kdelta.analysis import lab
    from kdelta.source import tips

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
