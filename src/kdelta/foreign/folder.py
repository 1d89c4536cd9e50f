# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder of an import: RUNS/NAME-TIME/foreign.json; its presence makes a folder an import."""

from __future__ import annotations

import shutil
import tempfile
from datetime import datetime
from pathlib import Path

import msgspec

from kdelta.errors import SpecError, StoreError
from kdelta.files import write_aside
from kdelta.foreign.record import FORMAT, Foreign
from kdelta.runfolder import disk_errors

FILE = "foreign.json"
LIST = "import some with: kdelta import PATH"
_SHOWN = 10
_MAX_BYTES = 2**30


class _Head(msgspec.Struct, frozen=True):
    """What orders imports, read without the rows."""

    created: str = ""


def write(root: Path, foreign: Foreign, now: datetime) -> Path:
    """Store an import under `root`; the folder appears whole or not at all.  Returns it."""
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root, prefix=f".{foreign.name}-"))
        try:
            scratch.chmod(0o755)
            write_aside(scratch / FILE, msgspec.json.encode(foreign))
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


def imports(root: Path) -> list[Path]:
    """The folders of imports under `root`, newest first."""
    with disk_errors(root):
        found = [path.parent for path in root.glob(f"*/{FILE}") if path.parent.name[0] != "."]
    return sorted(found, key=lambda folder: (_created(folder), folder.name), reverse=True)


def _created(folder: Path) -> str:
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=_Head).created
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def find_foreign(root: Path, text: str) -> Path:
    """The import that `text` names: "latest", a name, a unique beginning of one, or a path.

    Raises SpecError listing the candidates.
    """
    known = imports(root)
    if text == "latest" and known:
        return known[0]
    if exact := [folder for folder in known if folder.name == text]:
        return exact[0]
    if text and (Path(text) / FILE).is_file():
        return Path(text)
    matches = [folder for folder in known if text and folder.name.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if not known:
        raise SpecError("there are no imports yet", place=str(root), action=LIST)
    cause = (
        f'"{text}" is the beginning of {len(matches)} imports'
        if matches
        else f'no import is called "{text}"'
    )
    names = [folder.name for folder in matches or known]
    listed = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise SpecError(cause, place=str(root), action=f"there are {listed}{more}")


def load(folder: Path) -> Foreign:
    """The import in a folder.  Raises StoreError when it cannot be read."""
    path = folder / FILE
    try:
        with disk_errors(folder):
            if path.stat().st_size > _MAX_BYTES:
                raise StoreError("the file is larger than 1 GiB", place=str(path))
            found = msgspec.json.decode(path.read_bytes(), type=Foreign)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreError(
            f"the file is corrupt: {error}", place=str(path), action="import it again"
        ) from error
    if found.format != FORMAT:
        raise StoreError(
            f"format {found.format} where this version reads {FORMAT}",
            place=str(path),
            action="import it again",
        )
    return found
