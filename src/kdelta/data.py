# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the sources that kdelta compiles, and the studies it ships, lie on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
    cause = f"the installation lacks its {name} directory"
    action = "reinstall kdelta"
    raise InfraError(cause, place=str(_PACKAGE), action=action)


def is_clone() -> bool:
    """True where kdelta runs from a clone, whose Makefile installs what is missing."""
    return (_PACKAGE.parents[1] / "Makefile").is_file()


def code(places: Collection[str] = ("",)) -> tuple[Path, ...]:
    """kdelta's own Python files in these modules and packages, in a fixed order; all without."""
    chosen = {path for place in places for path in _files(_PACKAGE / place)}
    return tuple(sorted(chosen))


def _files(place: Path) -> Iterator[Path]:
    """Raises InfraError for what is not there: a name that is wrong here would leave code out."""
    if place.is_file():
        yield place
    elif place.is_dir():
        yield from place.rglob("*.py")
    else:
        raise InfraError(f"kdelta lacks {place.name}", place=str(place), action="reinstall kdelta")
