# SPDX-License-Identifier: GPL-2.0-or-later
"""Timed trials on another machine, by ssh: sent into each arm's kernel, and given back."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec.structs import replace

from kdelta import arch, guest, process, workload
from kdelta.errors import BootError, GuestError, InfraError, SpecError
from kdelta.host import cpus, native, preflight, reboot
from kdelta.host.errand import Errand
from kdelta.host.remote import connection
from kdelta.journal.run import RunJournal
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.printable import printable
from kdelta.run.elsewhere import PlacedTrials
from kdelta.run.timed import SETTLE_S, Timing, host_kernel, timed_on, timing_of
from kdelta.run.trial import Ran, framed, not_for
from kdelta.run.trials import AS_PLANNED, How
from kdelta.sample import HostFacts, Instrument, MachineFacts, Outcome, TrialRecord, TrialResult
from kdelta.study.pools import HostPool
from kdelta.study.spec import Replicate, Study, TimeMachine

_MOST_FAILED = 2  # boots of one kernel; it is not tried a third time
_TIMED_OUT = 124  # status of timeout(1)


class HostedTrials(PlacedTrials):
    """Trials on one machine, one at a time, under the kernels that it has."""

    def __init__(self, name: str, pool: HostPool, study: Study) -> None:
        """Raises SpecError for a study of other than host kernels, or a bad address."""
        if study.time.machine is not TimeMachine.HOST:
            raise SpecError(
                "a host of a pool times its own kernels, and this study wants KVM guests",
                action='set time.machine = "host", and kernels such as host:6.12',
            )
        self.cancelled = threading.Event()
        self._timing: Timing = timing_of(study, self.cancelled)
        self._per_boot = study.time.replicate is Replicate.BOOT
        self.pool = name
        self._settings = pool
        self._failed: Counter[str] = Counter()

    @contextmanager
    def placed(self, journal: RunJournal, doing: Callable[[int, str], None]) -> Iterator[None]:
        """Hold the machine; it is given back when every trial has ended."""
        record = journal.record()
        self._doing = doing
        self._references = [arm.kernel.reference for arm in record.arms]
        ended = [(trial.arm, trial.result) for trial in record.trials if trial.result]
        self._used = {result.facts.boot_id for _, result in ended if result.facts}
        for arm, result in ended:
            if result.outcome is Outcome.BOOT_ERROR:
                self._failed[self._references[arm]] = _MOST_FAILED
        pool = self._settings
        with ExitStack() as stack:
            remote = stack.enter_context(
                connection(self.pool, pool.address, self.cancelled, pool.ssh_config)
            )
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kdelta-host-"))
            self._scratch = Path(folder)
            self._errand = Errand(remote, boot_s=pool.boot_s, most_boots=pool.most_boots)
            held = self._errand.take(record.run_id, record.created)
            yield
            self._errand.give_back(held)

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        """Boot the arm's kernel where another one runs, and time the program under it."""
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        reference = self._references[trial.arm]
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        fresh = self._per_boot or how.fresh_boot
        self._doing(trial.index, self.pool)
        self._before = HostFacts()
        try:
            result = framed(
                folder,
                lambda: self._timed(load, scenario, folder, reference, fresh=fresh),
                kernel=host_kernel(reference, HostFacts()),
                fresh_boot=fresh,
            )
            # A guest's fault, too, leaves a boot that is no longer fresh, and says which it was.
            return (
                result if result.facts else replace(result, facts=MachineFacts(host=self._before))
            )
        finally:
            self._doing(trial.index, "")

    def _timed(
        self,
        load: workload.Workload,
        scenario: workload.Scenario,
        folder: Path,
        reference: str,
        *,
        fresh: bool,
    ) -> TrialResult:
        self._arrive(reference, fresh=fresh)
        errand, timing = self._errand, self._timing
        cores = errand.cores()
        count = min(with_needs(MachineSettings(), scenario.needs).cpus, len(cores))
        leased = [core.cpu for core in cpus.eligible(cores, count)[:count]]
        before = self._before = errand.facts(leased)
        binary = guest.program(load.program, _target(before), theirs=scenario.outside)
        there = errand.send(binary)
        if self._per_boot:
            preflight.settle(SETTLE_S, self.cancelled, self._scratch, errand.ticks)
        arguments = scenario.arguments(iterations=timing.iterations, warmup=timing.warmup)
        command = native.command(Path(there), arguments, leased)
        (folder / "command.txt").write_text(process.quote(command) + "\n")
        self._used.add(before.boot_id or "")
        text, status = errand.ran(command, timing.timeout_s)
        (folder / "workload.txt").write_text(text)
        if status == _TIMED_OUT:
            raise GuestError(f"{load.name} did not end within {timing.timeout_s:.0f} s")
        ran = Ran(printed=text, status=status, permitted=errand.is_root())
        machine = preflight.since(before, leased, errand.facts(leased))
        return replace(
            timed_on(machine, ran, load, scenario), kernel=host_kernel(reference, before)
        )

    def _arrive(self, reference: str, *, fresh: bool) -> None:
        """Have the machine in the arm's kernel; fresh: in a boot that had no trial."""
        errand = self._errand
        running = errand.reached()
        fits = reboot.match(reference, running.release)
        if fits and not (fresh and running.boot_id in self._used):
            return
        known = (running.release, *errand.releases())
        release = running.release if fits else reboot.resolve(reference, known)
        if self._failed[reference] >= _MOST_FAILED:
            raise BootError(
                f"{release} did not come up {_MOST_FAILED} times, and is not tried again"
            )
        try:
            errand.boot(release)
        except BootError:
            self._failed[reference] += 1
            raise


def _target(host: HostFacts) -> arch.Arch:
    """What a program has to be built for.  Raises InfraError for what kdelta builds nothing for."""
    found = next((each for each in arch.ARCHES.values() if each.uname == host.machine), None)
    if found is None:
        kind = printable(host.machine or "no known kind", 40)
        raise InfraError(f"kdelta builds no programs for a machine of {kind}")
    return found
