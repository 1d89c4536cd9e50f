# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several subcommands have."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click

from kdelta.data import is_clone
from kdelta.errors import InfraError
from kdelta.machine import axes
from kdelta.rendering.formats import CASES, FORMATS

if TYPE_CHECKING:
    from kdelta.sample import Instrument

_Command = TypeVar("_Command", bound=Callable[..., Any])


def need(instrument: Instrument) -> None:
    """Raise InfraError when what judges its numbers is not installed (the extra "time")."""
    from importlib.util import find_spec

    missing = [name for name in instrument.traits.needs if find_spec(name) is None]
    if missing:
        raise InfraError(
            f"times are judged with {' and '.join(missing)}, which is not installed",
            action="make setup" if is_clone() else "pip install 'kdelta[time]'",
        )


def machine_options(command: _Command) -> _Command:
    """An option for each key of a study's machine."""
    for name, kind, what in reversed([*axes.described()]):
        words = [word for word in get_args(kind) if word]
        given = click.Choice(words) if get_origin(kind) is Literal else kind
        option = click.option(
            f"--{name.replace('_', '-')}", type=given, help=f"{what[0].upper()}{what[1:]}."
        )
        command = option(command)
    return command


qemu_option = click.option(
    "--qemu",
    "wanted_qemu",
    default="",
    envvar="KDELTA_QEMU",
    metavar="PATH|VERSION",
    help="Which QEMU: a path, or a version fetched with `kdelta tools qemu fetch`.",
)
again_option = click.option(
    "--again", is_flag=True, help="Count again what you have counted before, whatever is stored."
)
runs_directory = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="KDELTA_RUNS",
    default="kdelta-runs",
    show_default=True,
    help="Directory of the runs.",
)


only_option = click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only scenarios that fit: 'fault:*'. May be given again.",
)

field_option = click.option(
    "--field", is_flag=True, help="Also the loops that robots and suites have."
)


def output_option(told: str) -> Callable[[_Command], _Command]:
    """The option -o, whose file a command writes."""
    path = click.Path(path_type=Path, dir_okay=False)
    return click.option("-o", "--output", type=path, help=told)


def formats(command: _Command) -> _Command:
    """An option for each of rendering's formats; the command gets the one chosen, "" for text."""
    return _choice_of(FORMATS, command)


def case_formats(command: _Command) -> _Command:
    """The same with those of findings that are cases."""
    return _choice_of({**FORMATS, **CASES}, command)


def _choice_of(known: dict[str, Any], command: _Command) -> _Command:
    @functools.wraps(command)
    def chosen(*args: Any, **given: Any) -> Any:
        forms = [form for form in known if given.pop(form)]
        if len(forms) > 1:
            named = " and ".join(f"--{form}" for form in forms)
            raise click.UsageError(f"{named} exclude each other")
        return command(*args, form="".join(forms), **given)

    wrapped: Any = chosen
    for form, (what, _) in reversed(known.items()):
        wrapped = click.option(f"--{form}", form, is_flag=True, help=f"Print {what}.")(wrapped)
    found: _Command = wrapped
    return found


def fetch_debug_options(command: _Command) -> _Command:
    """How lines of packages may be fetched, --fetch-debug and --yes; the command gets `means`."""
    from kdelta.cli.code import LineMeans

    @functools.wraps(command)
    def chosen(*args: Any, fetch_debug: bool, yes: bool, lines: bool = False, **given: Any) -> Any:
        if yes and not fetch_debug:
            raise click.UsageError("--yes is for --fetch-debug")
        return command(*args, means=LineMeans(lines, fetch_debug, yes), **given)

    yes_option = click.option("--yes", is_flag=True, help="Of --fetch-debug: do not ask.")
    fetch_option = click.option(
        "--fetch-debug",
        is_flag=True,
        help="Fetch what tells the lines of packages, after its size was told.",
    )
    wrapped: Any = fetch_option(yes_option(chosen))
    found: _Command = wrapped
    return found


def _percentage(_context: click.Context, _option: click.Parameter, value: float | None) -> Any:
    """A value of --step-percent, refused when it is none."""
    if value is not None and not (math.isfinite(value) and 0 <= value <= 100):
        raise click.BadParameter("a percentage from 0 to 100 is expected")
    return value


step_percent_option = click.option(
    "--step-percent",
    type=float,
    callback=_percentage,
    metavar="PERCENT",
    help="Call a change of up to PERCENT the SAME, instead of the study's threshold.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
refresh_option = click.option(
    "--refresh", is_flag=True, help="Ask the mirror for a new index first."
)
