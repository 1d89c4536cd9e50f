# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs what a plan has left to do: how a trial is measured, tried again and stored.

Several guests run at once.  Every result is stored as it comes.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from kdelta import cache
from kdelta.errors import Cancelled, FullError, InfraError, PoolError, StoreError
from kdelta.journal import files, results
from kdelta.journal.run import RunJournal
from kdelta.run.trial import bounded
from kdelta.sample import Outcome, Skip, TrialRecord, TrialResult, Try

_LEAST_FREE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How an attempt differs from the plan: in a guest that boots for it, with another seed."""

    fresh_boot: bool = False
    other_seed: bool = False


AS_PLANNED = How()


class Trials(Protocol):
    """How one instrument measures a trial; all but `measure` is as most do it."""

    cancelled: threading.Event

    def slot(self, trial: TrialRecord) -> AbstractContextManager[None]:  # noqa: ARG002
        """Hold what a trial needs of this machine; waits.  Raises Cancelled."""
        return nullcontext()

    def waits(self, trial: TrialRecord) -> bool:  # noqa: ARG002
        """True for a trial that comes after all others, since `known` may have its result."""
        return False

    def prepares(self, trial: TrialRecord) -> Hashable | None:  # noqa: ARG002
        """What the first trial of its kind makes and all others find; None for nothing."""
        return None

    def known(
        self,
        trial: TrialRecord,  # noqa: ARG002
        finished: Sequence[TrialRecord],  # noqa: ARG002
    ) -> TrialResult | None:
        """The result of a trial that need not be measured; finished: those of its scenario."""
        return None

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        """Measure once, artifacts into folder.  Raises InfraError, Cancelled."""

    def completed(self, trial: TrialRecord, result: TrialResult, run: Path) -> TrialResult:  # noqa: ARG002
        """A measured result with what is known of it beside the others; run: its folder."""
        return result


def tried(
    trials: Trials, trial: TrialRecord, folder: Path, attempts: int, again: Callable[[Try], None]
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
        died = any(each.outcome.blames for each in tries)
        how = How(fresh_boot=True, other_seed=not _lived(tries)) if died else AS_PLANNED
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
            result = TrialResult(outcome=Outcome.INFRA_ERROR, reasons=(bounded(error.sentence()),))
        else:
            settles = died if result.outcome.blames else not died or _lived(tries)
            if settles:
                return _with(result, tries)
        tries.append(_set_aside(result, how, folder, len(tries) + 1))
        again(tries[-1])


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
    said = (f"it failed in {died} of {ran} {each}",) if result.outcome.blames else ()
    return replace(result, reasons=(*result.reasons, *said), tries=tuple(tries))


def _set_aside(result: TrialResult, how: How, folder: Path, number: int) -> Try:
    """An attempt that is no result; its console is kept from the next one: console-1.log."""
    if console := result.artifacts.get("console", ""):
        kept = Path(console).with_name(f"console-{number}.log")
        with files.disk_errors(folder):
            (folder / Path(console).name).rename(folder / kept.name)
        console = str(kept)
    return Try(
        outcome=result.outcome,
        reason=result.reason,
        fresh_boot=result.fresh_boot,
        other_seed=how.other_seed,
        console=console,
    )


def _check_room(folder: Path, error: InfraError | None) -> None:
    """Whatever a fault says: on a full disk, a result stored now would spoil the trial."""
    for place in (folder, cache.root()):
        there = next(each for each in (place, *place.parents) if each.is_dir())
        if shutil.disk_usage(there).free < _LEAST_FREE:
            raise files.disk_full(place) from error


_STARTING_S = 0.25  # until a trial's guest runs, its thread wants the interpreter


class TrialStep(StrEnum):
    """What happened to a trial."""

    STARTED = "started"
    RETRIED = "retried"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to show.  done, total: trials of the whole run; result: for FINISHED."""

    step: TrialStep
    trial: TrialRecord
    done: int
    total: int
    reason: str = ""
    result: TrialResult | None = None


Report = Callable[[Event], None]


class Runner:
    """Executes the pending trials of a run that is being executed (RunJournal.executing)."""

    def __init__(self, journal: RunJournal, trials: Trials, report: Report) -> None:
        self._journal, self._trials, self._report = journal, trials, report
        self._done, self._total = 0, len(journal.record().trials)
        self._ready: dict[Hashable, bool] = {}  # what trials prepare
        self._mutex = threading.Lock()

    def run_rounds(self, enough: Callable[[], Skip | None]) -> None:
        """Run trials until `enough` says after a round why that is enough; skip the others."""
        pending = self._journal.pending()
        self._done = self._total - len(pending)
        for number in sorted({trial.round for trial in pending}):
            skip = enough()
            for trial in pending:
                if trial.round == number and skip:
                    self._journal.claim(trial.index)
                    self._journal.finish(trial.index, TrialResult(outcome=Outcome.SKIP, skip=skip))
                    self._done += 1
                elif trial.round == number:
                    self._one(trial)

    def run(self, jobs: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Run all pending trials, at most `jobs` at once, in the order of the plan; but no trial
        waits for what another one prepares while there are others.  An interrupt, or a result that
        cannot be stored, ends running guests and passes through; what was finished stays.
        meanwhile: called while the first trials run.
        """
        pending = self._journal.pending()
        self._done = self._total - len(pending)
        for waits in (False, True):
            group = [trial for trial in pending if self._trials.waits(trial) is waits]
            with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="trial") as pool:
                waiting = {pool.submit(self._next, group) for _ in range(len(group))}
                try:
                    wait(waiting, timeout=_STARTING_S, return_when=FIRST_COMPLETED)
                    meanwhile()
                    for future in as_completed(waiting):
                        with suppress(Cancelled):
                            future.result()
                except BaseException:
                    self._trials.cancelled.set()
                    for future in waiting:
                        future.cancel()
                    raise

    def _next(self, left: list[TrialRecord]) -> None:
        prepares = self._trials.prepares
        with self._mutex:
            free = (trial for trial in left if self._ready.get(prepares(trial), True))
            trial = next(free, left[0])
            left.remove(trial)
            makes = prepares(trial)
            self._ready.setdefault(makes, makes is None)
        try:
            self._one(trial)
        finally:
            with self._mutex:
                self._ready[makes] = True

    def _one(self, trial: TrialRecord) -> None:
        with self._trials.slot(trial):
            self._journal.claim(trial.index)
            self._tell(TrialStep.STARTED, trial)
            result = None
            if self._trials.waits(trial):
                every = self._journal.of_scenario(trial.workload, trial.scenario)
                result = self._trials.known(trial, [each for each in every if each.result])
            result = result or self._measured(trial)
        self._journal.finish(trial.index, result)
        with self._mutex:
            self._done += 1
        self._tell(TrialStep.FINISHED, trial, result=result)

    def _measured(self, trial: TrialRecord) -> TrialResult:
        """A fault that stays this machine's is reported, and is no data; a kill counts as none."""
        folder = results.trial_folder(self._journal.folder, trial.index)
        attempts = self._journal.study.plan.max_attempts
        tries: list[Try] = []

        def again(failed: Try) -> None:
            tries.append(failed)
            self._tell(TrialStep.RETRIED, trial, reason=failed.reason or "it lived there")
            self._journal.claim(trial.index)

        try:
            result = tried(self._trials, trial, folder, attempts, again)
            return self._trials.completed(trial, result, self._journal.folder)
        except (FullError, PoolError, StoreError):
            raise
        except InfraError as error:
            return TrialResult(
                outcome=Outcome.INFRA_ERROR,
                reasons=(bounded(error.sentence()),),
                tries=tuple(tries),
            )

    def _tell(self, step: TrialStep, trial: TrialRecord, **more: Any) -> None:
        done, total = self._done, self._total
        self._report(Event(step=step, trial=trial, done=done, total=total, **more))
