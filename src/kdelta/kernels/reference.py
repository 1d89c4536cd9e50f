# SPDX-License-Identifier: GPL-2.0-or-later
"""From what a user writes to a kernel: the one entrance to the sources of kernels."""

from __future__ import annotations

import logging

from kdelta.archive.apt import Progress
from kdelta.archive.root import Archive
from kdelta.errors import SpecError
from kdelta.kernels import debian, local
from kdelta.kernels.debian import KernelOffer
from kdelta.kernels.kernel import Flavour, Kernel
from kdelta.source import tree_reference
from kdelta.source.build import Build

log = logging.getLogger(__name__)

ARCHES = ("amd64", "arm64")
BUILT_FOR = "amd64"


def resolve(
    reference: str,
    arch: str = "amd64",
    flavour: str = "cloud",
    *,
    refresh: bool = False,
    progress: Progress | None = None,
) -> Kernel:
    """The kernel that a reference means, its image on this disk and verified.

    References: 6.17.8; 6.17, newest of the series; 7.3-rc, newest candidate; a uname -r;
    deb:VERSION, a Debian package version; file:PATH, a bzImage, Image or vmlinux; tree:..., built
    from source (source.tree_reference).
    Raises SpecError for a bad or unknown reference, InfraError when it cannot be fetched.
    """
    if reference.startswith(tree_reference.PREFIX):
        return built(reference, arch, progress=progress)
    if reference.startswith("file:"):
        return local.resolve(reference, arch)
    kind = _flavour(flavour)
    archive = opened(arch)
    _refresh(archive, force=refresh, progress=progress)
    offer = debian.choose(reference, debian.offers(archive, kind), arch, kind)
    return debian.fetch(offer, reference, archive=archive, progress=progress)


def built(reference: str, arch: str = "amd64", *, progress: Progress | None = None) -> Kernel:
    """The kernel of tree:..., from the cache or built now.

    Raises SpecError (SourceError for a source that does not build) or InfraError.
    """
    if arch != BUILT_FOR:
        raise SpecError(f"kernels are built for {BUILT_FOR} only, not for {arch}", place=reference)
    return of_build(reference, tree_reference.built(reference, progress=progress))


def of_build(reference: str, build: Build) -> Kernel:
    """A built kernel as the rest of kdelta takes it."""
    return Kernel(
        reference=reference,
        release=build.release,
        version="",
        arch=BUILT_FOR,
        flavour=build.config_name,
        image=build.image,
        image_sha256=build.image_sha256,
        config=build.config,
        config_sha256=build.config_sha256,
        build_id="",
        suite="",
        package="",
        name=build.label,
        source=f"tree {build.tree.tree}, configuration {build.config_name}",
        compiler=build.compiler,
    )


def listing(
    arch: str = "amd64",
    flavour: str = "cloud",
    *,
    refresh: bool = False,
    progress: Progress | None = None,
) -> tuple[KernelOffer, ...]:
    """Every kernel that the archive offers, oldest first.  Raises InfraError without an index."""
    kind = _flavour(flavour)
    archive = opened(arch)
    _refresh(archive, force=refresh, progress=progress)
    return debian.offers(archive, kind)


def opened(arch: str) -> Archive:
    """The archive of one architecture as its index is now.  Raises SpecError for others."""
    if arch not in ARCHES:
        raise SpecError(f"unknown architecture {arch}", action=f"choose from: {', '.join(ARCHES)}")
    return Archive(arch)


def _flavour(name: str) -> Flavour:
    if name not in tuple(Flavour):
        raise SpecError(f"unknown flavour {name}", action=f"choose from: {', '.join(Flavour)}")
    return Flavour(name)


def _refresh(archive: Archive, *, force: bool, progress: Progress | None) -> None:
    archive.refresh(force=force, progress=progress)
    for note in archive.notes:
        log.warning("note: %s", note)
