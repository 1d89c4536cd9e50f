# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta coverage` and `kdelta relevant`: which scenarios execute which functions."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import click

from kdelta.cli.options import formats, runs_directory
from kdelta.cli.printing import print_found
from kdelta.cli.show import one_record
from kdelta.errors import SpecError

_MOST = 32 << 20  # characters of a patch


@click.command()
@click.argument("run")
@formats
@runs_directory
def coverage(run: str, runs: Path, form: str) -> None:
    """Show which functions of the kernel the scenarios of RUN executed.

    Of stored counts: nothing is booted.  A survey's run covers all short scenarios.
    """
    from kdelta.analysis.coverage import coverage as found
    from kdelta.rendering import coverage as page

    print_found(form, page, found(one_record(runs, run)))


@click.command()
@click.argument("patch", type=click.File(encoding="utf-8", errors="replace"))
@click.argument("run")
@formats
@runs_directory
def relevant(patch: IO[str], run: str, runs: Path, form: str) -> None:
    """Show which scenarios of RUN execute the functions that PATCH changes, and which none does.

    PATCH is a unified diff, one patch or a series behind each other; "-" reads standard input:
    git diff v6.16..v6.17 -- mm | kdelta relevant - latest
    """
    from kdelta.analysis.coverage import coverage as covered
    from kdelta.analysis.coverage import relevance
    from kdelta.rendering import coverage as page

    text = patch.read(_MOST + 1)
    if len(text) > _MOST:
        raise SpecError("the patch has more than 32 MiB", action="give a part of it")
    found = relevance(text, covered(one_record(runs, run)))
    if not found.changed and not found.elsewhere:
        raise SpecError(
            "no change of C code is in the patch",
            action="give a unified diff, as git format-patch and git diff write it",
        )
    print_found(form, page, found)
