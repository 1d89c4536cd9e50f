# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the time instrument: on this host, or in a KVM guest; one at a time, never emulated."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kdelta import arch, guest, output, process, workload
from kdelta.errors import KdeltaError, SpecError
from kdelta.guests import kvm, qemu, swap
from kdelta.host import cpus, facts, loaders, native, preflight, reboot
from kdelta.journal import results
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run.runner import AS_PLANNED, How, Trials
from kdelta.run.trial import (
    Measured,
    Ran,
    framed,
    judged,
    kernel_of,
    not_for,
    orders_for,
    read_back,
    run_in,
)
from kdelta.sample import (
    HostFacts,
    Instrument,
    KernelIdentity,
    MachineFacts,
    PhaseTimes,
    TimeData,
    TrialRecord,
    TrialResult,
)
from kdelta.study.spec import Study

SETTLE_S = 60.0
_LEAST_TICKS = 100
_FINE_CLOCKS = ("tsc", "kvm-clock")  # of a guest: they tell nanoseconds


class NextBootError(KdeltaError):
    """The plan goes on under another boot of this machine; nothing failed.

    release: the kernel to boot.
    """

    exit_code = 0

    def __init__(self, release: str) -> None:
        try:
            commands = "; or ".join(loaders.next_boot_commands(release))
        except SpecError:  # it runs, but its image is not where boot loaders look
            commands = "reboot"
        super().__init__(
            f"the next trial needs a new boot of this machine, into {release}",
            action=f"boot it: {commands}; then: kdelta resume",
        )
        self.release = release


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What all timed trials of a run share."""

    iterations: int
    warmup: int
    timeout_s: float
    cancelled: threading.Event
    hugepages: bool = False  # of KVM guests


def timing_of(study: Study, cancelled: threading.Event) -> Timing:
    """How a study of the time instrument wants its trials."""
    return Timing(
        iterations=study.time.iterations,
        warmup=study.time.warmup,
        timeout_s=study.plan.timeout_s,
        cancelled=cancelled,
        hugepages=study.time.hugepages,
    )


class HostTrials(Trials):
    """Trials under the kernel that runs now; they lease their CPUs themselves."""

    def __init__(
        self, timing: Timing, references: Sequence[str], *, per_boot: bool, used: Collection[str]
    ) -> None:
        """references: per arm, "host" or "host:RELEASE".

        per_boot: one trial per boot of this machine; used: the boot ids that had theirs.
        """
        self.cancelled = timing.cancelled
        self._timing = timing
        self._references = references
        self._per_boot = per_boot
        self._used = set(used)

    def ready(self, trial: TrialRecord) -> None:
        """Raise NextBootError when the arm is another kernel, or this boot had its trial."""
        running = facts.read()
        reference, own = self._references[trial.arm], running.release or ""
        fits = reboot.match(reference, own)
        if fits and not (self._per_boot and running.boot_id in self._used):
            return
        release = own if fits else reboot.resolve(reference, (own, *reboot.installed()))
        raise NextBootError(release)

    def measure(self, trial: TrialRecord, folder: Path, _how: How = AS_PLANNED) -> TrialResult:
        """Run the workload's program on leased CPUs, one for each of its workers."""
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        reference = self._references[trial.arm]
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        # One that wants more cores than there are says so itself, or shares threads of a core.
        count = min(with_needs(MachineSettings(), scenario.needs).cpus, len(cpus.cores()))
        with cpus.lease(count, self.cancelled) as leased:
            if self._per_boot:
                preflight.settle(SETTLE_S, self.cancelled)
                results.note_boot(folder, facts.read().boot_id or "")
            result = time_here(self._timing, load, scenario, leased, folder, reference)
        # A guest's fault, too, leaves a boot that is no longer fresh.
        self._used.add(result.facts.boot_id if result.facts else "")
        return result


def time_here(
    timing: Timing,
    load: workload.Workload,
    scenario: workload.Scenario,
    leased: Sequence[int],
    folder: Path,
    reference: str = "host",
) -> TrialResult:
    """Time a workload's program on this host, pinned to leased CPUs; artifacts into folder."""
    binary = guest.program(load.program, arch.native(), theirs=scenario.outside)
    arguments = scenario.arguments(iterations=timing.iterations, warmup=timing.warmup)
    before = facts.read(cpus=leased)

    def measure() -> TrialResult:
        command = native.command(binary, arguments, leased)
        (folder / "command.txt").write_text(process.quote(command) + "\n")
        done = native.run(
            binary, arguments, leased, timeout=timing.timeout_s, cancelled=timing.cancelled
        )
        (folder / "workload.txt").write_text(done.text)
        ran = Ran(printed=done.text, status=done.status, permitted=os.geteuid() == 0)
        return timed_on(preflight.since(before, leased), ran, load, scenario)

    kernel = host_kernel(reference, before)
    return framed(folder, measure, kernel=kernel, facts=MachineFacts(host=before))


def timed_on(
    machine: MachineFacts, ran: Ran, load: workload.Workload, scenario: workload.Scenario
) -> TrialResult:
    """What a program's times on a machine amount to; those of an emulated one are INVALID."""
    host = machine.host
    tick = preflight.clock_tick_ns(host) if host else None
    measured = _timed(load, tick)
    if host and preflight.emulated(host):
        measured = _of_emulator(measured)
    result = judged(ran, load, scenario, measured)
    return replace(result, facts=replace(machine, workload_exit=ran.status))


def _of_emulator(measured: Measured) -> Measured:
    def told(reading: output.Reading) -> tuple[Any, Sequence[str]]:
        data, wrong = measured(reading)
        return data, [*wrong, "the machine is emulated (TCG): these are the emulator's times"]

    return told


class KvmTrials(Trials):
    """Trials in KVM guests of archive kernels; every trial boots, on CPUs that it leases."""

    def __init__(
        self,
        timing: Timing,
        settings: MachineSettings,
        wanted_qemu: str,
        kernels: Sequence[Kernel | KdeltaError],
        machines: Sequence[MachineSettings] = (),
    ) -> None:
        """machines: per arm; none: `settings` for all.

        Raises InfraError when KVM does not boot a kernel on this machine.
        """
        self.cancelled = timing.cancelled
        self._timing = timing
        # KVM gives the host's CPU; the exact instrument's "max" is TCG's.
        self._settings = replace(settings, cpu_model=kvm.cpu_model(settings))
        self._emulator = qemu.choose(settings.target, wanted_qemu)
        self._kernels = kernels
        self._machines = machines
        kvm.require(self._emulator, self._settings)

    def measure(self, trial: TrialRecord, folder: Path, _how: How = AS_PLANNED) -> TrialResult:
        """Boot a guest on leased CPUs and time the workload in it."""
        kernel = kernel_of(self._kernels, trial)
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        settings = self._settings_of(trial, scenario)
        with cpus.lease(settings.cpus, self.cancelled) as leased:
            measure = partial(self._in_guest, load, scenario, settings, kernel, leased, folder)
            return framed(folder, measure, kernel=kernel.identity(), fresh_boot=True)

    def _settings_of(self, trial: TrialRecord, scenario: workload.Scenario) -> MachineSettings:
        own = self._machines[trial.arm] if self._machines else self._settings
        model = self._settings.cpu_model
        return replace(with_needs(own, scenario.needs), cpu_model=model)

    def _in_guest(
        self,
        load: workload.Workload,
        scenario: workload.Scenario,
        settings: MachineSettings,
        kernel: Kernel,
        leased: Sequence[int],
        folder: Path,
    ) -> TrialResult:
        timing = self._timing
        binary = guest.program(load.program, settings.target, theirs=scenario.outside)
        before = facts.read(cpus=leased)
        arguments = scenario.arguments(iterations=timing.iterations, warmup=timing.warmup)
        with (
            swap.backing(settings, kernel, folder) as given,
            kvm.KvmGuest(
                self._emulator,
                settings,
                kernel.image,
                leased,
                orders=orders_for(settings, given, arguments, seed=0),
                program=binary,
                hugetlb=timing.hugepages,
                backing=given,
                cancelled=self.cancelled,
            ) as machine,
        ):
            (folder / "command.txt").write_text(machine.command_text)
            identity, ran, _ = run_in(machine, settings, kernel.release, timing.timeout_s)
        (folder / "console.log").write_text(machine.console_text)
        (folder / "workload.txt").write_text(ran.printed)
        own = preflight.since(before, leased)
        tick = 1 if identity.seen.clocksource in _FINE_CLOCKS else None
        return replace(
            judged(ran, load, scenario, _timed(load, tick)),
            kernel=read_back(kernel, identity),
            facts=replace(own, asked=settings, guest=identity.seen, workload_exit=ran.status),
        )


def _timed(load: workload.Workload, tick: int | None) -> Measured:
    """From what a program printed to its times; tick: of the clock, in ns."""
    adding = {phase.name: phase.adds for phase in load.phases}

    def measured(reading: output.Reading) -> tuple[TimeData, list[str]]:
        times = tuple(
            PhaseTimes(
                phase=phase.name,
                operations=phase.operations,
                operation=phase.operation,
                nanoseconds=tuple(
                    sample.nanoseconds for sample in reading.samples if sample.phase == phase.name
                ),
                adds=adding[phase.name],
            )
            for phase in reading.phases
        )
        return TimeData(phases=times), _too_short(times, tick)

    return measured


def _too_short(times: Sequence[PhaseTimes], tick: int | None) -> list[str]:
    """Phases whose samples do not span 100 ticks of the clock."""
    if tick is None:
        return ["the clock's resolution is unknown"]
    return [
        f"{phase.phase}: a sample of {min(phase.nanoseconds)} ns spans fewer than"
        f" {_LEAST_TICKS} clock ticks of {tick} ns"
        for phase in times
        if phase.nanoseconds and min(phase.nanoseconds) < _LEAST_TICKS * tick
    ]


def host_kernel(reference: str, host: HostFacts) -> KernelIdentity:
    """The kernel that a host runs, as a reference named it."""
    own = next((each for each in arch.ARCHES.values() if each.uname == host.machine), None)
    return KernelIdentity(
        reference=reference,
        release=host.release or "",
        version="",
        arch=(own or arch.native()).debian,
        flavour="host",
        image_sha256="",
        build_id=host.build_id or "",
        compiler=host.compiler or "",
    )
