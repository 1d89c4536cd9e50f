# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta kernels`, `tools` and `cache`: what is fetched or built, and what is kept of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import msgspec

from kdelta import arch, toolchains
from kdelta import cache as store
from kdelta.archive.apt import Archive
from kdelta.cli.options import FOLDER, KERNEL, json_option, trust_option
from kdelta.cli.printing import output_path, print_json, print_table, reporting, say
from kdelta.errors import SpecError
from kdelta.guests import qemu as qemus
from kdelta.kernels import debian, reference
from kdelta.kernels.image import inspect
from kdelta.kernels.kernel import Flavour
from kdelta.kinds import KINDS
from kdelta.rendering.formats import picked
from kdelta.source import git, kconfig, tree_reference
from kdelta.transplant import releases

_HERE = "this system"  # where a compiler is from that nobody fetched


def _choice(flag: str, known: Sequence[str], default: str, told: str) -> Callable[..., Any]:
    return click.option(
        flag, type=click.Choice(known), default=default, show_default=True, help=told
    )


_arch = _choice("--arch", reference.ARCHES, "amd64", "Debian architecture.")
_flavour = _choice(
    "--flavour", [str(each) for each in Flavour], "cloud", "Debian's configuration of the kernel."
)


@click.group()
def kernels() -> None:
    """List, fetch and identify kernels.

    A reference is 6.17.8, 6.17 (the newest of the series), 7.3-rc (the newest candidate),
    deb:VERSION (a Debian package version), file:PATH (a bzImage, Image or vmlinux) or
    tree:..., built from source (see `kdelta kernels fetch --help`).
    """


@kernels.command("list")
@_arch
@_flavour
@json_option
@click.option("--refresh", is_flag=True, help="Ask the mirror for a new index first.")
def list_command(*, arch: str, flavour: str, as_json: bool, refresh: bool) -> None:
    """List every kernel that the archive offers, newest last.

    Of several that fit a reference, the one listed last is taken.
    """
    with reporting() as progress:
        chosen = reference.listing(arch, flavour, refresh=refresh, progress=progress)
    if as_json:
        names = ("release", "upstream", "series", "version", "package", "suites", "bytes", "cached")
        packages = (each.package for each in chosen)
        own = ({"package": p.name, "suites": p.suites, "bytes": p.size} for p in packages)
        rows = zip(chosen, own, strict=True)
        print_json([picked(o, names, **more, cached=debian.is_cached(o)) for o, more in rows])
        return
    kind = reference.flavour_of(flavour, arch)
    end = kind.suffix(arch)
    click.echo(f"{len(chosen)} kernels, {kind} {arch}; release names end in {end}")
    table: list[tuple[str, ...]] = []
    for _, series in groupby(chosen, lambda offer: offer.series):
        table += [()] if table else []  # between two series
        table += [
            (
                offer.release.removesuffix(end),
                offer.upstream,
                offer.version,
                ", ".join(offer.package.suites),
                f"{offer.package.size / 1e6:.0f}",
                "yes" if debian.is_cached(offer) else "no",
            )
            for offer in series
        ]
    heads = ("release", "upstream", "version", "suites", "MB", "cached")
    print_table(heads, table, right=("MB",), wrap="suites")
    stale = [f"{name} ({day})" for name, day in reference.opened(arch).suites().items() if day]
    if stale:
        say(f"Past their date, signature valid: {', '.join(stale)}")


@kernels.command()
@click.argument("references", type=KERNEL, nargs=-1, required=True, metavar="REF...")
@_arch
@_flavour
@trust_option
def fetch(*, references: tuple[str, ...], arch: str, flavour: str, trust: bool) -> None:
    """Fetch kernels into the cache, or build them; an interrupted download resumes.

    \b
    Built from source, as `kdelta run --kernels` takes them too, are:
      tree:PATH            a source folder, or a git work tree with its changes
      tree:PATH@COMMIT     a commit of a repository
      tree:deb:6.17.8      a release's source, from the archive
      tree:deb:6.12.107-1  the same with Debian's patches
    \b
    Each after a "+", any number of:
      NAME or PATH         a variant that kdelta brings, a patch, a mailbox
      undo=PATCH           a patch, or PATH@COMMIT, that it has, taken back
      mm/mincore.c=PATH    one file replaced
      config=NAME or FILE  package (a release's own), min, deb, xenpv, ftrace;
                           or a .config
      fragment=FILE        options added to the configuration
      cc=gcc-14            a compiler; by default this system's gcc

    Kernels of the same code have the same bytes, and this says so.
    """
    with reporting() as progress:
        first: dict[str, str] = {}
        for name in references:
            kernel = releases.resolve(name, arch, flavour, trust=trust, progress=progress)
            words = (kernel.release, kernel.version, str(kernel.image))
            click.echo(f"{name}: {' '.join(filter(None, words))}")
            twin = first.setdefault(kernel.image_sha256, name)
            if twin != name:
                click.echo(f"  null variant: same image as {twin}")


@kernels.command()
@click.argument("ref", type=KERNEL, metavar="REF")
@_arch
@_flavour
@trust_option
@json_option
def show(*, ref: str, arch: str, flavour: str, trust: bool, as_json: bool) -> None:
    """Say exactly which kernel a reference is; fetches it when needed."""
    with reporting() as progress:
        kernel = releases.resolve(ref, arch, flavour, trust=trust, progress=progress)
    facts = inspect(kernel.image)
    config = kernel.config
    options = kconfig.parse(config.read_text(errors="replace")) if config else {}
    fields = {
        **msgspec.structs.asdict(kernel.identity()),
        "compiler": facts.compiler or options.get("CC_VERSION_TEXT", "").strip('"'),
        **picked(kernel, ("package", "suite")),
        **picked(facts, ("format", "banner")),
        "image": str(kernel.image),
        "image_bytes": kernel.image.stat().st_size,
        "config": str(config or ""),
        "config_options": len(options) - list(options.values()).count("n") or None,
    }
    if as_json:
        print_json(fields)
        return
    for name, value in fields.items():
        told = ", ".join(value) if isinstance(value, tuple) else value
        line = f"{name:<14} {'unknown' if told in ('', None) else told}"
        (click.echo if name in ("image", "config") else say)(line)  # a path stays whole


@kernels.command()
@click.argument("release", type=KERNEL)
@click.option("-o", "--output", type=FOLDER, help="The folder.  [default: linux-RELEASE]")
def source(*, release: str, output: Path | None) -> None:
    """Put the source of a RELEASE where you can edit it, as a git repository with one commit.

    RELEASE is 6.17.8, 6.12.107-1 (with Debian's patches), or 6.17: the newest of the series whose
    source the archive has.
    """
    wanted = tree_reference.parse(f"tree:deb:{release.removeprefix('deb:')}")
    with reporting() as progress:
        name = tree_reference.located(wanted, progress=progress).release
        folder = output or Path(f"linux-{name}")
        output_path(folder, folder=True)
        if os.path.lexists(folder):
            raise SpecError("it is there already", place=str(folder), action="name another: -o")
        found = tree_reference.of_release(name, progress=progress)
        progress(f"writing {folder}", 0.0)
        git.work_tree(found.tree, f"Linux {name}", folder.absolute())
    click.echo(f"{folder}: the source of {name}.  Commit a change there, and then:")
    own = shlex.quote(str(folder))
    click.echo(f"git -C {own} format-patch -1; kdelta check {own}/0001-*.patch --base {name}")


@click.group()
def tools() -> None:
    """List compilers and QEMU versions; those fetched live in the cache, without root."""


@tools.group()
def compiler() -> None:
    """List compilers, which are fetched when they are first needed."""


@tools.group()
def qemu() -> None:
    """List and fetch QEMU versions."""


@compiler.command("list")
@json_option
def list_compilers(*, as_json: bool) -> None:
    """List the compilers that can be had, and which are here."""
    with reporting() as progress:
        offers = toolchains.offers(progress=progress)
    if as_json:
        names = ("name", "version", "suites", "installed", "fetched")
        print_json([picked(offer, names, installed=not offer.suites) for offer in offers])
        return
    table = [
        (o.name, o.version, ", ".join(o.suites) + " (fetched)" * o.fetched if o.suites else _HERE)
        for o in offers
    ]
    print_table(("name", "version", "from"), table)


@qemu.command("list")
@json_option
def list_qemus(*, as_json: bool) -> None:
    """List the QEMU versions of each suite, newest last, which are fetched, and how patched."""
    archive = Archive(arch.native().debian)
    with reporting() as progress:
        archive.refresh(progress=progress)
    present = {(one.package, one.guest): one.patch for one in qemus.unpacked_qemus()}
    rows = [
        (guest, offer.version, offer.suites, offer.size, present.get((offer.version, guest)))
        for guest in qemus.GUESTS
        for offer in qemus.qemu_offers(archive, guest)
    ]
    names = ("guest", "version", "suites", "bytes")
    if as_json:
        both = ((*row, patch is not None, patch or "") for *row, patch in rows)
        every = (*names, "fetched", "patch")
        print_json([dict(zip(every, row, strict=True)) for row in both])
        return
    table = (
        (guest, version, ", ".join(suites), "no" if patch is None else f"yes {patch}".rstrip())
        for guest, version, suites, _, patch in rows
    )
    print_table((*names[:3], "fetched"), table, wrap="suites")


@qemu.command("fetch")
@click.argument("wanted", required=False, metavar="[SUITE|VERSION]")
@_choice("--arch", qemus.GUESTS, "amd64", "Architecture of the guests.")
def fetch_qemu(*, wanted: str | None, arch: str) -> None:
    """Fetch the QEMU of a suite or version and print where it is.

    Without an argument: the newest of this machine's release and its backports.
    """
    with reporting() as progress:
        found = qemus.fetch_qemu(wanted, arch, progress=progress)
    click.echo(f"{found.package} {found.patch or 'unpatched'} {found.program}")


@click.group()
def cache() -> None:
    """Show and clear what kdelta keeps on disk; all of it can be made again."""


@cache.command("show")
def show_cache() -> None:
    """Print what the cache holds, the largest first."""
    click.echo(f"{store.root()}")
    rows = []
    with reporting() as progress:
        usage = store.usage(progress)
    for row in usage:
        kind = KINDS.get(row.kind)
        limit = f"{kind.limit_mib}" if kind and kind.limit_mib is not None else ""
        what = f"{kind.holds}; {kind.again}" if kind else "left by another version of kdelta"
        rows.append((row.kind, f"{row.size / 2**20:.1f}", limit, str(row.entries), what))
    columns = ("kind", "MiB", "at most", "entries", "what")
    print_table(columns, rows, right=columns[1:4], wrap="what", indent=2)


@cache.command("clear")
@click.argument("kinds", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Clear every kind.")
def clear(kinds: tuple[str, ...], *, everything: bool) -> None:
    """Remove KINDS of things (see `kdelta cache show`), or --all."""
    here = store.present()
    chosen = here if everything else list(kinds)
    if not chosen:
        raise SpecError("nothing chosen", action="name kinds, or say --all")
    for kind in chosen:
        if kind not in here:
            raise SpecError(f"the cache holds no {kind!r}", action=f"it holds: {', '.join(here)}")
    for kind in chosen:
        left = store.clear(kind)
        click.echo(f"cleared {kind}" + (f", but for {left} in use" if left else ""))
