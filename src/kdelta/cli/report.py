# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta report`: a run as a page, or as a mail that a person reads, corrects and sends."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta.analysis.claims import Claim
from kdelta.cli import options
from kdelta.cli.explain import step_detail
from kdelta.cli.options import output_option, runs_directory
from kdelta.cli.printing import print_raw, write_output
from kdelta.cli.show import one_record
from kdelta.codegen.recorded import Recorded
from kdelta.journal.run import RUNS
from kdelta.rendering.mail import Letter
from kdelta.rendering.steps import StepDetail
from kdelta.source import maintainers
from kdelta.workload import Workload

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
    from kdelta.analysis.claims import claim
    from kdelta.workload import loadable

    if mail == html:
        raise click.UsageError("say what to write: --mail or --html")
    other = one_record(runs, beside) if beside else None
    own = one_record(runs, run)
    found = claim(own, other, scenario=scenario)
    workloads = loadable(ladder.workload for ladder in found.report.ladders)
    if html:
        from kdelta.rendering import page

        exact = beside if beside and found.exact is not own else run
        _emit(page.written(found, workloads, _detail(found, runs, exact)), output)
        return
    from kdelta.rendering.mail import written

    functions = _functions(found)
    _emit(written(found, _letter(workloads, functions, introduced, tree)), output)


def _detail(found: Claim, runs: Path, run: str) -> StepDetail:
    """What the run of the counts kept beside those of the headline, as far as it can be read."""
    whole, counted = found.explanation, found.support or found.headline
    if whole is None or found.exact is None or counted is None or whole.refused:
        return StepDetail()
    recorded = Recorded(RUNS.find(runs, run), found.exact, whole, counted.ladder.point or None)
    return step_detail(recorded, whole)


def _emit(text: str, output: Path | None) -> None:
    if output:
        write_output(text, output)
    else:
        print_raw(text)


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
