# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta cache`: what kdelta keeps on disk, and how to get rid of it."""

from __future__ import annotations

import click

from kdelta import cache as store
from kdelta.cli.printing import print_table
from kdelta.errors import SpecError
from kdelta.kinds import KINDS


@click.group()
def cache() -> None:
    """Show and clear what kdelta keeps on disk; all of it can be made again."""


@cache.command("show")
def show() -> None:
    """Print what the cache holds, the largest first."""
    click.echo(f"{store.root()}")
    rows = []
    for row in store.usage():
        kind = KINDS.get(row.kind)
        size = row.size / 2**20
        limit = f"{kind.limit_mib}" if kind and kind.limit_mib is not None else ""
        what = f"{kind.holds}; {kind.again}" if kind else "left by another version of kdelta"
        rows.append((row.kind, f"{size:.1f}", limit, str(row.entries), what))
    columns = ("kind", "MiB", "at most", "entries", "what")
    print_table(columns, rows, right=columns[1:4], wrap="what", indent=2)


@cache.command("clear")
@click.argument("kinds", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Clear every kind.")
def clear(kinds: tuple[str, ...], *, everything: bool) -> None:
    """Remove KINDS of things (see `kdelta cache show`), or --all."""
    here = [row.kind for row in store.usage()]
    chosen = here if everything else list(kinds)
    if not chosen:
        raise SpecError("nothing chosen", action="name kinds, or say --all")
    for kind in chosen:
        if kind not in here:
            raise SpecError(f"the cache holds no {kind!r}", action=f"it holds: {', '.join(here)}")
    for kind in chosen:
        left = store.clear(kind)
        click.echo(f"cleared {kind}" + (f", but for {left} in use" if left else ""))
