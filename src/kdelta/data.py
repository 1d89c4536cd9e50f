# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the sources that kdelta compiles, and the studies it ships, lie on this machine."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kdelta.errors import InfraError

_PACKAGE = Path(__file__).resolve().parent


def directory(name: str) -> Path:
    """Directory `name` (guest, plugin, workloads, ...): in a checkout, else in the wheel.

    Raises InfraError when the installation lacks it.
    """
    for candidate in (_PACKAGE / "data" / name, _PACKAGE.parents[1] / name):
        if candidate.is_dir():
            return candidate
    raise InfraError(
        f"the installation lacks its {name} directory",
        place=str(_PACKAGE),
        action="reinstall kdelta",
    )


def code(*, except_rooms: Collection[str]) -> tuple[Path, ...]:
    """kdelta's own Python files, in a fixed order, but for these rooms."""
    paths = (path.relative_to(_PACKAGE) for path in _PACKAGE.rglob("*.py"))
    return tuple(_PACKAGE / path for path in sorted(paths) if path.parts[0] not in except_rooms)
