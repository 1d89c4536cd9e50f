# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta status`: how far a run is, and who does what, asked from another terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.options import json_option, runs_directory
from kdelta.cli.printing import print_json, print_table
from kdelta.printable import printable

if TYPE_CHECKING:
    from kdelta.journal.run import RunRecord
    from kdelta.journal.status import Status


@click.command()
@click.argument("run", default="latest")
@json_option
@runs_directory
def status(run: str, runs: Path, *, as_json: bool) -> None:
    """Show how far RUN is (default: the latest).

    What is done, who does what, what is left, and when it will be done.
    """
    from kdelta.journal.files import is_held
    from kdelta.journal.run import RUNS, RunJournal
    from kdelta.journal.status import status as run_status
    from kdelta.run import timed

    folder = RUNS.find(runs, run)
    record = RunJournal.open(folder).record()
    found = run_status(record, folder, executing=is_held(folder), now=time.time())
    if as_json:
        print_json(_fields(record, found))
        return
    click.echo(_sentence(found, timed.pool_of(folder)))
    if found.busy:
        labels = [arm.label for arm in record.arms]
        rows = [
            (who, labels[trial.arm], f"{trial.workload}:{trial.scenario}", f"{seconds:.0f} s")
            for trial, who, seconds in found.busy
        ]
        print_table(("worker", "kernel", "scenario", "for"), rows, right=("for",), wrap="scenario")


def _sentence(found: Status, pool: str) -> str:
    """pool: that the run is timed on, "" for none."""
    left = found.total - found.ended
    said = f"{found.run_id}: {found.ended} of {found.total} trials have ended, {left} are left"
    if found.failed:
        said += f"; {found.failed} failed for a machine's fault"
    if not left:
        return f"{said}."
    if not found.executing:
        there = f" --on LAB.TOML, with the pool {printable(pool, 60)}" if pool else ""
        return f"{said}; nobody works on it: kdelta resume {found.run_id}{there}"
    if found.left_s is None:
        return f"{said}; nobody can say yet when it will be done."
    minutes = max(1, round(found.left_s / 60))
    return f"{said}; done in about {minutes} min if it goes on so."


def _fields(record: RunRecord, found: Status) -> dict[str, Any]:
    labels = [arm.label for arm in record.arms]
    return {
        "run": found.run_id,
        "trials": found.total,
        "ended": found.ended,
        "failed": found.failed,
        "executing": found.executing,
        "left_s": found.left_s,
        "busy": [
            {
                "worker": who,
                "trial": trial.index,
                "kernel": labels[trial.arm],
                "scenario": f"{trial.workload}:{trial.scenario}",
                "seconds": round(seconds, 1),
            }
            for trial, who, seconds in found.busy
        ],
    }
