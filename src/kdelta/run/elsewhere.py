# SPDX-License-Identifier: GPL-2.0-or-later
"""Timed trials on other machines than this one: what every kind of pool for times gives a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdelta.errors import PoolError, SpecError
from kdelta.journal import files
from kdelta.journal.run import RunJournal
from kdelta.printable import printable
from kdelta.run.trials import Trials

_PLACED = "placed.json"


class _Placed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """RUN/placed.json: whose times the run has.  pool: by the name in lab.toml."""

    pool: str


class TimingPool(ABC):
    """What times a study's trials elsewhere; it is made and checked before the run's folder."""

    pool: str  # its name in lab.toml

    @abstractmethod
    def placed(
        self, journal: RunJournal, doing: Callable[[int, str], None]
    ) -> AbstractContextManager[Trials]:
        """What measures the trials, while the run is executed.  doing: told which machine has a
        trial, "" when none has.
        """

    def give_back(self, run: str) -> None:  # noqa: B027
        """Let go what is still held for a run whose trials have all ended.  Raises InfraError."""

    def refusal(self, run: str) -> str:  # noqa: ARG002
        """Why a run cannot begin there now, "" when it can."""
        return ""


@dataclass(frozen=True, slots=True)
class TimingPools:
    """The pools that could time a run; one of them does, from its first trial to its last."""

    pools: tuple[TimingPool, ...]

    @contextmanager
    def placed(self, journal: RunJournal, doing: Callable[[int, str], None]) -> Iterator[Trials]:
        """See TimingPool.  Raises PoolError when no pool is free."""
        chosen = self._chosen(journal)
        note(journal.folder, chosen.pool)
        with chosen.placed(journal, doing) as measuring:
            yield measuring

    def give_back(self, journal: RunJournal) -> None:
        """See TimingPool: for a run that was killed behind its last trial."""
        known = pool_of(journal.folder)
        for own in (each for each in self.pools if each.pool == known):
            own.give_back(journal.record().run_id)

    def _chosen(self, journal: RunJournal) -> TimingPool:
        """The pool that the run began on; else the only one, else the first that is free."""
        known = pool_of(journal.folder)
        own = next((each for each in self.pools if each.pool == known), None)
        if known or len(self.pools) == 1:
            return own or self.pools[0]  # of another one `note` says so
        refusals = []
        for each in self.pools:
            if not (why := each.refusal(journal.record().run_id)):
                return each
            refusals.append(f"{each.pool}: {why}")
        raise PoolError(
            f"no pool is free: {'; '.join(refusals)}",
            action="wait for one, then: kdelta resume --on LAB.TOML",
        )


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
