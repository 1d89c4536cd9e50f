# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads apt's Packages and Sources lists: stanzas filtered by name, merged over the suites.

Lists are tens of megabytes: only the first line of most stanzas is looked at.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from kdelta import process
from kdelta.errors import InfraError

HELPER = "/usr/lib/apt/apt-helper"
_BLOCK_BYTES = 1 << 22
_CAT_S = 60.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[\w.+~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package version of the archive, as its signed index describes it."""

    name: str
    version: str
    arch: str  # "amd64" or "all"
    depends: str  # Depends and Pre-Depends, as written
    size: int  # bytes of the .deb
    sha256: str  # of the .deb
    uri: str
    suites: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """Name for it in a cache: unique for name, version, architecture."""
        if self.arch == "source":
            return self.name
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.arch}.deb"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePackage:
    """One version of a source package, as its signed index describes it; files: to be fetched."""

    name: str
    version: str
    files: tuple[Package, ...]

    @property
    def upstream(self) -> str:
        """ "6.17.8" of "6.17.8-1~bpo13+1", "7.3-rc7" of "7.3~rc7-1~exp1"."""
        return upstream_of(self.version)

    def file(self, suffix: str) -> Package | None:
        """The file whose name ends so."""
        return next((file for file in self.files if file.name.endswith(suffix)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFile:
    """One Packages or Sources file that apt fetched and verified."""

    suite: str
    base: str  # URI that Filename fields are relative to, with its final slash
    path: Path


def packages(lists: Iterable[ListFile], name: re.Pattern[bytes]) -> tuple[Package, ...]:
    """Packages by full name, one per .deb, with all suites that offer it.  Raises InfraError."""
    merged: dict[tuple[str, str, str, str], Package] = {}
    for part in lists:
        for stanza in _matching(part.path, name):
            package = _package(stanza, part)
            if package is not None:
                key = (package.name, package.version, package.arch, package.sha256)
                known = merged.get(key, package)
                suites = tuple(dict.fromkeys((*known.suites, part.suite)))
                merged[key] = replace(known, suites=suites)
    return tuple(merged.values())


def sources(lists: Iterable[ListFile], name: re.Pattern[bytes]) -> tuple[SourcePackage, ...]:
    """Source packages whose name matches fully; of each version the first.  Raises InfraError."""
    found: dict[tuple[str, str], SourcePackage] = {}
    for part in lists:
        for stanza in _matching(part.path, name):
            package = _source(stanza, part)
            if package is not None:
                found.setdefault((package.name, package.version), package)
    return tuple(found.values())


def _matching(path: Path, name: re.Pattern[bytes]) -> Iterator[bytes]:
    with opened(path) as stream:
        rest = b""
        while block := stream.read(_BLOCK_BYTES):
            *stanzas, rest = (rest + block).split(b"\n\n")
            yield from (stanza for stanza in stanzas if _named(stanza, name))
        if _named(rest, name):
            yield rest


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A list that apt fetched, decompressed while it is read.  Raises InfraError."""
    child = process.start([HELPER, "cat-file", str(path)], stdout=subprocess.PIPE)
    try:
        yield cast("IO[bytes]", child.stdout)
        if child.wait(timeout=_CAT_S):
            action = "delete the file, and run: kdelta kernels list --refresh"
            cause = "a package list cannot be read: it is damaged"
            raise InfraError(cause, place=str(path), action=action)
    finally:
        process.end(child)


def _named(stanza: bytes, name: re.Pattern[bytes]) -> bool:
    own = stanza.startswith(b"Package: ")
    return own and name.fullmatch(stanza, 9, max(9, stanza.find(b"\n"))) is not None


def _package(stanza: bytes, origin: ListFile) -> Package | None:
    from debian.deb822 import Deb822

    fields = Deb822(stanza.decode(errors="replace"))
    sha256, size, path = (fields.get(key, "") for key in ("SHA256", "Size", "Filename"))
    if not (_SHA256.fullmatch(sha256) and size.isdigit() and path and "Version" in fields):
        return None
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        arch=fields.get("Architecture", ""),
        depends=", ".join(filter(None, map(fields.get, ("Pre-Depends", "Depends")))),
        size=int(size),
        sha256=sha256,
        uri=origin.base + path,
        suites=(origin.suite,),
    )


def _source(stanza: bytes, origin: ListFile) -> SourcePackage | None:
    from debian.deb822 import Sources

    fields = Sources(stanza.decode(errors="replace"))
    if "Version" not in fields or "Directory" not in fields:
        return None
    files = tuple(
        Package(
            name=row["name"],
            version=fields["Version"],
            arch="source",
            depends="",
            size=int(row["size"]),
            sha256=row["sha256"],
            uri=f"{origin.base}{fields['Directory']}/{row['name']}",
            suites=(origin.suite,),
        )
        for row in fields.get("Checksums-Sha256", [])
        if _SHA256.fullmatch(row["sha256"])
        and row.get("size", "").isdigit()
        and _FILE.fullmatch(row.get("name", ""))
    )
    if not files:
        return None
    return SourcePackage(name=fields["Package"], version=fields["Version"], files=files)


def upstream_of(version: str) -> str:
    """ "6.12.107" of "6.12.107-1~deb12u1", "7.3-rc7" of "7.3~rc7-1~exp1"."""
    from debian.debian_support import Version

    head, tilde, candidate = (Version(version).upstream_version or "").partition("~")
    return f"{head}-{candidate}" if tilde and candidate.startswith("rc") else head
