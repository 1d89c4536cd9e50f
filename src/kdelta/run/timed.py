# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the time instrument: on this host, in a KVM guest, or on another machine by ssh.

One at a time, never emulated.  A run by ssh has one machine from its first trial to its last:
RUN/placed.json keeps its pool's name.  kdelta boots each arm's kernel there, and gives the machine
back.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kdelta import arch, guest, output, process, workload
from kdelta.errors import BootError, GuestError, InfraError, KdeltaError, SpecError
from kdelta.guests import kvm, orders, qemu
from kdelta.guests.orders import Seed, swap_backing
from kdelta.host import facts, leases, native, reboot
from kdelta.host.ssh_host import SshHost, Stage, connection
from kdelta.journal import files, results
from kdelta.journal.run import RunJournal
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.printable import printable
from kdelta.run.runner import AS_PLANNED, How, Trials
from kdelta.run.trial import (
    Measured,
    Ran,
    framed,
    judged,
    keep_command,
    kernel_of,
    not_for,
    read_back,
    run_in,
    set_up,
)
from kdelta.sample import (
    HostFacts,
    Instrument,
    KernelIdentity,
    MachineFacts,
    Outcome,
    PhaseTimes,
    TimeData,
    TrialRecord,
    TrialResult,
)
from kdelta.study.pools import HostPool
from kdelta.study.spec import Replicate, Study, TimeMachine

SETTLE_S = 60.0
_LEAST_TICKS = 100
_FINE_CLOCKS = ("tsc", "kvm-clock")  # of a guest: they tell nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What all timed trials of a run share: how its study wants them, and what ends them."""

    study: Study
    cancelled: threading.Event = field(default_factory=threading.Event)

    def arguments(self, scenario: workload.Scenario) -> list[str]:
        """A program's."""
        wanted = self.study.time
        return scenario.arguments(iterations=wanted.iterations, warmup=wanted.warmup)


def check_here(study: Study, references: Sequence[str]) -> None:
    """Raise SpecError for arms of other kernels than the running one, and for a boot each."""
    running = facts.read().release or ""
    other = next((each for each in references if not reboot.match(each, running)), None)
    on_a_pool = 'time it on a machine of a pool of kind "host": --on lab.toml (docs/lab.md)'
    if other:
        cause = f"{other} is not the kernel that this host runs ({running})"
        raise SpecError(cause, place=f"{study.name}: kernels", action=on_a_pool)
    if study.time.replicate is Replicate.BOOT:
        cause = "kdelta does not reboot this host for a trial"
        action = f'set it to "process", or {on_a_pool}'
        raise SpecError(cause, place=f"{study.name}: time.replicate", action=action)


class HostTrials(Trials):
    """Trials under the kernel that runs now; they lease their CPUs themselves."""

    def __init__(self, timing: Timing, references: Sequence[str]) -> None:
        """references: per arm, each the running kernel (check_here)."""
        self.cancelled = timing.cancelled
        self._timing, self._references = timing, references

    def measure(self, trial: TrialRecord, folder: Path, _how: How = AS_PLANNED) -> TrialResult:
        """Run the workload's program on leased CPUs, one for each of its workers."""
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        reference = self._references[trial.arm]
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        # One that wants more cores than there are says so itself, or shares threads of a core.
        count = min(with_needs(MachineSettings(), scenario.needs).cpus, len(leases.cores()))
        with leases.lease_cpus(count, self.cancelled) as leased:
            return time_here(self._timing, load, scenario, leased, folder, reference)


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
    arguments = timing.arguments(scenario)
    before = facts.read(cpus=leased)
    command = native.command(binary, arguments, leased)

    def measure() -> TrialResult:
        keep_command(folder, process.quote(command) + "\n")
        timeout, cancelled = timing.study.plan.timeout_s, timing.cancelled
        done = native.run(binary, arguments, leased, timeout=timeout, cancelled=cancelled)
        (folder / "workload.txt").write_text(done.stdout)
        ran = Ran(printed=done.stdout, status=done.returncode, permitted=os.geteuid() == 0)
        return timed_on(facts.since(before, leased), ran, load, scenario)

    kernel = host_kernel(reference, before)
    return framed(folder, measure, kernel=kernel, facts=MachineFacts(host=before))


def timed_on(
    machine: MachineFacts, ran: Ran, load: workload.Workload, scenario: workload.Scenario
) -> TrialResult:
    """What a program's times on a machine amount to; those of an emulated one are INVALID."""
    result = judged(ran, load, scenario, measured(load, machine))
    return replace(result, facts=replace(machine, workload_exit=ran.status))


class KvmTrials(Trials):
    """Trials in KVM guests of archive kernels; every trial boots, on CPUs that it leases."""

    def __init__(
        self,
        timing: Timing,
        wanted_qemu: str,
        kernels: Sequence[Kernel | KdeltaError],
        machines: Sequence[MachineSettings],
    ) -> None:
        """machines: per arm.  Raises InfraError where this user has no KVM."""
        settings = timing.study.machine
        self.cancelled, self._timing = timing.cancelled, timing
        # KVM gives the host's CPU; the exact instrument's "max" is TCG's.
        self._settings = replace(settings, cpu_model=kvm.cpu_model(settings))
        self._emulator = qemu.choose(settings.target, wanted_qemu)
        self._kernels, self._machines = kernels, machines
        kvm.require(self._settings)

    def measure(self, trial: TrialRecord, folder: Path, _how: How = AS_PLANNED) -> TrialResult:
        """Boot a guest on leased CPUs and time the workload in it."""
        kernel = kernel_of(self._kernels, trial)
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        own = with_needs(self._machines[trial.arm], scenario.needs)
        settings = replace(own, cpu_model=self._settings.cpu_model)
        timing, timeout_s = self._timing, self._timing.study.plan.timeout_s

        def timed() -> TrialResult:
            binary = guest.program(load.program, settings.target, theirs=scenario.outside)
            before = facts.read(cpus=leased)
            arguments = timing.arguments(scenario)
            with (
                swap_backing(settings, kernel, folder) as given,
                kvm.KvmGuest(
                    self._emulator,
                    settings,
                    kernel.image,
                    leased,
                    orders=(*set_up(settings, given, Seed()), orders.run(arguments)),
                    program=binary,
                    hugetlb=timing.study.time.hugepages,
                    backing=given,
                    cancelled=self.cancelled,
                ) as machine,
            ):
                keep_command(folder, machine.command_text, kernel.image)
                identity, ran, _ = run_in(machine, settings, kernel.release, timeout_s)
            (folder / "console.log").write_text(machine.console_text)
            (folder / "workload.txt").write_text(ran.printed)
            since = replace(facts.since(before, leased), asked=settings, guest=identity.seen)
            result = timed_on(since, ran, load, scenario)
            return replace(result, kernel=read_back(kernel, identity))

        with leases.lease_cpus(settings.cpus, self.cancelled) as leased:
            return framed(folder, timed, kernel=kernel.identity(), fresh_boot=True)


def measured(load: workload.Workload, machine: MachineFacts) -> Measured:
    """From what a program printed to its times on a machine, by the tick of its clock in ns."""
    tick = facts.clock_tick_ns(machine.host) if machine.host and not machine.guest else None
    if machine.guest and machine.guest.clocksource in _FINE_CLOCKS:
        tick = 1
    emulated = bool(machine.host and not machine.guest and facts.emulated(machine.host))
    by_emulator = ["the machine is emulated (TCG): these are the emulator's times"] * emulated
    adding = {phase.name: phase.adds for phase in load.phases}

    def times_of(reading: output.Reading) -> tuple[TimeData, list[str]]:
        times, short = [], [] if tick else ["the clock's resolution is unknown"]
        for phase in reading.phases:
            spans = tuple(one.nanoseconds for one in reading.samples if one.phase == phase.name)
            times.append(
                PhaseTimes(
                    phase=phase.name,
                    operations=phase.operations,
                    operation=phase.operation,
                    nanoseconds=spans,
                    adds=adding[phase.name],
                )
            )
            if tick and spans and min(spans) < _LEAST_TICKS * tick:
                few = f"fewer than {_LEAST_TICKS} clock ticks of {tick} ns"
                short.append(f"{phase.name}: a sample of {min(spans)} ns spans {few}")
        return TimeData(phases=tuple(times)), [*short, *by_emulator]

    return times_of


def host_kernel(reference: str, host: HostFacts) -> KernelIdentity:
    """The kernel that a host runs, as a reference named it."""
    return KernelIdentity(
        reference=reference,
        release=host.release or "",
        version="",
        arch=(_arch_of(host) or arch.native()).debian,
        flavour="host",
        image_sha256="",
        build_id=host.build_id or "",
        compiler=host.compiler or "",
    )


def _arch_of(host: HostFacts) -> arch.Arch | None:
    return next((each for each in arch.ARCHES.values() if each.uname == host.machine), None)


_MOST_FAILED = 2  # boots of one kernel; it is not tried a third time
_TIMED_OUT = 124  # status of timeout(1)
_PLACED = "placed.json"


class _Placed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """RUN/placed.json: whose times the run has.  pool: by the name in lab.toml."""

    pool: str


class HostPoolTrials:
    """One machine of a pool (pool: its name in lab.toml), which has one trial at a time."""

    def __init__(self, name: str, pool: HostPool, study: Study) -> None:
        """Raises SpecError for a study of other than host kernels, or a bad address."""
        if study.time.machine is not TimeMachine.HOST:
            cause = "a host of a pool times its own kernels, and this study wants KVM guests"
            action = 'set time.machine = "host", and kernels such as host:6.12'
            raise SpecError(cause, action=action)
        self.timing = Timing(study=study)
        self.per_boot = study.time.replicate is Replicate.BOOT
        self.pool, self._settings = name, pool

    @contextmanager
    def placed(self, journal: RunJournal, assigned: Callable[[int, str], None]) -> Iterator[Trials]:
        """What measures the trials; the machine is held until the block ends, and given back after
        the last trial.  assigned: gets which machine has a trial, "" for none.
        """
        note(journal.folder, self.pool)
        record = journal.record()
        references = tuple(arm.kernel.reference for arm in record.arms)
        ended = [(trial.arm, trial.result) for trial in record.trials if trial.result]
        with ExitStack() as stack:
            ssh_host = stack.enter_context(self._reached())
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kdelta-host-"))
            held = ssh_host.take(record.run_id, record.created)
            boots: set[str | None] = {
                *results.boots(journal.folder),
                *(result.facts.boot_id for _, result in ended if result.facts),
            }
            down = [arm for arm, result in ended if result.outcome is Outcome.BOOT_ERROR]
            failed = Counter({references[arm]: _MOST_FAILED for arm in down})
            yield _OnHost(self, ssh_host, references, Path(folder), assigned, boots, failed)
            ssh_host.give_back(held)

    def give_back(self, journal: RunJournal) -> None:
        """Let go what a run that was killed behind its last trial still holds.  InfraError."""
        run = journal.record().run_id
        if pool_of(journal.folder) != self.pool:
            return
        with self._reached() as ssh_host:
            ssh_host.reached()
            if (held := ssh_host.holder()) and held.run == run:
                ssh_host.give_back(held)

    @contextmanager
    def _reached(self) -> Iterator[SshHost]:
        pool = self._settings
        cancelled = self.timing.cancelled
        with connection(self.pool, pool.address, cancelled, pool.ssh_config) as remote:
            yield SshHost(remote, pool)


def pool_of(folder: Path) -> str:
    """The pool that a run is timed on, "" for this machine.  Raises StoreError."""
    known = files.read(folder / _PLACED, _Placed, action="remove it if no trial has ended")
    return known.pool if known else ""


def note(folder: Path, pool: str) -> None:
    """Keep on which pool a run is timed, "" for this machine: times of two are never compared.
    Raises SpecError when it was another one.
    """
    known = pool_of(folder)
    if not known and pool and not any(folder.glob("trials/*/result.json")):
        files.write(folder / _PLACED, _Placed(pool))
    elif known != pool:
        had = f"the pool {printable(known, 60)}" if known else "this machine"
        action = "go on with the same --on, or measure all of it again with: kdelta run --new"
        raise SpecError(f"its times are of {had}", place=str(folder), action=action)


@dataclass(eq=False)
class _OnHost(Trials):
    """used: boots that had a trial; failed: how often a kernel did not come up."""

    pool: HostPoolTrials
    ssh_host: SshHost
    references: Sequence[str]
    scratch: Path
    assigned: Callable[[int, str], None]
    used: set[str | None]
    failed: Counter[str]

    def __post_init__(self) -> None:
        self.cancelled = self.pool.timing.cancelled

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        reference = self.references[trial.arm]
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        fresh, ssh_host = self.pool.per_boot or how.fresh_boot, self.ssh_host
        timing = self.pool.timing
        ssh_host.told = lambda stage: self.assigned(trial.index, f"{self.pool.pool}: {stage}")
        seen: list[HostFacts] = []

        def timed() -> TrialResult:
            self._arrive(reference, fresh=fresh)
            ssh_host.at(Stage.LOOKING)
            leased, before = ssh_host.chosen(with_needs(MachineSettings(), scenario.needs).cpus)
            seen.append(before)
            if (target := _arch_of(before)) is None:
                kind = printable(before.machine or "no known kind", 40)
                raise InfraError(f"kdelta builds no programs for a machine of {kind}")
            binary = guest.program(load.program, target, theirs=scenario.outside)
            ssh_host.at(Stage.SENDING)
            there = ssh_host.send(binary)
            if self.pool.per_boot:
                ssh_host.at(Stage.SETTLING)
                facts.settle(SETTLE_S, self.cancelled, self.scratch, ssh_host.ticks)
            arguments, timeout_s = timing.arguments(scenario), timing.study.plan.timeout_s
            command = native.command(Path(there), arguments, leased)
            keep_command(folder, process.quote(command) + "\n")
            self.used.add(before.boot_id or "")
            results.note_boot(folder, before.boot_id or "")
            ssh_host.at(Stage.RUNNING)
            text, status = ssh_host.ran(command, timeout_s)
            (folder / "workload.txt").write_text(text)
            if status == _TIMED_OUT:
                raise GuestError(f"{load.name} did not end within {timeout_s:.0f} s")
            permitted = ssh_host.remote.get("id -u").strip() == "0"
            ran = Ran(printed=text, status=status, permitted=permitted)
            ssh_host.at(Stage.READING)
            machine = facts.since(before, leased, ssh_host.facts(leased))
            return replace(
                timed_on(machine, ran, load, scenario), kernel=host_kernel(reference, before)
            )

        try:
            result = framed(
                folder, timed, kernel=host_kernel(reference, HostFacts()), fresh_boot=fresh
            )
            # A guest's fault, too, leaves a boot that is no longer fresh, and says which it was.
            host = seen[-1] if seen else HostFacts()
            ssh_host.at(Stage.KEEPING)
            return result if result.facts else replace(result, facts=MachineFacts(host=host))
        finally:
            ssh_host.told = lambda _stage: None
            self.assigned(trial.index, "")

    def _arrive(self, reference: str, *, fresh: bool) -> None:
        """Have the machine in the arm's kernel; fresh: in a boot that had no trial."""
        ssh_host = self.ssh_host
        running = ssh_host.reached()
        fits = reboot.match(reference, running.release)
        if fits and not (fresh and running.boot_id in self.used):
            return
        known = (running.release, *ssh_host.releases())
        try:
            release = running.release if fits else reboot.resolve(reference, known)
        except SpecError as error:
            action = f"{error.action}; or: kdelta host install {self.pool.pool} KERNEL"
            raise SpecError(error.cause, action=action) from error
        if self.failed[reference] >= _MOST_FAILED:
            cause = f"{release} did not come up {_MOST_FAILED} times, and is not tried again"
            raise BootError(cause)
        try:
            ssh_host.boot(release)
        except BootError:
            self.failed[reference] += 1
            raise
