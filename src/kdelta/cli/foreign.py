# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta import` and `kdelta judge`: results that others published, judged by our rules."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.options import formats, need, runs_directory
from kdelta.errors import InfraError, SpecError
from kdelta.printable import printable

if TYPE_CHECKING:
    from kdelta.foreign.mapping import Mapping
    from kdelta.foreign.reader import UndescribedError
    from kdelta.foreign.record import Foreign

FORMATS = ("auto", "bundle", "table", "benchfmt", "kernbench", "lkp", "perf-stat", "hyperfine")
GRADES = ("guest-time", "host-time", "metal-time")
_MOST_FILES = 9  # that `import` says a line about
EXIT_INVALID = 1  # judge: the comparison that was asked for is INVALID
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"


@click.command("import")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="What the files are.",
)
@click.option(
    "--mapping",
    "mappings",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="TOML file that says what the columns of a table are; may be given for each table.",
)
@click.option(
    "--encoding", default="utf-8", show_default=True, help="How the text of the files is encoded."
)
@click.option("--name", metavar="NAME", help="Name of the import. [default: of the first PATH]")
@runs_directory
def import_command(
    paths: tuple[Path, ...],
    form: str,
    mappings: tuple[Path, ...],
    encoding: str,
    name: str | None,
    runs: Path,
) -> None:
    """Store the results in PATH..., files or folders, so that `kdelta judge` can judge them.

    Nothing is changed in PATH; every line is kept, with the SHA-256 of its file. What the columns
    of a table are is found out from their names and cells. Where that leaves a doubt nothing is
    stored: a proposal is written to NAME.mapping.toml here, to be corrected and given as --mapping.
    """
    from datetime import UTC, datetime

    from kdelta.foreign import folder, loading, reader
    from kdelta.foreign.record import Foreign, ImportFormat

    chosen = _name(name, paths[0])
    kind = None if form == "auto" else ImportFormat(form)
    wish = loading.Wish(
        kind=kind, mappings=tuple(_mapping(path) for path in mappings), encoding=encoding
    )
    try:
        sources, contents, found = reader.read(paths, wish)
    except reader.UndescribedError as error:
        raise _proposed(error, paths) from error
    now = datetime.now(UTC)
    foreign = Foreign(
        name=chosen,
        created=f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
        kind=found,
        sources=sources,
        contents=contents,
        kdelta_version=_version(),
    )
    place = folder.write(runs, foreign, now)
    click.echo(f"{place.name}: {_counted(foreign)}")
    for text in contents.how[:_MOST_FILES]:
        click.echo(f"  {printable(text)}")
    if len(contents.how) > _MOST_FILES:
        click.echo(f"  and {len(contents.how) - _MOST_FILES} files more")
    click.echo(f"judge it with: kdelta judge {place.name}")


def _name(name: str | None, path: Path) -> str:
    import re

    if name is None:
        stem = (path.name or path.resolve().name).partition(".")[0]
        if not re.search(r"\w", stem) and path.parent.name:  # of several files, as FOLDER/*.json
            stem = path.parent.name
        return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:64] or "import"
    if not re.fullmatch(_NAME, name):
        raise click.BadParameter(
            "letters, digits, - _ and . are expected, at most 64", param_hint="--name"
        )
    return name


def _proposed(error: UndescribedError, paths: tuple[Path, ...]) -> SpecError:
    """Write the proposal here, beside no other, and say what to do with it."""
    from kdelta.foreign.proposal import ENDING

    stem = _name(None, Path(error.place))
    number = 1
    while True:
        path = Path(f"{stem}{ENDING}" if number == 1 else f"{stem}-{number}{ENDING}")
        try:
            with path.open("x", encoding="utf-8") as stream:
                stream.write(error.proposal)
            break
        except FileExistsError:
            number += 1
        except OSError as fault:
            raise InfraError(
                f"{error.cause}; a proposal cannot be written to {path}: {fault.strerror}",
                place=error.place,
                action="go to a folder of your own",
            ) from fault
    given = " ".join(shlex.quote(str(path)) for path in paths[:3])
    return SpecError(
        error.cause,
        place=error.place,
        action=f"what it would be is in {path}: correct it, then kdelta import {given}"
        f"{' ...' if len(paths) > 3 else ''} --mapping {path}",
    )


def _mapping(path: Path) -> Mapping:
    from kdelta.foreign import encoded, mapping, tables

    data, _ = tables.load(path, str(path))
    text = encoded.decoded(data, str(path), given="write it as UTF-8")
    return mapping.parse(text, str(path))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kdelta")
    except PackageNotFoundError:
        return ""


def _counted(foreign: Foreign) -> str:
    contents = foreign.contents
    values = len(contents.readings)
    count = len(foreign.sources)
    summaries, fields = len(contents.published), len(contents.audited)
    parts = [f"{count} file{'s' * (count > 1)} as {foreign.kind}"]
    parts += [f"{values} value{'s' * (values > 1)}"] if values else []
    parts += [f"{summaries} published summar{'ies' if summaries > 1 else 'y'}"] if summaries else []
    parts += [f"{fields} audited field{'s' * (fields > 1)}"] if fields else []
    return ", ".join(parts)


def _fraction(_context: click.Context, option: click.Parameter, value: float) -> float:
    if not 0 < value < 100:
        raise click.BadParameter("a percentage between 0 and 100 is expected", param=option)
    return value / 100


@click.command()
@click.argument("foreign", metavar="FOREIGN")
@click.option("--old", metavar="ARM", help="The arm that the change is against.")
@click.option("--new", metavar="ARM", help="The arm that changed.")
@click.option("--control", metavar="ARM", help="The old arm, measured again (A/B/A).")
@click.option("--metric", metavar="NAME", help="Judge one metric only.")
@click.option("--grade", type=click.Choice(GRADES), help="What kind of machine it was.")
@click.option(
    "--tolerance-percent",
    "tolerance",
    type=float,
    default=3.0,
    show_default=True,
    callback=_fraction,
    metavar="PERCENT",
    help="Call a change within PERCENT the SAME.",
)
@click.option(
    "--alpha-percent",
    "alpha",
    type=float,
    default=1.0,
    show_default=True,
    callback=_fraction,
    metavar="PERCENT",
    help="How often a verdict of change may be wrong.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--compat/--no-compat", default=True, help="Show what other tools print.")
@click.option(
    "--details/--no-details",
    default=None,
    help="Show every metric and setting after the answer. [default: where they are few]",
)
@formats
@click.option("--benchfmt", "as_benchfmt", is_flag=True, help="Print the Go benchmark format.")
@runs_directory
def judge(
    foreign: str,
    runs: Path,
    *,
    compat: bool,
    details: bool | None,
    form: str,
    as_benchfmt: bool,
    **choice: Any,
) -> None:
    """Judge the import FOREIGN: the answer first, then verdict and warnings of each metric.

    FOREIGN is the name of an import, a unique beginning of it, "latest", or its folder. Without
    --old and --new, arms are compared in the order of their versions, or parent, child, parent
    where the data names them. Exits with 1 when the comparison asked for is INVALID.
    """
    from kdelta.analysis import judgement
    from kdelta.cli.printing import print_found
    from kdelta.foreign import folder
    from kdelta.metric import Grade
    from kdelta.rendering import judge as page
    from kdelta.sample import Instrument

    if form and as_benchfmt:
        raise click.UsageError(f"--{form} and --benchfmt exclude each other")
    place = folder.IMPORTS.find(runs, foreign)
    found = folder.load(place)
    if as_benchfmt:
        _print_benchfmt(found)
        return
    need(Instrument.TIME)
    grade = choice.pop("grade")
    wanted = judgement.JudgementChoice(grade=Grade(grade) if grade else None, **choice)
    judged = judgement.judge(place.name, found, wanted)
    print_found(form, page, judged, compat=compat, details=details)
    asked = wanted.old is not None
    if asked and any(p.comparison.verdict == "INVALID" for f in judged.findings for p in f.pairs):
        click.get_current_context().exit(EXIT_INVALID)


def _print_benchfmt(found: Foreign) -> None:
    from kdelta.analysis.compat import benchfmt
    from kdelta.cli.printing import print_raw
    from kdelta.foreign.series import cases

    lines = benchfmt.lines((case.group, case.metric, case.series) for case in cases(found.contents))
    print_raw("".join(f"{line}\n" for line in lines))
