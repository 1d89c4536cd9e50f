# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta coverage`: which scenarios execute which functions, or those that a patch changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.options import formats, runs_directory
from kdelta.cli.printing import print_found
from kdelta.cli.show import one_record
from kdelta.errors import SpecError
from kdelta.printable import printable, quoted

if TYPE_CHECKING:
    from kdelta.analysis.coverage import Relevance
    from kdelta.journal.run import RunRecord

_MOST = 32 << 20  # characters of a patch
_COMMITS = re.compile(r"[^-.\s:][^\s:]*?\.\.\.?[^-.\s:][^\s:]*")


@click.command()
@click.argument("run")
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
@formats
@runs_directory
def coverage(
    run: str,
    runs: Path,
    *,
    patch: str | None,
    tree: Path | None,
    form: str,
) -> None:
    """Show which functions of the kernel the scenarios of RUN executed.

    Of stored counts: nothing is booted.  A survey's run covers all short scenarios.
    """
    from kdelta.analysis.coverage import coverage as found
    from kdelta.rendering import coverage as page

    if tree and not patch:
        raise click.UsageError("--tree belongs to --patch")
    if patch:
        print_found(form, page, _of_patch(_diff(patch, tree or Path()), one_record(runs, run)))
    else:
        print_found(form, page, found(one_record(runs, run)))


def _of_patch(text: str, record: RunRecord) -> Relevance:
    """The scenarios that execute what a patch changes.  Raises SpecError for what is no patch."""
    from kdelta.analysis.coverage import coverage as covered
    from kdelta.analysis.coverage import relevance

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
