# SPDX-License-Identifier: GPL-2.0-or-later
"""Timed trials on other machines than this one: what every kind of pool for times gives a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from kdelta.errors import SpecError
from kdelta.journal import files
from kdelta.journal.run import RunJournal
from kdelta.printable import printable
from kdelta.run.trials import Trials

_PLACED = "placed.json"


class _Placed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """RUN/placed.json: whose times the run has.  pool: by the name in lab.toml."""

    pool: str


class PlacedTrials(Trials, ABC):
    """Trials that a pool's machines measure; it is made and checked before the run's folder."""

    pool: str

    @abstractmethod
    def placed(
        self, journal: RunJournal, doing: Callable[[int, str], None]
    ) -> AbstractContextManager[None]:
        """While the run is executed.  doing: told which machine has a trial, "" when none has."""


def pool_of(folder: Path) -> str:
    """The pool that a run is timed on, "" for this machine.  Raises StoreError."""
    known = files.read(folder / _PLACED, _Placed, action="remove it if no trial has ended")
    return known.pool if known else ""


def note(folder: Path, pool: str) -> None:
    """Keep on which pool a run is timed.  Raises SpecError when it was another one, or here.

    pool: "" for this machine.  Times of two machines in one run would be compared with each other.
    """
    known = pool_of(folder)
    if not known and pool and not any(folder.glob("trials/*/result.json")):
        files.write(folder / _PLACED, _Placed(pool))
    elif known != pool:
        had = f"the pool {printable(known, 60)}" if known else "this machine"
        raise SpecError(
            f"its times are of {had}",
            place=str(folder),
            action="go on with the same --on, or measure all of it again with: kdelta run --new",
        )
