# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta report`: a run as a page, or as a mail that a person reads, corrects and sends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.options import output_option, runs_directory
from kdelta.cli.printing import print_raw, print_table, write_output
from kdelta.cli.show import one_record
from kdelta.errors import KdeltaError, SpecError

if TYPE_CHECKING:
    from kdelta.analysis.claims import Claim
    from kdelta.analysis.proofreading import Known
    from kdelta.rendering.mail import Letter
    from kdelta.rendering.step import StepDetail
    from kdelta.workload import Workload

EXIT_WRONG = 1
_NAMED = 4  # functions that recipients and earlier mails are looked for by


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
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A kernel tree: its scripts/get_maintainer.pl is run to name the recipients.",
)
@click.option(
    "--lore",
    type=click.Path(path_type=Path, exists=True),
    help="An mbox or a git mirror of a list: earlier mails on the same functions.",
)
@click.option(
    "--check",
    "edited",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Check this mail, written by kdelta and edited since, instead of writing one.",
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
    lore: Path | None,
    edited: Path | None,
    output: Path | None,
    *,
    mail: bool,
    html: bool,
) -> None:
    """Write what RUN proves as a mail or a page; kdelta never sends anything.

    RUN is the identifier of a run, a unique beginning of it, "latest", or a run folder. What the
    checks of a mail found is printed on standard error; the exit code is 1 when one says WRONG.
    """
    from kdelta.analysis.claims import claim
    from kdelta.workload import loadable

    if (mail, html, edited is not None).count(True) != 1:
        raise click.UsageError("say what to write: --mail, --html, or --check FILE")
    other = one_record(runs, beside) if beside else None
    own = one_record(runs, run)
    found = claim(own, other, scenario=scenario)
    workloads = loadable(ladder.workload for ladder in found.report.ladders)
    if html:
        from kdelta.rendering import page

        exact = beside if beside and found.exact is not own else run
        _emit(page.written(found, workloads, _detail(found, runs, exact)), output)
        return
    letter, known = _letter(found, workloads, introduced, tree, lore)
    if edited is not None:
        text = _text_of(edited)
    else:
        from kdelta.rendering.mail import written

        text = written(found, letter)
        _emit(text, output)
    _print_checks(text, found, workloads, known)


def _detail(found: Claim, runs: Path, run: str) -> StepDetail:
    """What the run of the counts kept beside those of the headline, as far as it can be read."""
    from kdelta.analysis.calls import explained
    from kdelta.codegen.recorded import Recorded
    from kdelta.journal.run import RUNS
    from kdelta.rendering.step import StepDetail

    whole, counted = found.explanation, found.support or found.headline
    if whole is None or found.exact is None or counted is None or whole.refused:
        return StepDetail()
    work = calls = None
    recorded = Recorded(RUNS.find(runs, run), found.exact, whole, counted.ladder.point or None)
    with contextlib.suppress(KdeltaError):
        work = recorded.work()
    with contextlib.suppress(KdeltaError):
        calls = explained(whole, *recorded.trees())
    return StepDetail(work=work, calls=calls)


def _emit(text: str, output: Path | None) -> None:
    if output:
        write_output(text, output)
    else:
        print_raw(text)


def _letter(
    found: Claim,
    workloads: dict[str, Workload],
    introduced: str,
    tree: Path | None,
    lore: Path | None,
) -> tuple[Letter, Known]:
    from kdelta.analysis.proofreading import Known
    from kdelta.foreign.mails import naming
    from kdelta.rendering.mail import Letter
    from kdelta.source import maintainers

    functions = _functions(found)
    who = maintainers.recipients(tree, functions) if tree and functions else None
    if tree and introduced:
        introduced = maintainers.as_fixed(tree, introduced)
    earlier = naming(lore, functions) if lore and functions else None
    letter = Letter(
        workloads=workloads,
        introduced=introduced,
        file=who.files[0] if who else "",
        to=who.to if who else (),
        cc=who.cc if who else (),
    )
    known = Known(
        recipients=(*who.to, *who.cc) if who else None,
        earlier=None if earlier is None else tuple((one.date, one.subject) for one in earlier),
    )
    return letter, known


def _functions(found: Claim) -> list[str]:
    """Those that the difference is made of, or else what the workload is called."""
    explained = found.explanation
    rows = (*explained.rising, *explained.falling) if explained else ()
    names = [row.function for row in rows if row.function.isidentifier()]
    return names[:_NAMED] or [found.report.ladders[0].workload]


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise SpecError("not text in UTF-8", place=str(path)) from error


def _print_checks(text: str, found: Claim, workloads: dict[str, Workload], known: Known) -> None:
    from kdelta.analysis.proofreading import Checked, checks

    done = checks(text, found, workloads, known)
    print_table(("", "", ""), [(c.found, c.name, c.told) for c in done], err=True)
    if any(check.found is Checked.WRONG for check in done):
        click.get_current_context().exit(EXIT_WRONG)
