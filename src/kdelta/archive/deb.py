# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes files out of a .deb without root and without installing it."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Mapping
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
    child = process.start(
        ["dpkg-deb", "--fsys-tarfile", str(package)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        with tarfile.open(fileobj=child.stdout, mode="r|") as archive:
            for member in archive:
                target = wanted.get(member.name.removeprefix("./"))
                if target is not None and member.isfile():
                    _copy(archive, member, target, package)
                    found.add(member.name.removeprefix("./"))
                if len(found) == len(wanted):
                    return found
        if child.wait(timeout=_UNPACK_S):
            raise _damaged(package)
    except (tarfile.TarError, EOFError) as error:
        raise _damaged(package) from error
    finally:
        process.end(child)
    return found


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
