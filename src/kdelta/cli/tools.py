# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta tools`: compilers and QEMUs of the Debian archive, beside those that are installed."""

from __future__ import annotations

import click

from kdelta import arch, toolchains
from kdelta.archive.apt import Archive
from kdelta.cli.download import reporting
from kdelta.cli.options import json_option, refresh_option
from kdelta.cli.printing import print_json, print_table
from kdelta.guests import emulator
from kdelta.toolchains import CompilerOffer


@click.group()
def tools() -> None:
    """List and fetch compilers and QEMU versions; those fetched live in the cache, without root."""


@tools.group()
def compiler() -> None:
    """List and fetch compilers."""


@tools.group()
def qemu() -> None:
    """List and fetch QEMU versions."""


@compiler.command("list")
@json_option
@refresh_option
def list_compilers(*, as_json: bool, refresh: bool) -> None:
    """List the compilers that can be had, and which are here."""
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


@compiler.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@refresh_option
def fetch_compilers(*, names: tuple[str, ...], refresh: bool) -> None:
    """Fetch compilers (gcc-16, clang-19), though they be installed; print where each is."""
    with reporting() as progress:
        for name in names:
            chain = toolchains.fetch(name, progress=progress, refresh=refresh)
            click.echo(f"{chain.name} {chain.version} {chain.cc}")


@qemu.command("list")
@json_option
@refresh_option
def list_qemus(*, as_json: bool, refresh: bool) -> None:
    """List the QEMU versions of each suite, newest last, and which are fetched."""
    archive = Archive(arch.native().debian)
    with reporting() as progress:
        archive.refresh(force=refresh, progress=progress)
    present = {(one.package, one.guest) for one in emulator.unpacked_qemus()}
    offers = [
        (guest, offer)
        for guest in emulator.GUESTS
        for offer in emulator.qemu_offers(archive, guest)
    ]
    if as_json:
        print_json(
            [
                {
                    "guest": guest,
                    "version": offer.version,
                    "suites": offer.suites,
                    "bytes": offer.size,
                    "fetched": (offer.version, guest) in present,
                }
                for guest, offer in offers
            ]
        )
        return
    rows = (
        (
            guest,
            offer.version,
            ", ".join(offer.suites),
            "yes" if (offer.version, guest) in present else "no",
        )
        for guest, offer in offers
    )
    print_table(("guest", "version", "suites", "fetched"), rows, wrap="suites")


@qemu.command("fetch")
@click.argument("wanted", required=False, metavar="[SUITE|VERSION]")
@click.option(
    "--arch",
    "guest",
    type=click.Choice(emulator.GUESTS),
    default="amd64",
    show_default=True,
    help="Architecture of the guests.",
)
@refresh_option
def fetch_qemu(*, wanted: str | None, guest: str, refresh: bool) -> None:
    """Fetch the QEMU of a suite or version and print where it is.

    Without an argument: the newest of this machine's release and its backports.
    """
    with reporting() as progress:
        found = emulator.fetch_qemu(wanted, guest, progress=progress, refresh=refresh)
    click.echo(f"{found.package} {found.program}")
