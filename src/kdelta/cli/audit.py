# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta audit`: the machine and the page state of every trial of a run."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta.cli.options import json_option, runs_directory

EXIT_FAILED = 1


@click.command()
@click.argument("run")
@click.option("--ktap", is_flag=True, help="Print KTAP (docs.kernel.org) instead of tables.")
@json_option
@click.option("--all", "every", is_flag=True, help="Also the facts that are told and do not bind.")
@runs_directory
def audit(run: str, runs: Path, *, ktap: bool, as_json: bool, every: bool) -> None:
    """Show what the machine and the pages of each trial of RUN were, and whether that holds.

    Exits with 1 when a trial failed, a fact does not hold, or kernels differ in one that binds.
    """
    from kdelta.analysis.audit import audited
    from kdelta.cli.printing import print_found, print_raw
    from kdelta.cli.show import one_record
    from kdelta.rendering import audit as page

    if ktap and as_json:
        raise click.UsageError("--ktap and --json exclude each other")
    found = audited(one_record(runs, run))
    if ktap:
        print_raw(page.ktap(found))
    else:
        print_found("json" if as_json else "", page, found, every=every)
    if not found.passed:
        raise click.exceptions.Exit(EXIT_FAILED)
