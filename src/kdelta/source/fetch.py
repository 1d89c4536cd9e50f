# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel sources of the Debian archive: upstream tarballs and Debian's patches, as source trees.

The index of sources is apt's, fetched into a private root beside those of packages when a source
is first asked for; every file is compared with the digest in that signed index.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdelta import arch, cache, process
from kdelta.archive import apt, sources, version
from kdelta.archive.apt import Progress
from kdelta.archive.index import Package, opened
from kdelta.archive.root import MAX_AGE_S, Archive
from kdelta.errors import InfraError, SpecError
from kdelta.files import write_aside
from kdelta.source import git, patches
from kdelta.source.tree import SourceTree, added, has

_UPDATE_S = 1800.0
_EXTRACT_S = 1800.0
_STANZA = re.compile(rb"^Package: linux\n", re.MULTILINE)
_FILE = re.compile(r" ([0-9a-f]{64}) (\d{1,12}) (linux_[\w.+~-]+)")
_POINT = re.compile(r"\d+\.\d+(?:\.\d+)?(?:-rc\d+)?")
_PACKAGE = re.compile(r"[\w.+~:]+-[\w.+~]+")
_BLOCK_BYTES = 1 << 22


class SourcePackage(msgspec.Struct, frozen=True, kw_only=True):
    """One version of Debian's source package linux, as the signed index describes it."""

    version: str
    base: str  # URI of its folder, with the final slash
    files: tuple[tuple[str, int, str], ...]  # name, bytes, SHA-256

    @property
    def upstream(self) -> str:
        """ "6.17.8" of "6.17.8-1~bpo13+1", "7.3-rc7" of "7.3~rc7-1~exp1"."""
        return version.split(self.version)[1].replace("~", "-")

    def file(self, suffix: str) -> Package | None:
        """The file whose name ends so, as something that an archive can fetch."""
        for name, size, sha256 in self.files:
            if name.endswith(suffix):
                return Package(
                    name=name, version=self.version, arch="source", depends="", size=size,
                    sha256=sha256, uri=self.base + name, suites=(),
                )  # fmt: skip
        return None


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of the last update; tried: time() of it."""

    tried: float
    packages: tuple[SourcePackage, ...]


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """Which tree a release's files gave; files: their digests."""

    tree: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffer:
    """A source that the index lists; it may be gone from the mirror (only a fetch tells)."""

    reference: str  # "6.17.8", or "6.12.107-1" with Debian's patches
    size: int  # bytes to download


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
    known = _known(reference)
    if known is None:
        with cache.locked(f"sources-deb-{reference}"):
            known = _known(reference) or _fetched(reference, progress)
    return SourceTree(name=reference, tree=known.tree, line=f"deb-{reference}")


def offers(*, refresh: bool = False, progress: Progress | None = None) -> tuple[SourceOffer, ...]:
    """Sources that the index lists, oldest first.  Raises InfraError without an index."""
    found: dict[str, SourceOffer] = {}
    for package in _packages(force=refresh, progress=progress):
        orig = package.file(".orig.tar.xz")
        if orig is not None:
            found[package.upstream] = SourceOffer(reference=package.upstream, size=orig.size)
    return tuple(found.values())


def _known(reference: str) -> _Known | None:
    with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        known = msgspec.json.decode(_record(reference).read_bytes(), type=_Known)
        if has(known.tree):
            return known
    return None


def _record(reference: str) -> Path:
    return cache.folder("sources") / f"deb-{reference}.json"


def _fetched(reference: str, progress: Progress | None) -> _Known:
    """Fetch a release; a file that one package's folder lacks may lie in another's."""
    gone: InfraError | None = None
    for files in _choose(reference, _packages(progress=progress)):
        try:
            tree = _imported(reference, files, progress)
        except _GoneError as error:
            gone = gone or error
            continue
        known = _Known(tree=tree, files=tuple(file.sha256 for file in files))
        with cache.writing(_record(reference)):
            write_aside(_record(reference), msgspec.json.encode(known))
        return known
    raise gone or InfraError(f"the archive's index lists no file of the source of {reference}")


class _GoneError(InfraError):
    """The index lists a file that its mirror no longer has."""


@contextlib.contextmanager
def _downloaded(file: Package, progress: Progress | None) -> Iterator[Path]:
    archive = Archive(arch.native().debian)
    with contextlib.ExitStack() as stack:
        try:
            path = stack.enter_context(archive.fetched(file, progress))
        except InfraError as error:
            if "no longer has it" not in error.cause:
                raise
            raise _GoneError(
                f"the archive's index lists {file.name} but its mirror no longer has it",
                action="choose another version, or name a source of your own with tree:PATH",
            ) from error
        yield path


def _imported(reference: str, files: tuple[Package, ...], progress: Progress | None) -> str:
    """The tree of an upstream tarball, with the patches of a Debian tarball when there is one."""
    scratch = cache.folder("sources") / f".making-deb-{reference}"
    report = progress or (lambda _label, _percent: None)
    label = f"source of {reference}"
    with cache.writing(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            for file, name in zip(files, ("linux", "debian"), strict=False):
                with _downloaded(file, progress) as path:
                    report(label, 10.0)
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
    offered = sorted(packages, key=lambda package: version.key(package.version))
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


# -- the index of sources -------------------------------------------------------------------------


def _packages(*, force: bool = False, progress: Progress | None) -> tuple[SourcePackage, ...]:
    root = cache.folder("apt") / "source"
    kept = root / "linux.json"
    known = _read(kept)
    if known is not None and not force and time.time() - known.tried < MAX_AGE_S:
        return known.packages
    with cache.locked("apt-source-lists"), cache.writing(root):
        again = _read(kept)
        if again is not None and again != known:
            return again.packages  # another process was quicker
        try:
            found = _updated(root, progress)
        except InfraError:
            if known is None or not known.packages:
                raise
            found = known.packages  # an old index is better than none
        write_aside(kept, msgspec.json.encode(_Index(tried=time.time(), packages=found)))
    return found


def _read(kept: Path) -> _Index | None:
    with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(kept.read_bytes(), type=_Index)
    return None


def _updated(root: Path, progress: Progress | None) -> tuple[SourcePackage, ...]:
    etc = Path(os.environ.get("KDELTA_APT_ETC", "/etc/apt"))
    for name in ("state/lists/partial", "cache/archives/partial", "sources.d", "log"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "state/status").touch()
    config = root / "apt.conf"
    text = apt.configuration(root, arch.native().debian, etc)
    write_aside(config, text.encode())
    mirrors = sources.configured(etc)
    lists = sources.source_stanzas(mirrors, sources.keyring())
    write_aside(root / "sources.d" / "kdelta.sources", lists.encode())
    done = apt.run(
        ["apt-get", "-q", "-c", str(config), "update"],
        timeout=_UPDATE_S, label="source lists", progress=progress,
        sign_of_life=re.compile(rb"^(?:Hit|Get):\d+ ", re.MULTILINE),
    )  # fmt: skip
    found = tuple(_listed(config))
    if not found:
        complaint = next(iter(done.complaints()), f"apt-get exited with {done.returncode}")
        raise InfraError(
            f"no index of sources could be fetched: {complaint}",
            action=f"check the network and {etc}, or name a source with tree:PATH",
        )
    return found


def _listed(config: Path) -> Iterator[SourcePackage]:
    done = apt.run(
        ["apt-get", "-c", str(config), "indextargets", "--format",
         "$(TRUSTED)|$(REPO_URI)|$(FILENAME)", "Created-By: Sources"],
        timeout=_UPDATE_S,
    )  # fmt: skip
    seen = set()
    for row in done.output.splitlines():
        trusted, _, rest = row.partition("|")
        base, _, path = rest.partition("|")
        if trusted != "yes" or not path:
            continue
        for stanza in _stanzas(Path(path)):
            package = _package(stanza, base)
            if package is not None and package.version not in seen:
                seen.add(package.version)
                yield package


def _stanzas(path: Path) -> Iterator[bytes]:
    with opened(path) as stream:
        rest = b""
        while block := stream.read(_BLOCK_BYTES):
            *stanzas, rest = (rest + block).split(b"\n\n")
            yield from (stanza for stanza in stanzas if _STANZA.match(stanza))
        if _STANZA.match(rest):
            yield rest


def _package(stanza: bytes, base: str) -> SourcePackage | None:
    fields: dict[str, list[str]] = {}
    last = ""
    for line in stanza.decode(errors="replace").splitlines():
        if line.startswith(" "):
            fields[last].append(line)
        else:
            last, _, value = line.partition(":")
            fields[last] = [value.strip()]
    files = [_FILE.fullmatch(line) for line in fields.get("Checksums-Sha256", [""])[1:]]
    found = tuple((match[3], int(match[2]), match[1]) for match in files if match)
    if not found or "Version" not in fields or "Directory" not in fields:
        return None
    return SourcePackage(
        version=fields["Version"][0], base=f"{base}{fields['Directory'][0]}/", files=found
    )
