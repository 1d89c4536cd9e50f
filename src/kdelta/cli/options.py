# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several subcommands have."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from kdelta.data import is_clone
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.machine import axes
from kdelta.printable import quoted
from kdelta.rendering.formats import FORMATS

if TYPE_CHECKING:
    from kdelta.journal.run import RunRecord
    from kdelta.sample import Instrument

# Also that of the package: pyproject.toml reads it here, since reading metadata takes 30 ms.
VERSION = "0.1.0"
_Command = TypeVar("_Command", bound=Callable[..., Any])


class Percent(click.FloatRange):
    """A percentage; no NaN, which is in every FloatRange."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """See click."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is no number.", param, ctx)
        return found


PERCENT = Percent(0, 100)
FILE = click.Path(path_type=Path, dir_okay=False)
OLD_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
OLD_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


def need(instrument: Instrument) -> None:
    """Raise InfraError when what judges its numbers is not installed (the extra "time")."""
    from importlib.util import find_spec

    missing = [name for name in instrument.traits.needs if find_spec(name) is None]
    if missing:
        cause = f"times are judged with {' and '.join(missing)}, which is not installed"
        raise InfraError(cause, action="make setup" if is_clone() else "pip install 'kdelta[time]'")


def in_order(*options: Callable[..., Any]) -> Callable[[_Command], _Command]:
    """Several options as one decorator, shown in this order by the help."""

    def with_options(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def words(text: str) -> list[str]:
    """The value of an option that is a list: its words, between commas.  Raises SpecError."""
    found = [word.strip() for word in text.split(",")] if text else []
    if not all(found):
        raise SpecError(f"a word of {quoted(text)} is empty", action="leave out a comma")
    return found


def gathered(
    command: Callable[..., Any], name: str, make: Callable[..., object], options: Collection[str]
) -> Callable[..., Any]:
    """The command, which gets what `make` makes of the values of several options as `name`."""

    @functools.wraps(command)
    def chosen(*args: Any, **given: Any) -> Any:
        values = {each: given.pop(each) for each in options if each in given}
        return command(*args, **{name: make(**values)}, **given)

    return chosen


def _machine_option(name: str, kind: Any, what: str) -> Callable[..., Any]:
    known = [word for word in get_args(kind) if word]
    given = click.Choice(known) if get_origin(kind) is Literal else kind
    flag = f"--{name.replace('_', '-')}"
    return click.option(flag, type=given, help=f"{what[0].upper()}{what[1:]}.")


# An option for each key of a study's machine.
machine_options = in_order(*(_machine_option(*described) for described in axes.described()))


def _known_kernels(_ctx: click.Context) -> Iterable[str]:
    from kdelta.kernels import debian, reference

    offered = debian.offers(reference.opened("amd64"), reference.flavour_of("cloud", "amd64"))
    return dict.fromkeys(name for one in offered for name in (one.series, one.upstream))


def _known_scenarios(_ctx: click.Context) -> Iterable[str]:
    from kdelta import workload

    return (one.reference for name in workload.names() for one in workload.load(name).scenarios)


def _runs(ctx: click.Context) -> Path:
    return ctx.params.get("runs") or Path(os.environ.get("KDELTA_RUNS") or "kdelta-runs")


def _named_run(ctx: click.Context) -> RunRecord:
    from kdelta.journal.run import RUNS, RunJournal

    # Behind an option without its value click leaves arguments where they are.
    named = ctx.params["run"] or "".join(ctx.args[:1])
    return RunJournal.open(RUNS.find(_runs(ctx), named)).record()


class Known(click.types.StringParamType):
    """A word, or several with commas between, that a shell completes with what is known."""

    def __init__(self, known: Callable[[click.Context], Iterable[str]]) -> None:
        self._known = known

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """See click; of a scenario a word of its name is enough."""
        from kdelta.workload import fitting

        start, comma, word = incomplete.rpartition(",")
        with contextlib.suppress(KdeltaError, OSError):
            found = [one for one in self._known(ctx) if one.startswith(word)]
            if self is SCENARIO:
                found = found or fitting(word)
            return [CompletionItem(f"{start}{comma}{one}") for one in found]
        return []


# A parameter that has one of these types is completed.
KERNEL, SCENARIO = Known(_known_kernels), Known(_known_scenarios)
RUN = Known(lambda ctx: ("latest", *(path.name for path in _runs(ctx).iterdir())))
RUN_KERNEL = Known(lambda ctx: [arm.label for arm in _named_run(ctx).arms])
RUN_SCENARIO = Known(
    lambda ctx: dict.fromkeys(f"{t.workload}:{t.scenario}" for t in _named_run(ctx).trials)
)
other_run = functools.partial(click.option, type=RUN, metavar="RUN")
run_argument = click.argument("run", type=RUN)


def scenario_of_run(text: str) -> Callable[[_Command], _Command]:
    """The option for one scenario of a run, "" for none."""
    return click.option("--scenario", type=RUN_SCENARIO, default="", metavar="NAME", help=text)


runs_directory = click.option(
    "--runs",
    type=FOLDER,
    envvar="KDELTA_RUNS",
    default="kdelta-runs",
    show_default=True,
    help="Directory of the runs.",
)
only_option = click.option(
    "--only",
    type=SCENARIO,
    multiple=True,
    metavar="PATTERN",
    help="Only scenarios that fit: 'fault:*'. May be given again.",
)
field_option = click.option(
    "--field", is_flag=True, help="Also the loops that robots and suites have."
)
also_option = click.option(
    "--also", type=SCENARIO, multiple=True, help="And this one, or ./loop.c:name."
)
sharing_option = click.option(
    "--probe",
    type=click.Choice(["sharing"]),
    help="Count the lines that CPUs in turns take from each other instead, in turns:*.",
)


def output_option(text: str, default: str | None = None) -> Callable[[_Command], _Command]:
    """The option -o, whose file a command writes (printing.output_path)."""
    return click.option("-o", "--output", type=FILE, default=default, help=text)


def choice_of(known: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for each format, of which one may be given; the command gets it as form."""

    def chosen(**given: bool) -> str:
        forms = [form for form in known if given[form]]
        if len(forms) > 1:
            named = " and ".join(f"--{form}" for form in forms)
            raise click.UsageError(f"{named} exclude each other")
        return "".join(forms)

    told = ((form, f"Print {what}.") for form, (what, _) in known.items())
    flags = in_order(*(click.option(f"--{f}", f, is_flag=True, help=text) for f, text in told))
    return lambda command: flags(gathered(command, "form", chosen, known))


# An option for each of rendering's formats; the command gets the one chosen, "" for text, as form.
formats = choice_of(FORMATS)


step_percent_option = click.option(
    "--step-percent",
    type=PERCENT,
    metavar="PERCENT",
    help="Call a change of up to PERCENT the SAME, instead of the study's threshold.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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


trust_option = click.option(
    "--trust", is_flag=True, help="Build with a stranger's patches as you, not confined."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """With what a study is measured here; no part of it.

    wanted_qemu: "" for the usual one.  jobs: guests at once, None for what fits.  again: whatever
    was counted before.  pools: a file of pools, that other machines measure; pool: the one of them
    for times, "" for the only one.  trust: build patches as one's own.
    """

    wanted_qemu: str = ""
    jobs: int | None = None
    again: bool = False
    pools: Path | None = None
    pool: str = ""
    trust: bool = False


_here = in_order(
    qemu_option,
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(1, 256),
        help="Guests at once.  [default: what cores and memory allow]",
    ),
    again_option,
    trust_option,
)


def here_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for Means of what this machine alone measures; the command gets `means`."""
    return _here(gathered(command, "means", Means, Means.__slots__))


def means_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for Means; the command gets them as `means`."""
    return in_order(
        _here,
        click.option(
            "--pool",
            default="",
            metavar="NAME",
            help="With --on: the pool for times, where the file has several.",
        ),
        click.option(
            "--on",
            "pools",
            type=OLD_FILE,
            metavar="LAB.TOML",
            help="Measure on the pools that this file names (docs/lab.md).",
        ),
    )(gathered(command, "means", _everywhere, Means.__slots__))


def _everywhere(**given: Any) -> Means:
    if given["pool"] and not given["pools"]:
        raise click.UsageError("--pool is one of a file of pools: add --on LAB.TOML")
    return Means(**given)
