# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta ask`: how much of a robot's report is path length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from kdelta.cli import calibrate, execution
from kdelta.cli.printing import page_width
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
    one of the cases of kdelta calibrate.  Exits with 4 when it cannot be said: why, and what can be
    done about it, is told.
    """
    from kdelta import data
    from kdelta.check import calibration, robot
    from kdelta.rendering import calibration as view

    report = robot.read(mail)
    brought = calibration.read(data.directory("calibration") / "cases.toml")
    case = _case(report, brought, scenario, ours=kernels is None)
    much = f"{report.percent:+g}" if report.directed else f"{abs(report.percent):g}"
    _wrapped(f'{report.commit[:12]} ("{report.title}"): {much} % of {report.metric}')
    for each in report.beside:
        _wrapped(f"also in the mail, and not asked here: {each}")
    if report.devices:
        _wrapped(f"The test had {report.devices}; a scenario has memory alone.")
    if not report.directed:
        _undecided(f"whether more of {report.metric} is better, the mail does not say")
    if case.is_built:
        (answer,) = calibrate.built((case.undone_by, case.done_by), [case], means)
    else:
        between = _between(kernels)
        if between is None and case.scenario and case.release:
            between = calibration.interval(case, calibrate.offered())
        if case.lacks and kernels is None:
            _undecided(case.lacks)
        if between is None or not case.scenario:
            _undecided(_unplaced(report, case))
        (answer,) = calibrate.counted(between, [case], means)
    for line in view.explained(answer, report.percent, of_time=report.is_time).splitlines():
        _wrapped(line)
    if answer.said in (calibration.CountsSay.UNDECIDED, calibration.CountsSay.NOT_HAD):
        click.get_current_context().exit(EXIT_UNDECIDED)


def _wrapped(line: str) -> None:
    from kdelta.rendering.columns import filled

    click.echo("\n".join(filled(line, page_width())))


def _undecided(why: str) -> NoReturn:
    _wrapped(f"Cannot be said: {why}.")
    click.get_current_context().exit(EXIT_UNDECIDED)


def _unplaced(report: RobotReport, case: PublishedCase) -> str:
    """What is not known of a report, and who can say it: one sentence."""
    from kdelta.check import matching

    if not case.scenario:
        near = matching.nearest(report.test, report.tests)
        asked = f"; did you mean {near}?" if near else ""
        return (
            f"no scenario is known to repeat {report.called}{asked}; name the loop"
            " with --scenario: kdelta workload list lists them"
        )
    short = report.commit[:12]
    why = (
        f"{case.release} is between no two series of the archive"
        if case.release
        else "no release of its commit is known here"
    )
    return (
        f"the loop is here as {case.scenario}, but {why}; name two series around it with"
        f" --kernels, or check its commit: kdelta check {short}^..{short} --base PATH"
    )


def _case(
    report: RobotReport,
    known: tuple[PublishedCase, ...],
    scenario: str | None,
    *,
    ours: bool,
) -> PublishedCase:
    """The report as a case; what is known of its commit is taken from there.

    ours: two builds of it may be taken, as nobody named other kernels.
    """
    from kdelta.check import calibration, matching

    same = next(
        (case for case in known if case.commit and report.commit.startswith(case.commit)), None
    )
    loop = matching.meant(report.words)
    found = scenario or (loop.scenario if loop else "")
    if same is not None and not scenario:
        found = same.scenario or found
    case = calibration.PublishedCase(
        id=report.commit[:12],
        title=report.title,
        release=same.release if same else "",
        workload=report.words,
        reported=f"{report.percent:+g} %",
        kind=same.kind if same else "path",
        expect="more" if report.worse else "less",
        source="this mail",
        commit=report.commit,
        scenario=found,
        functions=same.functions if same else report.functions,
        lacks=same.lacks if same and not scenario else "",
        undone_by=same.undone_by if same and ours else "",
        done_by=same.done_by if same and ours else "",
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
