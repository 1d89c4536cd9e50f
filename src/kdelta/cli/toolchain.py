# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta toolchain`: compilers of the Debian archive, beside those that are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kdelta.cli.download import reporting
from kdelta.cli.options import json_option, refresh_option
from kdelta.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from kdelta.toolchains import CompilerOffer


@click.group()
def toolchain() -> None:
    """List and fetch compilers; fetched ones live in the cache and need no root."""


@toolchain.command("list")
@json_option
@refresh_option
def list_command(*, as_json: bool, refresh: bool) -> None:
    """List the compilers that can be had, and which are here."""
    from kdelta import toolchains

    with reporting() as progress:
        offers = toolchains.offers(refresh=refresh, progress=progress)
    if as_json:
        print_json(
            [
                {
                    "name": offer.name,
                    "version": offer.version,
                    "suites": list(offer.suites),
                    "installed": not offer.suites,
                    "fetched": offer.fetched,
                }
                for offer in offers
            ]
        )
        return
    print_table(
        ("name", "version", "from"), ((each.name, each.version, _origin(each)) for each in offers)
    )


def _origin(offer: CompilerOffer) -> str:
    if not offer.suites:
        return "this system"
    return ", ".join(offer.suites) + (" (fetched)" if offer.fetched else "")


@toolchain.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@refresh_option
def fetch(*, names: tuple[str, ...], refresh: bool) -> None:
    """Fetch compilers (gcc-16, clang-19), though they be installed; print where each is."""
    from kdelta import toolchains

    with reporting() as progress:
        for name in names:
            chain = toolchains.fetch(name, progress=progress, refresh=refresh)
            click.echo(f"{chain.name} {chain.version} {chain.cc}")
