# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta doctor`: what this machine can do, what is missing, and the command that adds it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence

import click
from rich.text import Text

from kdelta import cache
from kdelta.cli.options import json_option
from kdelta.cli.printing import page_width, print_json, print_table
from kdelta.doctor.this_host import EXACT_NEEDS, Capability, Usability, inventory, lacking
from kdelta.printable import printable
from kdelta.table.columns import filled

_STYLES = {
    Usability.OK: "green",
    Usability.FETCHED: "green",
    Usability.MISSING: "yellow",
    Usability.UNUSABLE: "red",
    Usability.ABSENT: "dim",
}
_BESIDE = 96  # columns from which what was found fits beside what it is for


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """Show what this machine can do, what is missing and the command that adds it.

    Exits with 0 when exact runs are possible here, else with 3.
    """
    with _saying() as tries:
        rows = inventory(cache.root(), tries=tries)
    possible = not lacking(rows)
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


def print_rows(rows: Sequence[Capability]) -> None:
    """Write the table, then the commands."""
    if page_width() >= _BESIDE:
        table = (
            (row.name, Text(row.state, style=_STYLES[row.state]), row.purpose, row.detail)
            for row in rows
        )
        print_table(("CAPABILITY", "STATE", "FOR", "FOUND"), table, at_most={"FOR": 24})
    else:
        _print_below(rows, page_width())
    remedies = [(row.name, row.remedy) for row in rows if row.remedy]
    if remedies:
        click.secho("\nTo add what is missing:", bold=True)
        print_table(("", ""), remedies)


def _print_below(rows: Sequence[Capability], width: int) -> None:
    """On a narrow screen what was found stands below: a path that is cut cannot be copied."""
    name, state = (
        max(len(text) for text in column)
        for column in (("CAPABILITY", *(row.name for row in rows)), [*Usability])
    )
    click.secho(f"{'CAPABILITY':<{name}}  {'STATE':<{state}}  FOR", bold=True)
    for row in rows:
        mark = click.style(f"{row.state:<{state}}", fg=_STYLES[row.state].replace("dim", "reset"))
        click.echo(f"{row.name:<{name}}  {mark}  {row.purpose}")
        for line in filled(printable(row.detail), width, "  ", "    ", whole=True):
            click.echo(line)


def _print(rows: tuple[Capability, ...], *, possible: bool) -> None:
    """Write the table, the commands, then the verdict."""
    print_rows(rows)
    verdict = "Exact runs are possible on this machine." if possible else _blockers(rows)
    click.echo(f"\n{verdict}")


def _blockers(rows: tuple[Capability, ...]) -> str:
    names = ", ".join(sorted(lacking(rows)))
    return f"Exact runs are not possible on this machine yet; it lacks: {names}."


@contextlib.contextmanager
def _saying() -> Iterator[Callable[[str], None]]:
    """What tells on standard error what is being found out, which takes seconds."""
    if not sys.stderr.isatty():
        click.echo("finding out what this machine can do", err=True)
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("this machine") as line:
        yield lambda name: line.update(f"trying: {name}")
