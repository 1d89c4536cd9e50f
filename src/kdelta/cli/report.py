# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta report`: a run as a mail that a person reads, corrects and sends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.options import output_option, runs_directory
from kdelta.cli.printing import print_raw, write_output
from kdelta.cli.show import one_record

if TYPE_CHECKING:
    from kdelta.analysis.claims import Claim
    from kdelta.rendering.mail import Letter
    from kdelta.workload import Workload

_NAMED = 4  # functions that recipients are looked for by


@click.command()
@click.argument("run")
@click.option("--mail", is_flag=True, help="A mail in plain text, for a person to send.")
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
    type=click.Path(path_type=Path, exists=True, file_okay=False),
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
) -> None:
    """Write what RUN proves as a mail; kdelta never sends anything.

    RUN is the identifier of a run, a unique beginning of it, "latest", or a run folder.
    """
    from kdelta.analysis.claims import claim
    from kdelta.rendering.mail import written
    from kdelta.workload import loadable

    if not mail:
        raise click.UsageError("say what to write: --mail")
    other = one_record(runs, beside) if beside else None
    found = claim(one_record(runs, run), other, scenario=scenario)
    workloads = loadable(ladder.workload for ladder in found.report.ladders)
    functions = _functions(found)
    text = written(found, _letter(workloads, functions, introduced, tree))
    if output:
        write_output(text, output)
    else:
        print_raw(text)


def _letter(
    workloads: dict[str, Workload], functions: list[str], introduced: str, tree: Path | None
) -> Letter:
    from kdelta.rendering.mail import Letter
    from kdelta.source import maintainers

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
