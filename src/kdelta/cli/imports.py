# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta import` and `kdelta judge`: results that others published, judged by our rules."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.options import formats, need, runs_directory
from kdelta.errors import InfraError
from kdelta.printable import printable

if TYPE_CHECKING:
    from kdelta.imports.mapping import Mapping
    from kdelta.imports.record import Import

GRADES = ("guest-time", "host-time", "metal-time")
EXIT_INVALID = 1  # judge: the comparison that was asked for is INVALID
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"


@click.command("import")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
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
    "--propose", is_flag=True, help="Write a mapping for the table PATH, to be completed."
)
@click.option(
    "--encoding", default="utf-8", show_default=True, help="How the text of the files is encoded."
)
@click.option("--name", metavar="NAME", help="Name of the import. [default: of the first PATH]")
@runs_directory
def import_command(
    paths: tuple[Path, ...],
    mappings: tuple[Path, ...],
    encoding: str,
    name: str | None,
    runs: Path,
    *,
    propose: bool,
) -> None:
    """Store the results in PATH..., files or folders, so that `kdelta judge` can judge them.

    Nothing is changed in PATH; every line is kept, with the SHA-256 of its file. Declared formats
    are recognised by their structure. A table (CSV, TSV, JSON lines) is read by a mapping; one
    whose columns are all of the names that --propose knows, as kernel,boot,ns, needs none.
    """
    from datetime import UTC, datetime

    from kdelta.imports import reader, record

    chosen = _name(name, paths[0])
    if propose:
        _propose(paths, chosen, encoding)
        return
    wish = reader.Wish(mappings=tuple(_mapping(path) for path in mappings), encoding=encoding)
    sources, contents, kind = reader.read(paths, wish)
    now = datetime.now(UTC)
    found = record.Import(
        name=chosen,
        created=f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
        kind=kind,
        sources=sources,
        contents=contents,
        kdelta_version=_version(),
    )
    place = record.write(runs, found, now)
    click.echo(f"{place.name}: {_counted(found)}")
    for text in contents.how:
        click.echo(f"  {printable(text)}")
    click.echo(f"judge it with: kdelta judge {place.name}")


def _propose(paths: tuple[Path, ...], name: str, encoding: str) -> None:
    """Write the mapping of a table here, over no file, and say what to do with it."""
    from kdelta.imports.files import MAPPING
    from kdelta.imports.reader import propose

    if len(paths) > 1:
        raise click.UsageError("--propose takes one PATH")
    text = propose(paths[0], encoding)
    target = Path(f"{name}{MAPPING}")
    try:
        with target.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise InfraError(
            f"the mapping cannot be written: {error.strerror}",
            place=str(target),
            action="give another --name, or go to a folder of your own",
        ) from error
    given = shlex.quote(str(paths[0]))
    click.echo(f"complete {target}, then: kdelta import {given} --mapping {target}")


def _name(name: str | None, path: Path) -> str:
    import re

    if name is None:
        stem = (path.name or path.resolve().name).partition(".")[0]
        return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:64] or "import"
    if not re.fullmatch(_NAME, name):
        raise click.BadParameter(
            "letters, digits, - _ and . are expected, at most 64", param_hint="--name"
        )
    return name


def _mapping(path: Path) -> Mapping:
    from kdelta.imports import files, mapping

    data, _ = files.load(path, str(path))
    return mapping.parse(files.decoded(data, str(path)), str(path))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kdelta")
    except PackageNotFoundError:
        return ""


def _counted(found: Import) -> str:
    contents = found.contents
    values = len(contents.readings)
    count = len(found.sources)
    summaries, fields = len(contents.published), len(contents.audited)
    parts = [f"{count} file{'s' * (count > 1)} as {found.kind}"]
    parts += [f"{values} value{'s' * (values > 1)}"] if values else []
    parts += [f"{summaries} published summar{'ies' if summaries > 1 else 'y'}"] if summaries else []
    parts += [f"{fields} audited field{'s' * (fields > 1)}"] if fields else []
    return ", ".join(parts)


def _fraction(_context: click.Context, option: click.Parameter, value: float) -> float:
    if not 0 < value < 100:
        raise click.BadParameter("a percentage between 0 and 100 is expected", param=option)
    return value / 100


@click.command()
@click.argument("imported", metavar="IMPORT")
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
    imported: str,
    runs: Path,
    *,
    compat: bool,
    details: bool | None,
    form: str,
    as_benchfmt: bool,
    **choice: Any,
) -> None:
    """Judge IMPORT: the answer first, then verdict and warnings of each metric.

    IMPORT is the name of an import, a unique beginning of it, "latest", or its folder. Without
    --old and --new, arms are compared by their declared roles, else each with the one before it in
    the declared order, or in that of kernel versions. Exits with 1 when the comparison asked for
    is INVALID.
    """
    from kdelta.analysis import judgement
    from kdelta.cli.printing import print_found
    from kdelta.imports import record
    from kdelta.metric import Grade
    from kdelta.rendering import judge as page
    from kdelta.sample import Instrument

    if form and as_benchfmt:
        raise click.UsageError(f"--{form} and --benchfmt exclude each other")
    place = record.IMPORTS.find(runs, imported)
    found = record.load(place)
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


def _print_benchfmt(found: Import) -> None:
    from kdelta.analysis.compat import benchfmt
    from kdelta.cli.printing import print_raw
    from kdelta.imports.series import cases

    lines = benchfmt.lines((case.group, case.metric, case.series) for case in cases(found.contents))
    print_raw("".join(f"{line}\n" for line in lines))
