# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta ask`: how much of a robot's report is path length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli import calibrate, execution
from kdelta.errors import SpecError

if TYPE_CHECKING:
    from kdelta.check.calibration import PublishedCase, Series
    from kdelta.check.robot import RobotReport

EXIT_UNDECIDED = 4


@click.command()
@click.argument("mail", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--kernels", metavar="OLD,NEW", help="Two series of the archive: 6.16,6.17.")
@click.option("--scenario", metavar="WORKLOAD:SCENARIO", help="Which loop it is.")
@execution.means_options
def ask(mail: Path, kernels: str | None, scenario: str | None, means: execution.Means) -> None:
    """Answer a report of the kernel test robot: does path length explain it?

    The scenario is found by the test's name, the kernels by --kernels, or by the commit where it is
    one of the cases of kdelta calibrate.  Exits with 4 when it cannot be said.
    """
    from kdelta import data
    from kdelta.check import calibration, robot
    from kdelta.rendering import calibration as view

    report = robot.read(mail)
    known = calibration.read(data.directory("calibration") / "cases.toml")
    case = _case(report, known, scenario)
    click.echo(f'{report.commit[:12]} ("{report.title}"): {report.percent:+g} % of {report.metric}')
    offered = calibrate.offered()
    between = _between(kernels) or calibration.interval(case, offered)
    why = calibration.lacking(case, between)
    if between is None or not case.scenario:
        raise SpecError(
            why if case.release or not case.scenario else "no release of its commit is known here",
            place=str(mail),
            action=(
                "name the loop with --scenario"
                if not case.scenario
                else "name two series around it with --kernels, or check its commit:"
                f" kdelta check {report.commit[:12]}^..{report.commit[:12]} --base PATH"
            ),
        )
    if case.lacks:
        click.echo(f"Not path length as far as can be said here: {case.lacks}.")
        click.get_current_context().exit(EXIT_UNDECIDED)
    (answer,) = calibrate.counted(between, [case], means)
    click.echo(view.explained(answer, report.percent))
    if answer.said in (calibration.CountsSay.UNDECIDED, calibration.CountsSay.NOT_HAD):
        click.get_current_context().exit(EXIT_UNDECIDED)


def _case(
    report: RobotReport, known: tuple[PublishedCase, ...], scenario: str | None
) -> PublishedCase:
    """The report as a case; what is known of its commit is taken from there."""
    from kdelta.check import calibration, matching

    same = [
        case
        for case in known
        if case.commit and (report.commit.startswith(case.commit) or case.commit == report.commit)
    ]
    loop = matching.meant(report.words)
    found = scenario or (same[0].scenario if same else "") or (loop.scenario if loop else "")
    case = calibration.PublishedCase(
        id=report.commit[:12],
        title=report.title,
        release=same[0].release if same else "",
        workload=report.words,
        reported=f"{report.percent:+g} %",
        kind=same[0].kind if same else "path",
        expect="more" if report.worse else "less",
        source="this mail",
        commit=report.commit,
        scenario=found,
        functions=same[0].functions if same else report.functions,
        lacks=same[0].lacks if same and not scenario else "",
    )
    return calibration.placed(case) if found else case


def _between(kernels: str | None) -> tuple[Series, Series] | None:
    if kernels is None:
        return None
    words = [word.strip().split(".") for word in kernels.split(",")]
    if len(words) != 2 or any(len(w) != 2 or not all(map(str.isdecimal, w)) for w in words):
        raise SpecError(
            f"{kernels} are not two series",
            place="--kernels",
            action="write, for example, 6.16,6.17",
        )
    old, new = ((int(word[0]), int(word[1])) for word in words)
    return old, new
