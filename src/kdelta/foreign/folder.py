# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder of an import: RUNS/NAME-TIME/foreign.json; its presence makes a folder an import."""

from __future__ import annotations

import shutil
import tempfile
from datetime import datetime
from pathlib import Path

from kdelta.errors import StoreError
from kdelta.foreign.record import FORMAT, Foreign
from kdelta.journal import files
from kdelta.journal.folders import FolderKind

IMPORTS = FolderKind(
    file="foreign.json", word="import", first="import some with: kdelta import PATH"
)
_MAX_BYTES = 2**30


def write(root: Path, foreign: Foreign, now: datetime) -> Path:
    """Store an import under `root`; the folder appears whole or not at all.  Returns it."""
    with files.disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root, prefix=f".{foreign.name}-"))
        try:
            scratch.chmod(0o755)
            files.write(scratch / IMPORTS.file, foreign)
            return _placed(scratch, root, f"{foreign.name}-{now:%Y%m%d-%H%M%S}")
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


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


def load(folder: Path) -> Foreign:
    """The import in a folder.  Raises StoreError when it cannot be read."""
    path = folder / IMPORTS.file
    with files.disk_errors(folder):
        if path.stat().st_size > _MAX_BYTES:
            raise StoreError("the file is larger than 1 GiB", place=str(path))
    found = files.read(path, Foreign, action="import it again")
    if found is None or found.format != FORMAT:
        raise StoreError(
            f"format {found.format if found else 0} where this version reads {FORMAT}",
            place=str(path),
            action="import it again",
        )
    return found
