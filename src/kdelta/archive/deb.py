# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes files out of a .deb without root and without installing it."""

from __future__ import annotations

import contextlib
import lzma
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from debian.arfile import ArError
from debian.debfile import DebError, DebFile

from kdelta.errors import InfraError

_LIMIT_BYTES = 1 << 30


def extract(package: Path, wanted: Mapping[str, Path]) -> None:
    """Copy the regular files named by `wanted` (member path -> target file) out of a package.

    Member paths are relative, without "./".  What is not in the package is left out.  Raises
    InfraError when the package is damaged.
    """
    left = dict(wanted)
    with _content(package) as archive:
        for member in archive:
            target = left.pop(_path(member), None) if member.isfile() else None
            if target is not None:
                _copy(archive, member, target, package)
            if not left:
                return


def read_matching(package: Path, name: re.Pattern[str], *, limit: int) -> dict[str, bytes]:
    """Content of the regular files whose member path matches fully, each at most `limit` bytes.

    Member paths are relative, without "./".  Raises InfraError when the package is damaged or
    has a larger one.
    """
    found: dict[str, bytes] = {}
    with _content(package) as archive:
        for member in archive:
            if member.isfile() and name.fullmatch(_path(member)):
                stream = archive.extractfile(member)
                if stream is None or member.size > limit:
                    raise _damaged(package)
                found[_path(member)] = stream.read()
    return found


def unpack(package: Path, target: Path) -> None:
    """Unpack a whole package below `target`.  Raises InfraError when it is damaged."""
    with _content(package) as archive:
        archive.extractall(target, filter="tar")


@contextlib.contextmanager
def _content(package: Path) -> Iterator[tarfile.TarFile]:
    try:
        with DebFile(str(package)) as found:
            yield found.data.tgz()
    except (DebError, ArError, tarfile.TarError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise _damaged(package) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(package) from error  # python-debian's, of a header


def _path(member: tarfile.TarInfo) -> str:
    return member.name.removeprefix("./")


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, package: Path) -> None:
    stream = archive.extractfile(member)
    if stream is None or member.size > _LIMIT_BYTES:
        raise _damaged(package)
    with target.open("wb") as out:
        shutil.copyfileobj(stream, out)


def _damaged(package: Path) -> InfraError:
    return InfraError(
        "the package is damaged", place=str(package), action="delete the file and run again"
    )
