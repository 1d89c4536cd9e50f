# SPDX-License-Identifier: GPL-2.0-or-later
"""What boot tests measure with: real kernels and real QEMUs out of this user's cache."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache as remember
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from kdelta import arch, cache, guest, process, workload
from kdelta.attribution import insns, symbols
from kdelta.files import digest_of
from kdelta.guests import checkpoint, orders, qemu
from kdelta.guests.checkpoint import Checkpoint
from kdelta.guests.orders import Answers, Order
from kdelta.guests.session import Guest
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.probes.calls import Functions
from kdelta.probes.calls import functions as followed_functions
from kdelta.run import guest_trial
from kdelta.run.counting import run_trial
from kdelta.sample import FunctionCount, Outcome, TrialResult

ARCH = arch.of("amd64")
PROGRAMS = Path(__file__).parents[1] / "data" / "programs"
TIMEOUT_S = 120.0

# Debian suites that have a QEMU of the pinned series, of different versions.
_SUITES = ("trixie", "trixie-security")


@remember
def emulator() -> qemu.Qemu:
    """The QEMU that counts; fetched when it is not here."""
    return qemu.for_counting(ARCH)


@remember
def other_emulator() -> qemu.Qemu:
    """Another version that can count."""
    own = emulator().version
    here = (one for one in qemu.find(ARCH) if qemu.counts(one))
    fetched = (qemu.fetch_qemu(suite, ARCH.debian) for suite in _SUITES)
    return next(one for one in itertools.chain(here, fetched) if one.version != own)


@remember
def kernel(name: str) -> Kernel:
    """A kernel of the archive, fetched when it is not in the cache."""
    return reference.resolve(name)


def run_scenario(
    machine: Machine,
    reference: str,
    folder: Path,
    program: Path | None = None,
    *,
    kernel: Kernel | None = None,
    **settings: Any,
) -> TrialResult:
    """A trial of a scenario.

    program: a C file in place of the workload's own; kernel: in place of the machine's; settings:
    of the machine, replaced.
    """
    load, scenario = workload.parse_reference(reference)
    bench = machine.bench()
    bench = replace(bench, settings=structs.replace(bench.settings, **settings))
    source = program or load.program
    return run_trial(bench, kernel or machine.kernel, scenario, source, folder / "0000")


def facts(result: TrialResult, when: str) -> dict[str, str]:
    """What was stated of the page state: before, during or after the windows."""
    return {field.name: field.value for field in result.state if field.when == when}


def betrayed(
    machine: Machine,
    reference: str,
    honest: str,
    broken: str,
    *facts: str,
    folder: Path,
    **settings: Any,
) -> None:
    """Fail unless a scenario is INVALID for these facts when its program breaks its promise.

    honest, broken: text of the program, which occurs once, and what replaces it.
    """
    load, _ = workload.parse_reference(reference)
    source = load.program.read_text()
    assert source.count(honest) == 1
    path = folder / load.program.name
    path.write_text(source.replace(honest, broken))
    result = run_scenario(machine, reference, folder, path, **settings)
    assert result.outcome is Outcome.INVALID
    for fact in facts:
        assert fact in result.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one run of a program showed."""

    counts: insns.Counts
    table: symbols.Symbols
    printed: str
    status: int

    @property
    def windows(self) -> tuple[insns.CountedWindow, ...]:
        """All windows."""
        return self.counts.windows

    def user(self) -> list[int]:
        """User instructions of each window."""
        return [window.user for window in self.windows]

    def calls(self, window: insns.CountedWindow, function: str) -> int:
        """How often a function was entered."""
        return sum(row.calls for row in self._rows(window) if row.function == function)

    def instructions(self, window: insns.CountedWindow, function: str) -> int:
        """Instructions in a function."""
        return sum(row.insns for row in self._rows(window) if row.function == function)

    def holder(self, address: int) -> str:
        """The function that holds an address."""
        return self.table.find(address)[0]

    def _rows(self, window: insns.CountedWindow) -> tuple[FunctionCount, ...]:
        return insns.by_function(window, self.table, "any")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One kernel on one QEMU."""

    emulator: qemu.Qemu
    kernel: Kernel
    settings: MachineSettings

    def bench(self, *, fresh: bool = False, timeout_s: float = TIMEOUT_S) -> guest_trial.Bench:
        """The machine as trials take it."""
        return guest_trial.Bench(
            emulator=self.emulator, settings=self.settings, fresh_boot=fresh, timeout_s=timeout_s,
            cancelled=threading.Event(),
        )  # fmt: skip

    def checkpoint(self, **given: Any) -> checkpoint.Checkpoint:
        """The guest to restore."""
        guest, bounds = (self.emulator, self.settings, self.kernel.image), {"timeout": TIMEOUT_S}
        with checkpoint.lent(*guest, **(bounds | given)) as found:
            cache.keep(found.folder)
            return found

    def count(
        self, source: Path, *arguments: object, fresh: bool = False, told: int = 0
    ) -> Counted:
        """Run a program that arms the plugin, in a guest from the cache or from a fresh boot.

        told: how many windows the plugin is told to expect, 0: it is not.
        """
        if told:
            return self._count(self.checkpoint(), source, arguments, None, {"windows": told})
        if not fresh:
            return self._count(self.checkpoint(), source, arguments)
        machine = self.emulator, self.settings, self.kernel.image
        with checkpoint.lent(*machine, timeout=TIMEOUT_S, fresh=True) as point:
            return self._count(point, source, arguments)

    def functions(self) -> symbols.Symbols:
        """The functions of the kernel."""
        return self._functions(self.checkpoint())

    def answers(self, *told: Order, **launch: Any) -> Answers:
        """What a restored guest answers to orders; launch: as in Launch."""
        return self._answers(self.checkpoint(), told, **launch)

    def _functions(self, point: Checkpoint) -> symbols.Symbols:
        order = Order("kallsyms")
        image = digest_of(self.kernel.image)
        return guest_trial.load_symbols(
            image, lambda: self._answers(point, (order,)).text(order.line)
        )

    def _answers(self, point: Checkpoint, told: tuple[Order, ...], **launch: Any) -> Answers:
        wanted = qemu.Launch(
            image=self.kernel.image, initramfs=guest.initramfs(self.settings.target), orders=told,
            restore=point.folder, **launch,
        )  # fmt: skip
        with Guest(self.emulator, self.settings, wanted) as booted:
            return booted.finish(TIMEOUT_S)

    def followed(
        self, source: Path, *arguments: object, probes: dict[str, Any] | None = None
    ) -> tuple[Counted, Functions]:
        """Run a program as `count` does, with its call paths or other probes; and its functions."""
        point = self.checkpoint()
        binary = guest.program(source, self.settings.target).read_bytes()
        functions = followed_functions(self._functions(point), binary)
        return self._count(point, source, arguments, functions, probes), functions

    def _count(
        self,
        point: Checkpoint,
        source: Path,
        arguments: tuple[object, ...],
        functions: Functions | None = None,
        probes: dict[str, Any] | None = None,
    ) -> Counted:
        table = self._functions(point)
        with tempfile.TemporaryDirectory(prefix="kdelta-boot-") as name:
            listed = Path(name, "functions")
            counting = qemu.CountingFiles(
                output=Path(name, "counts"),
                events=Path(name, "events"),
                functions=listed if functions else None,
                **(probes or {"calls": functions is not None}),
            )
            counting.events.write_text(insns.events(table, self.settings.target))
            if functions:
                functions.write(listed)
            told = (orders.run([str(word) for word in arguments]),)
            binary = guest.program(source, self.settings.target)
            answers = self._answers(point, told, program=binary, counting=counting)
            counts = insns.read(counting.output)
        printed, status = answers.ran()
        assert counts.armed
        assert not counts.errors, counts.errors
        return Counted(counts=counts, table=table, printed=printed, status=status)

    def oracle(self, what: str, n: int, windows: int, *, fresh: bool = False) -> Counted:
        """Run tests/data/programs/oracle.c."""
        counted = self.count(PROGRAMS / "oracle.c", what, n, windows, fresh=fresh)
        assert counted.status == 0, counted.printed
        assert len(counted.windows) == windows
        return counted


def machine(name: str, *, cpus: int = 1, cmdline: str = "") -> Machine:
    """A machine of the pinned QEMU that boots a kernel."""
    return Machine(
        emulator=emulator(),
        kernel=kernel(name),
        settings=MachineSettings(cpus=cpus, cmdline=cmdline),
    )


@remember
def of_arch(name: str, target: str) -> Machine:
    """A machine of another architecture; skips the test where its programs cannot be compiled."""
    architecture = arch.of(target)
    if process.which(arch.compiler(architecture)) is None:
        pytest.skip(f"{arch.compiler(architecture)} is not installed: tools/prepare test")
    return Machine(
        emulator=qemu.for_counting(architecture),
        kernel=reference.resolve(name, target),
        settings=MachineSettings(arch=target),
    )


def by_address(window: insns.CountedWindow) -> Counter[int]:
    """Instructions of a window by address."""
    total: Counter[int] = Counter()
    for addresses, count in window.groups():
        for address in addresses:
            total[address] += count
    return total
