# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta doctor`: what this machine can do, what is missing, and the command that adds it."""

from __future__ import annotations

import dataclasses

import click
from rich.text import Text

from kdelta import cache
from kdelta.cli.options import json_option
from kdelta.cli.printing import print_json, print_table
from kdelta.doctor.capabilities import (
    EXACT_NEEDS,
    Capability,
    Usability,
    exact_runs_possible,
)
from kdelta.doctor.inventory import inventory

_STYLES = {
    Usability.OK: "green",
    Usability.MISSING: "yellow",
    Usability.UNUSABLE: "red",
    Usability.ABSENT: "dim",
}


@click.command()
@json_option
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
        print_json(document)
    else:
        _print(rows, possible=possible)
    ctx.exit(0 if possible else 3)


def _print(rows: tuple[Capability, ...], *, possible: bool) -> None:
    """Write the table, then the commands, then the verdict."""
    table = (
        (row.name, Text(row.state, style=_STYLES[row.state]), row.purpose, row.detail)
        for row in rows
    )
    print_table(("CAPABILITY", "STATE", "FOR", "FOUND"), table, at_most={"FOR": 24})
    remedies = [(row.name, row.remedy) for row in rows if row.remedy]
    if remedies:
        click.secho("\nTo add what is missing:", bold=True)
        print_table(("", ""), remedies)
    verdict = "Exact runs are possible on this machine." if possible else _blockers(rows)
    click.echo(f"\n{verdict}")


def _blockers(rows: tuple[Capability, ...]) -> str:
    usable = {row.name for row in rows if row.state is Usability.OK}
    names = ", ".join(sorted(EXACT_NEEDS - usable))
    return f"Exact runs are not possible on this machine yet; it lacks: {names}."
