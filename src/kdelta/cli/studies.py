# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the study is that a command line names."""

from __future__ import annotations

from pathlib import Path

from kdelta.errors import SpecError


def study_file(name: str) -> Path:
    """The file itself, else the study of that name that kdelta ships.  Raises SpecError."""
    from kdelta import data

    path = Path(name)
    if path.exists() or "/" in name:
        return path
    shipped = data.directory("studies") / f"{name.removesuffix('.toml')}.toml"
    if shipped.is_file():
        return shipped
    known = ", ".join(sorted(file.stem for file in shipped.parent.glob("*.toml")))
    raise SpecError("no such study", place=name, action=f"give a TOML file, or one of: {known}")


def is_scenario(word: str) -> bool:
    """True for WORKLOAD:SCENARIO, False for the name or file of a study."""
    return ":" in word and not word.endswith(".toml")
