# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the time instrument: on this host, or in a KVM guest; one at a time, never emulated."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from msgspec.structs import replace

from kdelta import arch, guest, output, process, workload
from kdelta.errors import GuestError, GuestFault, KdeltaError, SpecError
from kdelta.guests import kvm_guest, qemu, swap
from kdelta.host import cpus, native, preflight, reboot
from kdelta.kernels.kernel import Kernel
from kdelta.machine import readback
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.machine.readback import Lacking
from kdelta.run import facts
from kdelta.run.exact import kernel_of
from kdelta.run.trial import blame, not_for, skipped, told
from kdelta.sample import (
    UNKNOWN,
    Instrument,
    KernelIdentity,
    MachineFacts,
    Outcome,
    PhaseTimes,
    SkipKind,
    TimeData,
    TrialRecord,
    TrialResult,
)
from kdelta.study.spec import Study

_SKIPPED = 77
_ANSWER_S = 60.0
_SETTLE_S = 60.0
_LEAST_TICKS = 100


class NextBootError(KdeltaError):
    """The plan goes on under another boot of this machine; nothing failed.

    release: the kernel to boot.
    """

    exit_code = 0

    def __init__(self, release: str) -> None:
        try:
            commands = "; or ".join(reboot.next_boot_commands(release))
        except SpecError:  # it runs, but its image is not where boot loaders look
            commands = "reboot"
        super().__init__(
            f"the next trial needs a new boot of this machine, into {release}",
            action=f"boot it: {commands}; then: kdelta resume",
        )
        self.release = release


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
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


class HostTrials:
    """Trials under the kernel that runs now; see runner.Trials."""

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

    def slot(self, trial: TrialRecord) -> AbstractContextManager[None]:  # noqa: ARG002
        """Trials lease their CPUs themselves."""
        return nullcontext()

    def ready(self, trial: TrialRecord) -> None:
        """Raise NextBootError when the arm is another kernel, or this boot had its trial."""
        running = preflight.facts()
        reference = self._references[trial.arm]
        fits = reboot.match(reference, running)
        if fits and not (self._per_boot and running["boot_id"] in self._used):
            return
        known = (running["release"], *reboot.installed())
        release = running["release"] if fits else reboot.resolve(reference, known)
        raise NextBootError(release)

    def waits(self, trial: TrialRecord) -> bool:  # noqa: ARG002
        """Never: a time is measured."""
        return False

    def known(self, *_: object) -> None:
        """Nothing is: a time is measured."""

    def measure(self, trial: TrialRecord, folder: Path) -> TrialResult:
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
                preflight.settle(_SETTLE_S, self.cancelled)
            begun = time.monotonic()
            result = time_here(self._timing, load, scenario, leased, folder, reference)
        result = replace(result, wall_s=round(time.monotonic() - begun, 3))
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
    folder.mkdir(parents=True, exist_ok=True)
    binary = guest.program(load.program, arch.native())
    arguments = scenario.arguments(iterations=timing.iterations, warmup=timing.warmup)
    (folder / "command.txt").write_text(
        process.quote(native.command(binary, arguments, leased)) + "\n"
    )
    try:
        ran = native.run(
            binary, arguments, leased, timeout=timing.timeout_s, cancelled=timing.cancelled
        )
    except GuestFault as fault:
        return _failed(fault, _host_kernel(reference, preflight.facts()))
    (folder / "workload.txt").write_text(ran.text)
    machine = MachineFacts(
        host=facts.of_host(ran.facts_before),
        steal_share=ran.steal,
        leased=tuple(leased),
        doubts=preflight.objections(ran.facts_before, steal=ran.steal),
        workload_exit=ran.status,
    )
    kernel = _host_kernel(reference, ran.facts_before)
    tick = preflight.clock_tick_ns(ran.facts_before)
    try:
        result = _judged(load, scenario, ran.text, ran.status, tick, permitted=os.geteuid() == 0)
    except GuestFault as fault:
        return _failed(fault, kernel)
    return replace(result, kernel=kernel, facts=machine, artifacts=_artifacts(folder))


class KvmTrials:
    """Trials in KVM guests of archive kernels; every trial boots.  See runner.Trials."""

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
        self._settings = replace(settings, cpu_model=kvm_guest.cpu_model(settings))
        self._emulator = qemu.choose(settings.target, wanted_qemu)
        self._kernels = kernels
        self._machines = machines
        kvm_guest.require(self._emulator, self._settings)

    def slot(self, trial: TrialRecord) -> AbstractContextManager[None]:  # noqa: ARG002
        """Trials lease their CPUs themselves."""
        return nullcontext()

    def ready(self, trial: TrialRecord) -> None:
        """Every trial can be measured here."""

    def waits(self, trial: TrialRecord) -> bool:  # noqa: ARG002
        """Never: a time is measured."""
        return False

    def known(self, *_: object) -> None:
        """Nothing is: a time is measured."""

    def measure(self, trial: TrialRecord, folder: Path) -> TrialResult:
        """Boot a guest on leased CPUs and time the workload in it."""
        kernel = kernel_of(self._kernels, trial)
        folder.mkdir(parents=True, exist_ok=True)
        scenario = workload.load(trial.workload).scenario(trial.scenario)
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        settings = self._settings_of(trial, scenario)
        with cpus.lease(settings.cpus, self.cancelled) as leased:
            begun = time.monotonic()
            try:
                result = self._in_guest(scenario, settings, kernel, leased, folder)
            except Lacking as lack:
                result = skipped(SkipKind.UNSUPPORTED, str(lack), kernel=kernel.identity())
            except GuestFault as fault:
                (folder / "console.log").write_text(fault.console)
                result = replace(_failed(fault, kernel.identity()), artifacts=_artifacts(folder))
            return replace(result, wall_s=round(time.monotonic() - begun, 3))

    def _settings_of(self, trial: TrialRecord, scenario: workload.Scenario) -> MachineSettings:
        own = self._machines[trial.arm] if self._machines else self._settings
        model = self._settings.cpu_model
        return replace(with_needs(own, scenario.needs), cpu_model=model)

    def _in_guest(
        self,
        scenario: workload.Scenario,
        settings: MachineSettings,
        kernel: Kernel,
        leased: Sequence[int],
        folder: Path,
    ) -> TrialResult:
        load = workload.load(scenario.workload)
        timing = self._timing
        binary = guest.program(load.program, settings.target)
        before = preflight.facts(cpus=leased)
        with (
            swap.backing(settings, kernel, folder) as given,
            kvm_guest.KvmGuest(
                self._emulator,
                settings,
                kernel.image,
                leased,
                program=binary,
                hugetlb=timing.hugepages,
                backing=given,
                cancelled=self.cancelled,
            ) as machine,
        ):
            (folder / "command.txt").write_text(process.quote(machine.argv) + "\n")
            machine.wait_ready(timing.timeout_s)
            swap.turn_on(machine, settings, given, _ANSWER_S)
            identity = machine.prepared(settings, _ANSWER_S)
            arguments = scenario.arguments(iterations=timing.iterations, warmup=timing.warmup)
            printed, status = machine.run(binary, arguments, timing.timeout_s)
        (folder / "console.log").write_text(machine.console_text)
        (folder / "workload.txt").write_text(printed)
        steal = preflight.steal_between(before, preflight.facts(cpus=leased))
        machine_facts = facts.of_guest(
            settings,
            identity,
            status=status,
            host=facts.of_host(before),
            steal=steal,
            leased=leased,
            doubts=preflight.objections(before, steal=steal),
        )
        tick = 1 if identity.clocksource in ("tsc", "kvm-clock") else None
        result = _judged(load, scenario, printed, status, tick)
        wrong = readback.mismatches(settings, kernel.release, identity)
        if wrong:
            result = replace(result, outcome=Outcome.INVALID, reasons=tuple(map(told, wrong)))
        known = replace(kernel.identity(), build_id=identity.build_id, compiler=identity.compiler)
        return replace(
            result, kernel=known, facts=machine_facts, fresh_boot=True, artifacts=_artifacts(folder)
        )


def _judged(
    load: workload.Workload,
    scenario: workload.Scenario,
    printed: str,
    status: int,
    tick: int | None,
    *,
    permitted: bool = True,
) -> TrialResult:
    """What a program's output amounts to.  Raises GuestError when it is none.

    tick: of the clock, in ns; permitted: the program was allowed to read all of the page state.
    """
    if status >= 126:
        raise GuestError(f"the workload ended with status {status}")
    reading = output.parse_output(printed, load, scenario)
    last = reading.notes[-1] if reading.notes else "it gave no reason"
    if reading.exit_code == _SKIPPED:
        return skipped(SkipKind.UNSUPPORTED, last)
    if reading.exit_code and not reading.samples:
        raise GuestError(f"the workload failed: {last}")
    # A fact that this user may not read is unknown, and an unknown state is no state.
    failed = output.contract_failures(reading)
    if not permitted and failed and all(field.value == UNKNOWN for field in failed):
        names = ", ".join(dict.fromkeys(field.name for field in failed))
        why = f"only root may read the page state that this scenario needs: {names}"
        return skipped(SkipKind.NOT_PERMITTED, why)
    reasons = [f"{f.name} {f.when} is {f.value}, not {f.want}" for f in failed]
    adding = {phase.name: phase.adds for phase in load.phases}
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
    reasons += _too_short(times, tick)
    return TrialResult(
        outcome=Outcome.INVALID if reasons else Outcome.OK,
        reasons=tuple(map(told, reasons)),
        data=TimeData(phases=times),
        state=reading.state,
        metrics=reading.metrics,
    )


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


def _failed(fault: GuestFault, kernel: KernelIdentity) -> TrialResult:
    return TrialResult(outcome=blame(fault), reasons=(told(fault.sentence()),), kernel=kernel)


def _host_kernel(reference: str, facts: Mapping[str, str]) -> KernelIdentity:
    known = {key: "" if value == preflight.UNKNOWN else value for key, value in facts.items()}
    return KernelIdentity(
        reference=reference,
        release=known.get("release", ""),
        version="",
        arch=arch.native().debian,
        flavour="host",
        image_sha256="",
        build_id=known.get("build_id", ""),
        compiler=known.get("compiler", ""),
    )


def _artifacts(folder: Path) -> dict[str, str]:
    kept = ("console.log", "workload.txt", "command.txt")
    return {
        path.stem: f"{folder.parent.name}/{folder.name}/{path.name}"
        for path in sorted(folder.iterdir())
        if path.name in kept
    }
