# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel sources of the Debian archive: upstream tarballs and Debian's patches, as source trees.

The archive's index of sources is fetched when a source is first asked for.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec
from debian.debian_support import Version

from kdelta import cache, process
from kdelta.archive.apt import GoneError, Progress, SourceArchive
from kdelta.archive.index import Package, SourcePackage
from kdelta.errors import InfraError, SpecError
from kdelta.files import decoded, write_aside
from kdelta.source import git, patches
from kdelta.source.tree import SourceTree, added

_EXTRACT_S = 1800.0
_POINT = re.compile(r"\d+\.\d+(?:\.\d+)?(?:-rc\d+)?")
_PACKAGE = re.compile(r"[\w.+~:]+-[\w.+~]+")


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """Which tree a release's files gave; files: their digests."""

    tree: str
    files: tuple[str, ...]


def of_release(reference: str, *, progress: Progress | None = None) -> SourceTree:
    """The source of a release: "6.17.8" upstream's, "6.12.107-1" with Debian's patches applied.

    Fetched when first asked for, then in the cache.  Raises SpecError for an unknown one,
    InfraError when it cannot be fetched.
    """
    if not (_POINT.fullmatch(reference) or _PACKAGE.fullmatch(reference)):
        raise SpecError(
            f"'{reference}' is not the version of a kernel's source",
            action="write tree:deb:6.17.8, or tree:deb:6.12.107-1 with Debian's patches",
        )
    if (known := _known(reference)) is None:
        with cache.locked(f"sources-deb-{reference}"):
            known = _known(reference) or _fetched(reference, progress)
    return SourceTree(name=reference, tree=known.tree, line=f"deb-{reference}")


def _known(reference: str) -> _Known | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        known = decoded(_record(reference).read_bytes(), _Known)
        if not git.run("cat-file", "-e", f"{known.tree}^{{tree}}", check=False).returncode:
            return known
    return None


def _record(reference: str) -> Path:
    return cache.folder("sources") / f"deb-{reference}.json"


def _fetched(reference: str, progress: Progress | None) -> _Known:
    """Fetch a release; a file that one package's folder lacks may lie in another's."""
    gone: GoneError | None = None
    for files in _choose(reference, _packages(progress)):
        try:
            tree = _imported(reference, files, progress)
        except GoneError as error:
            gone = gone or error
            continue
        known = _Known(tree=tree, files=tuple(file.sha256 for file in files))
        with cache.writing(_record(reference)):
            write_aside(_record(reference), msgspec.json.encode(known))
        return known
    raise InfraError(
        f"the archive's index lists the source of {reference} but its mirror no longer has it",
        action="choose another version, or name a source of your own with tree:PATH",
    ) from gone


def _imported(reference: str, files: tuple[Package, ...], progress: Progress | None) -> str:
    """The tree of an upstream tarball, with the patches of a Debian tarball when there is one."""
    scratch = cache.folder("sources") / f".making-deb-{reference}"
    report = progress or (lambda _label, _percent: None)
    label = f"source of {reference}"
    with cache.writing(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            with SourceArchive().all_fetched(files, progress) as paths:
                report(label, 10.0)
                for path, name in zip(paths, ("linux", "debian"), strict=False):
                    _extract(path, scratch / name)
            report(label, 40.0)
            with git.scratch_index() as index:
                tree = added(scratch / "linux", everything=True, index=index)
            report(label, 90.0)
            if len(files) > 1:
                tree = patches.applied(tree, patches.quilt(scratch / "debian" / "patches"))
            report(label, 100.0)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return tree


def _extract(tarball: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    argv = [
        "tar", "--extract", "--xz", "--file", str(tarball), "--directory", str(folder),
        "--strip-components=1", "--no-same-owner", "--delay-directory-restore",
    ]  # fmt: skip
    done = process.run(argv, timeout=_EXTRACT_S, env={"LC_ALL": "C"}, check=False)
    if "No space left" in done.stderr:
        raise cache.disk_full(folder)
    if done.returncode:
        raise InfraError(
            f"the source cannot be unpacked: {done.last_words}",
            action="are tar and xz here? On Debian: apt-get install tar xz-utils",
        )


def _choose(reference: str, packages: Iterable[SourcePackage]) -> tuple[tuple[Package, ...], ...]:
    """The files that make up a release: one tuple for each place that has them."""
    offered = sorted(packages, key=lambda package: Version(package.version))
    found: dict[str, tuple[Package, ...]] = {}
    for package in reversed(offered):
        orig, debian = package.file(".orig.tar.xz"), package.file(".debian.tar.xz")
        if orig and debian and package.version == reference:
            found[orig.uri] = (orig, debian)
        elif orig and package.upstream == reference:
            found[orig.uri] = (orig,)
    if found:
        return tuple(found.values())
    series_of = ".".join(reference.split(".")[:2])
    near = [p.upstream for p in offered if p.upstream.startswith(f"{series_of}.")]
    names = list(dict.fromkeys(near or [p.upstream for p in offered]))[-5:]
    raise SpecError(
        f"the archive lists no source of kernel {reference}",
        action=f"it lists, for example: {', '.join(names)}; or name a folder with tree:PATH",
    )


def _packages(progress: Progress | None) -> tuple[SourcePackage, ...]:
    archive = SourceArchive()
    archive.refresh(progress=progress)
    return archive.packages("linux", "linux")
