# SPDX-License-Identifier: GPL-2.0-or-later
"""A scenario's program in a restored guest: what counting and tracing it have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from kdelta import guest, workload
from kdelta.guests import checkpoint, qemu, swap
from kdelta.guests.orders import Order
from kdelta.guests.session import Guest
from kdelta.kernels.kernel import Kernel
from kdelta.machine.identity import GuestIdentity
from kdelta.run.restoring import Bench, RestoredGuest
from kdelta.run.trial import Measured, Ran, judged, read_back
from kdelta.sample import MachineFacts, TrialResult

_T = TypeVar("_T")


class GuestTrial:
    """One trial of a scenario on a kernel; artifacts go into a folder."""

    def __init__(
        self,
        bench: Bench,
        kernel: Kernel,
        scenario: workload.Scenario,
        program: Path,
        folder: Path,
    ) -> None:
        """program: the scenario's C source."""
        self._bench = bench
        self._kernel = kernel
        self._guest = RestoredGuest(bench, kernel)
        self._scenario = scenario
        self._workload = workload.load(scenario.workload)
        self._binary = guest.program(program, bench.settings.target, theirs=scenario.outside)
        self._folder = folder

    def _used(
        self, run: Callable[[checkpoint.Checkpoint, swap.Backing], _T]
    ) -> tuple[checkpoint.Checkpoint, _T]:
        """Run it; once more when the checkpoint is damaged or QEMU does not take it."""
        with swap.backing(self._bench.settings, self._kernel, self._folder) as given:
            ran = partial(_given, run, given)
            return self._guest.used(ran, disk=bool(given.disk))

    def _launched(
        self,
        point: checkpoint.Checkpoint,
        given: swap.Backing,
        orders: Sequence[Order],
        counting: qemu.CountingFiles | None = None,
    ) -> qemu.Launch:
        """How its guest is started."""
        return qemu.Launch(
            image=self._kernel.image,
            initramfs=guest.initramfs(self._bench.settings.target),
            orders=tuple(orders),
            program=self._binary,
            modules=given.modules,
            disk=given.disk,
            counting=counting,
            restore=None if given.disk else point.folder,
        )

    def _asked(
        self, point: checkpoint.Checkpoint, launch: qemu.Launch, ask: Callable[[Guest], _T]
    ) -> _T:
        """Start its guest and ask it, while the checkpoint is looked at.  Raises GuestFault."""
        bench = self._bench
        with Guest(bench.emulator, bench.settings, launch, cancelled=bench.cancelled) as machine:
            # QEMU runs the guest meanwhile.
            (self._folder / "command.txt").write_text(machine.command_text)
            self._guest.check(point)
            try:
                return ask(machine)
            finally:
                (self._folder / "console.log").write_text(machine.console_text)

    def _judged(self, ran: Ran, identity: GuestIdentity, measured: Measured) -> TrialResult:
        """What it amounts to, with what its guest says of itself."""
        return replace(
            judged(ran, self._workload, self._scenario, measured),
            kernel=read_back(self._kernel, identity),
            facts=MachineFacts(
                asked=self._bench.settings, guest=identity.seen, workload_exit=ran.status
            ),
        )


def _given(
    run: Callable[[checkpoint.Checkpoint, swap.Backing], _T],
    given: swap.Backing,
    point: checkpoint.Checkpoint,
) -> _T:
    return run(point, given)
