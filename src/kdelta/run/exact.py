# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the exact instrument: guests under emulation, several at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from kdelta import arch, workload
from kdelta.errors import InfraError, KdeltaError
from kdelta.kernels.kernel import Kernel
from kdelta.machines import qemu
from kdelta.machines.machine import Settings
from kdelta.run import slots
from kdelta.run.trial import Bench, run_trial
from kdelta.sample import TrialRecord, TrialResult
from kdelta.study.spec import MachineSettings, Study


class ExactTrials:
    """Measures trials by counting; see runner.Trials."""

    def __init__(self, bench: Bench, kernels: Sequence[Kernel | KdeltaError]) -> None:
        """kernels: per arm, the kernel or why there is none (its trials then say so)."""
        self.cancelled = bench.cancelled
        self._bench = bench
        self._kernels = kernels

    def slot(self, jobs: int) -> AbstractContextManager[None]:
        """One of the `jobs` guests that run at once on this machine."""
        return slots.lease(jobs, self.cancelled)

    def ready(self, trial: TrialRecord) -> None:
        """Every trial can be measured here."""

    def measure(self, trial: TrialRecord, folder: Path) -> TrialResult:
        """Boot or restore a guest and count."""
        kernel = kernel_of(self._kernels, trial)
        load = workload.load(trial.workload)
        return run_trial(self._bench, kernel, load.scenario(trial.scenario), load.program, folder)


def kernel_of(kernels: Sequence[Kernel | KdeltaError], trial: TrialRecord) -> Kernel:
    """A trial's kernel.  Raises InfraError when it could not be had."""
    kernel = kernels[trial.arm]
    if not isinstance(kernel, Kernel):
        raise InfraError(kernel.cause, place=kernel.place, action=kernel.action)
    return kernel


def settings_of(machine: MachineSettings) -> Settings:
    """The machine that a study asks for.  Raises SpecError for an unknown architecture."""
    return Settings(
        arch=arch.of(machine.arch),
        cpus=machine.cpus,
        memory_mib=machine.memory_mib,
        cpu_model=machine.cpu_model,
        cmdline=machine.cmdline,
    )


def bench_of(study: Study, wanted_qemu: str, cancelled: threading.Event) -> Bench:
    """The bench for a study.  Raises SpecError or InfraError before anything is measured."""
    settings = settings_of(study.machine)
    emulator = qemu.choose(settings.arch, wanted_qemu)
    qemu.plugin(emulator)
    return Bench(
        emulator=emulator,
        settings=settings,
        fresh_boot=study.plan.fresh_boot,
        timeout_s=study.plan.timeout_s,
        cancelled=cancelled,
    )
