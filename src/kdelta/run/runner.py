# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs what a plan has left to do: several guests at once, every result stored as it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import StrEnum

from kdelta.errors import Cancelled, FullError, InfraError, PoolError, StoreError
from kdelta.journal import results
from kdelta.journal.run import RunJournal
from kdelta.run.trial import told
from kdelta.run.trials import Trials, tried
from kdelta.sample import Outcome, Skip, TrialRecord, TrialResult, Try

_POLL_S = 0.2


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

    def __init__(
        self,
        journal: RunJournal,
        trials: Trials,
        report: Report,
    ) -> None:
        self._journal = journal
        self._trials = trials
        self._report = report
        self._total = len(journal.record().trials)
        self._done = 0
        self._mutex = threading.Lock()

    def run_rounds(self, decided: Callable[[], Skip | None]) -> None:
        """Run pending trials one by one, until `decided` says after a round why that is enough.

        The trials that are then left end as skipped for that.
        """
        pending = self._journal.pending()
        self._done = self._total - len(pending)
        for number in sorted({trial.round for trial in pending}):
            skip = decided()
            for trial in pending:
                if trial.round == number and skip:
                    self._skip(trial, skip)
                elif trial.round == number:
                    self._one(trial)

    def _skip(self, trial: TrialRecord, skip: Skip) -> None:
        self._journal.claim(trial.index)
        self._journal.finish(trial.index, TrialResult(outcome=Outcome.SKIP, skip=skip))
        self._done += 1

    def run(self, jobs: int) -> None:
        """Run all pending trials, at most `jobs` at once.

        On an interrupt, or when a result cannot be stored, running guests are ended and what was
        finished stays stored; the exception passes through.
        """
        pending = self._journal.pending()
        self._done = self._total - len(pending)
        for waits in (False, True):
            self._run_group([t for t in pending if self._trials.waits(t) is waits], jobs)

    def _run_group(self, pending: Sequence[TrialRecord], jobs: int) -> None:
        with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="trial") as pool:
            waiting = {pool.submit(self._one, trial) for trial in pending}
            try:
                _collect(waiting)
            except BaseException:
                self._trials.cancelled.set()
                for future in waiting:
                    future.cancel()
                raise

    def _one(self, trial: TrialRecord) -> None:
        with self._trials.slot(trial):
            self._trials.ready(trial)
            self._journal.claim(trial.index)
            self._tell(TrialStep.STARTED, trial)
            result = self._known(trial) or self._measured(trial)
        self._journal.finish(trial.index, result)
        with self._mutex:
            self._done += 1
        self._tell(TrialStep.FINISHED, trial, result=result)

    def _measured(self, trial: TrialRecord) -> TrialResult:
        """What the trial yields; what stays this machine's fault is told, and is no data.

        Attempts are of this process: what a kill cut short was no fault of this machine.
        """
        folder = results.trial_folder(self._journal.folder, trial.index)
        attempts = self._journal.study.plan.max_attempts
        tries: list[Try] = []

        def again(failed: Try) -> None:
            tries.append(failed)
            self._tell(TrialStep.RETRIED, trial, reason=failed.reason or "it lived there")
            self._journal.claim(trial.index)

        try:
            return tried(self._trials, trial, folder, attempts, again)
        except (FullError, PoolError, StoreError):
            raise
        except InfraError as error:
            return TrialResult(
                outcome=Outcome.INFRA_ERROR,
                reasons=(told(error.sentence()),),
                tries=tuple(tries),
            )

    def _known(self, trial: TrialRecord) -> TrialResult | None:
        """The result of a trial that another arm's says."""
        if not self._trials.waits(trial):
            return None
        return self._trials.known(trial, self._alike(trial))

    def _alike(self, trial: TrialRecord) -> list[TrialRecord]:
        """The trials of the same scenario that have ended."""
        every = self._journal.of_scenario(trial.workload, trial.scenario)
        return [each for each in every if each.result]

    def _tell(
        self,
        step: TrialStep,
        trial: TrialRecord,
        *,
        reason: str = "",
        result: TrialResult | None = None,
    ) -> None:
        self._report(
            Event(
                step=step,
                trial=trial,
                done=self._done,
                total=self._total,
                reason=reason,
                result=result,
            )
        )


def _collect(waiting: set[Future[None]]) -> None:
    """Wait for all; the first failure is raised.  Polls, so that an interrupt gets through."""
    left = set(waiting)
    while left:
        done, left = wait(left, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        for future in done:
            error = future.exception()
            if error is not None and not isinstance(error, Cancelled):
                raise error
