# SPDX-License-Identifier: GPL-2.0-or-later
"""What every instrument gives a run: how one of its trials is measured, and tried again."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from kdelta import cache
from kdelta.errors import FullError, InfraError, PoolError, StoreError
from kdelta.journal import files
from kdelta.run.trial import told
from kdelta.sample import Outcome, TrialRecord, TrialResult, Try

_LEAST_FREE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How an attempt at a trial differs from what was planned: in a guest that boots for it, with
    another seed than the trial's own.
    """

    fresh_boot: bool = False
    other_seed: bool = False


AS_PLANNED = How()


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

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        """Measure once, artifacts into folder.  Raises InfraError, Cancelled."""


def tried(
    trials: Trials,
    trial: TrialRecord,
    folder: Path,
    attempts: int,
    again: Callable[[Try], None],
) -> TrialResult:
    """Measure a trial; what is this machine's fault is tried again, up to so many attempts.

    A guest that dies is no result yet.  It is tried on a fresh boot with another seed: when it dies
    there too, the kernel is to blame.  When it lives, the trial is measured as it was planned, on a
    fresh boot: then it died once and not again, or else twice.

    again: called before each further attempt with the one before.  Raises the last InfraError,
    FullError, StoreError, Cancelled.
    """
    tries: list[Try] = []
    while True:
        how = _next(tries)
        try:
            with files.disk_errors(folder):
                result = trials.measure(trial, folder, how)
            if result.outcome.blames:
                _check_room(folder, None)
        except (FullError, PoolError, StoreError):
            raise
        except InfraError as error:
            _check_room(folder, error)
            if 1 + sum(each.outcome is Outcome.INFRA_ERROR for each in tries) >= attempts:
                raise
            failed = TrialResult(outcome=Outcome.INFRA_ERROR, reasons=(told(error.sentence()),))
            tries.append(_ended(failed, how))
        else:
            if _settles(result, tries):
                return _with(result, tries)
            tries.append(_set_aside(_ended(result, how), folder, len(tries) + 1))
        again(tries[-1])


def _next(tries: Sequence[Try]) -> How:
    """How a trial is measured after these attempts at it."""
    if not any(each.outcome.blames for each in tries):
        return AS_PLANNED
    return How(fresh_boot=True, other_seed=not _lived(tries))


def _settles(result: TrialResult, tries: Sequence[Try]) -> bool:
    """True when this is a trial's result after these attempts at it."""
    died = any(each.outcome.blames for each in tries)
    if result.outcome.blames:
        return died
    return not died or _lived(tries)


def _lived(tries: Sequence[Try]) -> bool:
    """True when a guest came to its end on the fresh boot with another seed."""
    return any(
        each.other_seed and each.outcome is not Outcome.INFRA_ERROR and not each.outcome.blames
        for each in tries
    )


def _with(result: TrialResult, tries: Sequence[Try]) -> TrialResult:
    """A result that keeps what happened before; one that blames a kernel says how often."""
    died = sum(each.outcome.blames for each in tries) + result.outcome.blames
    ran = 1 + sum(each.outcome is not Outcome.INFRA_ERROR for each in tries)
    own = result.kernel.reference if result.kernel else ""
    each = "boots" if own.partition(":")[0] == "host" else "guests"  # of a machine's own kernels
    said = (f"it died in {died} of {ran} {each}",) if result.outcome.blames else ()
    return replace(result, reasons=(*result.reasons, *said), tries=tuple(tries))


def _ended(result: TrialResult, how: How) -> Try:
    return Try(
        outcome=result.outcome,
        reason=result.reason,
        fresh_boot=result.fresh_boot,
        other_seed=how.other_seed,
        console=result.artifacts.get("console", ""),
    )


def _set_aside(one: Try, folder: Path, number: int) -> Try:
    """Keep the console of an attempt from the next one: console-1.log."""
    if not one.console:
        return one
    kept = f"console-{number}.log"
    with files.disk_errors(folder):
        (folder / Path(one.console).name).rename(folder / kept)
    return replace(one, console=str(Path(one.console).with_name(kept)))


def _check_room(folder: Path, error: InfraError | None) -> None:
    """Whatever a fault says: on a full disk, a result stored now would spoil the trial."""
    for place in (folder, cache.root()):
        there = next(each for each in (place, *place.parents) if each.is_dir())
        if shutil.disk_usage(there).free < _LEAST_FREE:
            raise files.disk_full(place) from error
