# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the exact instrument: guests under emulation, several at once."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from kdelta import cache, workload
from kdelta.archive.apt import Progress
from kdelta.errors import KdeltaError, SpecError
from kdelta.export import is_export
from kdelta.guests import qemu
from kdelta.guests.orders import Seed
from kdelta.guests.qemu import check_cpu
from kdelta.host import leases
from kdelta.journal import results
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.probes.sharing import MOST_CPUS
from kdelta.run import counting, store
from kdelta.run.arms import IdenticalArms
from kdelta.run.counting import depends_on, run_trial
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import AS_PLANNED, How, Trials, tried
from kdelta.run.trial import kernel_of, not_for
from kdelta.sample import Instrument, Source, TrialRecord, TrialResult
from kdelta.study import probes
from kdelta.study.spec import Study, points

_OTHER_SEEDS = 1000  # more than rounds
_BOOTS = 3  # that seeds of a program of the user's own begin from: each takes a boot and its room


class ExactTrials(Trials):
    """Measures trials by counting."""

    def __init__(
        self,
        bench: Bench,
        kernels: Sequence[Kernel | KdeltaError],
        machines: Sequence[MachineSettings] = (),
        *,
        reuse: bool = False,
        jobs: int | None = None,
    ) -> None:
        """kernels: per arm, one or why there is none.  machines: per arm; none: the bench's own.
        reuse: do not boot what an earlier arm is.  jobs: guests at once, whatever cores there are.
        """
        self.cancelled = bench.cancelled
        self._bench, self._jobs = bench, jobs
        self._kernels, self._machines = kernels, machines
        self._identical = IdenticalArms(kernels if reuse else (), machines)

    def slot(self, trial: TrialRecord) -> AbstractContextManager[None]:
        """What the trial's guest takes of this machine."""
        return leases.lease_guest(self._guest(trial), self.cancelled, self._jobs)

    def prepares(self, trial: TrialRecord) -> Hashable | None:
        """The guest that is booted once and saved."""
        kernel, machine = self._kernels[trial.arm], self._guest(trial)
        boots = self._bench.fresh_boot or machine.swap == "disk"
        boot = self._seed_of(trial).boot
        return (kernel.image, machine, boot) if isinstance(kernel, Kernel) and not boots else None

    def _guest(self, trial: TrialRecord) -> MachineSettings:
        needs = workload.load(trial.workload).scenario(trial.scenario).needs
        own = self._machines[trial.arm] if self._machines else self._bench.settings
        return with_needs(own, needs)

    def waits(self, trial: TrialRecord) -> bool:
        """True for a kernel that may be the same code as an earlier arm's."""
        return self._identical.waits(trial.arm)

    def known(self, trial: TrialRecord, finished: Sequence[TrialRecord]) -> TrialResult | None:
        """The result of an arm that has the same code."""
        return self._identical.result(trial, finished)

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        """Boot or restore a guest and count, unless this very trial was counted before."""
        kernel = kernel_of(self._kernels, trial)
        scenario = workload.load(trial.workload).scenario(trial.scenario)
        if skip := not_for(Instrument.EXACT, scenario):
            return skip
        kernel.check()
        return self._measured(self._bench_for(trial, how), kernel, scenario, folder, how)

    def completed(self, trial: TrialRecord, result: TrialResult, run: Path) -> TrialResult:
        """With the code that ran, and that of options in which the kernels differ."""
        if len(self._kernels) == 1 or not result.exact.phases:
            return result
        from kdelta.run.executed_code import in_question, with_code, with_option_code

        codes, kernel = in_question(self._kernels), kernel_of(self._kernels, trial)
        result = with_option_code(trial, result, kernel, codes, run)
        return with_code(trial, result, kernel, run)

    def address(self, trial: TrialRecord, how: How = AS_PLANNED) -> str:
        """The address of what `measure` yields (run.store); "" where nothing is counted."""
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        if not_for(Instrument.EXACT, scenario):
            return ""
        bench, kernel = self._bench_for(trial, how), kernel_of(self._kernels, trial)
        return store.address(depends_on(bench, kernel, scenario, load.program))

    def given(self, trial: TrialRecord) -> tuple[Bench, MachineSettings, Kernel]:
        """What the trial is measured with: the bench, its arm's machine, its kernel."""
        own = self._machines[trial.arm] if self._machines else self._bench.settings
        bench = replace(self._bench, seed=self._seed_of(trial))
        return bench, own, kernel_of(self._kernels, trial)

    def _bench_for(self, trial: TrialRecord, how: How) -> Bench:
        settings = self._guest(trial)
        # QEMU cannot save a guest that has a disk.
        fresh = self._bench.fresh_boot or how.fresh_boot or settings.swap == "disk"
        seed = self._seed_of(trial, other=_OTHER_SEEDS if how.other_seed else 0)
        return replace(self._bench, settings=settings, fresh_boot=fresh, seed=seed)

    def _seed_of(self, trial: TrialRecord, other: int = 0) -> Seed:
        scenario = workload.load(trial.workload).scenario(trial.scenario)
        own = scenario.outside and not is_export(workload.file_of(trial.workload))
        return seed_of(trial, outside=own, other=other)

    def _measured(
        self, bench: Bench, kernel: Kernel, scenario: workload.Scenario, folder: Path, how: How
    ) -> TrialResult:
        program = workload.load(scenario.workload).program
        # What is tried again is no longer the trial that was planned, and is not kept.
        key = store.address(depends_on(bench, kernel, scenario, program))
        known = how == AS_PLANNED and not bench.again and store.found(key, kernel, folder)
        result = known or run_trial(bench, kernel, scenario, program, folder)
        if how != AS_PLANNED:
            return result
        if not known:
            store.keep(key, result, folder)
        return structs.replace(result, address=key)


def seed_of(trial: TrialRecord, *, outside: bool, other: int = 0) -> Seed:
    """Each round has another seed.  Shipped programs lie where they need to, by construction, and
    begin from one boot.  outside: it is no shipped one.  other: added for a further attempt.
    """
    number = {source: trial.round if trial.varies in (None, source) else 0 for source in Source}
    first = 1 + other
    return Seed(
        ticks=first + number[Source.TICKS],
        memory=first + number[Source.MEMORY],
        random=first + number[Source.RANDOM],
        addresses=first + number[Source.ADDRESSES] if outside else 0,
        boot=1 + number[Source.BOOT] % _BOOTS if outside else 1,
    )


class SingleTrials(ExactTrials):
    """Trials outside the plan of a run, of kernels as they are asked for."""

    def __init__(self, study: Study, bench: Bench) -> None:
        self._arms: list[Kernel] = []
        super().__init__(bench, self._arms)
        self._attempts = study.plan.max_attempts

    def of(
        self, scenario: str, kernel: Kernel, number: int, folder: Path, *, seed: int = 0
    ) -> TrialResult:
        """One trial; below `folder` lie its artifacts.  Raises as `runner.tried` does."""
        if kernel not in self._arms:
            self._arms.append(kernel)
        place, _, name = scenario.rpartition(":")
        arm = self._arms.index(kernel)
        trial = TrialRecord(index=number, round=seed, arm=arm, workload=place, scenario=name)
        own = results.trial_folder(folder, number)
        with self.slot(trial):
            return tried(self, trial, own, self._attempts, lambda _failed: None)


def guests_of(study: Study, cores: int | None = None) -> tuple[MachineSettings, ...]:
    """The guests of a study, with what its scenarios need.  cores: of this machine, None where they
    need not be real.  Raises SpecError for a guest that does not fit, or no such scenario.
    """
    needs = [workload.parse_reference(name)[1].needs for name in study.scenarios]
    guests = tuple(with_needs(point.machine, need) for point in points(study) for need in needs)
    cpus, memory = max(one.cpus for one in guests), max(one.memory_mib for one in guests)
    most = leases.memory_mib()
    if memory + leases.QEMU_MIB > most:
        cause = f"a guest of {memory} MiB does not fit into this machine's {most} MiB"
        action = "ask for less memory, or measure on a larger machine"
        raise SpecError(cause, place="memory_mib", action=action)
    if cores is not None and cpus > cores:
        cause = f"a guest of {cpus} CPUs is timed on as many cores; this machine has {cores}"
        raise SpecError(cause, place="cpus", action="ask for fewer, or measure on a larger machine")
    return guests


def bench_of(
    study: Study,
    wanted_qemu: str,
    cancelled: threading.Event,
    progress: Progress | None = None,
    *,
    again: bool = False,
) -> Bench:
    """The bench for a study.  Raises SpecError or InfraError before anything is measured."""
    settings = study.machine
    counting.check_probes(study.plan.probes, settings.target)
    cache.sweep()
    shared = probes.SHARING in study.plan.probes
    if shared and not all(2 <= one.cpus <= MOST_CPUS for one in guests_of(study)):
        cause = f"lines are shared by 2 to {MOST_CPUS} CPUs"
        raise SpecError(cause, place="cpus", action="count a scenario of turns, or add --cpus 2")
    emulator = qemu.for_counting(settings.target, qemu.not_turning(wanted_qemu), progress)
    for asked in {point.machine.cpu_model: point.machine for point in points(study)}.values():
        check_cpu(emulator, asked)
    return Bench(
        emulator=qemu.in_turns(emulator) if shared else emulator,
        settings=settings,
        fresh_boot=study.plan.fresh_boot,
        timeout_s=study.plan.timeout_s,
        cancelled=cancelled,
        again=again,
        probes=study.plan.probes,
    )
