# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta runs` and `kdelta rebuild`: which runs there are, and mending one's store."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta.cli.options import runs_directory
from kdelta.cli.printing import print_table


@click.command()
@runs_directory
def runs(runs: Path) -> None:
    """List the runs, newest first: how many trials are done, and of which study."""
    from kdelta import runfolder

    folders = runfolder.runs(runs)
    if not folders:
        click.echo(f"no runs in {runs}; make one with: kdelta run STUDY")
        return
    print_table(("run", "trials", "study"), map(_described, folders), right=("trials",))


@click.command()
@click.argument("run_id", metavar="RUN")
@runs_directory
def rebuild(run_id: str, runs: Path) -> None:
    """Make the store of RUN anew from its trials' files; the damaged one is kept aside."""
    from kdelta import runfolder, store

    opened = store.rebuild(runfolder.find_run(runs, run_id))
    trials = opened.record().trials
    done = sum(trial.result is not None for trial in trials)
    click.echo(f"{opened.folder.name}: {done} of {len(trials)} trials found")


def _described(folder: Path) -> tuple[str, str, str]:
    from kdelta.errors import StoreError
    from kdelta.store import Store

    try:
        record = Store.open(folder).record()
    except StoreError as error:
        return folder.name, "", error.cause
    done = sum(trial.result is not None for trial in record.trials)
    return folder.name, f"{done}/{len(record.trials)}", record.title
