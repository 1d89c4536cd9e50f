# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta runs`: which runs there are."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta.cli.options import runs_directory
from kdelta.cli.printing import print_table


@click.command()
@runs_directory
def runs(runs: Path) -> None:
    """List the runs, newest first: how many trials are done, and of which study."""
    from kdelta.journal.run import RUNS

    folders = RUNS.folders(runs)
    if not folders:
        click.echo(f"no runs in {runs}; make one with: kdelta run STUDY")
        return
    print_table(("run", "trials", "study"), map(_described, folders), right=("trials",))


def _described(folder: Path) -> tuple[str, str, str]:
    from kdelta.errors import StoreError
    from kdelta.journal.run import RunJournal

    try:
        record = RunJournal.open(folder).record()
    except StoreError as error:
        return folder.name, "", error.cause
    done = sum(trial.result is not None for trial in record.trials)
    return folder.name, f"{done}/{len(record.trials)}", record.title
