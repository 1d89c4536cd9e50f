# SPDX-License-Identifier: GPL-2.0-or-later
"""In which boot a timed trial's program was begun: RUN/trials/0007/boot.json.

Of one that a kill cut short there is no result to say it, and its boot is no longer fresh.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kdelta.journal import files

_NAME = "boot.json"


class _Boot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    boot_id: str


def note(folder: Path, boot_id: str) -> None:
    """Keep it in a trial's folder, before the program begins.  Raises StoreError."""
    files.write(folder / _NAME, _Boot(boot_id))


def boots(run: Path) -> frozenset[str]:
    """Those in which programs of a run were begun.  Raises StoreError."""
    found = (
        files.read(path, _Boot, action="remove it, and reboot before you go on")
        for path in run.glob(f"trials/*/{_NAME}")
    )
    return frozenset(one.boot_id for one in found if one)
