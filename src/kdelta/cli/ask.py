# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta ask`: how much of a robot's report is path length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.means import Means, means_options
from kdelta.cli.printing import page_width
from kdelta.errors import SpecError

if TYPE_CHECKING:
    from kdelta.check import robot

EXIT_UNDECIDED = 4


@click.command()
@click.argument("mail", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--kernels", metavar="OLD,NEW", help="The kernels to count: 6.16,6.17.")
@click.option("--scenario", default="", metavar="WORKLOAD:SCENARIO", help="The loop of the test.")
@click.option("--metric", default="", metavar="NAME", help="The row of the table to answer.")
@click.option(
    "--better",
    type=click.Choice(["more", "less"]),
    help="What is better of the metric, where the robot declares nothing.",
)
@means_options
def ask(
    mail: Path,
    kernels: str | None,
    scenario: str,
    metric: str,
    better: str | None,
    means: Means,
) -> None:
    """Answer a report of the kernel test robot: does path length explain its change?

    Read are the table of the MAIL and its declared fields: commit, testcase, parameters. What they
    do not declare has to be given as an option. Exits with 4 when the counts decide nothing.

    \b
    Example:
      kdelta ask report.eml --kernels tree:linux@PARENT,tree:linux@COMMIT
    """
    from kdelta import workload
    from kdelta.check import counting, robot
    from kdelta.check.compare import count_difference
    from kdelta.cli.download import reporting
    from kdelta.rendering import check

    report = robot.read(mail)
    row = robot.chosen(report, metric)
    direction = robot.direction(report, row, better or "")
    loop = scenario or robot.scenario_of(report, row)
    workload.parse_reference(loop)
    old, new = _pair(kernels, report)
    for line in check.robot_heading(report, row):
        _print(line)
    with reporting() as progress:
        ((before, after),) = counting.count_pair(
            old,
            new,
            [loop],
            lambda line: click.echo(line, err=True),
            wanted_qemu=means.wanted_qemu,
            jobs=means.jobs,
            again=means.again,
            progress=progress,
        )
    found = count_difference(before, after)
    for line in check.robot_answer(row, direction, found, f"{loop}, {old} -> {new}"):
        _print(line)
    if check.robot_undecided(found):
        click.get_current_context().exit(EXIT_UNDECIDED)


def _print(line: str) -> None:
    from kdelta.table.columns import filled

    click.echo("\n".join(filled(line, page_width())))


def _pair(kernels: str | None, report: robot.RobotReport) -> tuple[str, str]:
    """Both references.  Raises SpecError for none, and for what is not two."""
    action = (
        "name the kernels without and with the commit:"
        f" --kernels tree:PATH@{report.parent[:12]},tree:PATH@{report.commit[:12]}"
    )
    if kernels is None:
        raise SpecError(
            "the mail names no kernels that are here", place=report.place, action=action
        )
    words = [word.strip() for word in kernels.split(",")]
    if len(words) != 2 or not all(words):
        raise SpecError(f"{kernels} are not two kernels", place="--kernels", action=action)
    return words[0], words[1]
