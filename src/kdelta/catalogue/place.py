# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the lab's catalogue is: a file of this user, or the server that KDELTA_LAB names."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

from kdelta.errors import InfraError, SpecError
from kdelta.printable import quoted

VARIABLE = "KDELTA_LAB"
EXTRA = "pip install 'kdelta[lab]'"
_NEEDED = ("sqlalchemy", "alembic")
_SECRET = re.compile(r"(?<=:)[^:/@]*(?=@)")


def address() -> str:
    """The URL of the catalogue.  Raises SpecError for one of a kind that is not known."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return f"sqlite:///{_own_file()}"
    scheme, separator, rest = given.partition("://")
    if not separator and re.fullmatch(r"[^:]+\.(db|sqlite3?)", given):
        return f"sqlite:///{Path(given).absolute()}"
    if scheme in ("postgresql", "postgres", "postgresql+psycopg") and separator:
        return f"postgresql+psycopg://{rest}"
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return given
    raise SpecError(
        f"is no address of a catalogue: {quoted(hidden(given))}",
        place=VARIABLE,
        action="give postgresql://USER@HOST/NAME, sqlite:////absolute/path, or a file NAME.sqlite",
    )


def hidden(url: str) -> str:
    """A URL without its password."""
    return _SECRET.sub("***", url)


def check_installed() -> None:
    """Raise InfraError when what the catalogue needs is not installed (the extra "lab")."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InfraError(
            f"the lab's catalogue needs {' and '.join(missing)}, which is not installed",
            action=EXTRA,
        )


def _own_file() -> Path:
    import platformdirs

    return platformdirs.user_data_path("kdelta") / "lab.sqlite"
