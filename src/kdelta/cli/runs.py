# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta runs`: which runs there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.options import json_option, runs_directory
from kdelta.cli.printing import page_width, print_json, print_lines

if TYPE_CHECKING:
    from kdelta.table.columns import Line


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
