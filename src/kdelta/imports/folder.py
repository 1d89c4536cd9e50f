# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder of an import: RUNS/NAME-TIME/import.json; its presence makes a folder an import."""

from __future__ import annotations

import shutil
import tempfile
from datetime import datetime
from pathlib import Path

import msgspec

from kdelta.errors import SpecError, StoreError
from kdelta.files import is_full, sync, write_aside
from kdelta.imports.record import FORMAT, Import
from kdelta.journal import files
from kdelta.journal.files import FolderKind

IMPORTS = FolderKind(
    file="import.json", word="import", first="import some with: kdelta import PATH"
)
_MAX_BYTES = 2**28  # of a file that `files.read` reads


def write(root: Path, found: Import, now: datetime) -> Path:
    """Store an import under `root`; the folder appears whole or not at all.  Returns it.

    Raises SpecError for one that is too large to be read again, StoreError where nothing is stored.
    """
    data = msgspec.json.encode(found)
    if len(data) > _MAX_BYTES:
        raise SpecError(
            f"it would be stored in {len(data) / 2**20:,.0f} MiB, more than"
            f" {_MAX_BYTES / 2**20:,.0f}",
            place=found.sources[0].name,
            action="import a part of it: fewer files or fewer lines",
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root, prefix=f".{found.name}-"))
        try:
            scratch.chmod(0o755)
            write_aside(scratch / IMPORTS.file, data)
            sync(scratch)
            return _placed(scratch, root, f"{found.name}-{now:%Y%m%d-%H%M%S}")
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        raise StoreError(
            f"nothing was stored: {error.strerror or error}",
            place=str(root),
            action="free some space, then import it again"
            if is_full(error)
            else "check that the folder exists and belongs to you, or give another with --runs",
        ) from error


def _placed(scratch: Path, root: Path, base: str) -> Path:
    """Rename to the first free name; a folder with files is never replaced."""
    number = 1
    while True:
        folder = root / (base if number == 1 else f"{base}-{number}")
        if not folder.exists():
            try:
                return scratch.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
        number += 1


def load(folder: Path) -> Import:
    """The import in a folder.  Raises StoreError when it cannot be read."""
    path = folder / IMPORTS.file
    with files.disk_errors(folder):
        if path.stat().st_size > _MAX_BYTES:
            raise StoreError(f"the file is larger than {_MAX_BYTES >> 20} MiB", place=str(path))
    found = files.read(path, Import, action="import it again")
    if found is None or found.format != FORMAT:
        raise StoreError(
            f"format {found.format if found else 0} where this version reads {FORMAT}",
            place=str(path),
            action="import it again",
        )
    return found
