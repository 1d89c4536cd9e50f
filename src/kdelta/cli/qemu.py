# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta qemu`: QEMU versions of the Debian archive, beside the one that is installed."""

from __future__ import annotations

import click

from kdelta import arch
from kdelta.archive.root import Archive
from kdelta.cli.download import reporting
from kdelta.cli.options import json_option, refresh_option
from kdelta.cli.printing import print_json, print_table
from kdelta.guests import qemu_archive


@click.group()
def qemu() -> None:
    """List and fetch QEMU versions; fetched ones live in the cache and need no root."""


@qemu.command("list")
@json_option
@refresh_option
def list_command(*, as_json: bool, refresh: bool) -> None:
    """List the QEMU versions of each suite, newest last, and which are fetched."""
    archive = Archive(arch.native().debian)
    with reporting() as progress:
        archive.refresh(force=refresh, progress=progress)
    present = {(one.package, one.guest) for one in qemu_archive.unpacked()}
    offers = [
        (guest, offer)
        for guest in qemu_archive.GUESTS
        for offer in qemu_archive.offers(archive, guest)
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


@qemu.command()
@click.argument("wanted", required=False, metavar="[SUITE|VERSION]")
@click.option(
    "--arch",
    "guest",
    type=click.Choice(qemu_archive.GUESTS),
    default="amd64",
    show_default=True,
    help="Architecture of the guests.",
)
@refresh_option
def fetch(*, wanted: str | None, guest: str, refresh: bool) -> None:
    """Fetch the QEMU of a suite or version and print where it is.

    Without an argument: the newest of this machine's release and its backports.
    """
    with reporting() as progress:
        found = qemu_archive.fetch(wanted, guest, progress=progress, refresh=refresh)
    click.echo(f"{found.package} {found.program}")
