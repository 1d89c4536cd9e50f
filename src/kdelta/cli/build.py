# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta build`: kernels from source, and which of them are the same code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kdelta.arch import ARCHES
from kdelta.cli.download import reporting
from kdelta.cli.options import json_option
from kdelta.cli.printing import print_json

if TYPE_CHECKING:
    from kdelta.source.build import Build


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="REFERENCE...")
@click.option(
    "--arch",
    type=click.Choice(tuple(ARCHES)),
    default="amd64",
    show_default=True,
    help="For this architecture, by Debian's cross compiler.",
)
@click.option("--log", "show_log", is_flag=True, help="Print what make said.")
@json_option
def build(*, references: tuple[str, ...], arch: str, show_log: bool, as_json: bool) -> None:
    """Build kernels from source, or say where they are built already.

    \b
    A REFERENCE is what `kdelta run --kernels` takes too:
      tree:PATH            a source folder, or a git work tree with its changes
      tree:PATH@COMMIT     a commit of a repository
      tree:deb:6.17.8      a release's source, from the archive
      tree:deb:6.12.107-1  the same with Debian's patches
    \b
    Each after a "+", any number of:
      NAME or PATH         a variant that kdelta brings, a patch, a mailbox
      revert=COMMIT        that commit's change taken back
      mm/mincore.c=PATH    one file replaced
      config=NAME or FILE  package (a release's own), min, deb, xenpv, ftrace;
                           or a .config
      fragment=FILE        options added to the configuration
      cc=gcc-14            a compiler; by default this system's gcc

    Kernels of the same code have the same bytes, and this says so.
    """
    from kdelta.kernels import reference as reference_of
    from kdelta.kernels.kernel import null_variants
    from kdelta.source.make import SourceError

    made: list[Build] = []
    with reporting() as progress:
        for reference in references:
            try:
                made.append(reference_of.built(reference, arch, progress=progress))
            except SourceError as error:
                if show_log:
                    click.echo(error.log.read_text(errors="replace"), err=True)
                raise
    twins = null_variants([item.image_sha256 for item in made])
    rows = [
        _fields(reference, item, references[twins[at]] if at in twins else "")
        for at, (reference, item) in enumerate(zip(references, made, strict=True))
    ]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            _print(row)
    if show_log:
        for item in made:
            click.echo(item.log.read_text(errors="replace"))


def _fields(reference: str, item: Build, twin: str) -> dict[str, Any]:
    return {
        "reference": reference,
        "kernel": item.title,
        "release": item.release,
        "image": str(item.image),
        "sha256": item.image_sha256,
        "same_image_as": twin,
        "architecture": item.arch,
        "configuration": item.config_name,
        "options_lost": list(item.lost),
        "compiler": item.compiler,
        "tree": item.tree.tree,
        "seconds": item.seconds,
        "cached": item.cached,
        "log": str(item.log),
    }


def _print(row: dict[str, Any]) -> None:
    click.echo(row["kernel"])
    if row["same_image_as"]:
        click.echo(f"  null variant: same image as {row['same_image_as']}")
    built = f"{row['seconds']:.1f} s to build" + (", cached" if row["cached"] else "")
    for name in ("image", "sha256", "release", "configuration", "compiler", "tree", "log"):
        click.echo(f"  {name:<14} {row[name]}")
    click.echo(f"  {'time':<14} {built}")
    if row["options_lost"]:
        click.echo(f"  not granted    {', '.join(row['options_lost'])}")
