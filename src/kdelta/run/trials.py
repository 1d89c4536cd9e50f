# SPDX-License-Identifier: GPL-2.0-or-later
"""What every instrument gives a run: how one of its trials is measured, and tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from kdelta.errors import InfraError, StoreError
from kdelta.journal import files
from kdelta.sample import TrialRecord, TrialResult


class Trials(Protocol):
    """How one instrument measures a trial; all but `measure` is as most do it."""

    cancelled: threading.Event

    def slot(self, trial: TrialRecord) -> AbstractContextManager[None]:  # noqa: ARG002
        """Hold what a trial needs of this machine; waits.  Raises Cancelled."""
        return nullcontext()

    def ready(self, trial: TrialRecord) -> None:  # noqa: ARG002
        """Raise when this trial cannot be measured in this process; it stays planned."""
        return

    def waits(self, trial: TrialRecord) -> bool:  # noqa: ARG002
        """True for a trial that comes after all others, since `known` may have its result."""
        return False

    def known(
        self,
        trial: TrialRecord,  # noqa: ARG002
        finished: Sequence[TrialRecord],  # noqa: ARG002
    ) -> TrialResult | None:
        """The result of a trial that need not be measured; finished: those of its scenario."""
        return None

    def measure(self, trial: TrialRecord, folder: Path) -> TrialResult:
        """Measure once, artifacts into folder.  Raises InfraError, Cancelled."""


def tried(
    trials: Trials,
    trial: TrialRecord,
    folder: Path,
    attempts: int,
    again: Callable[[InfraError], None],
) -> TrialResult:
    """Measure a trial; what is this machine's fault is tried again, up to so many attempts.

    again: called before each further one.  Raises the last InfraError, StoreError, Cancelled.
    """
    for left in reversed(range(attempts)):
        try:
            with files.disk_errors(folder):
                return trials.measure(trial, folder)
        except StoreError:
            raise
        except InfraError as error:
            if not left:
                raise
            again(error)
    raise ValueError("a trial has at least one attempt")
