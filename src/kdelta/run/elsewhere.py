# SPDX-License-Identifier: GPL-2.0-or-later
"""Timed trials on other machines than this one: what every kind of pool for times gives a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

from kdelta.journal.run import RunJournal
from kdelta.run.trials import Trials


class PlacedTrials(Trials, ABC):
    """Trials that a pool's machines measure; it is made and checked before the run's folder."""

    @abstractmethod
    def placed(
        self, journal: RunJournal, doing: Callable[[int, str], None]
    ) -> AbstractContextManager[None]:
        """While the run is executed.  doing: told which machine has a trial, "" when none has."""
