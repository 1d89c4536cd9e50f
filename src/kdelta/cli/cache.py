# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta cache`: what kdelta keeps on disk, and how to get rid of it."""

from __future__ import annotations

import shutil

import click

from kdelta import cache as store
from kdelta.cli.printing import print_table
from kdelta.errors import SpecError

_MEANING = {
    "apt": "package lists and downloads of the private apt root",
    "build": "programs and plugins compiled on this machine",
    "build-logs": "what make said of sources that do not build",
    "builds": "kernels built from source",
    "ccache": "compilers' results, of ccache",
    "checkpoints": "booted guests to restore trials from",
    "events": "where kernels enter interrupts, exceptions and other tasks",
    "images": "kernel images",
    "initramfs": "initramfs archives with PID 1",
    "packages": "which package an image came from",
    "qemu": "unpacked QEMU versions",
    "sources": "source trees of kernels, as git objects",
    "symbols": "functions of kernels, by build id",
    "trees": "checked-out sources with warm build directories",
}


@click.group()
def cache() -> None:
    """Show and clear what kdelta keeps on disk; all of it can be made again."""


@cache.command("show")
def show() -> None:
    """Print what the cache holds, the largest first."""
    click.echo(f"{store.root()}")
    rows = (
        (row.kind, f"{row.size / 2**20:.1f}", str(row.entries), _MEANING.get(row.kind, ""))
        for row in store.usage()
    )
    print_table(("kind", "MiB", "entries", "what"), rows, right=("MiB", "entries"), indent=2)


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
        with store.writing(store.root()):
            shutil.rmtree(store.root() / kind)
        click.echo(f"cleared {kind}")
