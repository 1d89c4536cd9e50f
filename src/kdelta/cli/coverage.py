# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta coverage`: which scenarios execute which functions, or those that a patch changes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import click

from kdelta.analysis import calls
from kdelta.analysis.coverage import Relevance, SourceCoverage, relevance
from kdelta.analysis.coverage import coverage as covered
from kdelta.analysis.explanation import find_counted, find_named
from kdelta.cli.explain import LineMeans, fetch_debug_options, located
from kdelta.cli.options import formats, need, runs_directory
from kdelta.cli.printing import print_found
from kdelta.cli.show import one_record
from kdelta.codegen.recorded import reached, reached_functions
from kdelta.errors import SpecError
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.ladder.evidence import parts, points, refuse_traced
from kdelta.printable import printable, quoted
from kdelta.rendering import coverage as page

_MOST = 32 << 20  # characters of a patch
_UNDER = "mm"
_COMMITS = re.compile(r"[^-.\s:][^\s:]*?\.\.\.?[^-.\s:][^\s:]*")
_FOLDER = re.compile(r"(?:[A-Za-z0-9_-]+/?)+")


@click.command()
@click.argument("run")
@click.option("--source", is_flag=True, help="By source files, with the lines that ran.")
@click.option("--kernel", metavar="LABEL", help="Of --source: on which kernel. [default: the last]")
@click.option(
    "--under",
    default=_UNDER,
    show_default=True,
    metavar="FOLDER",
    help="Of --source: files below this folder of the source; '' for all.",
)
@click.option(
    "--patch",
    metavar="PATCH",
    help="Which scenarios execute what PATCH changes, and which changed functions none does: a"
    " unified diff or a series ('-': standard input), or two commits, OLD..NEW.",
)
@click.option(
    "--tree",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Of --patch OLD..NEW: the git tree, or a folder of it. [default: this one]",
)
@fetch_debug_options
@formats
@runs_directory
def coverage(
    run: str,
    runs: Path,
    *,
    source: bool,
    kernel: str | None,
    under: str,
    patch: str | None,
    tree: Path | None,
    means: LineMeans,
    form: str,
) -> None:
    """Show which functions of the kernel the scenarios of RUN executed.

    Of stored counts: nothing is booted.  A survey's run covers all short scenarios.  --source
    tells lines where they are known, as kdelta explain --lines does.
    """
    from kdelta.analysis.coverage import coverage as found

    if not source and (kernel or means.fetch or under != _UNDER):
        raise click.UsageError("--kernel, --under and --fetch-debug belong to --source")
    if (source and patch) or (tree and not patch):
        raise click.UsageError("--tree belongs to --patch, which excludes --source")
    if source:
        journal = RunJournal.open(RUNS.find(runs, run))
        need(journal.study.instrument)
        print_found(form, page, _by_file(journal, kernel, under, replace(means, wanted=True)))
    elif patch:
        print_found(form, page, _of_patch(_diff(patch, tree or Path()), one_record(runs, run)))
    else:
        print_found(form, page, found(one_record(runs, run)))


def _by_file(
    journal: RunJournal, kernel: str | None, under: str, means: LineMeans
) -> SourceCoverage:
    """What one kernel of a run executed, by files of its source."""
    from kdelta.analysis import coverage

    if under and not _FOLDER.fullmatch(under):
        raise SpecError(f"{quoted(under)} is no folder of a source", action="write --under mm")
    plan = journal.plan
    refuse_traced(plan)
    label = kernel or plan.arms[-1].label
    named = [find_named(part.arms, label) for _, part in points(plan)]
    record = journal.record({arm.index for arm in named})
    identity = None
    ran: dict[str, set[int]] = {}
    places: dict[int, tuple[int, str]] = {}
    for _, part, workload, scenario in parts(record):
        (arm,) = find_counted(part, (workload, scenario), label)
        label, identity = arm.arm.label, arm.arm.kernel
        addresses, own = reached(journal.folder, part, calls.windows(part, arm))
        ran.setdefault(f"{workload}:{scenario}", set()).update(addresses)
        places |= own
    functions = reached_functions(set().union(*ran.values()), places)
    told = located(identity, functions, means, under)
    executed = {}
    for name, addresses in ran.items():  # lines are hashed slowly, and most are there often
        chains = {
            id(one): one for one in map(told.chains.__getitem__, addresses & told.chains.keys())
        }
        executed[name] = {id(line): line for chain in chains.values() for line in chain}.values()
    return coverage.SourceCoverage(
        run_id=record.run_id,
        kernel=label,
        under=under.rstrip("/"),
        scenarios=tuple(ran),
        files=coverage.by_file(executed, under),
        missing=told.missing,
    )


def _of_patch(text: str, record: RunRecord) -> Relevance:
    """The scenarios that execute what a patch changes.  Raises SpecError for what is no patch."""
    if len(text) > _MOST:
        raise SpecError("the patch has more than 32 MiB", action="give a part of it: --tree, mm")
    found = relevance(text, covered(record))
    if not found.changed and not found.elsewhere:
        raise SpecError(
            "no change of C code is in the patch",
            action="give a unified diff, as git format-patch and git diff write it",
        )
    return found


def _diff(patch: str, tree: Path) -> str:
    """The text of a patch: standard input's, a file's, or between two commits."""
    if patch != "-" and _COMMITS.fullmatch(patch) and not Path(patch).exists():
        from kdelta.source import git

        asked = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--end-of-options", patch)
        done = git.ask(tree, *asked, "--", ".")
        if done.returncode:
            raise SpecError(
                f"git knows no {quoted(patch)}: {printable(done.last_words, 200)}",
                place=str(tree),
                action="name two commits of the tree that --tree gives",
            )
        return done.stdout
    try:
        with click.open_file(patch, encoding="utf-8", errors="replace") as file:
            return str(file.read(_MOST + 1))
    except OSError as error:
        raise SpecError(
            f"the patch cannot be read: {error.strerror}",
            place=patch,
            action="name a file, -, or two commits: OLD..NEW",
        ) from error
