# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta runs`: which runs there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kdelta.cli.options import json_option, runs_directory
from kdelta.cli.printing import print_json, print_table


@click.command()
@json_option
@runs_directory
def runs(runs: Path, *, as_json: bool) -> None:
    """List the runs, newest first: how many trials are done, and of which study."""
    from kdelta.journal.run import RUNS

    folders = RUNS.folders(runs)
    if as_json:
        print_json([_fields(folder) for folder in folders])
        return
    if not folders:
        click.echo(f"no runs in {runs}; make one with: kdelta run STUDY")
        return
    print_table(("run", "trials", "study"), map(_described, folders), right=("trials",))


def _described(folder: Path) -> tuple[str, str, str]:
    found = _fields(folder)
    if found["fault"]:
        return folder.name, "", found["fault"]
    return folder.name, f"{found['done']}/{found['trials']}", found["title"]


def _fields(folder: Path) -> dict[str, Any]:
    """A run in figures; fault: why it cannot be read, and then there is nothing else."""
    from kdelta.errors import StoreError
    from kdelta.journal.run import RunJournal

    try:
        record = RunJournal.open(folder).record()
    except StoreError as error:
        return {"run": folder.name, "fault": error.cause}
    return {
        "run": folder.name,
        "fault": "",
        "done": sum(trial.result is not None for trial in record.trials),
        "trials": len(record.trials),
        "title": record.title,
        "created": record.created,
        "instrument": record.instrument,
    }
