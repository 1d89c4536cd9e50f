# SPDX-License-Identifier: GPL-2.0-or-later
"""One kernel, one scenario, one trial: the only place where bisection meets the instruments."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

from kdelta.archive.apt import Progress
from kdelta.errors import SpecError
from kdelta.guests import qemu
from kdelta.journal import results
from kdelta.kernels.kernel import Kernel
from kdelta.run import exact, timed
from kdelta.run.runner import Trials, tried
from kdelta.sample import TrialRecord, TrialResult
from kdelta.study.spec import Study, TimeMachine


class Measurer(Protocol):
    """Measures a scenario on a kernel, once."""

    def __call__(self, kernel: Kernel, trial: int, folder: Path) -> TrialResult:
        """The result of trial number `trial` of the run folder; its artifacts are in there.

        A fault of the kernel is a result that says so.  Raises InfraError when this machine is at
        fault, Cancelled when the work was ended.
        """


class TrialMeasure:
    """Measures with the Trials of any instrument."""

    def __init__(
        self, study: Study, trials: Trials, kernels: list[Kernel], environment: str = ""
    ) -> None:
        """study: of one scenario.  kernels: of the arms of `trials`, to which we add.

        environment: what measures here; results of different ones cannot be compared.
        """
        self.environment = environment
        self._workload, _, self._scenario = study.scenarios[0].partition(":")
        self._attempts = study.plan.max_attempts
        exact.guests_of(study)
        self._trials = trials
        self._kernels = kernels

    def __call__(self, kernel: Kernel, trial: int, folder: Path) -> TrialResult:
        """See Measurer.  This machine's faults are tried again within the study's budget."""
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        record = TrialRecord(
            index=trial,
            round=0,
            arm=self._kernels.index(kernel),
            workload=self._workload,
            scenario=self._scenario,
        )
        place = results.trial_folder(folder, trial)
        with self._trials.slot(record):
            self._trials.ready(record)
            return tried(self._trials, record, place, self._attempts, lambda _failed: None)


def measure_of(
    study: Study,
    wanted_qemu: str,
    cancelled: threading.Event,
    progress: Progress | None = None,
    *,
    again: bool = False,
) -> TrialMeasure:
    """What measures the study's instrument: counts, or times in KVM guests, which boot each time.

    Raises before anything is measured: SpecError, also for a study that times on the host, where
    every kernel needs a boot of the machine itself; InfraError, also when KVM boots no kernel here.
    """
    if study.instrument.traits.interleaved:
        return _timed(study, wanted_qemu, cancelled)
    bench = exact.bench_of(study, wanted_qemu, cancelled, progress, again=again)
    kernels: list[Kernel] = []
    environment = f"QEMU {bench.emulator.version}, plugin {qemu.plugin_digest()}"
    return TrialMeasure(study, exact.ExactTrials(bench, kernels), kernels, environment)


def _timed(study: Study, wanted_qemu: str, cancelled: threading.Event) -> TrialMeasure:
    if study.time.machine is not TimeMachine.KVM:
        raise SpecError(
            "a bisection cannot boot this machine itself into kernel after kernel",
            place="time.machine",
            action='time guests with machine = "kvm", or bisect by hand with: git bisect',
        )
    timing = timed.timing_of(study, cancelled)
    kernels: list[Kernel] = []
    emulator = qemu.choose(study.machine.target, wanted_qemu)
    trials = timed.KvmTrials(timing, study.machine, wanted_qemu, kernels)
    return TrialMeasure(study, trials, kernels, f"KVM, QEMU {emulator.version}")
