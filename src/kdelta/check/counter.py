# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts scenarios on kernels that were built here, several guests at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kdelta.errors import InfraError
from kdelta.host import slots
from kdelta.journal import results
from kdelta.kernels.kernel import Kernel
from kdelta.run import exact
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import tried
from kdelta.sample import Outcome, TrialRecord, TrialResult
from kdelta.study.spec import Study

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A scenario on a kernel."""

    scenario: str
    kernel: Kernel
    result: TrialResult

    @property
    def functions(self) -> frozenset[str]:
        """The functions that its windows executed."""
        return frozenset(row.function for row in self.result.exact.functions)


class Counter:
    """Trials outside a run; what was counted before is taken from the store."""

    def __init__(
        self, study: Study, bench: Bench, folder: Path, told: Told, jobs: int | None = None
    ) -> None:
        """study: for the machine and its patience; folder: artifacts of trials go below it."""
        self._study = study
        self._kernels: list[Kernel] = []
        self._trials = exact.ExactTrials(bench, self._kernels, jobs=jobs)
        self._folder = folder
        self._told = told
        self._jobs = jobs or slots.at_once(exact.guests_of(study))
        self._next = 0
        self._mutex = threading.Lock()

    def count(self, kernel: Kernel, scenarios: Sequence[str]) -> list[Counted]:
        """One trial of each.  This machine's faults are results that say so."""
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        with ThreadPoolExecutor(max_workers=self._jobs, thread_name_prefix="check") as pool:
            waiting = [pool.submit(self._one, kernel, name) for name in scenarios]
            try:
                return [each.result() for each in waiting]
            except BaseException:
                self._trials.cancelled.set()
                for each in waiting:
                    each.cancel()
                raise

    def _one(self, kernel: Kernel, scenario: str) -> Counted:
        place, _, name = scenario.rpartition(":")
        with self._mutex:
            number, self._next = self._next, self._next + 1
        trial = TrialRecord(
            index=number,
            round=0,
            arm=self._kernels.index(kernel),
            workload=place,
            scenario=name,
        )
        folder = results.trial_folder(self._folder, number)
        try:
            with self._trials.slot(trial):
                attempts = self._study.plan.max_attempts
                result = tried(self._trials, trial, folder, attempts, lambda _failed: None)
        except InfraError as error:
            result = TrialResult(outcome=Outcome.INFRA_ERROR, reasons=(error.sentence()[:400],))
        why = f" ({result.reason})" if result.outcome is not Outcome.OK else ""
        self._told(f"{kernel.name} {scenario}: {result.outcome}{why}")
        return Counted(scenario=scenario, kernel=kernel, result=result)
