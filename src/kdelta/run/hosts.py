# SPDX-License-Identifier: GPL-2.0-or-later
"""Timed trials on another machine, by ssh: kdelta boots each arm's kernel there, and gives the
machine back.

A run has one machine from its first trial to its last: RUN/placed.json keeps its pool's name.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kdelta import arch, guest, process, workload
from kdelta.errors import BootError, GuestError, InfraError, PoolError, SpecError
from kdelta.host import facts, native, reboot
from kdelta.host.remote import connection
from kdelta.host.ssh_host import SshHost, Stage
from kdelta.journal import files, results
from kdelta.journal.run import RunJournal
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.printable import printable
from kdelta.run.runner import AS_PLANNED, How, Trials
from kdelta.run.timed import SETTLE_S, Timing, host_kernel, timed_on, timing_of
from kdelta.run.trial import Ran, framed, not_for
from kdelta.sample import HostFacts, Instrument, MachineFacts, Outcome, TrialRecord, TrialResult
from kdelta.study.pools import HostPool
from kdelta.study.spec import Replicate, Study, TimeMachine

_MOST_FAILED = 2  # boots of one kernel; it is not tried a third time
_TIMED_OUT = 124  # status of timeout(1)
_PLACED = "placed.json"


class _Placed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """RUN/placed.json: whose times the run has.  pool: by the name in lab.toml."""

    pool: str


class HostPoolTrials:
    """One machine of a pool, which has one trial at a time, under the kernels that it has.

    pool: its name in lab.toml.
    """

    def __init__(self, name: str, pool: HostPool, study: Study) -> None:
        """Raises SpecError for a study of other than host kernels, or a bad address."""
        if study.time.machine is not TimeMachine.HOST:
            raise SpecError(
                "a host of a pool times its own kernels, and this study wants KVM guests",
                action='set time.machine = "host", and kernels such as host:6.12',
            )
        self._cancelled = threading.Event()
        self._timing: Timing = timing_of(study, self._cancelled)
        self._per_boot = study.time.replicate is Replicate.BOOT
        self.pool = name
        self._settings = pool

    @contextmanager
    def placed(self, journal: RunJournal, assigned: Callable[[int, str], None]) -> Iterator[Trials]:
        """What measures the trials, while the run is executed.

        The machine is held meanwhile, and given back when every trial has ended.  assigned: gets
        which machine has a trial, "" when none has.
        """
        record = journal.record()
        references = tuple(arm.kernel.reference for arm in record.arms)
        ended = [(trial.arm, trial.result) for trial in record.trials if trial.result]
        with ExitStack() as stack:
            ssh_host = stack.enter_context(self._reached())
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kdelta-host-"))
            held = ssh_host.take(record.run_id, record.created)
            yield _OnHost(
                cancelled=self._cancelled,
                pool=self.pool,
                ssh_host=ssh_host,
                timing=self._timing,
                per_boot=self._per_boot,
                references=references,
                scratch=Path(folder),
                assigned=assigned,
                used={
                    *results.boots(journal.folder),
                    *(result.facts.boot_id for _, result in ended if result.facts),
                },
                failed=Counter(
                    {
                        references[arm]: _MOST_FAILED
                        for arm, result in ended
                        if result.outcome is Outcome.BOOT_ERROR
                    }
                ),
            )
            ssh_host.give_back(held)

    def give_back(self, run: str) -> None:
        """Let go what is still held for a run whose trials have all ended.  Raises InfraError."""
        with self._reached() as ssh_host:
            ssh_host.reached()
            if (held := ssh_host.holder()) and held.run == run:
                ssh_host.give_back(held)

    def refusal(self, run: str) -> str:
        """Why a run cannot begin there now, "" when it can."""
        try:
            with self._reached() as ssh_host:
                ssh_host.running()
                held = ssh_host.holder()
        except InfraError as error:
            return error.cause
        busy = held is not None and held.run != run
        return f"held by the run {printable(held.run, 80)}" if held and busy else ""

    @contextmanager
    def _reached(self) -> Iterator[SshHost]:
        pool = self._settings
        with connection(self.pool, pool.address, self._cancelled, pool.ssh_config) as remote:
            yield SshHost(remote, boot_s=pool.boot_s, most_boots=pool.most_boots, reset=pool.reset)


@dataclass(frozen=True, slots=True)
class HostPools:
    """The machines that could time a run; one of them does, from its first trial to its last."""

    pools: tuple[HostPoolTrials, ...]

    @contextmanager
    def placed(self, journal: RunJournal, assigned: Callable[[int, str], None]) -> Iterator[Trials]:
        """See HostPoolTrials.  Raises PoolError when no machine is free."""
        chosen = self._chosen(journal)
        note(journal.folder, chosen.pool)
        with chosen.placed(journal, assigned) as measuring:
            yield measuring

    def give_back(self, journal: RunJournal) -> None:
        """See HostPoolTrials: for a run that was killed behind its last trial."""
        known = pool_of(journal.folder)
        for own in (each for each in self.pools if each.pool == known):
            own.give_back(journal.record().run_id)

    def _chosen(self, journal: RunJournal) -> HostPoolTrials:
        """The pool that the run began on; else the only one, else the first that is free."""
        known = pool_of(journal.folder)
        own = next((each for each in self.pools if each.pool == known), None)
        if known or len(self.pools) == 1:
            return own or self.pools[0]  # `note` refuses another one
        refusals = []
        for each in self.pools:
            if not (why := each.refusal(journal.record().run_id)):
                return each
            refusals.append(f"{each.pool}: {why}")
        raise PoolError(
            f"no pool is free: {'; '.join(refusals)}",
            action="wait for one, then: kdelta resume --on LAB.TOML",
        )


def pool_of(folder: Path) -> str:
    """The pool that a run is timed on, "" for this machine.  Raises StoreError."""
    known = files.read(folder / _PLACED, _Placed, action="remove it if no trial has ended")
    return known.pool if known else ""


def note(folder: Path, pool: str) -> None:
    """Keep on which pool a run is timed.  Raises SpecError when it was another one, or here.

    pool: "" for this machine.  Times of two machines in one run would be compared with each other.
    """
    known = pool_of(folder)
    if not known and pool and not any(folder.glob("trials/*/result.json")):
        files.write(folder / _PLACED, _Placed(pool))
    elif known != pool:
        had = f"the pool {printable(known, 60)}" if known else "this machine"
        raise SpecError(
            f"its times are of {had}",
            place=str(folder),
            action="go on with the same --on, or measure all of it again with: kdelta run --new",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnHost(Trials):
    """The trials of a run on the machine that it holds.

    used: boots that had a trial; failed: how often a kernel did not come up, by its reference.
    """

    cancelled: threading.Event
    pool: str
    ssh_host: SshHost
    timing: Timing
    per_boot: bool
    references: tuple[str, ...]
    scratch: Path
    assigned: Callable[[int, str], None]
    used: set[str | None]
    failed: Counter[str]

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        """Boot the arm's kernel where another one runs, and time the program under it."""
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        reference = self.references[trial.arm]
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        fresh = self.per_boot or how.fresh_boot
        self.ssh_host.told = lambda stage: self.assigned(trial.index, f"{self.pool}: {stage}")
        seen: list[HostFacts] = []

        def timed() -> TrialResult:
            self._arrive(reference, fresh=fresh)
            return self._timed(load, scenario, folder, reference, seen)

        try:
            result = framed(
                folder,
                timed,
                kernel=host_kernel(reference, HostFacts()),
                fresh_boot=fresh,
            )
            # A guest's fault, too, leaves a boot that is no longer fresh, and says which it was.
            host = seen[-1] if seen else HostFacts()
            self.ssh_host.at(Stage.KEEPING)
            return result if result.facts else replace(result, facts=MachineFacts(host=host))
        finally:
            self.ssh_host.told = lambda _stage: None
            self.assigned(trial.index, "")

    def _timed(
        self,
        load: workload.Workload,
        scenario: workload.Scenario,
        folder: Path,
        reference: str,
        seen: list[HostFacts],
    ) -> TrialResult:
        """Time the program in the boot that the machine is in; seen: gets what it is."""
        ssh_host, timing = self.ssh_host, self.timing
        ssh_host.at(Stage.LOOKING)
        leased, before = ssh_host.chosen(with_needs(MachineSettings(), scenario.needs).cpus)
        seen.append(before)
        binary = guest.program(load.program, _target(before), theirs=scenario.outside)
        ssh_host.at(Stage.SENDING)
        there = ssh_host.send(binary)
        if self.per_boot:
            ssh_host.at(Stage.SETTLING)
            facts.settle(SETTLE_S, self.cancelled, self.scratch, ssh_host.ticks)
        arguments = scenario.arguments(iterations=timing.iterations, warmup=timing.warmup)
        command = native.command(Path(there), arguments, leased)
        (folder / "command.txt").write_text(process.quote(command) + "\n")
        self.used.add(before.boot_id or "")
        results.note_boot(folder, before.boot_id or "")
        ssh_host.at(Stage.RUNNING)
        text, status = ssh_host.ran(command, timing.timeout_s)
        (folder / "workload.txt").write_text(text)
        if status == _TIMED_OUT:
            raise GuestError(f"{load.name} did not end within {timing.timeout_s:.0f} s")
        ran = Ran(printed=text, status=status, permitted=ssh_host.is_root())
        ssh_host.at(Stage.READING)
        machine = facts.since(before, leased, ssh_host.facts(leased))
        return replace(
            timed_on(machine, ran, load, scenario), kernel=host_kernel(reference, before)
        )

    def _arrive(self, reference: str, *, fresh: bool) -> None:
        """Have the machine in the arm's kernel; fresh: in a boot that had no trial."""
        ssh_host = self.ssh_host
        running = ssh_host.reached()
        fits = reboot.match(reference, running.release)
        if fits and not (fresh and running.boot_id in self.used):
            return
        known = (running.release, *ssh_host.releases())
        release = running.release if fits else self._installed(reference, known)
        if self.failed[reference] >= _MOST_FAILED:
            raise BootError(
                f"{release} did not come up {_MOST_FAILED} times, and is not tried again"
            )
        try:
            ssh_host.boot(release)
        except BootError:
            self.failed[reference] += 1
            raise

    def _installed(self, reference: str, known: Sequence[str]) -> str:
        """The machine's kernel that is meant.  Raises SpecError that says how it gets one."""
        try:
            return reboot.resolve(reference, known)
        except SpecError as error:
            action = f"{error.action}; or: kdelta host install {self.pool} KERNEL"
            raise SpecError(error.cause, action=action) from error


def _target(host: HostFacts) -> arch.Arch:
    """What a program has to be built for.  Raises InfraError for what kdelta builds nothing for."""
    found = next((each for each in arch.ARCHES.values() if each.uname == host.machine), None)
    if found is None:
        kind = printable(host.machine or "no known kind", 40)
        raise InfraError(f"kdelta builds no programs for a machine of {kind}")
    return found
