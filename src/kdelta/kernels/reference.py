# SPDX-License-Identifier: GPL-2.0-or-later
"""Resolves what a user writes to a kernel: the one entrance to the sources of kernels."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kdelta import arch as arches
from kdelta import cache
from kdelta.archive.apt import Archive, Progress
from kdelta.archive.index import upstream_of
from kdelta.errors import InfraError, SpecError
from kdelta.kernels import debian
from kdelta.kernels.kernel import Flavour, Kernel, kernel_of_file
from kdelta.procfs import compiler_family
from kdelta.source import build, kconfig, tree_reference
from kdelta.source.build import Build

log = logging.getLogger(__name__)

ARCHES = tuple(arches.ARCHES)
BUILT_FOR = build.BUILT_FOR
_LOCAL = (tree_reference.PREFIX, "file:")


def resolve(
    reference: str,
    arch: str = "amd64",
    flavour: str = "cloud",
    *,
    trust: bool = False,
    progress: Progress | None = None,
) -> Kernel:
    """The kernel that a reference means, its image on this disk and verified.

    trust: patches are built as one's own.  Raises SpecError for a bad or unknown reference,
    InfraError when it cannot be fetched.
    """
    if reference.startswith(tree_reference.PREFIX):
        return of_build(reference, built(reference, arch, flavour, trust=trust, progress=progress))
    if reference.startswith("file:"):
        return kernel_of_file(reference, arch)
    offered = listing(arch, flavour, progress=progress)
    offer = debian.choose(reference, offered, arch, flavour_of(flavour, arch))
    return debian.fetch(offer, reference, archive=opened(arch), progress=progress)


def resolve_all(
    references: Sequence[str],
    arch: str = "amd64",
    flavour: str = "cloud",
    *,
    trust: bool = False,
    progress: Progress | None = None,
) -> list[Kernel | InfraError]:
    """The kernels of one study: a series means its newest package of the others' compiler.

    Returns per reference its kernel, or why it cannot be had, and tells the user of such choices.
    Raises SpecError as `resolve` does.
    """
    try:
        picked = _picked(list(dict.fromkeys(references)), arch, flavour, progress)
    except InfraError:
        picked = {}  # each will say so itself
    found: list[Kernel | InfraError] = []
    for name in references:
        pick = picked.get(name)
        exact = f"deb:{pick.version}" if pick else name
        try:
            kernel = resolve(exact, arch, flavour, trust=trust, progress=progress)
            kernel = replace(kernel, reference=name)
        except InfraError as error:
            found.append(error)
            continue
        # The configuration in a package may name another compiler than the index does.
        config = kernel.config.read_text(errors="replace") if pick and kernel.config else ""
        told = compiler_family(kconfig.parse(config).get("CC_VERSION_TEXT", "").strip('"'))
        if pick and told and pick.compiler and told != pick.compiler:
            log.warning(
                "note: %s was built by %s, not by %s as the archive's index led to believe",
                kernel.version, told, pick.compiler,
            )  # fmt: skip
        found.append(kernel)
    return found


def _picked(
    references: Sequence[str], arch: str, flavour: str, progress: Progress | None
) -> dict[str, debian.KernelOffer]:
    packages = [name for name in references if not name.startswith((*_LOCAL, "host"))]
    if len(references) < 2 or not any(map(debian.is_open, packages)):
        return {}
    others = [_own_compiler(name, arch) for name in references if name.startswith(_LOCAL)]
    offered = listing(arch, flavour, progress=progress)
    kind = flavour_of(flavour, arch)
    picks = debian.choose_together(packages, offered, arch, kind, others=others)
    return dict(zip(packages, picks, strict=True))


def _own_compiler(reference: str, arch: str) -> str:
    """ "gcc 14" of a file or a tree, "" when that is not known beforehand."""
    if reference.startswith("file:"):
        return compiler_family(kernel_of_file(reference, arch).compiler)
    if name := tree_reference.parse(reference).compiler:
        return name.replace("-", " ")
    with contextlib.suppress(InfraError):
        return compiler_family(build.compiler().banner)
    return ""


def built(
    reference: str,
    arch: str = BUILT_FOR,
    flavour: str = "cloud",
    *,
    trust: bool = False,
    progress: Progress | None = None,
) -> Build:
    """The kernel of tree:..., cached or built now.  Raises SpecError, SourceError, InfraError."""
    named = tree_reference.parse(reference)
    confined = tree_reference.caged(named.variants, named.fragments, trust=trust)
    parsed = tree_reference.located(named, progress=progress)
    packaged = partial(packaged_config, flavour=flavour, progress=progress)
    config = tree_reference.configured(parsed, packaged, target=arch)
    found = tree_reference.source(parsed, progress=progress)
    chain = build.compiler(parsed.compiler, target=arch, progress=progress)
    made = build.build(found, config, chain, progress=progress, confined=confined)
    if made.record.lost:
        log.warning("note: %s is without %s", found.title, ", ".join(made.record.lost))
    return made


def packaged_config(
    release: str, *, flavour: str = "cloud", progress: Progress | None = None
) -> Path:
    """The configuration of a release's package, of the nearest one when the archive has none.

    release: "6.17.8" or, as Debian's package has it, "6.12.107-1".  A message says when it is
    another release's.
    Raises SpecError when the archive has no package of that series.
    """
    upstream = upstream_of(release)
    offered = listing(BUILT_FOR, flavour, progress=progress)
    offer = debian.like(release, upstream, offered)
    action = f"name one: tree:deb:{release}+config={kconfig.DEFAULT}, or config=FILE"
    if offer is None:
        raise SpecError(
            f"the archive has no package of {upstream}'s series whose configuration could be taken",
            action=action,
        )
    if offer.upstream != upstream:
        log.warning(
            "note: %s is configured as %s %s is: the archive has no package of %s",
            release, offer.package.name, offer.version, upstream,
        )  # fmt: skip
    kernel = debian.fetch(offer, release, archive=opened(BUILT_FOR), progress=progress)
    if kernel.config is None:
        why = f"{offer.package.name} {offer.version} holds no configuration"
        raise InfraError(why, action=action)
    return kernel.config


def of_build(reference: str, build: Build) -> Kernel:
    """A built kernel as the rest of kdelta takes it."""
    config = build.folder / "config"
    return Kernel(
        reference=reference,
        release=build.record.release,
        arch=build.chain.target,
        flavour=build.config.name,
        image=build.image,
        image_sha256=build.image_sha256,
        config=config,
        config_sha256=cache.recorded(config),
        name=build.label,
        source=f"tree {build.tree.tree}, configuration {build.config.name}",
        compiler=build.record.compiler,
    )


def listing(
    arch: str = "amd64",
    flavour: str = "cloud",
    *,
    refresh: bool = False,
    progress: Progress | None = None,
) -> tuple[debian.KernelOffer, ...]:
    """Every kernel that the archive offers, oldest first.  Raises InfraError without an index."""
    kind = flavour_of(flavour, arch)
    archive = opened(arch)
    archive.refresh(force=refresh, progress=progress)
    for note in archive.notes:
        log.warning("note: %s", note)
    return debian.offers(archive, kind)


@contextlib.contextmanager
def packaged(
    reference: str, arch: str, flavour: str, progress: Progress | None = None
) -> Iterator[tuple[str, tuple[tuple[str, Path], ...]]]:
    """The release of a reference, and its packages, as files while it lasts: names and places."""
    archive, offered = opened(arch), listing(arch, flavour, progress=progress)
    offer = debian.choose(reference, offered, arch, flavour_of(flavour, arch))
    wanted = debian.installable(offer, archive)
    with archive.all_fetched(wanted, progress) as files:
        yield offer.release, tuple(zip((each.name for each in wanted), files, strict=True))


def opened(arch: str) -> Archive:
    """The archive of one architecture as its index is now.  Raises SpecError for others."""
    if arch not in ARCHES:
        raise SpecError(f"unknown architecture {arch}", action=f"choose from: {', '.join(ARCHES)}")
    return Archive(arch)


def flavour_of(name: str, arch: str) -> Flavour:
    """Debian's flavour of that name; generic for cloud where there is none.  Raises SpecError."""
    if name not in tuple(Flavour):
        raise SpecError(f"unknown flavour {name}", action=f"choose from: {', '.join(Flavour)}")
    clouded = name != Flavour.CLOUD or arch not in ARCHES or arches.of(arch).cloud
    return Flavour(name) if clouded else Flavour.GENERIC
