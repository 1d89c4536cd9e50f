# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads apt's Packages lists: a stream of stanzas, filtered by name, merged over the suites."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from kdelta import process
from kdelta.archive.apt import HELPER
from kdelta.errors import InfraError

_BLOCK_BYTES = 1 << 22
_CAT_S = 60.0
_COMPRESSED = {".lz4", ".xz", ".gz", ".bz2", ".zst", ".lzma"}
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
        """Name for the .deb in a cache: unique for name, version, architecture."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.arch}.deb"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFile:
    """One Packages file that apt fetched and verified."""

    suite: str
    base: str  # URI that Filename fields are relative to, with its final slash
    path: Path


def read(lists: Iterable[ListFile], name: re.Pattern[bytes]) -> tuple[Package, ...]:
    """Packages whose name matches fully; one entry per .deb, with all suites that offer it.

    Raises InfraError when a list cannot be read.
    """
    merged: dict[tuple[str, str, str, str], Package] = {}
    for part in lists:
        for stanza in _matching(part.path, name):
            package = _package(stanza, part)
            if package is None:
                continue
            key = (package.name, package.version, package.arch, package.sha256)
            known = merged.get(key)
            if known is None:
                merged[key] = package
            elif part.suite not in known.suites:
                merged[key] = replace(known, suites=(*known.suites, part.suite))
    return tuple(merged.values())


def _matching(path: Path, name: re.Pattern[bytes]) -> Iterator[bytes]:
    # Lists are tens of megabytes: look at the first line of each stanza, block by block.
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
    if path.suffix not in _COMPRESSED:
        try:
            with path.open("rb") as stream:
                yield stream
        except OSError as error:
            raise _unreadable(path, error.strerror or "") from error
        return
    child = process.start([HELPER, "cat-file", str(path)], stdout=subprocess.PIPE)
    try:
        if child.stdout is None:
            raise _unreadable(path, "no pipe")
        yield child.stdout
        if child.wait(timeout=_CAT_S):
            raise _unreadable(path, "it is damaged")
    finally:
        process.end(child)


def _unreadable(path: Path, cause: str) -> InfraError:
    return InfraError(
        f"a package list cannot be read: {cause}",
        place=str(path),
        action="delete the file and run again with --refresh",
    )


def _named(stanza: bytes, name: re.Pattern[bytes]) -> bool:
    if not stanza.startswith(b"Package: "):
        return False
    return name.fullmatch(stanza, 9, max(9, stanza.find(b"\n"))) is not None


def _package(stanza: bytes, origin: ListFile) -> Package | None:
    fields: dict[str, str] = {}
    for line in stanza.decode(errors="replace").splitlines():
        if not line.startswith(" "):
            key, _, value = line.partition(": ")
            fields[key] = value
    sha256, size, path = (
        fields.get("SHA256", ""),
        fields.get("Size", ""),
        fields.get("Filename", ""),
    )
    if not (_SHA256.fullmatch(sha256) and size.isdigit() and path and "Version" in fields):
        return None
    depends = [fields[key] for key in ("Pre-Depends", "Depends") if fields.get(key)]
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        arch=fields.get("Architecture", ""),
        depends=", ".join(depends),
        size=int(size),
        sha256=sha256,
        uri=origin.base + path,
        suites=(origin.suite,),
    )
