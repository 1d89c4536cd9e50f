# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta runs list`: which runs there are, and how far one is, asked from another terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.options import json_option, runs_directory
from kdelta.cli.printing import page_width, print_json, print_lines, print_table
from kdelta.printable import printable

if TYPE_CHECKING:
    from kdelta.journal.run import RunRecord
    from kdelta.journal.status import Status
    from kdelta.table.columns import Line


@click.group()
def runs() -> None:
    """List runs, and show how far one is."""


@runs.command("list")
@json_option
@runs_directory
def list_command(runs: Path, *, as_json: bool) -> None:
    """List the runs, newest first: how many trials are done, and of which study."""
    from kdelta.journal.run import RUNS

    folders = RUNS.folders(runs)
    if as_json:
        print_json([_fields(folder) for folder in folders])
        return
    if not folders:
        click.echo(f"no runs in {runs}; make one with: kdelta run STUDY")
        return
    print_lines(_lines([_fields(folder) for folder in folders]))


def _lines(found: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """A table of three columns where each line of it fits, else what each run is of below it."""
    from kdelta.table.columns import Column, Span, Tone, first_that_fits, headline, table_lines

    names = Column("run", [each["run"] for each in found])
    trials = Column("trials", map(_trials, found), right=True)
    titles = [each["fault"] or each["title"] for each in found]
    head, *rows = table_lines((names, trials))
    lines: list[Line] = [head]
    for row, title in zip(rows, titles, strict=True):
        lines += [row, (Span(f"  {headline(title, page_width() - 2)}", Tone.FAINT),)]
    yield from first_that_fits([(names, trials, Column("study", titles))], *lines)


def _trials(found: Mapping[str, Any]) -> str:
    return "" if found["fault"] else f"{found['done']}/{found['trials']}"


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


@runs.command()
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
        print_json(_status_fields(record, found))
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


def _status_fields(record: RunRecord, found: Status) -> dict[str, Any]:
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
