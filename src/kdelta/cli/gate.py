# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta gate`: whether CI lets a kernel in."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta.analysis.gate import Bar
from kdelta.cli.options import case_formats, runs_directory, step_percent_option
from kdelta.cli.printing import print_found
from kdelta.cli.show import one_record

EXIT_CLOSED, EXIT_UNDECIDED = 1, 4


@click.command()
@click.argument("run")
@click.option("--against", default="", metavar="KERNEL", help="The old one.  [default: the first]")
@click.option("--kernel", default="", metavar="KERNEL", help="The new one.  [default: the last]")
@click.option("--baseline", metavar="RUN", help="The run that the old one is in, if another.")
@click.option(
    "--fail-on",
    type=click.Choice([bar.value for bar in Bar]),
    multiple=True,
    default=(Bar.MORE_WORK.value,),
    show_default=True,
    help="What closes the gate; may be given several times.",
)
@step_percent_option
@case_formats
@runs_directory
def gate(
    run: str,
    runs: Path,
    against: str,
    kernel: str,
    baseline: str | None,
    fail_on: tuple[str, ...],
    step_percent: float | None,
    *,
    form: str,
) -> None:
    """Compare a kernel of RUN with a baseline in every scenario, for CI.

    Exits with 0 when there is nothing to fail on, with 1 when there is, and with 4 when there is
    not but a scenario could not be judged: that is no pass.
    """
    from kdelta.analysis.gate import gate as judged
    from kdelta.rendering import comparisons

    found = judged(
        one_record(runs, run),
        one_record(runs, baseline) if baseline else None,
        against=against,
        kernel=kernel,
        fail_on=[Bar(each) for each in fail_on],
        step_percent=step_percent,
    )
    print_found(form, comparisons.GATE_VIEW, found)
    if found.closed:
        click.get_current_context().exit(EXIT_CLOSED)
    if found.undecided:
        click.get_current_context().exit(EXIT_UNDECIDED)
