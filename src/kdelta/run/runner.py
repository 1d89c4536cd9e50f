# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs what a plan has left to do: several guests at once, every result stored as it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import StrEnum

from kdelta import arch, runfolder, workload
from kdelta.errors import InfraError, KdeltaError
from kdelta.kernels.kernel import Kernel
from kdelta.machines import qemu
from kdelta.machines.machine import Settings
from kdelta.machines.session import Cancelled
from kdelta.run import slots
from kdelta.run.trial import Bench, run_trial
from kdelta.sample import Outcome, TrialRecord, TrialResult
from kdelta.store import Store
from kdelta.study.spec import Study

_POLL_S = 0.2
_MAX_REASON = 400


class Step(StrEnum):
    """What happened to a trial."""

    STARTED = "started"
    RETRIED = "retried"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to show.  done, total: trials of the whole run; result: for FINISHED."""

    step: Step
    trial: TrialRecord
    done: int
    total: int
    reason: str = ""
    result: TrialResult | None = None


Report = Callable[[Event], None]


def bench_of(study: Study, wanted_qemu: str, cancelled: threading.Event) -> Bench:
    """The machine for a study.  Raises SpecError or InfraError before anything is measured."""
    machine = study.machine
    architecture = arch.of(machine.arch)
    emulator = qemu.choose(architecture, wanted_qemu)
    qemu.plugin(emulator)
    return Bench(
        emulator=emulator,
        settings=Settings(
            arch=architecture,
            cpus=machine.cpus,
            memory_mib=machine.memory_mib,
            cpu_model=machine.cpu_model,
            cmdline=machine.cmdline,
        ),
        fresh_boot=study.plan.fresh_boot,
        timeout_s=study.plan.timeout_s,
        cancelled=cancelled,
    )


class Runner:
    """Executes the pending trials of a store that is being executed (Store.executing)."""

    def __init__(
        self,
        store: Store,
        study: Study,
        bench: Bench,
        kernels: Sequence[Kernel | KdeltaError],
        report: Report,
    ) -> None:
        """kernels: per arm, the kernel or why there is none (its trials then say so)."""
        self._store = store
        self._study = study
        self._bench = bench
        self._kernels = kernels
        self._report = report
        self._total = len(store.record().trials)
        self._done = 0
        self._mutex = threading.Lock()

    def run(self, jobs: int) -> None:
        """Run all pending trials, at most `jobs` at once.

        On an interrupt, or when a result cannot be stored, running guests are ended and what was
        finished stays stored; the exception passes through.
        """
        pending = self._store.pending()
        self._done = self._total - len(pending)
        with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="trial") as pool:
            waiting = {pool.submit(self._one, trial, jobs) for trial in pending}
            try:
                _collect(waiting)
            except BaseException:
                self._bench.cancelled.set()
                for future in waiting:
                    future.cancel()
                raise

    def _one(self, trial: TrialRecord, jobs: int) -> None:
        with slots.lease(jobs, self._bench.cancelled):
            attempts = self._store.claim(trial.index)
            self._tell(Step.STARTED, trial)
            while True:
                try:
                    result = self._attempt(trial)
                    break
                except InfraError as error:
                    if attempts >= self._study.plan.max_attempts:
                        result = TrialResult(
                            outcome=Outcome.INFRA_ERROR, reason=error.sentence()[:_MAX_REASON]
                        )
                        break
                    self._tell(Step.RETRIED, trial, reason=error.sentence())
                    attempts = self._store.claim(trial.index)
        self._store.finish(trial.index, result)
        with self._mutex:
            self._done += 1
        self._tell(Step.FINISHED, trial, result=result)

    def _attempt(self, trial: TrialRecord) -> TrialResult:
        kernel = self._kernels[trial.arm]
        if not isinstance(kernel, Kernel):
            raise InfraError(kernel.cause, place=kernel.place, action=kernel.action)
        load = workload.load(trial.workload)
        folder = runfolder.trial_folder(self._store.folder, trial.index)
        with runfolder.disk_errors(self._store.folder):
            return run_trial(
                self._bench, kernel, load.scenario(trial.scenario), load.program, folder
            )

    def _tell(
        self, step: Step, trial: TrialRecord, *, reason: str = "", result: TrialResult | None = None
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
