# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta survey`: every scenario meant for it over every release of the archive, in one table."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta.cli import execution, studies
from kdelta.cli.means import Means, means_options
from kdelta.cli.options import field_option, only_option, runs_directory
from kdelta.errors import SpecError

_QUESTION = """
Which paths of memory management and its callers became longer or shorter in which release, and by
which functions?  Each scenario is short; a step is a reason for a study of its own.
"""


@click.command()
@click.option("--kernels", help="Kernels, 6.12..7.2 a range.  [default: all series]")
@only_option
@field_option
@click.option("--arch", default="amd64", show_default=True, help="Debian's architecture name.")
@click.option("--flavour", default="cloud", show_default=True, help="Debian's kernel flavour.")
@click.option("--rounds", type=int, default=1, show_default=True, help="Trials of each arm.")
@click.option("--list", "list_only", is_flag=True, help="Only list scenarios and kernels.")
@click.option("--new", "fresh_run", is_flag=True, help="Do not resume an unfinished survey.")
@means_options
@runs_directory
def survey(
    kernels: str | None,
    only: tuple[str, ...],
    arch: str,
    flavour: str,
    rounds: int,
    runs: Path,
    means: Means,
    *,
    field: bool,
    list_only: bool,
    fresh_run: bool,
) -> None:
    """Count every scenario of the survey on every release, and tell which path changed where.

    An interrupted survey is resumed by the same command.  `kdelta show RUN --summary` prints its
    table again.
    """
    from kdelta.analysis.survey import STEP_PERCENT
    from kdelta.journal.run import RunJournal, unfinished
    from kdelta.study import spec

    names = scenarios(only, field=field)
    references = (
        studies.kernels([word.strip() for word in kernels.split(",")], arch, flavour)
        if kernels
        else _ladder(arch, flavour)
    )
    if list_only:
        click.echo("".join(f"{name}\n" for name in names), nl=False)
        click.echo(f"over {', '.join(references)}")
        return
    study = spec.from_arguments(
        names,
        references,
        name="survey",
        title=f"survey of {len(names)} scenarios over {len(references)} kernels",
        question=_QUESTION.strip(),
        arch=arch,
        flavour=flavour,
        rounds=rounds,
        step_percent=STEP_PERCENT,
    )
    known = None if fresh_run else unfinished(runs, study)
    if known:
        click.echo(f"resuming {known.name} (another one: --new)", err=True)
        execution.execute(RunJournal.open(known), means, summary=True)
    else:
        execution.start(study, runs, means, summary=True)


def scenarios(only: tuple[str, ...], *, field: bool = False) -> list[str]:
    """The scenarios of the survey, of patterns those that fit.  Raises SpecError for none."""
    from kdelta.study import plan

    found = plan.surveyed(only, field=field)
    if not found:
        raise SpecError(
            f"no scenario of the survey fits {', '.join(only)}",
            action="see: kdelta survey --field --list",
        )
    return found


def _ladder(arch: str, flavour: str) -> list[str]:
    """The newest kernel of each series, and each candidate, oldest first."""
    from kdelta.cli.download import reporting
    from kdelta.kernels import debian, reference

    with reporting() as progress:
        offered = reference.listing(arch, flavour, progress=progress)
    return list(debian.every_series(offered))
