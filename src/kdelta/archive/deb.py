# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes files out of a .deb without root and without installing it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from kdelta import process
from kdelta.errors import InfraError

_LIMIT_BYTES = 1 << 30
_UNPACK_S = 600.0


def extract(package: Path, wanted: Mapping[str, Path]) -> set[str]:
    """Copy the regular files named by `wanted` (member path -> target file) out of a package.

    Member paths are relative, without "./".  Returns those found; the others are not in the
    package.  Raises InfraError when the package is damaged.
    """
    found: set[str] = set()

    def take(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> bool:
        if path in wanted:
            _copy(archive, member, wanted[path], package)
            found.add(path)
        return len(found) == len(wanted)

    _each_file(package, take)
    return found


def read_matching(package: Path, name: re.Pattern[str], *, limit: int) -> dict[str, bytes]:
    """Content of the regular files whose member path matches fully, each at most `limit` bytes.

    Member paths are relative, without "./".  Raises InfraError when the package is damaged or
    has a larger one.
    """
    found: dict[str, bytes] = {}

    def take(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> bool:
        if name.fullmatch(path):
            stream = archive.extractfile(member)
            if stream is None or member.size > limit:
                raise _damaged(package)
            found[path] = stream.read()
        return False

    _each_file(package, take)
    return found


def _each_file(
    package: Path, take: Callable[[tarfile.TarFile, tarfile.TarInfo, str], bool]
) -> None:
    """Hand each regular file and its path to `take`, until that returns True."""
    child = process.start(
        ["dpkg-deb", "--fsys-tarfile", str(package)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        with tarfile.open(fileobj=child.stdout, mode="r|") as archive:
            for member in archive:
                path = member.name.removeprefix("./")
                if member.isfile() and take(archive, member, path):
                    return
        if child.wait(timeout=_UNPACK_S):
            raise _damaged(package)
    except (tarfile.TarError, EOFError) as error:
        raise _damaged(package) from error
    finally:
        process.end(child)


def unpack(package: Path, target: Path) -> None:
    """Unpack a whole package below `target`.  Raises InfraError when it is damaged."""
    process.run(["dpkg-deb", "--extract", str(package), str(target)], timeout=_UNPACK_S)


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, package: Path) -> None:
    stream = archive.extractfile(member)
    if stream is None or member.size > _LIMIT_BYTES:
        raise _damaged(package)
    with target.open("wb") as out:
        shutil.copyfileobj(stream, out)
    if target.stat().st_size != member.size:
        raise _damaged(package)


def _damaged(package: Path) -> InfraError:
    return InfraError(
        "the package is damaged", place=str(package), action="delete the file and run again"
    )
