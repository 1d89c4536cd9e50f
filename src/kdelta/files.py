# SPDX-License-Identifier: GPL-2.0-or-later
"""Files put in place whole or not at all, and their digests."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from pathlib import Path


def is_full(error: OSError) -> bool:
    """True when the disk, or what this user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_aside(path: Path, content: bytes) -> None:
    """Replace a file by new content, on the disk; a reader sees the old or the new, never a part.

    Raises OSError; nothing is left behind then.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        aside.chmod(0o644)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Bring a file to the disk, or the names in a folder (a rename is one).  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Bring a folder to the disk with all below it.  Raises OSError."""
    for path in (*(path for path in folder.rglob("*") if not path.is_symlink()), folder):
        sync(path)


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_digests: dict[tuple[int, int, int, int], str] = {}


def digest_of(path: Path, facts: os.stat_result | None = None) -> str:
    """The same, read once in this process for as long as the file is not written to.

    facts: of the file, when they are known already.
    """
    seen = facts or path.stat()
    # Of the times only this one cannot be set back; renaming the folder around a file leaves it.
    key = seen.st_dev, seen.st_ino, seen.st_size, seen.st_ctime_ns
    if key not in _digests:
        _digests[key] = sha256_of(path)
    return _digests[key]
