# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta lab`: one database over all runs, made of their folders and made again at will."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.catalogue.place import check_installed
from kdelta.cli.options import json_option, runs_directory
from kdelta.cli.printing import print_json, print_table
from kdelta.errors import SpecError
from kdelta.printable import printable

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from kdelta.catalogue.queries import Rows

_MOST = click.option(
    "--most",
    type=click.IntRange(1, 100_000),
    default=200,
    show_default=True,
    help="Rows at most.",
)
_NO_SUCH = 1  # exit code of a question that found nothing


@click.group()
def lab() -> None:
    """Ask the catalogue: one database over all runs.

    It is a file of yours, or the PostgreSQL database whose URL is in KDELTA_LAB.  The folders of
    the runs stay the truth: the catalogue can be removed, and filled again by `kdelta lab index`.
    """


@lab.command("index")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@json_option
@runs_directory
def index(folders: tuple[Path, ...], runs: Path, *, as_json: bool) -> None:
    """Index run FOLDERS (default: all of --runs): what is new or changed; what is gone leaves.

    A FOLDER is a run's, or one that holds runs.
    """
    check_installed()
    from kdelta.catalogue import database, indexing, place
    from kdelta.journal.run import RUNS

    own = [path for path in folders if (path / RUNS.file).exists() or not path.is_dir()]
    roots = [path for path in folders if path not in own] if folders else [runs]
    url = place.address()
    with database.opened(url, fresh=True) as catalogue:
        found = []
        for one in indexing.index(catalogue, own, roots):
            found.append(one)
            if one.why and not as_json:
                click.echo(f"{one.what}: {printable(one.folder)}: {printable(one.why)}", err=True)
            elif one.what is indexing.Indexed.REMOVED and not as_json:
                click.echo(f"{one.what}: {printable(one.folder)}")
        catalogue.settle()
    if as_json:
        print_json([{"folder": o.folder, "what": o.what, "why": o.why} for o in found])
        return
    counts = Counter(str(one.what) for one in found)
    told = ", ".join(f"{number} {what}" for what, number in counts.items()) or "no run"
    click.echo(f"{told}: {place.hidden(url)}")


@lab.command("runs")
@_MOST
@json_option
def runs_command(most: int, *, as_json: bool) -> None:
    """List the runs of the catalogue, newest first."""
    check_installed()
    from kdelta.catalogue import queries

    with _asking() as connection:
        rows = queries.all_runs(connection, most)
    _print(rows, as_json, ("run_id", "created", "instrument", "ended", "planned", "title"))


@lab.command("trials")
@click.option("--run", default="", help="Of this run.")
@click.option("--scenario", default="", metavar="WORKLOAD:SCENARIO", help="Of this scenario.")
@click.option("--kernel", default="", help="Of this kernel: 6.17.13, or all of 6.17.")
@_MOST
@json_option
def trials(run: str, scenario: str, kernel: str, most: int, *, as_json: bool) -> None:
    """List trials with the address of what was counted."""
    check_installed()
    from kdelta.catalogue import queries

    if not (run or scenario or kernel):
        raise SpecError("which trials?", action="give --run, --scenario or --kernel")
    with _asking() as connection:
        rows = queries.trials_of(connection, run=run, case=scenario, kernel=kernel, most=most)
    _print(rows, as_json, ("run", "number", "scenario", "kernel", "outcome", "address"))


@lab.command("find")
@click.argument("address")
@_MOST
@json_option
def find(address: str, most: int, *, as_json: bool) -> None:
    """Tell whether the trial with ADDRESS has been counted, and in which runs.

    ADDRESS is what `kdelta lab trials` prints, or a beginning of it of 8 or more digits: the
    content of all that a trial depends on.  Exits with 1 when it was not counted.
    """
    check_installed()
    from kdelta.catalogue import queries

    if not 8 <= len(address) <= 64 or set(address) - set("0123456789abcdef"):
        raise SpecError(
            f"is no address of a trial: {printable(address, 80)}",
            action="give 8 to 64 hexadecimal digits, see: kdelta lab trials --run RUN",
        )
    with _asking() as connection:
        rows = queries.counted(connection, address, most)
    _print(rows, as_json, ("run", "number", "scenario", "kernel", "outcome", "created"))


@lab.command("function")
@click.argument("name")
@click.option("--scenario", default="", metavar="WORKLOAD:SCENARIO", help="Only in this scenario.")
@_MOST
@json_option
def function(name: str, scenario: str, most: int, *, as_json: bool) -> None:
    """Show what a kernel function costs in each scenario, kernel after kernel.

    Instructions per operation, each by the newest run that has it.
    """
    check_installed()
    from kdelta.catalogue import queries

    with _asking() as connection:
        rows = queries.function_history(connection, name, case=scenario, most=most)
    _print(rows, as_json, ("scenario", "kernel", "per_operation", "run"))


@lab.command("history")
@click.argument("scenario", metavar="WORKLOAD:SCENARIO")
@_MOST
@json_option
def history(scenario: str, most: int, *, as_json: bool) -> None:
    """Show a scenario over all kernels of the catalogue."""
    check_installed()
    from kdelta.catalogue import queries

    with _asking() as connection:
        rows = queries.history(connection, scenario, most)
    _print(rows, as_json, ("scenario", "kernel", "per_operation", "ratio", "verdict", "run"))


@lab.command("steps")
@click.argument("release", default="")
@_MOST
@json_option
def steps(release: str, most: int, *, as_json: bool) -> None:
    """List the steps that came with RELEASE (6.17.13, or all of 6.17), the largest first."""
    check_installed()
    from kdelta.catalogue import queries

    with _asking() as connection:
        rows = queries.steps_of(connection, release, most)
    _print(rows, as_json, ("scenario", "phase", "old", "new", "ratio", "functions"))


@contextmanager
def _asking() -> Iterator[Connection]:
    from kdelta.catalogue import place

    place.check_installed()
    from kdelta.catalogue import database

    with database.opened(place.address()) as catalogue, catalogue.reading() as connection:
        yield connection


def _print(rows: Rows, as_json: bool, heads: Sequence[str]) -> None:  # noqa: FBT001
    """The rows, or that there is none: exit code 1."""
    if as_json:
        print_json(rows)
    elif rows:
        numbers = [head for head in heads if not isinstance(rows[0].get(head), str)]
        told = [[_cell(head, row.get(head)) for head in heads] for row in rows]
        print_table(heads, told, right=numbers)
    if not rows:
        click.echo("nothing of that in the catalogue", err=True)
        raise click.exceptions.Exit(_NO_SUCH)


_WORDS: dict[str, Callable[[Any], str]] = {
    "per_operation": lambda value: f"{value:.1f}",
    "ratio": lambda value: f"x{value:.3f}",
    "address": lambda value: str(value)[:16],
}


def _cell(head: str, value: Any) -> str:
    if value is None:
        return ""
    return _WORDS.get(head, str)(value)
