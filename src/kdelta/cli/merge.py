# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta merge`: one finding of the bundles of several machines."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta.cli.bundle import EXIT_DIFFERS, whole
from kdelta.cli.options import formats
from kdelta.cli.printing import print_found
from kdelta.errors import SpecError

_MOST = 64  # bundles


@click.command()
@click.argument(
    "bundles", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@formats
def merge(bundles: tuple[Path, ...], *, form: str) -> None:
    """Make one finding of BUNDLES, which several machines made of one study.

    Counts have to be equal to the instruction, or what else differs is named, and it exits with 1.
    Times are judged over the machines, each of which is a block. Nothing is executed.
    """
    from kdelta.analysis.merging import merged
    from kdelta.rendering import comparisons

    if len(bundles) > _MOST:
        raise SpecError(f"{len(bundles)} bundles are too many", action=f"name at most {_MOST}")
    names = [path.name for path in bundles]
    if len(set(names)) < len(names):
        names = [str(path) for path in bundles]
    if len(set(names)) < len(names):
        raise SpecError("a bundle is named twice", action="name each once")
    records = {}
    for name, path in zip(names, bundles, strict=True):
        with whole(path) as (_, record):
            records[name] = record
    found = merged(records)
    print_found(form, comparisons.MERGED_VIEW, found)
    if not found.equal:
        click.get_current_context().exit(EXIT_DIFFERS)
