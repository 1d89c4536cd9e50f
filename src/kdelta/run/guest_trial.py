# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest restored for a trial, and a scenario's program in it: what counting and tracing share.

The cache keeps a kernel's symbols and the plugin's file of events, by the SHA-256 of its image.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from kdelta import cache, guest, workload
from kdelta.arch import Arch
from kdelta.attribution import insns
from kdelta.attribution.symbols import Symbols, parse
from kdelta.errors import GuestError, InfraError
from kdelta.files import digest_of
from kdelta.guests import checkpoint, qemu
from kdelta.guests.orders import FIRST_SEED, Order, Seed, SwapBacking, swap_backing
from kdelta.guests.session import Guest, RestoreError
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import GuestIdentity
from kdelta.run.trial import Measured, Ran, judged, keep_command, read_back
from kdelta.sample import MachineFacts, TrialResult

_STARTS, _NAMES = "starts", "names"
_OUT_OF_MEMORY = "Out of memory: Killed process"  # of the console
_MOST_KEPT = 12  # kernels whose symbols a process keeps, each of some 7 MB
_FORMAT = 7  # of what is kept: it changes when the same text gives other functions


def events_file(
    image: str, load: Callable[[], Symbols], architecture: Arch, *, every_task: bool = False
) -> Path:
    """The plugin's file events= for an image, by SHA-256.  every_task: of other tasks, too."""
    told = dataclasses.replace(architecture, new_tasks=()) if every_task else architecture
    key = cache.digest("named", image, repr(told))

    def make(folder: Path) -> None:
        (folder / "events").write_text(insns.events(load(), told))

    return cache.entry("events", key, make) / "events"


def load_symbols(image: str, fetch: Callable[[], str]) -> Symbols:
    """Symbols of the image with this SHA-256, from the cache or else of `fetch`, which returns the
    text of /proc/kallsyms.  Raises GuestError when that is unusable.
    """

    def make(folder: Path) -> None:
        found = parse(fetch())
        (folder / _STARTS).write_bytes(array("Q", found.starts).tobytes())
        (folder / _NAMES).write_text("\n".join(found.names))

    folder = cache.entry("symbols", f"{image}-{_FORMAT}", make)
    return _kept(folder, (folder / _NAMES).stat().st_ctime_ns)


@lru_cache(maxsize=_MOST_KEPT)
def _kept(folder: Path, _written_ns: int) -> Symbols:
    starts = array("Q", (folder / _STARTS).read_bytes())
    names = (folder / _NAMES).read_text().split("\n")
    if len(names) != len(starts):
        cause = "the cached symbols are damaged"
        raise InfraError(cause, place=str(folder), action="kdelta cache clear symbols")
    return Symbols(starts, names)


_T = TypeVar("_T")
_KALLSYMS = Order("kallsyms")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all trials of a run share.  timeout_s: of the boot and of the workload.  again: count
    what was counted before.  probes: beside counts.  first: orders that come before all others.
    """

    emulator: qemu.Qemu
    settings: MachineSettings
    fresh_boot: bool
    timeout_s: float
    cancelled: threading.Event
    seed: Seed = FIRST_SEED
    again: bool = False
    probes: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


class _DamagedError(Exception):
    """The checkpoint that was restored is not what was saved."""


class RestoredGuest:
    """The guest of one kernel on one bench."""

    def __init__(self, bench: Bench, kernel: Kernel) -> None:
        self._bench, self._kernel = bench, kernel
        self._machine = bench.emulator, bench.settings, kernel.image, bench.seed.boot
        self._bounds: dict[str, Any] = {"timeout": bench.timeout_s, "cancelled": bench.cancelled}

    def used(
        self, run: Callable[[checkpoint.Checkpoint], _T], *, disk: bool = False
    ) -> tuple[checkpoint.Checkpoint, _T]:
        """Use the guest's checkpoint; again when it is damaged or not taken.  disk: it has one."""
        if self._bench.fresh_boot and not disk:
            with checkpoint.lent(*self._machine, **self._bounds, fresh=True) as point:
                return point, run(point)
        with (
            contextlib.suppress(_DamagedError, RestoreError),
            checkpoint.lent(*self._machine, **self._bounds) as point,
        ):
            made = _made(point)
            try:
                return point, run(point)
            except (_DamagedError, RestoreError):
                if _made(point) == made:  # else another trial has made it again meanwhile
                    cache.discard(point.folder)
                raise
        with checkpoint.lent(*self._machine, **self._bounds) as point:
            return point, run(point)

    def is_whole(self, point: checkpoint.Checkpoint) -> bool:
        """True for a checkpoint that was made just now, and for one that is what was saved."""
        return self._bench.fresh_boot or cache.unchanged(point.folder)

    def check(self, point: checkpoint.Checkpoint) -> None:
        """End what `used` does with a checkpoint that is damaged; it is then done once more."""
        if not self.is_whole(point):
            raise _DamagedError

    def symbols(self, point: checkpoint.Checkpoint) -> Symbols:
        """The kernel's functions."""
        return load_symbols(digest_of(self._kernel.image), lambda: self._kallsyms(point))

    def _kallsyms(self, point: checkpoint.Checkpoint) -> str:
        bench = self._bench
        launch = qemu.Launch(
            image=self._kernel.image,
            initramfs=guest.initramfs(bench.settings.target, self._kernel.image),
            orders=(_KALLSYMS,),
            restore=point.folder,
        )
        with Guest(bench.emulator, bench.settings, launch, cancelled=bench.cancelled) as machine:
            return machine.finish(bench.timeout_s).text(_KALLSYMS.line)


def _made(point: checkpoint.Checkpoint) -> tuple[int, int]:
    """What tells a checkpoint from one that was made anew in its place; zeros when it is gone."""
    with contextlib.suppress(FileNotFoundError):
        facts = (point.folder / "state").stat()
        return facts.st_ino, facts.st_ctime_ns
    return 0, 0


class GuestTrial:
    """One trial of a scenario on a kernel; artifacts go into a folder."""

    def __init__(
        self, bench: Bench, kernel: Kernel, scenario: workload.Scenario, program: Path, folder: Path
    ) -> None:
        """program: the scenario's C source."""
        self._bench, self._kernel, self._scenario = bench, kernel, scenario
        self._guest = RestoredGuest(bench, kernel)
        self._workload = workload.load(scenario.workload)
        self._binary = guest.program(program, bench.settings.target, theirs=scenario.outside)
        self._folder = folder

    def _used(
        self, run: Callable[[checkpoint.Checkpoint, SwapBacking], _T]
    ) -> tuple[checkpoint.Checkpoint, _T]:
        with swap_backing(self._bench.settings, self._kernel, self._folder) as given:
            return self._guest.used(lambda point: run(point, given), disk=bool(given.disk))

    def _launched(
        self,
        point: checkpoint.Checkpoint,
        given: SwapBacking,
        orders: Sequence[Order],
        counting: qemu.CountingFiles | None = None,
    ) -> qemu.Launch:
        return qemu.Launch(
            image=self._kernel.image,
            initramfs=guest.initramfs(self._bench.settings.target, self._kernel.image),
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
        bench = self._bench
        with Guest(bench.emulator, bench.settings, launch, cancelled=bench.cancelled) as machine:
            # QEMU runs the guest meanwhile.
            keep_command(self._folder, machine.command_text, self._kernel.image)
            self._guest.check(point)
            try:
                return ask(machine)
            finally:
                (self._folder / "console.log").write_text(machine.console_text)

    def _judged(self, ran: Ran, identity: GuestIdentity, measured: Measured) -> TrialResult:
        try:
            found = judged(ran, self._workload, self._scenario, measured)
        except GuestError as error:
            if _OUT_OF_MEMORY in (self._folder / "console.log").read_text():
                raise type(error)(f"the guest's memory ran out: {error.cause}") from error
            raise
        return replace(
            found,
            kernel=read_back(self._kernel, identity),
            facts=MachineFacts(
                asked=self._bench.settings, guest=identity.seen, workload_exit=ran.status
            ),
        )
