# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta why`: one question, one answer."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta import workload
from kdelta.analysis import claims, explanation
from kdelta.analysis.claims import Claim
from kdelta.analysis.explanation import Explanation
from kdelta.cli import options
from kdelta.cli.options import Means
from kdelta.cli.printing import print_lines
from kdelta.cli.run import check_scenarios, expanded, started
from kdelta.journal.run import RunJournal
from kdelta.kernels import debian
from kdelta.rendering import bundle
from kdelta.rendering import why as page
from kdelta.study import spec
from kdelta.study.spec import Study
from kdelta.verdict.comparison import LEAST_SEEDS, Verdict


@click.command()
@click.argument("what", metavar="WORD|WORKLOAD:SCENARIO")
@click.argument("old")
@click.argument("new")
@options.means_options
@options.runs_directory
def why(what: str, old: str, new: str, runs: Path, means: Means) -> None:
    """Answer whether a path got longer from OLD to NEW: since when, how much, by which function.

    A word is enough where it names one scenario: munmap, mmap1, a C file.  Of two series all
    between them are counted, of other kernels these two.  Seeds are added until a step is decided.
    """
    named = workload.chosen(what)
    between = debian.is_open(old) and debian.is_open(new)
    kernels = [f"{old}..{new}"] if between else [old, new]
    rounds = LEAST_SEEDS if workload.is_file(what.partition(":")[0]) else 1
    study = expanded(spec.from_arguments([named], kernels, rounds=rounds))
    check_scenarios(study)
    found, journal = _counted(study, runs, means)
    if rounds < LEAST_SEEDS and _wants_seeds(found):
        click.echo("a step may be chance: two more seeds are counted", err=True)
        found, journal = _counted(spec.with_settings(study, rounds=LEAST_SEEDS), runs, means)
    print_lines(page.lines(found, _opened(found), workload.loadable([named.rpartition(":")[0]])))
    click.echo(f"\nMore: kdelta explain {journal.folder.name}, or all of it: {journal.folder}")


def _counted(study: Study, runs: Path, means: Means) -> tuple[Claim, RunJournal]:
    journal = started(study, runs, means)
    record = journal.record()
    bundle.write_run_files(record, journal.folder)
    return claims.claim(record), journal


def _wants_seeds(found: Claim) -> bool:
    """True where a pair is undecided, and no compiler or option is why."""
    left = (rung.comparison for rung in page.left_open(found.report.ladders[0]))
    return any(one and one.verdict is Verdict.UNDECIDED and not one.crossing for one in left)


def _opened(found: Claim) -> Explanation | None:
    """The largest change that is left open, by function."""
    rung = max(page.left_open(found.report.ladders[0]), key=page.change, default=None)
    if rung is None or rung.previous is None or found.exact is None:
        return None
    return explanation.explain(found.exact, rung.previous, rung.arm)
