# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta doctor` and `kdelta host`: what this machine, and others by ssh, can do."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from kdelta import cache
from kdelta.arch import ARCHES
from kdelta.cli import options
from kdelta.cli.printing import print_json, print_table, reporting, say, write_output
from kdelta.doctor import capabilities
from kdelta.doctor.capabilities import EXACT_NEEDS, Capability, Usability, inventory, lacking
from kdelta.errors import SpecError
from kdelta.files import given
from kdelta.host import installing, ssh_host
from kdelta.host.ssh_host import SshHost
from kdelta.kernels.kernel import kernel_of_file
from kdelta.kernels.reference import packaged
from kdelta.study import pools

_STYLES = {
    Usability.OK: "green",
    Usability.FETCHED: "green",
    Usability.MISSING: "yellow",
    Usability.UNUSABLE: "red",
    Usability.ABSENT: "reset",
}


@click.command()
@options.json_option
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """Show what this machine can do, what is missing and the command that adds it.

    Exits with 0 when exact runs are possible here, else with 3.
    """
    with _saying() as tries:
        rows = inventory(cache.root(), tries=tries)
    possible = not lacking(rows)
    if as_json:
        told = [{**dataclasses.asdict(row), "exact": row.name in EXACT_NEEDS} for row in rows]
        print_json({"exact_runs_possible": possible, "capabilities": told})
    else:
        print_rows(rows)
        missing = f"not possible on this machine yet; it lacks: {', '.join(sorted(lacking(rows)))}."
        say(f"\nExact runs are {'possible on this machine.' if possible else missing}")
    ctx.exit(0 if possible else 3)


def print_rows(rows: Sequence[Capability]) -> None:
    """Write the table, then the commands.

    What was found stands below each row: a path that is cut cannot be copied.
    """
    name = max(len(text) for text in ("CAPABILITY", *(row.name for row in rows)))
    state = max(map(len, Usability))
    click.secho(f"{'CAPABILITY':<{name}}  {'STATE':<{state}}  FOR", bold=True)
    for row in rows:
        mark = click.style(f"{row.state:<{state}}", fg=_STYLES[row.state])
        click.echo(f"{row.name:<{name}}  {mark}  {row.purpose}")
        say(f"  {row.detail}")
    if remedies := [(row.name, row.remedy) for row in rows if row.remedy]:
        click.secho("\nTo add what is missing:", bold=True)
        print_table(("", ""), remedies)


@contextlib.contextmanager
def _saying() -> Iterator[Callable[[str], None]]:
    """What tells on standard error what is being found out, which takes seconds."""
    if not sys.stderr.isatty():
        say("finding out what this machine can do", err=True)
        with reporting():  # a tool may hang
            yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("this machine") as line:
        yield lambda name: line.update(f"trying: {name}")


_file = click.option(
    "--on",
    "file",
    type=options.FILE,
    default=Path("lab.toml"),
    show_default=True,
    metavar="LAB.TOML",
    help="The file of pools.",
)


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
    pools.check_name(name)
    pools.ssh_words(address)
    with cache.locked(f"lab-{cache.digest(os.fsencode(file.absolute()))}"):
        there = os.path.lexists(file)
        old = given(file, pools.MOST_BYTES).decode(errors="replace") if there else ""
        if f"[pool.{name}]" in old.splitlines():
            cause = f"there is a pool {name} already"
            raise SpecError(cause, place=str(file), action="edit the file")
        gap = "\n" if old and not old.endswith("\n\n") else ""
        new = f'{old}{gap}[pool.{name}]\nkind = "host"\naddress = "{address}"\n'
        pools.parse(new, str(file))
        write_output(new, file)
    command = shlex.join(["kdelta", "host", "doctor", name, "--on", str(file)])
    say(f"{file} has {name}; see what it can do: {command}")


@host.command("doctor")
@click.argument("name")
@_file
@options.json_option
@click.pass_context
def examine(ctx: click.Context, name: str, file: Path, *, as_json: bool) -> None:
    """Show what machine NAME can do, and what is missing.  Nothing is changed there.

    Exits with 3 when something is.
    """
    with _reached(name, file) as ssh_host:
        found = tuple(capabilities.rows(ssh_host))
    if as_json:
        print_json([dataclasses.asdict(row) for row in found])
    else:
        print_rows(found)
    ctx.exit(0 if all(row.state is Usability.OK for row in found) else 3)


@host.command("install")
@click.argument("name")
@click.argument("reference", type=options.KERNEL, metavar="KERNEL")
@click.option("--flavour", default="generic", show_default=True, help="Of the archive's kernels.")
@click.option(
    "--modules",
    type=options.OLD_FOLDER,
    help="With file:IMAGE: the folder that `make modules_install` filled.",
)
@click.option(
    "--config",
    type=options.OLD_FILE,
    help="With file:IMAGE: its .config, which Debian's hooks look at.",
)
@_file
def install(
    name: str, reference: str, flavour: str, modules: Path | None, config: Path | None, file: Path
) -> None:
    """Put KERNEL on machine NAME until it is released.

    A kernel of the archive (6.17, 6.17.8, deb:VERSION) is its Debian packages, verified here;
    file:IMAGE is one of your own builds.  The machine's own tools install it, and it goes on
    booting what it boots by itself: only a run asks for the new one, and once.
    """
    if (modules or config) and not reference.startswith("file:"):
        raise SpecError("--modules and --config are of a build: file:IMAGE", place=reference)
    if reference.startswith(("tree:", "host")):
        action = "build it, then name its image with file: and its modules with --modules"
        raise SpecError(f"{reference} is no kernel that can be sent", action=action)
    if reference.startswith("file:"):
        kernel_of_file(reference)  # its faults come before those of the line
    with contextlib.ExitStack() as stack:
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
            release, packages = stack.enter_context(packaged(reference, arch, flavour, progress))
            offered = installing.Offered(release=release, packages=packages)
        with ssh_host.holding(
            "kdelta host install", datetime.now(UTC).isoformat(timespec="seconds")
        ):
            new = installing.install(ssh_host, offered)
    has = f"{name} has {offered.release}; in studies: host:{offered.release}"
    click.echo(has if new else f"{name} had {offered.release} before, and keeps it")


@host.command("release")
@click.argument("name")
@_file
def release(name: str, file: Path) -> None:
    """Give machine NAME back as it was: for a run that is given up, and without kernels of ours.

    It may reboot.
    """
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


@contextlib.contextmanager
def _reached(name: str, file: Path) -> Iterator[SshHost]:
    known = pools.load(file).pool
    found = known.get(name)
    if not isinstance(found, pools.HostPool):
        hosts = (each for each, pool in known.items() if isinstance(pool, pools.HostPool))
        action = f"there are {', '.join(hosts) or 'none'}"
        raise SpecError(f"no host is called {name}", place=str(file), action=action)
    with ssh_host.connection(name, found.address, threading.Event(), found.ssh_config) as there:
        yield SshHost(there, found)
