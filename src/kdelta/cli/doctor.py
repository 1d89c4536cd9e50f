# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta doctor`: what this machine can do, what is missing, and the command that adds it."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kdelta import cache
from kdelta.doctor.capabilities import (
    EXACT_NEEDS,
    Capability,
    Usability,
    exact_runs_possible,
)
from kdelta.doctor.inventory import inventory

WIDTH = 100
_STYLES = {
    Usability.OK: "green",
    Usability.MISSING: "yellow",
    Usability.UNUSABLE: "red",
    Usability.ABSENT: "dim",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--online", is_flag=True, help="Also ask the Debian mirror whether it answers.")
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool, online: bool) -> None:
    """Show what this machine can do, what is missing and the command that adds it.

    Exits with 0 when exact runs are possible here, else with 3.
    """
    rows = inventory(cache.root(), online=online)
    possible = exact_runs_possible(rows)
    if as_json:
        document = {
            "exact_runs_possible": possible,
            "capabilities": [
                {**dataclasses.asdict(row), "exact": row.name in EXACT_NEEDS} for row in rows
            ],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(rows, possible=possible)
    ctx.exit(0 if possible else 3)


def _print(rows: tuple[Capability, ...], *, possible: bool) -> None:
    """Write the table, then the commands, then the verdict; lines carry no trailing blanks."""
    console = Console(highlight=False)
    width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    console = Console(highlight=False, width=width)
    with console.capture() as capture:
        console.print(_table(rows))
        if any(row.remedy for row in rows):
            console.print("\nTo add what is missing:", style="bold")
            console.print(_remedies(rows))
        verdict = "Exact runs are possible on this machine." if possible else _blockers(rows)
        console.print(Text(f"\n{verdict}"))
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def _table(rows: tuple[Capability, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("CAPABILITY", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    table.add_column("FOR", max_width=24)
    table.add_column("FOUND", overflow="fold")
    for row in rows:
        state = Text(row.state, style=_STYLES[row.state])
        table.add_row(Text(row.name), state, Text(row.purpose), Text(row.detail))
    return table


def _remedies(rows: tuple[Capability, ...]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        if row.remedy:
            table.add_row(Text(row.name), Text(row.remedy))
    return table


def _blockers(rows: tuple[Capability, ...]) -> str:
    usable = {row.name for row in rows if row.state is Usability.OK}
    names = ", ".join(sorted(EXACT_NEEDS - usable))
    return f"Exact runs are not possible on this machine yet; it lacks: {names}."
