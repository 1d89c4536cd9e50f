# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the sources that kdelta compiles, and the studies it ships, lie on this machine."""

from __future__ import annotations

from pathlib import Path

from kdelta.errors import InfraError

_PACKAGE = Path(__file__).resolve().parent


def directory(name: str) -> Path:
    """Directory `name` (guest, plugin, workloads, studies): in a checkout, else in the wheel.

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
