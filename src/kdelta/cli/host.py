# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta host`: the machines of a lab.toml that time, by ssh."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import click

from kdelta.cli.options import json_option
from kdelta.errors import SpecError
from kdelta.study import pools
from kdelta.study.pools import HostPool

if TYPE_CHECKING:
    from kdelta.host.ssh_host import SshHost

_file = click.option(
    "--on",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("lab.toml"),
    show_default=True,
    metavar="LAB.TOML",
    help="The file of pools.",
)
_NOT_USABLE = 3


@click.group()
def host() -> None:
    """Look at the machines that time by ssh.

    They are pools of a lab.toml with kind = "host"; `kdelta run STUDY --on LAB.TOML` times there.
    """


@host.command("add")
@click.argument("name")
@click.argument("address", metavar="ssh://[USER@]HOST[:PORT]")
@_file
def add(name: str, address: str, file: Path) -> None:
    """Write a machine into LAB.TOML as pool NAME."""
    from kdelta.files import write_aside
    from kdelta.host import remote

    remote.parse(address)
    if file.exists() and name in pools.load(file).pool:
        raise SpecError(f"there is a pool {name} already", place=str(file), action="edit the file")
    old = file.read_text() if file.exists() else ""
    gap = "\n" if old and not old.endswith("\n\n") else ""
    new = f'{old}{gap}[pool.{name}]\nkind = "host"\naddress = "{address}"\n'
    pools.parse(new, str(file))
    write_aside(file, new.encode())
    click.echo(f"{file} has {name}; see what it can do: kdelta host doctor {name} --on {file}")


@host.command("list")
@_file
@json_option
def list_hosts(file: Path, *, as_json: bool) -> None:
    """List the machines of LAB.TOML."""
    from kdelta.cli.printing import print_json, print_table

    found = {name: pool for name, pool in pools.load(file).pool.items() if _is_host(pool)}
    if as_json:
        print_json({name: pool.address for name, pool in found.items()})
    else:
        print_table(("HOST", "ADDRESS"), ((name, pool.address) for name, pool in found.items()))


@host.command("doctor")
@click.argument("name")
@_file
@json_option
@click.pass_context
def examine(ctx: click.Context, name: str, file: Path, *, as_json: bool) -> None:
    """Show what machine NAME can do, and what is missing.  Nothing is changed there.

    Exits with 3 when something is.
    """
    import dataclasses

    from kdelta.cli.doctor import print_rows
    from kdelta.cli.printing import print_json
    from kdelta.doctor.remote_host import rows
    from kdelta.doctor.this_host import Usability

    with _reached(name, file) as ssh_host:
        found = tuple(rows(ssh_host))
    if as_json:
        print_json([dataclasses.asdict(row) for row in found])
    else:
        print_rows(found)
    ctx.exit(0 if all(row.state is Usability.OK for row in found) else _NOT_USABLE)


@host.command("install")
@click.argument("name")
@click.argument("reference", metavar="KERNEL")
@click.option("--flavour", default="generic", show_default=True, help="Of the archive's kernels.")
@click.option(
    "--modules",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="With file:IMAGE: the folder that `make modules_install` filled.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With file:IMAGE: its .config, which Debian's hooks look at.",
)
@_file
def install(
    name: str,
    reference: str,
    flavour: str,
    modules: Path | None,
    config: Path | None,
    file: Path,
) -> None:
    """Put KERNEL on machine NAME until it is released.

    A kernel of the archive (6.17, 6.17.8, deb:VERSION) is its Debian packages, verified here;
    file:IMAGE is one of your own builds.  The machine's own tools install it, and it goes on
    booting what it boots by itself: only a run asks for the new one, and once.
    """
    from contextlib import ExitStack
    from datetime import UTC, datetime
    from tempfile import TemporaryDirectory

    from kdelta.arch import ARCHES
    from kdelta.cli.download import reporting
    from kdelta.host import installing
    from kdelta.kernels import reference as kernels
    from kdelta.kernels.kernel import kernel_of_file

    if (modules or config) and not reference.startswith("file:"):
        raise SpecError("--modules and --config are of a build: file:IMAGE", place=reference)
    if reference.startswith(("tree:", "host")):
        raise SpecError(
            f"{reference} is no kernel that can be sent",
            action="build it, then name its image with file: and its modules with --modules",
        )
    with ExitStack() as stack:
        ssh_host = stack.enter_context(_reached(name, file))
        machine = ssh_host.facts().machine
        arch = next((each.debian for each in ARCHES.values() if each.uname == machine), "")
        if reference.startswith("file:"):
            kernel = kernel_of_file(reference, arch)
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="kdelta-install-")))
            release = kernel.release
            offered = installing.of_build(release, kernel.image, modules, config, scratch)
        else:
            progress = stack.enter_context(reporting())
            own = kernels.packaged(reference, arch, flavour, progress)
            release, packages = stack.enter_context(own)
            offered = installing.Offered(release=release, packages=packages)
        with ssh_host.holding(
            "kdelta host install", datetime.now(UTC).isoformat(timespec="seconds")
        ):
            new = installing.install(ssh_host, offered)
    click.echo(
        f"{name} has {offered.release}; in studies: host:{offered.release}"
        if new
        else f"{name} had {offered.release} before, and keeps it"
    )


@host.command("release")
@click.argument("name")
@_file
def release(name: str, file: Path) -> None:
    """Give machine NAME back as it was: for a run that is given up, and without kernels of ours.

    It may reboot.
    """
    from kdelta.host import installing

    with _reached(name, file) as ssh_host:
        held = ssh_host.holder()
        if held is not None:
            ssh_host.give_back(held)
            click.echo(f"{name} runs {held.release} again, and {held.run} no longer holds it")
        notes = installing.noted(ssh_host)
        for note in notes:
            installing.remove(ssh_host, note)
            click.echo(f"{name} no longer has {note.release}")
        if held is None and not notes:
            click.echo(f"nobody holds {name}, and it has no kernel of kdelta's")


@contextmanager
def _reached(name: str, file: Path) -> Iterator[SshHost]:
    from kdelta.host.remote import connection
    from kdelta.host.ssh_host import SshHost

    found = pools.load(file).pool.get(name)
    if not _is_host(found):
        raise SpecError(
            f"no host is called {name}", place=str(file), action="see: kdelta host list"
        )
    with connection(name, found.address, threading.Event(), found.ssh_config) as remote:
        yield SshHost(remote, boot_s=found.boot_s, most_boots=found.most_boots, reset=found.reset)


def _is_host(pool: object) -> TypeGuard[HostPool]:
    return isinstance(pool, HostPool)
